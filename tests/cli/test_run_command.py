"""`maya run` from its options to its files, with a process that only pretends to run the script."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from maya import cli
from maya.pipeline import job
from maya.pipeline.supervise import supervise

PREAMBLE = f"""
import json, os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from conftest import SyntheticRun
spec = json.loads(Path(sys.argv[-1]).read_text())
run_dir = Path(spec["run_dir"])
"""

Run = Callable[..., int]


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `maya run OPTIONS train.py ARGS` with a rank process that executes the given source."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    def run(source: str, *words: str) -> int:
        child = tmp_path / "child.py"
        child.write_text(PREAMBLE + textwrap.dedent(source))
        replaced = partial(supervise, program=(sys.executable, str(child)))
        monkeypatch.setattr(job, "supervise", replaced)
        return cli.main(["run", *(words or ["train.py"])])

    return run


WRITE = "SyntheticRun().write(run_dir)"


def test_a_run_leaves_a_whole_folder_and_a_summary(
    pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert pretend(f"print('loss 1.0'); {WRITE}") == 0
    shown = capfd.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "loss 1.0"
    assert lines[1] == "train.py on H100-SXM5-80GB: ok"
    assert len(lines) - 1 <= 20
    assert "\x1b" not in shown.out
    files = {path.name for path in (tmp_path / "train.maya").iterdir()}
    expected = {
        "manifest.json",
        "rank-0.et",
        "rank-0.tables.json",
        "memory-0.npy",
        "assumptions.json",
        "prediction.json",
        "timeline.perfetto-trace",
        "durations-0.npz",
        "outcome-0.json",
    }
    assert expected <= files
    assert not any("spec" in name or "partial" in name or "stacks" in name for name in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child.py", "train.maya", "train.py"]


def test_json_goes_to_stdout_alone(pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert pretend(f"print('loss 1.0'); {WRITE}", "--json", "-o", "out.maya", "train.py") == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out) == json.loads((tmp_path / "out.maya" / "prediction.json").read_text())
    assert "loss 1.0" in shown.err


def test_quiet_says_nothing_of_ours(pretend: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert pretend(f"print('loss 1.0'); {WRITE}", "-q", "train.py") == 0
    shown = capfd.readouterr()
    assert shown.out == "loss 1.0\n"
    assert shown.err == ""


def test_options_after_the_script_are_the_scripts(pretend: Run, tmp_path: Path) -> None:
    source = f"""
    {WRITE}
    Path("program.json").write_text(json.dumps([spec["program"], spec["gpu"], spec["steps"]]))
    """
    words = ("--gpu", "a100-sxm4-80gb", "--steps", "5", "train.py", "--gpu", "-o", "x", "--", "-v", "--steps")
    assert pretend(source, *words) == 0
    program, gpu, steps = json.loads((tmp_path / "program.json").read_text())
    assert program == ["train.py", "--gpu", "-o", "x", "--", "-v", "--steps"]
    assert (gpu, steps) == ("A100-SXM4-80GB", 5)


def test_modules_are_named_like_python_does(pretend: Run, tmp_path: Path) -> None:
    source = f"{WRITE}; Path('program.json').write_text(json.dumps([spec['program'], spec['is_module']]))"
    assert pretend(source, "-q", "-m", "pkg.train", "--lr", "3") == 0
    assert json.loads((tmp_path / "program.json").read_text()) == [["pkg.train", "--lr", "3"], True]
    assert (tmp_path / "train.maya").is_dir()
    manifest = json.loads((tmp_path / "train.maya" / "manifest.json").read_text())
    assert manifest["command"] == ["-m", "pkg.train", "--lr", "3"]


def test_an_earlier_run_is_replaced_only_when_asked(
    pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert pretend(WRITE, "-q", "train.py") == 0
    (tmp_path / "train.maya" / "note").write_text("of the first run")
    assert pretend(WRITE, "-q", "train.py") == 2
    assert "exists already" in capfd.readouterr().err
    assert (tmp_path / "train.maya" / "note").exists()
    assert pretend(WRITE, "-q", "-f", "train.py") == 0
    assert not (tmp_path / "train.maya" / "note").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child.py", "train.maya", "train.py"]


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_not_ours_is_never_removed(
    pretend: Run, tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "train.maya"
    if kind == "folder":
        place.mkdir()
        (place / "thesis.txt").write_text("years of work")
    elif kind == "file":
        place.write_text("years of work")
    else:
        place.symlink_to("nowhere")
    assert pretend(WRITE, "-f", "train.py") == 2
    assert "not a run of Maya's" in capfd.readouterr().err
    assert os.path.lexists(place)


@pytest.mark.parametrize(
    ("outcome", "code", "verdict", "cause"),
    [
        ({"ended": "stopped"}, 0, "ok", None),
        ({"ended": "finished", "exit_code": 0}, 0, "ok", None),
        ({"ended": "exit", "exit_code": 3}, 3, "failed", "exited with code 3 after 4 iterations"),
        (
            {"ended": "exception", "exit_code": 1, "cause": {"type": "KeyError", "message": "'x'\n\ny"}},
            1,
            "failed",
            "KeyError: 'x' y after 4 iterations",
        ),
        ({"ended": "oom", "exit_code": 1, "oom": {"requested_bytes": 1024}}, 1, "oom", "out of memory"),
        (
            {"ended": "finished", "oom": {"requested_bytes": 1024, "module": "Net"}},
            0,
            "ok",
            "caught by the script: out of memory",
        ),
        ({"ended": "finished", "oom": {"requested_bytes": 1}, "iterations": 0}, 0, "oom", "out of memory"),
    ],
)
def test_exit_rules(
    pretend: Run, tmp_path: Path, outcome: dict[str, object], code: int, verdict: str, cause: str | None
) -> None:
    assert pretend(f"SyntheticRun(outcome={outcome!r}).write(run_dir)", "-q", "train.py") == code
    prediction = json.loads((tmp_path / "train.maya" / "prediction.json").read_text())
    manifest = json.loads((tmp_path / "train.maya" / "manifest.json").read_text())
    assert prediction["verdict"] == verdict
    assert (prediction["iteration_time_ms"] is None) == (verdict != "ok")
    if cause is None:
        assert prediction["cause"] is None
    else:
        assert cause in prediction["cause"]
        assert cause in manifest["cause"]


@pytest.mark.parametrize(
    ("source", "code", "text"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "ended by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "ended by SIGSEGV"),
        ("os._exit(5)", 5, "code 5"),
        ("os._exit(0)", 1, "code 0"),
    ],
)
def test_a_process_that_dies_is_told_and_leaves_nothing(
    pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], source: str, code: int, text: str
) -> None:
    assert pretend(source, "--json", "train.py") == code
    shown = capfd.readouterr()
    assert text in shown.err
    assert json.loads(shown.out)["verdict"] == "failed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child.py", "train.py"]


def test_a_timeout_is_told_and_leaves_nothing(
    pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        pretend("(run_dir / 'rank-0.et.rows.partial').touch(); time.sleep(60)", "--timeout", "1", "train.py")
        == 1
    )
    assert "timed out after 1 s" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child.py", "train.py"]


def test_a_failure_of_the_emulator_is_our_error(pretend: Run, capfd: pytest.CaptureFixture[str]) -> None:
    cause = {"type": "MayaError", "message": "no C++ compiler", "hint": "apt-get install g++"}
    outcome = {"ended": "internal_error", "exit_code": 1, "cause": cause}
    assert pretend(f"SyntheticRun(outcome={outcome!r}).write(run_dir)") == 1
    assert capfd.readouterr().err == "maya: error: no C++ compiler\nmaya: hint: apt-get install g++\n"


def test_leftovers_of_a_killed_run_are_cleared_away(pretend: Run, tmp_path: Path) -> None:
    import socket

    abandoned = tmp_path / "train.maya.partial-999999999"
    foreign = tmp_path / "train.maya.partial-999999998"
    for place, host in ((abandoned, socket.gethostname()), (foreign, "elsewhere")):
        place.mkdir()
        (place / "owner.json").write_text(json.dumps({"host": host, "pid": 999999999}))
    assert pretend(WRITE, "-q", "train.py") == 0
    assert not abandoned.exists()
    assert foreign.exists()


def test_a_damaged_trace_is_an_error_and_no_run(
    pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = f"""
    {WRITE}
    et = run_dir / "rank-0.et"
    et.write_bytes(et.read_bytes()[:-100])
    """
    assert pretend(source) == 1
    assert "rank-0.et" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child.py", "train.py"]


def test_report_gives_the_same_prediction_from_the_trace_files(
    pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert pretend(WRITE, "-q", "train.py") == 0
    run_dir = tmp_path / "train.maya"
    derived = ("prediction.json", "durations-0.npz", "timeline.perfetto-trace")
    before = {name: (run_dir / name).read_bytes() for name in derived}
    for name in derived:
        (run_dir / name).unlink()
    assert cli.main(["report", "train.maya", "--format", "json"]) == 0
    assert capfd.readouterr().out.encode() == before["prediction.json"]
    assert {name: (run_dir / name).read_bytes() for name in derived} == before
    assert cli.main(["report", "train.maya"]) == 0
    assert capfd.readouterr().out.startswith("train.py on H100-SXM5-80GB: ok\n")
    assert cli.main(["report", "train.maya", "--format", "perfetto", "-o", "t.trace"]) == 0
    assert (tmp_path / "t.trace").read_bytes() == before["timeline.perfetto-trace"]


def test_own_prices_replace_ours(pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    row = '[[price]]\ngpu = "H100"\nusd_per_gpu_hour = 1.5\nsource = "our contract"\ndate = 2026-11-01\n'
    (tmp_path / "prices.toml").write_text(row)
    assert pretend(WRITE, "--prices", "prices.toml", "train.py") == 0
    assert "$1.50/GPU-hour (our contract, 2026-11-01)" in capfd.readouterr().out
    (tmp_path / "prices.toml").unlink()
    assert cli.main(["report", "train.maya"]) == 0
    assert "our contract" in capfd.readouterr().out


def test_a_mistake_in_own_prices_is_told_before_the_script_runs(
    pretend: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prices.toml").write_text("[[price]]\ngpu = 3\n")
    assert pretend("print('ran')", "--prices", "prices.toml", "train.py") == 2
    shown = capfd.readouterr()
    assert "prices.toml" in shown.err
    assert shown.out == ""


def test_a_folder_that_cannot_be_written_is_a_mistake(
    pretend: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert pretend(WRITE, "-o", "/proc/nowhere/run.maya", "train.py") == 2
    assert "cannot write the run" in capfd.readouterr().err


def test_a_full_disk_is_told_as_such(
    pretend: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import errno

    from maya.pipeline import conclude

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(conclude, "write_derived", full)
    assert pretend(WRITE) == 1
    assert "no space is left for the run" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child.py", "train.py"]
