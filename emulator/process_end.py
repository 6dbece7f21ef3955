"""The end of a process that has run backward passes."""

from __future__ import annotations

import atexit
import time
from pathlib import Path

AUTOGRAD_THREADS = "pt_autograd_"
"""How torch names its device threads (torch/csrc/autograd/engine.cpp)."""
SETTLED_AFTER = 3
"""Looks in a row, PAUSE_S apart, that find every autograd thread asleep."""
PAUSE_S = 0.002
PATIENCE_S = 1.0


def wait_for_autograd_at_exit() -> None:
    """Let autograd's threads finish before the interpreter goes.

    A thread of the engine drops the Python objects of a backward pass after the pass has returned.
    If the interpreter is being finalized by then, Python ends that thread by unwinding it, which C++
    answers with an abort ("terminate called without an active exception"): one script in ten whose
    last statement is a backward pass.
    """
    atexit.register(_wait)


def _wait() -> None:
    deadline = time.monotonic() + PATIENCE_S
    asleep = 0
    while asleep < SETTLED_AFTER and time.monotonic() < deadline:
        states = _states()
        if not states:
            return
        time.sleep(PAUSE_S)  # lets go of the GIL, which such a thread waits for
        asleep = asleep + 1 if set(states) == {"S"} else 0


def _states() -> list[str]:
    """The scheduler's state of every autograd thread of this process; none where /proc does not say."""
    states = []
    for stat in Path("/proc/self/task").glob("*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # the thread has just ended
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        if name.startswith(AUTOGRAD_THREADS):
            states.append(rest.split()[0])
    return states
