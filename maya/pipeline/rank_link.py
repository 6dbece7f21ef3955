"""The line between the launcher and one rank: how the script ended, and when the process may go.

One line of JSON from the rank when its outcome is written; then one letter from the launcher. A
rank that was stopped in the middle of training keeps its process, and with it its sockets and
stores, until the launcher says that nobody needs it any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from maya.traces import Ended

GO = b"g"
"""End as you like."""
END = b"e"
"""Another rank has failed: write what you have and end."""
STOP = b"s"
"""The other ranks have been stopped after their iterations, and so are you."""
EXIT_ENDED = 128 + signal.SIGTERM
"""Exit code of a rank that was told to end, as if SIGTERM had ended it."""


@dataclass(frozen=True)
class EndNotice:
    """What a rank says when its outcome is written."""

    ended: Ended
    exit_code: int


class RankSide:
    """The rank's end of the line.

    Args:
        line: the rank's socket.
        launcher_pid: woken by SIGCHLD, which it waits for anyway.
    """

    def __init__(self, line: socket.socket, launcher_pid: int) -> None:
        self._line = line
        self._launcher_pid = launcher_pid
        self._go = threading.Event()
        self._owner = os.getpid()

    def listen(self, on_end: Callable[[bool], None]) -> None:
        """Hear the launcher on a thread. `on_end(stopped)` is to end the process."""

        def hear() -> None:
            letter = self._line.recv(1)  # nothing: the launcher is gone
            self._go.set()
            if letter in (END, STOP):
                on_end(letter == STOP)  # returns if the script has ended by itself meanwhile

        threading.Thread(target=hear, name="maya-launcher-line", daemon=True).start()

    def tell(self, notice: EndNotice, *, stay: bool) -> None:
        """Say how the script ended; with `stay`, return only when the launcher lets us go."""
        if os.getpid() != self._owner:
            return
        words = {"ended": notice.ended.value, "exit_code": notice.exit_code}
        with contextlib.suppress(OSError):  # no launcher any more: the kernel is about to end us too
            self._line.sendall(json.dumps(words).encode() + b"\n")
            os.kill(self._launcher_pid, signal.SIGCHLD)
        if stay:
            self._go.wait()


class LauncherSide:
    """The launcher's end of one rank's line."""

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line = line
        self._heard = b""

    def notice(self) -> EndNotice | None:
        """What the rank has said, None so far. Call it until it answers; it does so once."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._heard += self._line.recv(1 << 16)
        text, newline, _ = self._heard.partition(b"\n")
        if not newline:
            return None
        self._heard = b""
        words = json.loads(text)
        return EndNotice(Ended(words["ended"]), int(words["exit_code"]))

    def say(self, letter: bytes) -> None:
        """GO, END or STOP; a rank that is gone does not mind."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._line.sendall(letter)

    def close(self) -> None:
        self._line.close()


def open_line() -> tuple[socket.socket, socket.socket]:
    """The launcher's and the rank's socket."""
    return socket.socketpair()
