"""Process boundaries: `os._exit` in the script, and children that it forks.

`os._exit` skips everything that would write results, so it is made to write them first. A forked
child (a loader worker, `os.fork`) inherits every hook but is no rank: nothing it does is
recorded, and whatever way it ends, it writes nothing.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


class ProcessBoundary:
    """Watches `os._exit` and forks, until `remove`.

    Args:
        before_exit: called with the exit code in the process that installed this, before the
            script's own `os._exit` ends it.
        in_child: called in every forked child, before any of the script's code.
    """

    def __init__(self, before_exit: Callable[[int], None], in_child: Callable[[], None]) -> None:
        self.pid = os.getpid()
        self._before_exit = before_exit
        self._in_child = in_child
        self._original_exit = os._exit
        self._installed = False

    @property
    def is_rank(self) -> bool:
        """Whether this is the process that runs the rank, not a forked child of it."""
        return os.getpid() == self.pid

    def install(self) -> None:
        """Replace `os._exit` and register for forks."""
        self._installed = True
        original, before_exit, pid = self._original_exit, self._before_exit, self.pid

        def _exit(status: int) -> None:
            if os.getpid() == pid and self._installed:
                self._installed = False
                before_exit(status)
            original(status)

        os._exit = _exit  # type: ignore[assignment]
        # Fork handlers cannot be taken back: this one holds the boundary weakly.
        reference = weakref.ref(self)

        def after_fork() -> None:
            boundary = reference()
            if boundary is not None and boundary._installed:
                boundary._installed = False
                boundary._in_child()

        os.register_at_fork(after_in_child=after_fork)

    def remove(self) -> None:
        """Put `os._exit` back."""
        self._installed = False
        os._exit = self._original_exit
