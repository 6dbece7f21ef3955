"""Stopping a script after the wanted iterations, whatever it does about it."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from maya.emulator.script.stop import StopController, StopRun

LOOP = """
import atexit, sys, time, torch
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([parameter], lr=0.1)
def step():
    parameter.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_training_loop_is_stopped_after_its_last_wanted_step(follow: Any) -> None:
    source = LOOP + "for index in range(10**9):\n    print(index)\n    step()\n"
    ours = follow(source, warmup=1, steps=3)
    assert (ours.exit_code, ours.stdout, ours.stderr) == (0, "0\n1\n2\n3\n", "")
    assert ours.summary["ending"] == "stopped"
    ends = ours.summary["iteration_ends"]
    assert len(ends) == 4
    assert all(ours.summary["marks"][end] == "maya::optimizer_end" for end in ends)
    assert len(ours.summary["marks"]) == ends[-1] + 1


def test_the_first_iteration_alone_is_recognised_when_the_second_step_begins(follow: Any) -> None:
    source = LOOP + "for index in range(10**9):\n    print(index)\n    step()\n"
    ours = follow(source, warmup=0, steps=1)
    assert ours.stdout == "0\n1\n"
    assert len(ours.summary["iteration_ends"]) == 1


def test_a_shorter_script_counts_its_last_step(follow: Any) -> None:
    ours = follow(LOOP + "step(); step()", warmup=1, steps=3)
    assert ours.summary["ending"] == "finished"
    assert len(ours.summary["iteration_ends"]) == 2


def test_cleaning_up_still_happens(follow: Any) -> None:
    source = LOOP + (
        "atexit.register(print, 'at exit')\n"
        "try:\n    while True: step()\nfinally:\n    time.sleep(0.1); print('finally')\n"
    )
    ours = follow(source)
    assert (ours.exit_code, ours.stdout, ours.stderr) == (0, "finally\nat exit\n", "")


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    while True: step()\nexcept BaseException as e: print('caught'); sys.exit(9)",
        "try:\n    while True: step()\nexcept BaseException as e: raise RuntimeError('wrapped') from e",
        "try:\n    while True: step()\nexcept BaseException: print('caught')",
        "try:\n    while True: step()\nfinally: 1 / 0",
    ],
)
def test_what_a_script_makes_of_it_is_not_its_failure(follow: Any, body: str) -> None:
    ours = follow(LOOP + body)
    assert (ours.exit_code, ours.stderr) == (0, "")
    assert ours.summary["ending"] == "stopped"
    assert ours.summary["how"] == "normal"


def test_catching_everything_in_a_loop_does_not_help(follow: Any) -> None:
    source = LOOP + "print('begin')\nwhile True:\n    try: step()\n    except BaseException: pass\n"
    ours = follow(source)
    assert (ours.exit_code, ours.stdout, ours.stderr) == (0, "begin\n", "")
    assert ours.summary["how"] == "abrupt"
    assert len(ours.summary["iteration_ends"]) == 4


def test_a_script_that_reaches_no_hook_ends_at_the_deadline(follow: Any) -> None:
    source = LOOP + "try:\n    while True: step()\nexcept BaseException: pass\nwhile True: time.sleep(1)\n"
    ours = follow(source, grace_s=1.0)
    assert (ours.exit_code, ours.stderr) == (0, "")
    assert ours.summary["how"] == "abrupt"


def test_training_on_a_thread_ends_silently(follow: Any) -> None:
    source = LOOP + (
        "import threading\n"
        "def train():\n    while True: step()\n"
        "thread = threading.Thread(target=train); thread.start(); thread.join(); print('joined')\n"
    )
    ours = follow(source)
    assert (ours.exit_code, ours.stdout, ours.stderr) == (0, "joined\n", "")
    assert ours.summary["ending"] == "stopped"


WORKERS = """
import os, subprocess, sys, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 10**6
    def __getitem__(self, i): return torch.tensor([float(i)])
parameter = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(server.pid)
loader = DataLoader(Slow(), batch_size=2, num_workers=2, persistent_workers=True)
def train():
    for index, batch in enumerate(loader):
        if index == 0:
            import psutil
            print(*[child.pid for child in psutil.Process().children()], flush=True)
        (parameter * batch).sum().backward()
        optimizer.step()
"""


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    "end", ["train()", "try: train()\nexcept BaseException: pass\nimport time\ntime.sleep(600)"]
)
def test_no_child_process_survives(follow: Any, end: str) -> None:
    ours = follow(WORKERS + end, grace_s=1.0)
    assert (ours.exit_code, ours.stderr) == (0, "")
    pids = {int(word) for word in ours.stdout.split()}
    assert len(pids) >= 3
    for pid in pids:
        assert _gone(pid), f"{pid} lives on"


def test_the_controller_stops_recording_before_it_raises() -> None:
    calls: list[str] = []
    stop = StopController(on_request=lambda: calls.append("request"), on_deadline=lambda: calls.append("!"))
    assert not stop.requested
    for _ in range(3):
        with pytest.raises(StopRun):
            stop.request()
    assert stop.requested
    assert calls == ["request"]
    stop.settle()


def test_a_settled_controller_never_ends_the_process() -> None:
    calls: list[str] = []
    stop = StopController(on_request=lambda: None, on_deadline=lambda: calls.append("!"), grace_s=0.05)
    with pytest.raises(StopRun):
        stop.request()
    stop.settle()
    time.sleep(0.2)
    assert calls == []


def test_stop_run_is_no_ordinary_exception() -> None:
    assert not issubclass(StopRun, Exception)
    assert issubclass(StopRun, SystemExit)
