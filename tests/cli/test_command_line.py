"""The dispatcher: quick, polite, and with the right exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from maya import cli
from maya.errors import MayaError, UsageError


def maya(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "maya.cli", *words], capture_output=True, text=True, check=False, **options
    )


def test_help_is_quick_and_names_every_command() -> None:
    shown = maya("--help")
    assert shown.returncode == 0
    for name in cli.COMMANDS:
        assert f"  {name}" in shown.stdout
    imported = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "maya.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    for heavy in ("numpy", "torch", "rich", "psutil", "maya.pipeline", "maya.kernel_models"):
        assert f" {heavy}\n" not in imported


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    shown = maya(name, "--help")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("usage: maya")


def test_version() -> None:
    assert maya("--version").stdout.startswith("maya ")


def test_nothing_prints_help() -> None:
    assert "commands:" in maya().stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rnu"], "did you mean `maya run`?"),
        (["train.py"], "did you mean `maya run train.py`?"),
        (["run"], "no script to run"),
        (["run", "--gpu"], "expected one argument"),
        (["run", "--steps", "0", "train.py"], "0 is less than 1"),
        (["run", "--steps", "two", "train.py"], "'two' is no whole number"),
        (["run", "--gpu-memory", "40 apples", "train.py"], "no amount of memory"),
        (["run", "--timeout", "-3", "train.py"], "not a positive number"),
        (["run", "--nproc-per-node", "17", "train.py"], "runs at most 16"),
        (["run", "--nproc-per-node", "0", "train.py"], "is no number of ranks"),
        (["run", "--nnodes", "two", "train.py"], "is no number of nodes"),
        (["run", "--nproc-per-node", "2", "train.py"], "there is no script train.py"),
        (["run", "nowhere.py"], "there is no script nowhere.py"),
        (["run", "--", "torchrun", "train.py"], "there is no script train.py"),
        (["run", "--", "torchrun", "--nproc-pre-node", "2", "train.py"], "torchrun: unrecognized"),
        (
            ["run", "--nproc-per-node", "2", "--", "torchrun", "train.py"],
            "given to `maya run` and to torchrun",
        ),
        (["run", "--", "accelerate", "launch", "train.py"], "is not a launcher that Maya follows"),
        (["run", "-q", "-v", "train.py"], "not allowed with argument"),
        (["report", "nowhere.maya"], "not a run of Maya's"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(tmp_path: Path, words: list[str], expected: str) -> None:
    shown = maya(*words, cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert expected in shown.stderr
    lines = shown.stderr.splitlines()
    assert lines[0].startswith("maya: error: ")
    assert all(line.startswith(("maya: error: ", "maya: hint: ")) for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_gpu_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    shown = maya("run", "--gpu", "H100-SMX5", "train.py", cwd=tmp_path)
    assert shown.returncode == 2
    assert "H100" in shown.stderr
    assert shown.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


class _Broken:
    """A command that raises what it is told to."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def configure(self, parser: object) -> None:
        parser.add_argument("-v", dest="verbose", action="count", default=0)  # type: ignore[attr-defined]

    def run(self, _options: object) -> int:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (MayaError("no luck", hint="try again"), 1, "maya: error: no luck\nmaya: hint: try again\n"),
        (UsageError("no sense"), 2, "maya: error: no sense\n"),
        (KeyboardInterrupt(), 130, "maya: interrupted\n"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_errors_become_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception, code: int, text: str
) -> None:
    monkeypatch.setattr(cli, "import_module", lambda _: _Broken(error))
    saved = os.dup(1)
    try:
        assert cli.main(["run"]) == code
    finally:
        os.dup2(saved, 1)
        os.close(saved)
    assert capfd.readouterr().err == text


def test_a_fault_of_ours_shows_its_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "import_module", lambda _: _Broken(KeyError("lost")))
    assert cli.main(["run"]) == 1
    short = capfd.readouterr().err
    assert "KeyError: 'lost'" in short
    assert "-vv" in short
    assert "Traceback" not in short
    assert cli.main(["run", "-vv"]) == 1
    assert "Traceback" in capfd.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    shown = subprocess.run(
        f"{sys.executable} -m maya.cli gpus --json | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stderr == ""
    assert shown.returncode in (0, 141)
