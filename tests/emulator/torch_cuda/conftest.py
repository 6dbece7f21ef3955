"""Running scripts against the Python side of the emulated device, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ON_RECORDING_BACKEND = """
import os, sys
import torch
from recording_native import RecordingNative
from maya.emulator.torch_cuda import install_torch_cuda
from maya.hardware import find_gpu
cuda_build = torch.version.cuda is not None
gpu = find_gpu("H100-SXM5-80GB")
native = RecordingNative(4, gpu.total_memory_bytes)
registry = install_torch_cuda(native, gpu, 4)
"""
ON_COMPILED_BACKEND = """
import torch
from emulated_device import cuda_build, gpu, native
D = "cuda"
"""
RunScript = Callable[..., str]


class ForkServer:
    """The client of fork_server.py."""

    def __init__(self) -> None:
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error::FutureWarning", str(HERE / "fork_server.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, *, needs_backend: bool, environment: dict[str, str] | None = None) -> str:
        """What the script printed; the test fails with it if the script failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"script": script, "environment": environment or {}, "needs_backend": needs_backend}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the fork server has died; see its standard error"
        done = json.loads(answer)
        assert done["status"] == 0, done["output"]
        return str(done["output"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def run_recorded(fork_server: ForkServer) -> RunScript:
    """Runs a script on the recording backend with four H100s; `before` goes ahead of the installation."""

    def run(body: str, *, before: str = "", environment: dict[str, str] | None = None) -> str:
        script = textwrap.dedent(before) + ON_RECORDING_BACKEND + textwrap.dedent(body)
        return fork_server.run(script, needs_backend=False, environment=environment)

    return run


@pytest.fixture
def run_on_device(fork_server: ForkServer) -> RunScript:
    """Runs a script on the compiled backend with two H100s, `D` being "cuda"."""

    def run(body: str) -> str:
        return fork_server.run(ON_COMPILED_BACKEND + textwrap.dedent(body), needs_backend=True)

    return run
