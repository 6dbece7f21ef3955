"""The tutorial's commands work, in its order, and print lines of the form it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXPECTED_CODE = re.compile(r"#\s*exits with (\d+)\s*$")
TIMEOUT_S = 400


@dataclass(frozen=True)
class Command:
    """One command of a block, the exit code it announces, and the lines the tutorial shows of its block."""

    text: str
    exit_code: int
    shown: tuple[str, ...]


def commands_of(markdown: str) -> list[Command]:
    """Commands in order; lines shown in a `text` block belong to the last command before it."""
    found: list[Command] = []
    for kind, body in BLOCK.findall(markdown):
        if kind == "text":
            last = found.pop()
            found.append(Command(last.text, last.exit_code, tuple(body.splitlines())))
            continue
        for text in _split(body):
            announced = EXPECTED_CODE.search(text)
            found.append(Command(text, int(announced[1]) if announced else 0, ()))
    return found


def _split(body: str) -> list[str]:
    """Lines of a shell block; a here-document stays with the command that it feeds."""
    commands: list[str] = []
    until = None
    for line in body.splitlines():
        if until is not None:
            commands[-1] += "\n" + line
            until = None if line == until else until
            continue
        commands.append(line)
        opened = re.search(r"<<'(\w+)'", line)
        until = opened[1] if opened else None
    return commands


def form_of(line: str) -> str:
    """A line with its numbers and units taken out, so that better models do not break the tutorial."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*%?( (GiB|MiB|ms|us|s)\b)?", "#", line)).strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


def run(command: Command, folder: Path) -> subprocess.CompletedProcess[str]:
    # `maya` and `python` of this environment, whichever the shell would find first.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command.text],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    "command", commands_of(TUTORIAL.read_text()), ids=lambda c: c.text[:60].splitlines()[0]
)
def test_command(command: Command, folder: Path) -> None:
    done = run(command, folder)
    assert done.returncode == command.exit_code, done.stdout + done.stderr
    assert "/emulator/script/" not in done.stderr, "a traceback shows frames of Maya's"
    printed = {form_of(line) for line in done.stdout.splitlines()}
    for line in command.shown:
        assert form_of(line) in printed, f"{line!r} is not among\n{done.stdout}"


def test_the_tutorial_has_commands_of_every_kind() -> None:
    commands = commands_of(TUTORIAL.read_text())
    assert len(commands) >= 12
    assert {command.exit_code for command in commands} == {0, 1}
    assert sum(bool(command.shown) for command in commands) >= 4


def test_a_here_document_stays_whole() -> None:
    (only,) = commands_of("```sh\ncat > a <<'EOF'\nx\ny\nEOF\n```\n")
    assert only.text == "cat > a <<'EOF'\nx\ny\nEOF"


def test_numbers_are_not_compared() -> None:
    assert form_of("  iteration  8.1 ms   (15%)") == form_of("  iteration 120 us (3.5%)")
    assert form_of("train.py on H100: ok") != form_of("train.py on H100: oom")
