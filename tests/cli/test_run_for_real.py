"""`maya run` with the emulated device itself: scripts behave as they do under `python`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

TRAIN = """
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(1000000):
        loss = net(torch.randn(64, 512, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, loss.item())
"""


def maya(folder: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "maya.cli", "run", *words]
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=400, **options
    )


def write(folder: Path, name: str, source: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(source))


def prediction(folder: Path, name: str) -> dict[str, object]:
    value = json.loads((folder / name / "prediction.json").read_text())
    assert isinstance(value, dict)
    return value


def test_an_endless_training_loop_is_stopped_and_predicted(tmp_path: Path) -> None:
    write(tmp_path, "train.py", TRAIN)
    shown = maya(tmp_path, "--steps", "2", "train.py")
    assert shown.returncode == 0, shown.stderr
    assert "train.py on H100-SXM5-80GB: ok" in shown.stdout
    found = prediction(tmp_path, "train.maya")
    assert found["iterations"] == 2
    assert found["low_ms"] < found["iteration_time_ms"] < found["high_ms"]  # type: ignore[operator]
    assert found["samples_per_s"] > 0  # type: ignore[operator]
    # forward two products, backward three (the input of the first needs no gradient)
    assert found["model_flops_per_step"] == 5 * 2 * 64 * 512 * 512


def test_the_same_script_and_the_same_trace_give_the_same_prediction(tmp_path: Path) -> None:
    write(tmp_path, "train.py", TRAIN)
    for name in ("a.maya", "b.maya"):
        assert maya(tmp_path, "-q", "-o", name, "train.py").returncode == 0
    first = (tmp_path / "a.maya" / "prediction.json").read_bytes()
    assert (tmp_path / "b.maya" / "prediction.json").read_bytes() == first
    for name in ("prediction.json", "durations-0.npz", "timeline.perfetto-trace"):
        (tmp_path / "a.maya" / name).unlink()
    command = [sys.executable, "-m", "maya.cli", "report", "a.maya", "--format", "json"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert again.stdout == first
    assert (tmp_path / "a.maya" / "timeline.perfetto-trace").exists()


@pytest.mark.parametrize("as_module", [False, True])
def test_the_script_sees_what_python_would_show_it(tmp_path: Path, as_module: bool) -> None:
    source = """
    import json, os, sys
    import neighbour
    shown = {"argv": sys.argv, "name": __name__, "path": sys.path[0], "cwd": os.getcwd(),
             "stdin": sys.stdin.read(), "file": __file__, "neighbour": neighbour.WORD,
             "main": sys.modules["__main__"].__dict__ is globals(), "loops": os.environ.get("WORD")}
    print(json.dumps(shown))
    """
    write(tmp_path, "pkg/job.py", source)
    write(tmp_path, "pkg/neighbour.py", "WORD = 'beside the script'")
    write(tmp_path, "neighbour.py", "WORD = 'in the working folder'")
    program = ["-m", "pkg.job"] if as_module else ["pkg/job.py"]
    arguments = ["--lr", "3", "-v", "--", "x"]
    options = {"input": "a line\n", "env": {**os.environ, "WORD": "kept"}}
    plain = subprocess.run(
        [sys.executable, *program, *arguments], cwd=tmp_path, capture_output=True, text=True, **options
    )
    shown = maya(tmp_path, "-q", *program, *arguments, **options)
    assert json.loads(shown.stdout) == json.loads(plain.stdout)


@pytest.mark.parametrize(
    ("source", "code", "verdict", "cause"),
    [
        ("import sys, torch; torch.ones(3, device='cuda').add_(1); sys.exit(7)", 7, "failed", "code 7"),
        ("import torch; torch.ones(3, device='cuda') + 1; 1 / 0", 1, "failed", "ZeroDivisionError"),
        ("print('no GPU here')", 0, "failed", "no operation on the GPU"),
        ("import torch; torch.nn.Linear(9, 9).cuda()(torch.ones(2, 9, device='cuda'))", 0, "ok", None),
    ],
)
def test_scripts_that_end_by_themselves(
    tmp_path: Path, source: str, code: int, verdict: str, cause: str | None
) -> None:
    write(tmp_path, "script.py", source)
    shown = maya(tmp_path, "script.py")
    assert shown.returncode == code, shown.stderr
    found = prediction(tmp_path, "script.maya")
    assert found["verdict"] == verdict
    assert (found["cause"] is None) == (cause is None)
    if cause is not None:
        assert cause in str(found["cause"])
    else:
        assert found["scope"] == "run"
    assert "Maya" not in shown.stderr
    assert "/maya/" not in shown.stderr  # no frames of ours in the script's traceback


def test_a_batch_that_cannot_fit_is_explained(tmp_path: Path) -> None:
    write(
        tmp_path,
        "big.py",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(4096, 65536, device="cuda")
                self.second = torch.nn.Linear(65536, 4096, device="cuda")
            def forward(self, x):
                return self.second(self.first(x))
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.randn(65536, 4096, device="cuda")).sum().backward()
        optimizer.step()
        """,
    )
    shown = maya(tmp_path, "--gpu-memory", "12GiB", "big.py")
    assert shown.returncode == 1
    assert "OutOfMemoryError" in shown.stderr
    found = prediction(tmp_path, "big.maya")
    assert found["verdict"] == "oom"
    for part in ("16.0 GiB", "Net.first", "big.py:9", "12.0 GiB", "held: "):
        assert part in str(found["cause"])


def test_ctrl_c_ends_the_script_and_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, "wait.py", "import time, torch\nprint('ready', flush=True)\ntime.sleep(600)")
    command = [sys.executable, "-m", "maya.cli", "run", "wait.py"]
    run = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.kill(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "maya: error: interrupted by SIGINT" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["wait.py"]


def test_a_hanging_script_is_ended_and_its_place_named(tmp_path: Path) -> None:
    write(tmp_path, "hang.py", "import time\ndef wait_for_ever():\n    time.sleep(600)\nwait_for_ever()\n")
    shown = maya(tmp_path, "--timeout", "2", "hang.py")
    assert shown.returncode == 1
    assert "timed out after 2 s at hang.py:3 in wait_for_ever" in shown.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["hang.py"]


def test_a_crash_of_the_script_is_named(tmp_path: Path) -> None:
    write(tmp_path, "crash.py", "import ctypes, torch\ndef poke():\n    ctypes.string_at(0)\npoke()\n")
    shown = maya(tmp_path, "crash.py")
    assert shown.returncode == 128 + signal.SIGSEGV
    assert "ended by SIGSEGV at crash.py:3 in poke" in shown.stderr


def test_a_missing_module_is_an_error_of_the_user(tmp_path: Path) -> None:
    shown = maya(tmp_path, "-m", "no_such_module")
    assert shown.returncode != 0
    assert "no_such_module" in shown.stderr
    assert "Traceback" not in shown.stderr
