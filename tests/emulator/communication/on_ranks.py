"""Runs test functions on several ranks: processes forked from one that has torch and the device.

A function marked `@on_ranks(n)` runs in each of n processes that see torchrun's environment and n
GPUs, after `init_process_group("nccl")`; it asks `dist.get_rank()` who it is. One warm process
serves all test modules. Arguments (parametrized values) have to survive JSON.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import importlib.util
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"
MOST_RANKS = 4
TEST_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 300.0
"""The first test may have to wait for the backend to be compiled."""


class Host:
    """The warm process."""

    def __init__(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(requests), str(answers)],
            pass_fds=(requests, answers),
            env={**os.environ, "PYTHONPATH": f"{HERE}:{SUPPORT}:{os.environ.get('PYTHONPATH', '')}"},
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        os.close(requests)
        os.close(answers)
        self._rest = b""

    def call(self, request: list[Any]) -> str | None:
        """Run one test; what went wrong on which rank, or None."""
        os.write(self._requests, (json.dumps(request) + "\n").encode())
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], ANSWER_TIMEOUT_S)
            data = os.read(self._answers, 1 << 16) if ready else b""
            if not data:
                self.stop()
                self._output.seek(0)
                return "the host of the ranks died:\n" + self._output.read().decode(errors="replace")[-4000:]
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: str | None = json.loads(line)
        return answer

    @property
    def alive(self) -> bool:
        """Whether it can take another test."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


_hosts: list[Host] = []
_in_host = False


def on_ranks(ranks: int, *, start: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test function on `ranks` processes; `start=False`: without a process group."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        if _in_host:
            return test
        module = test.__globals__["__file__"]

        @functools.wraps(test)
        def run(**arguments: Any) -> None:
            if _hosts and not _hosts[-1].alive:
                _hosts.clear()
            if not _hosts:
                _hosts.append(Host())
            if failure := _hosts[-1].call([module, test.__name__, arguments, ranks, start]):
                raise AssertionError(failure)

        return run

    return decorate


@atexit.register
def _stop_hosts() -> None:
    for host in _hosts:
        host.stop()


def _serve(requests: int, answers: int) -> None:
    global _in_host
    _in_host = True
    sys.modules["on_ranks"] = sys.modules["__main__"]
    import ranks_gpu  # noqa: F401 - installs the device

    with os.fdopen(requests) as lines:
        for line in lines:
            path, name, arguments, ranks, start = json.loads(line)
            failure = _run(getattr(_module(path), name), arguments, ranks, start)
            os.write(answers, (json.dumps(failure) + "\n").encode())


@functools.cache
def _module(path: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def _run(test: Callable[..., None], arguments: dict[str, Any], ranks: int, start: bool) -> str | None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(64)
    port = listening.getsockname()[1]
    children = []
    for rank in range(ranks):
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            _be_rank(test, arguments, rank, ranks, port, start)
        children.append((child, output))
    from torch.distributed import TCPStore

    store = TCPStore(
        "127.0.0.1",
        port,
        ranks,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )
    said = []
    deadline = time.monotonic() + TEST_TIMEOUT_S + 5
    for rank, (child, output) in enumerate(children):
        status = None
        while time.monotonic() < deadline:
            ended, raw = os.waitpid(child, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(raw)
                break
            time.sleep(0.002)
        if status is None:
            os.kill(child, 9)
            os.waitpid(child, 0)
        store.set(f"maya/ended/{rank}", str(status))
        if status != 0:
            output.seek(0)
            said.append(f"rank {rank} ended with {status}:\n{output.read().decode(errors='replace')[-3500:]}")
        output.close()
    return "\n".join(said) or None


def _be_rank(
    test: Callable[..., None], arguments: dict[str, Any], rank: int, ranks: int, port: int, start: bool
) -> None:
    """The rest of a child's life."""
    code = 1
    try:
        faulthandler.dump_traceback_later(TEST_TIMEOUT_S, exit=True)
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            TORCHELASTIC_USE_AGENT_STORE="True",
        )
        import ranks_gpu
        import torch
        import torch.distributed as dist

        ranks_gpu.be_rank(rank, ranks)
        torch.cuda.set_device(rank)
        if start:
            dist.init_process_group("nccl")
        test(**arguments)
        if start and dist.is_initialized():
            ranks_gpu.linger(rank, ranks)
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
