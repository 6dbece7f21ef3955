"""Processes the script started: none may outlive a run that was stopped.

A script that is stopped in the middle never reaches the code that would have ended its loader
workers, samplers or servers. Loader workers are asked first, because a killed one makes torch
raise from a signal handler in the main thread.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import Any

import psutil

PATIENCE_S = 1.0
"""How long a process may take to act on SIGTERM before it is killed."""


def shut_down_loaders(iterators: Iterable[Any]) -> None:
    """End the workers and threads of DataLoader iterators the way torch ends them."""
    for iterator in list(iterators):
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:
            # A loader that is broken already must not turn a clean stop into a traceback.
            with contextlib.suppress(Exception):
                shut_down()


def ignore_worker_deaths(iterators: Iterable[Any]) -> None:
    """Keep torch's SIGCHLD handler quiet about workers that are about to be killed."""
    import torch

    for iterator in list(iterators):
        torch._C._remove_worker_pids(id(iterator))


def end_child_processes(patience_s: float = PATIENCE_S) -> int:
    """Terminate every descendant of this process, then kill what is left.

    multiprocessing's resource tracker is spared: it ends with this process and cleans up after
    it.

    Returns:
        How many processes were asked to end.
    """
    spared = _resource_tracker_pid()
    children = [child for child in psutil.Process().children(recursive=True) if child.pid != spared]
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    _, alive = psutil.wait_procs(children, timeout=patience_s)
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(alive, timeout=patience_s)
    return len(children)


def _resource_tracker_pid() -> int | None:
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    pid: int | None = getattr(getattr(tracker, "_resource_tracker", None), "_pid", None)
    return pid
