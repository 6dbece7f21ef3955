"""`maya run` of two ranks, for real: what each sees, how a job ends, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

LIMIT_S = 400
TRAIN = """
    import os, sys, time
    import torch
    import torch.distributed as dist
    from torch import nn

    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1000):
        loss = model(torch.randn(64, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            happen(sys.argv[1] if len(sys.argv) > 1 else "", rank)
"""
HAPPEN = """
    def happen(what, rank):
        if what == "linger" and rank == 0:
            time.sleep(2)
        if rank != 1:
            return
        if what == "raise":
            raise ValueError("rank one is unhappy")
        if what == "exit":
            sys.exit(3)
        if what == "kill":
            os.kill(os.getpid(), 9)
        if what == "oom":
            torch.empty(1 << 40, device="cuda")
        if what == "uneven":
            torch.randn(256, 256, device="cuda") @ torch.randn(256, 256, device="cuda")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(dedent(HAPPEN) + dedent(TRAIN))
    return tmp_path


def start(folder: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "maya.cli", "run", *words]
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def maya(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    process = start(folder, *words)
    out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def nobody_is_left(folder: Path, seconds: float = 30) -> bool:
    """No process of ours has its working folder there any more."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(_cwd(process) == str(folder) for process in psutil.process_iter()):
            return True
        time.sleep(0.1)
    return False


def _cwd(process: psutil.Process) -> str:
    try:
        return str(process.cwd()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


def test_each_rank_sees_what_torchrun_would_show_it(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(
        "import json, os, sys\n"
        "name = f\"{sys.argv[1]}-{os.environ['RANK']}.json\"\n"
        "json.dump({'environ': dict(os.environ), 'argv': sys.argv[2:]}, open(name, 'w'))\n"
    )
    torchrun = ["--standalone", "--nproc-per-node", "2", "show.py"]
    command = [sys.executable, "-m", "torch.distributed.run", *torchrun, "real", "--lr", "3"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=LIMIT_S)
    shown = maya(tmp_path, "--", "torchrun", *torchrun, "emulated", "--lr", "3")
    assert "ran no operation on the GPU" in shown.stdout, shown.stderr
    free = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_ADDR"}
    ours_only = {"GLOO_SOCKET_IFNAME", "KINETO_LOG_LEVEL"}
    for rank in range(2):
        real = json.loads((tmp_path / f"real-{rank}.json").read_text())
        emulated = json.loads((tmp_path / f"emulated-{rank}.json").read_text())
        assert real["argv"] == emulated["argv"] == ["--lr", "3"]
        assert free <= real["environ"].keys() & emulated["environ"].keys()
        assert emulated["environ"].keys() - real["environ"].keys() <= ours_only
        for name, value in real["environ"].items():
            if name not in free:
                assert emulated["environ"].get(name) == value, name


def test_equal_ranks_are_stored_once_and_reported_alike(folder: Path) -> None:
    shown = maya(folder, "--nproc-per-node", "2", "--json", "train.py", "linger")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert (found["verdict"], found["world_size"], found["ranks_run"]) == ("ok", 2, [0])
    assert found["communication"]["bytes_per_step"]["all_reduce"] == 4 * (64 * 64 + 64)
    run = folder / "train.maya"
    assert [path.name for path in run.glob("rank-*.et")] == ["rank-0.et"]
    command = [sys.executable, "-m", "maya.cli", "report", "train.maya", "--format", "json"]
    (run / "prediction.json").unlink()
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert again.stdout == shown.stdout
    assert nobody_is_left(folder)


def test_a_rank_that_does_more_is_a_class_of_its_own(folder: Path) -> None:
    shown = maya(folder, "-q", "--nproc-per-node", "2", "train.py", "uneven")
    assert shown.returncode == 0, shown.stderr
    found = json.loads((folder / "train.maya" / "prediction.json").read_text())
    assert found["ranks_run"] == [0, 1]


@pytest.mark.parametrize(
    ("what", "code", "verdict", "cause"),
    [
        ("raise", 1, "failed", "rank 1: ValueError: rank one is unhappy ("),
        pytest.param("exit", 3, "failed", "rank 1: the script exited with code 3", marks=pytest.mark.slow),
        ("oom", 1, "oom", "rank 1: out of memory: an allocation of 4.00 TiB"),
    ],
)
def test_the_rank_that_failed_first_is_named(
    folder: Path, what: str, code: int, verdict: str, cause: str
) -> None:
    shown = maya(folder, "--nproc-per-node", "2", "train.py", what)
    assert shown.returncode == code, shown.stderr
    found = json.loads((folder / "train.maya" / "prediction.json").read_text())
    assert found["verdict"] == verdict
    assert found["cause"].startswith(cause)
    assert cause in shown.stdout
    command = [sys.executable, "-m", "maya.cli", "report", "train.maya"]
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert cause in again.stdout
    assert nobody_is_left(folder)


def test_a_killed_rank_is_named(folder: Path) -> None:
    shown = maya(folder, "--nproc-per-node", "2", "train.py", "kill")
    assert shown.returncode == 128 + signal.SIGKILL
    assert "the process of rank 1 was ended by SIGKILL" in shown.stderr
    assert not list(folder.glob("train.maya*"))
    assert nobody_is_left(folder)


CROSSED = """
    import torch, torch.distributed as dist
    dist.init_process_group("nccl")
    one, two = dist.new_group([0, 1]), dist.new_group([0, 1])
    value = torch.ones(1, device="cuda")
    print("crossing")
    dist.all_reduce(value, group=one if dist.get_rank() == 0 else two)
"""


def test_ranks_that_wait_for_each_other_are_a_hang(tmp_path: Path) -> None:
    (tmp_path / "crossed.py").write_text(dedent(CROSSED))
    shown = maya(tmp_path, "--nproc-per-node", "2", "crossed.py")
    assert shown.returncode == 1
    assert "the ranks wait for each other" in shown.stdout + shown.stderr
    assert "rank 0 waits in all_reduce" in shown.stdout + shown.stderr
    assert "rank 1 waits in all_reduce" in shown.stdout + shown.stderr
    assert nobody_is_left(tmp_path)


GLOO = """
    import os, time, torch.distributed as dist
    dist.init_process_group("gloo")
    open(f"began-{os.environ['RANK']}", "w").close()
    def never_joins():
        time.sleep(1000)
    if dist.get_rank() == 1:
        never_joins()
    dist.barrier()
"""


@pytest.mark.slow
def test_a_timeout_says_where_every_rank_is(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(dedent(GLOO))
    shown = maya(tmp_path, "--timeout", "15", "--nproc-per-node", "2", "stuck.py")
    assert shown.returncode == 1
    assert "timed out after 15 s" in shown.stderr
    assert "stuck.py:6 in never_joins" in shown.stderr
    assert "rank 0" in shown.stderr
    assert nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGKILL))],
)
def test_ending_maya_ends_every_rank(tmp_path: Path, number: int) -> None:
    (tmp_path / "stuck.py").write_text(dedent(GLOO))
    process = start(tmp_path, "--nproc-per-node", "2", "stuck.py", start_new_session=True)
    until = time.monotonic() + LIMIT_S
    while len(list(tmp_path.glob("began-*"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # Ctrl-C goes to the whole foreground group
    else:
        os.kill(process.pid, number)
    _, err = process.communicate(timeout=LIMIT_S)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + number, err
        assert "interrupted" in err
        assert not list(tmp_path.glob("stuck.maya*"))
    assert nobody_is_left(tmp_path)


def test_one_rank_behind_torchrun_has_its_environment(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "value = torch.full((2,), 3.0, device='cuda')\n"
        "dist.all_reduce(value)\n"
        "print(os.environ['WORLD_SIZE'], value.tolist(), torch.cuda.device_count())\n"
    )
    shown = maya(tmp_path, "--", "torchrun", "--nproc-per-node", "1", "one.py")
    assert shown.returncode == 0, shown.stderr
    assert "1 [3.0, 3.0] 1" in shown.stdout
