"""Everything a script started, found and ended: no process outlives `maya run`.

The child stays in our own process group, so that the terminal treats it exactly as in a plain run
(reading stdin, Ctrl-C, Ctrl-Z). Killing by group would hit our caller, so descendants are followed
by parentage instead; as a "subreaper" (prctl(2)) we inherit those whose parent ended before them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from types import TracebackType

import psutil

SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2), since Linux 3.4."""
GRACE_S = 2.0
"""Between asking a leftover process to end and killing it."""
MAX_ROUNDS = 100
"""A process may fork while we look; bounded against one that never stops forking."""


class Descendants:
    """The processes that descend from this one and began after `with` was entered."""

    def __init__(self) -> None:
        self._before: set[int] = set()

    def __enter__(self) -> Descendants:
        self._before = {process.pid for process in psutil.Process().children()}
        _be_subreaper(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(gently=kind is None)
        _be_subreaper(False)

    def end(self, *, gently: bool) -> int:
        """End all that are left and reap them.

        Args:
            gently: ask with SIGTERM first and wait `GRACE_S`.

        Returns:
            How many were running.
        """
        running = 0
        for _ in range(MAX_ROUNDS):
            left = self._left()
            if not left:
                break
            running = max(running, sum(map(_is_running, left)))
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate() if gently else process.kill()
            _, still = psutil.wait_procs(left, timeout=GRACE_S)
            gently = gently and not still
        return running

    def _left(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for child in psutil.Process().children():
            if child.pid not in self._before:
                found.append(child)
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.extend(child.children(recursive=True))
        return found


def _is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _be_subreaper(on: bool) -> None:
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, int(on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl(PR_SET_CHILD_SUBREAPER)")
