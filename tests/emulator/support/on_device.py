"""Runs test functions in a process that has the emulated GPU, one process for each test module.

The device belongs to a process and cannot be removed from it, so the process of pytest itself stays
without one. A test function marked `@on_device` runs in the worker, under its own name, as it stands;
its arguments (parametrized values) have to survive JSON.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent
TIMEOUT_S = 300.0
"""For one test function; the first one may have to wait for the backend to be compiled."""


class Worker:
    """A process with the device and one test module."""

    def __init__(self, module: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, module, str(requests), str(answers)],
            pass_fds=(requests, answers),
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *_paths()])},
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        os.close(requests)
        os.close(answers)
        self._rest = b""

    def call(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Run one test; what went wrong, or None."""
        os.write(self._requests, (json.dumps([name, arguments]) + "\n").encode())
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], TIMEOUT_S)
            data = os.read(self._answers, 1 << 16) if ready else b""
            if not data:
                self.stop()
                self._output.seek(0)
                output = self._output.read()
                why = "hung" if not ready else f"died with status {self._process.returncode}"
                return f"the process with the device {why}:\n{output.decode(errors='replace')[-4000:]}"
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


def _paths() -> list[str]:
    """Where this process's own `maya` may come from: another working copy than the installed one."""
    given = os.environ.get("PYTHONPATH")
    return [given] if given else []


_workers: dict[str, Worker] = {}
_in_worker = False


def on_device(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test function in the module's process with the device."""
    if _in_worker:
        return test
    module = test.__globals__["__file__"]

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        worker = _workers.get(module)
        if worker is None or not worker.alive:
            for other in _workers.values():  # modules come one after the other
                other.stop()
            _workers.clear()
            worker = _workers[module] = Worker(module)
        if failure := worker.call(test.__name__, arguments):
            raise AssertionError(failure)

    # Hypothesis marks its tests; the wrapper only forwards and is none.
    for mark in ("hypothesis", "is_hypothesis_test"):
        run.__dict__.pop(mark, None)
    return run


@atexit.register
def _stop_workers() -> None:
    for worker in _workers.values():
        worker.stop()


def _serve(module_path: str, requests: int, answers: int) -> None:
    global _in_worker
    _in_worker = True
    import emulated_gpu  # noqa: F401 - installs the device

    # The decorator that the module imports must be this one.
    sys.modules["on_device"] = sys.modules["__main__"]
    specification = importlib.util.spec_from_file_location("tests_on_device", module_path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    with os.fdopen(requests) as lines:
        for line in lines:
            name, arguments = json.loads(line)
            failure = None
            try:
                getattr(module, name)(**arguments)
            except BaseException as error:
                failure = _explain(error)
            os.write(answers, (json.dumps(failure) + "\n").encode())


def _explain(error: BaseException) -> str:
    """The traceback, and the variables of the innermost frame (assertions are not rewritten here)."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in told.stack[:-1]:
        frame.locals = None
    innermost = told.stack[-1]
    innermost.locals = {name: text[:300] for name, text in (innermost.locals or {}).items()}
    return "".join(told.format())


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
