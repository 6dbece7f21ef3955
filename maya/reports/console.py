"""Maya's own words on stderr while a command runs; stdout belongs to results and to the script."""

from __future__ import annotations

import sys
import time
from typing import TextIO

PROGRESS_AFTER_S = 2.0
"""Shorter commands say nothing in between."""
PROGRESS_EVERY_S = 15.0


class Console:
    """Where messages go, and which of them.

    Args:
        verbosity: -1 only errors, 0 normal, 1 and more details.
        stream: stderr by default.
    """

    def __init__(self, verbosity: int = 0, stream: TextIO | None = None) -> None:
        self.verbosity = verbosity
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._began_s = time.monotonic()
        self._next_s = self._began_s + PROGRESS_AFTER_S

    def note(self, text: str) -> None:
        """One line that a person should see unless they asked for quiet."""
        if self.verbosity >= 0:
            self._write(text)

    def detail(self, text: str) -> None:
        """One line for `-v`, with the time since the start."""
        if self.verbosity >= 1:
            self._write(f"[{time.monotonic() - self._began_s:6.2f} s] {text}")

    def error(self, text: str, hint: str = "") -> None:
        """An error that does not end the command at once."""
        self._write(f"error: {text}")
        if hint:
            self._write(f"hint: {hint}")

    def progress(self, text: str) -> None:
        """Say what is going on, on a terminal, after 2 s and then now and again.

        Whole lines, no cursor movement: the script prints to the same terminal.
        """
        now_s = time.monotonic()
        if self._is_terminal and self.verbosity >= 0 and now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_EVERY_S
            self._write(f"{text} ({now_s - self._began_s:.0f} s)")

    def _write(self, text: str) -> None:
        print(f"maya: {text}", file=self._stream, flush=True)
