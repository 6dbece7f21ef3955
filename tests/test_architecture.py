"""The house keeps its shape: imports go one way, files stay small, what the README says exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("emulator", "traces", "kernel_models", "simulator")
LINE_LIMIT = 400
SOURCE_FOLDERS = ("maya", *ROOMS, "tests", "benchmarks", "examples")
SOURCE_ENDINGS = {".py", ".h", ".cpp", ".cc"}


def _copy_package(folder: Path) -> Path:
    """The package as real folders: import-linter follows neither links nor editable installs."""
    return Path(
        shutil.copytree(
            ROOT / ".typecheck" / "maya",
            folder / "maya",
            ignore=shutil.ignore_patterns("__pycache__", "csrc"),
        )
    )


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from importlinter.cli import lint_imports\n"
        "sys.exit(lint_imports(sys.argv[1], cache_dir=None))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "pyproject.toml")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_imports_go_one_way(tmp_path: Path) -> None:
    _copy_package(tmp_path)
    done = _lint(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("simulator", "import maya.kernel_models"),
        ("traces", "import maya.simulator"),
        ("hardware", "from maya import traces"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, room: str, line: str) -> None:
    (_copy_package(tmp_path) / room / "wrong.py").write_text(line + "\n")
    done = _lint(tmp_path)
    assert done.returncode != 0
    assert "0 kept, 1 broken" in done.stdout


def test_the_links_for_type_checkers_agree_with_the_packages() -> None:
    expected = {path.name: path for path in (ROOT / "maya").iterdir()}
    expected |= {room: ROOT / room for room in ROOMS}
    expected.pop("__pycache__", None)
    links = {path.name: path for path in (ROOT / ".typecheck" / "maya").iterdir()}
    links.pop("__pycache__", None)
    assert sorted(links) == sorted(expected)
    for name, link in links.items():
        assert link.is_symlink(), f"{link} is not a link"
        assert not Path(os.readlink(link)).is_absolute(), f"{link} is not relative"
        assert link.resolve() == expected[name].resolve()


def test_no_file_grows_beyond_reading() -> None:
    lengths = {
        path.relative_to(ROOT): len(path.read_text().splitlines())
        for folder in SOURCE_FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SOURCE_ENDINGS
    }
    assert lengths
    too_long = {str(path): length for path, length in lengths.items() if length > LINE_LIMIT}
    assert too_long == {}


def test_every_package_has_a_door() -> None:
    for folder in ("maya", *ROOMS):
        for path in (ROOT / folder).rglob("*.py"):
            inside = path.parent
            while inside != ROOT:
                assert (inside / "__init__.py").exists(), f"{inside} has Python files but no __init__.py"
                inside = inside.parent


def test_the_command_line_imports_no_torch() -> None:
    """A rank's parent stays light, and `maya gpus` answers at once."""
    code = (
        "import sys, maya.cli, maya.cli.run, maya.cli.gpus, maya.cli.doctor, maya.cli.report\n"
        "print([name for name in ('torch', 'pandas', 'lightgbm') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def _commands_of(text: str) -> list[str]:
    """Command lines in a Markdown text's code blocks, comments left out."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    commands = [line.partition(" #")[0].strip() for line in lines]
    return [line for line in commands if line.startswith(("make ", "maya ", "python ", "pip "))]


def test_the_commands_of_the_readme_exist() -> None:
    from maya.cli import COMMANDS

    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = _commands_of((ROOT / "README.md").read_text())
    assert {"make demo", "make test"} <= set(commands)
    for command in commands:
        words = [word for word in command.split() if not re.fullmatch(r"[A-Z_]+=\S*", word)]
        if words[0] == "make":
            assert set(words[1:]) <= targets, f"{command!r} in README.md"
        if words[0] == "maya" and len(words) > 1 and not words[1].startswith("-"):
            assert words[1] in COMMANDS, f"{command!r} in README.md"
        for word in words:
            if word.startswith(("examples/", "benchmarks/", "docs/")):
                assert (ROOT / word).exists(), f"{word} of {command!r} in README.md"
