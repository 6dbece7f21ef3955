"""Ending a script that would train for days, as quietly as `sys.exit(0)` would.

When enough iterations have run, the hook that noticed raises `StopRun` inside the script. It
derives from SystemExit: `finally:` blocks and context managers run, asyncio lets it through. On
other threads it is SystemExit itself, the one exception that ends a thread without a traceback.
A script that catches even BaseException and goes on meets it again at its next hook; one that
reaches no hook any more (a sleeping main thread, a full queue) is ended by a watchdog after the
grace period.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

GRACE_S = 10.0
"""How long a script may clean up after it was stopped. Saving a checkpoint is faster than this:
unknown values are written as holes."""
RAISE_LIMIT = 100
"""A script that met StopRun this often catches it in a loop; waiting longer helps nobody."""


class StopRun(SystemExit):
    """Raised inside the user's script to end it; nobody should see it."""

    def __init__(self) -> None:
        super().__init__(0)


class StopController:
    """Decides whether the script should still be running.

    Args:
        on_request: called once when the stop is asked for, before anything is raised.
        on_deadline: writes the results of a script that would not end; the process exits with 0
            after it. Called on the watchdog's thread or on the one that raised too often.
        grace_s: seconds between the request and the deadline.
    """

    def __init__(
        self,
        *,
        on_request: Callable[[], object],
        on_deadline: Callable[[], object],
        grace_s: float = GRACE_S,
        raise_limit: int = RAISE_LIMIT,
    ) -> None:
        self.requested = False
        self._on_request = on_request
        self._on_deadline = on_deadline
        self._grace_s = grace_s
        self._raise_limit = raise_limit
        self._raised = 0
        self._settled = threading.Event()
        self._ending = threading.RLock()

    def request(self) -> NoReturn:
        """Stop the script: raises StopRun here, and at every later hook.

        Raises:
            StopRun: always.
        """
        if not self.requested:
            self.requested = True
            self._on_request()
            threading.Thread(target=self._watch, name="maya-stop-watchdog", daemon=True).start()
        self.raise_again()

    def raise_again(self) -> NoReturn:
        """Raise StopRun once more, or end the process if the script keeps catching it.

        Raises:
            StopRun: on the main thread.
            SystemExit: on any other.
        """
        self._raised += 1
        if self._raised > self._raise_limit:
            self._end_process()
        if threading.current_thread() is threading.main_thread():
            raise StopRun
        raise SystemExit(0)

    def settle(self) -> None:
        """The script has ended; the watchdog must not. Blocks for ever if it already acts."""
        with self._ending:
            self._settled.set()

    def end_process(self, write: Callable[[], object], exit_code: int) -> None:
        """End the process from another thread, `write` first; nothing if the script has ended by itself."""
        with self._ending:
            if self._settled.is_set():
                return
            try:
                write()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(exit_code)

    def forget(self) -> None:
        """In a forked child: no stop is asked for and no watchdog exists here."""
        self.requested = False
        self._ending = threading.RLock()
        self._settled = threading.Event()
        self._settled.set()

    def _watch(self) -> None:
        if not self._settled.wait(self._grace_s):
            self._end_process()

    def _end_process(self) -> None:
        self.end_process(self._on_deadline, 0)
