"""`maya run` with several ranks: their output, their own children, their launcher, one rank against none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

RUN = (sys.executable, "-m", "maya.cli", "run")

SPEAKS = """
    import os, sys
    print("a line of rank", os.environ["RANK"], *sys.argv[1:])
    print("an error of rank", os.environ["RANK"], file=sys.stderr)
"""

WAITS = """
    import os, sys, time, torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = iter(DataLoader(list(range(1000)), num_workers=1, multiprocessing_context="fork"))
    next(loader)
    with open(f"pid-{rank}.txt", "w") as file:
        file.write(f"{os.getppid()} {os.getpid()} {loader._workers[0].pid}")
    os.rename(f"pid-{rank}.txt", f"pid-{rank}")
    def sleep_for_ever():
        time.sleep(600)
    if rank == 1:
        sleep_for_ever()
    dist.barrier()
"""

TRAINS = """
    import os, torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
    net = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(100000, 256))
    loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data), num_workers=1)
    try:
        for epoch in range(1000):
            for (batch,) in loader:
                optimizer.zero_grad()
                net(batch.cuda()).square().mean().backward()
                optimizer.step()
    finally:
        print("rank", dist.get_rank(), "of", dist.get_world_size(), "cleans up")
        dist.destroy_process_group()
"""


def write(folder: Path, name: str, source: str) -> None:
    (folder / name).write_text(dedent(source))


def maya(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def written(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def is_gone(pid: int, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_output_goes_where_torchrun_sends_it(tmp_path: Path) -> None:
    """Rank 0's stdout to a file and, with torchrun's prefix, here; rank 1's stderr to a file only."""
    write(tmp_path, "speaks.py", SPEAKS)
    words = ("--nproc-per-node", "2", "--role", "trainer", "-r", "1:2", "-t", "0:1", "--log-dir", "logs")
    done = maya(tmp_path, "-q", "--", "torchrun", *words, "speaks.py", "on ${local_rank}")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[trainer0]:a line of rank 0 on 0", "a line of rank 1 on 1"]
    assert "an error of rank 0\n" in done.stderr
    assert "an error of rank 1" not in done.stderr
    (log,) = tmp_path.glob("logs/*/attempt_0/1/stderr.log")
    assert log.read_text() == "an error of rank 1\n"
    (log,) = tmp_path.glob("logs/*/attempt_0/0/stdout.log")
    assert log.read_text() == "a line of rank 0 on 0\n"


def test_data_parallel_ranks_are_stopped_together_and_predicted(tmp_path: Path) -> None:
    write(tmp_path, "train.py", TRAINS)
    done = maya(tmp_path, "--nproc-per-node", "4", "--steps", "2", "train.py")
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"rank {rank} of 4 cleans up\n" in done.stdout
    manifest = written(tmp_path, "train.maya/manifest.json")
    assert (manifest["world_size"], manifest["ended"], manifest["iterations"]) == (4, "stopped", 3)
    assert manifest["rank_classes"] == [{"rank": 0, "ranks": [[0, 3]]}]
    found = written(tmp_path, "train.maya/prediction.json")
    assert (found["verdict"], found["world_size"], found["iterations"]) == ("ok", 4, 2)
    assert found["low_ms"] < found["iteration_time_ms"] < found["high_ms"]
    assert found["peak_memory_bytes"]["allocated"] > 2 * 4 * 2 * 256 * 256  # parameters and gradients
    left = {path.name for path in (tmp_path / "train.maya").iterdir()}
    assert not {name for name in left if name.startswith(("spec", "crash", "stacks", "ranks", "logs"))}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.maya", "train.py"]


@pytest.mark.parametrize(
    ("number", "target", "code", "cause"),
    [
        (signal.SIGKILL, "launcher", 137, "process was ended by SIGKILL"),
        pytest.param(
            signal.SIGSEGV,
            "rank 1",
            139,
            "the process of rank 1 was ended by SIGSEGV at waits.py:14 in sleep_for_ever",
            marks=pytest.mark.slow,
        ),
        pytest.param(signal.SIGTERM, "maya", 143, "interrupted by SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_no_end_leaves_a_process_behind(
    tmp_path: Path, number: int, target: str, code: int, cause: str
) -> None:
    """Neither the launcher, nor a rank, nor the worker of a loader in it."""
    write(tmp_path, "waits.py", WAITS)
    run = subprocess.Popen(
        [*RUN, "--nproc-per-node", "2", "waits.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    files = [tmp_path / f"pid-{rank}" for rank in range(2)]
    until = time.monotonic() + 200
    while not all(file.exists() for file in files):
        assert time.monotonic() < until
        assert run.poll() is None
        time.sleep(0.1)
    (launcher, *first), (_, *second) = ([int(pid) for pid in file.read_text().split()] for file in files)
    os.kill({"maya": run.pid, "launcher": launcher, "rank 1": second[0]}[target], number)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == code, errors
    assert cause in errors
    assert all(is_gone(pid) for pid in (launcher, *first, *second))
    assert not list(tmp_path.glob("*.maya*"))


@pytest.mark.slow
def test_one_rank_under_torchrun_records_what_a_plain_process_records(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import os, torch
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)).cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        print(os.environ.get("WORLD_SIZE"))
        while True:
            net(torch.randn(8, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    plain = maya(tmp_path, "-q", "-o", "plain.maya", "train.py")
    launched = maya(tmp_path, "-q", "-o", "launched.maya", "--", "torchrun", "train.py")
    assert (plain.stdout, launched.stdout) == ("None\n", "1\n")
    for name in ("rank-0.et", "rank-0.tables.json", "prediction.json"):
        assert (tmp_path / "plain.maya" / name).read_bytes() == (
            tmp_path / "launched.maya" / name
        ).read_bytes()


@pytest.mark.slow
def test_children_of_ranks_are_processes_as_any(tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn` inside a rank, and a first use of the GPU after it."""
    write(
        tmp_path,
        "spawns.py",
        """
        import os, torch
        import torch.multiprocessing as mp
        def work(index, folder):
            open(f"{folder}-{os.environ['RANK']}-{index}", "w").close()
        if __name__ == "__main__":
            mp.spawn(work, args=("made",), nprocs=2)
            torch.ones(2, device=f"cuda:{os.environ['LOCAL_RANK']}").add_(1)
        """,
    )
    done = maya(tmp_path, "--nproc-per-node", "2", "spawns.py")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("made*")) == [
        "made-0-0",
        "made-0-1",
        "made-1-0",
        "made-1-1",
    ]


@pytest.mark.slow
def test_ranks_that_a_script_spawns_itself_are_told_how_to_start(tmp_path: Path) -> None:
    write(
        tmp_path,
        "spawns.py",
        """
        import os
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        def rank_of_its_own(rank, world):
            meeting = os.path.abspath("meeting")
            dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=world)
        if __name__ == "__main__":
            mp.spawn(rank_of_its_own, args=(2,), nprocs=2)
        """,
    )
    done = maya(tmp_path, "--visible-gpus", "2", "spawns.py")
    assert done.returncode == 1
    assert "maya run --nproc-per-node G script.py" in done.stderr
