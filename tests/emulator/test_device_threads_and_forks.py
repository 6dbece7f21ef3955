"""Threads that use the device at once, forks while they do, and the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"
TIMEOUT_S = 240


def run(body: str) -> str:
    """Run a program in a fresh process that has the device; what it printed."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", "from emulated_gpu import native\nimport torch\n" + textwrap.dedent(body)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


WORK = """
import os, sys, threading, time

def step(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(64, 64, device="cuda")
    x = torch.randn(32, 64, device="cuda")
    model(x).relu().sum().backward()
    kept = [torch.empty(1000 * size, device="cuda") for size in range(1, 6)]
    torch.nn.functional.dropout(x)
    return (x + float(seed)).isfinite().all().item(), kept

def busy(seed):
    while not over.is_set():
        assert step(seed)[0]
        counts[seed] += 1
        time.sleep(0.002)

over = threading.Event()
counts = [0] * 8
"""


def test_eight_threads_agree_with_one() -> None:
    run(
        WORK
        + """
native.recording(True)
before = torch.cuda.memory_allocated()
threads = [threading.Thread(target=busy, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
time.sleep(1)
over.set()
for thread in threads:
    thread.join()
assert min(counts) > 0, counts
import numpy as np
from maya.traces import OPERATION_DTYPE, TENSOR_DTYPE
operations, uses, _ = native.drain()
rows = np.frombuffer(operations, OPERATION_DTYPE)
assert (rows["id"] == np.arange(len(rows))).all()
assert rows["tensor_count"].sum() == len(np.frombuffer(uses, TENSOR_DTYPE))
assert len(np.unique(rows["host_thread"])) >= 8
import gc
gc.collect()
workspaces = torch.cuda.memory_allocated() - before
torch._C._cuda_clearCublasWorkspaces()
assert torch.cuda.memory_allocated() == before, (workspaces, torch.cuda.memory_allocated())
"""
    )


def test_forty_forks_among_allocating_threads_end() -> None:
    run(
        WORK
        + """
step(0)  # what is imported on first use: a fork among imports hangs in Python itself
native.recording(True)
threads = [threading.Thread(target=busy, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
for attempt in range(40):
    child = os.fork()
    if child == 0:
        # What a loader's worker may do, and every lock of the backend. (CUDA itself refuses a forked child.)
        # Without gradients: a child's first use of autograd takes over the engine, whose queues a thread
        # of the parent may have held. That hangs in plain torch too (Engine::stop in a forked child).
        with torch.no_grad():
            torch.nn.Linear(4, 4)(torch.ones(1, 4))
        native.enter_module(native.module_id("child"))
        native.leave_module()
        native.memory_stats(0), native.statistics(), native.interned("source_lines", 0)
        torch.empty(4).pin_memory()
        torch.cuda.default_generators[0].initial_seed()
        os._exit(3 if native.is_recording() or native.pending() else 0)
    deadline = time.monotonic() + 30
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0, (attempt, status)
            break
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            over.set()
            sys.exit(f"fork {attempt} hung")
        time.sleep(0.002)
over.set()
for thread in threads:
    thread.join()
assert min(counts) > 0
"""
    )


def test_processes_end_without_abort() -> None:
    run(
        WORK
        + """
for attempt in range(8):
    child = os.fork()
    if child == 0:
        # The whole way out, from a process with autograd threads, live tensors, and a daemon that drains
        # records. (A daemon inside torch's C++ aborts in plain torch as well: 20 of 20 on the CPU.)
        native.recording(True)
        alive = step(attempt)
        def drain():
            while True:
                native.pending(), native.drain(), native.interned("operators", 0)
                time.sleep(0.0005)
        threading.Thread(target=drain, daemon=True).start()
        time.sleep(0.01 * (attempt % 5))
        sys.exit(5)
    ended, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 5, (attempt, status)
"""
    )
