"""One rank's process, as its launcher keeps track of it."""

from __future__ import annotations

import os
import signal
import socket

from maya.pipeline.launch_report import RankEnd
from maya.pipeline.rank_link import EndNotice, LauncherSide
from maya.traces import Ended

NEVER = float("inf")
LEAVE_WITHIN_S = 15.0
"""How long the interpreter of a rank may take to end after the script has: `atexit`, threads, stores."""
CAUSE_NOT_CONSEQUENCE_S = 2.0
"""A signal ends a process at once, so peers that fail for its sake cannot be earlier; but the time of
its end is when we look, which on a busy machine may be later than a peer's own word."""
SIGNAL_EXIT_BASE = 128
GOOD_ENDINGS = frozenset({Ended.STOPPED, Ended.FINISHED, Ended.NEVER_STEPPED})


class RankChild:
    """A forked rank.

    Args:
        rank: global rank.
        pid: its process.
        ours: our end of the line to it.
    """

    def __init__(self, rank: int, pid: int, ours: socket.socket) -> None:
        self.rank = rank
        self.line = LauncherSide(ours)
        self.leave_by_s = NEVER
        self.told_s = NEVER
        self.failed_s = NEVER
        self.was_ended_by_us = False
        self._pid = pid
        self._status: int | None = None
        self._notice: EndNotice | None = None
        self._let_go = False

    @property
    def runs(self) -> bool:
        """Whether the process is there."""
        return self._status is None

    @property
    def has_told(self) -> bool:
        """Whether its outcome is written."""
        return self._notice is not None

    @property
    def lingers(self) -> bool:
        """Whether the script was stopped and the process waits to be let go."""
        return self.runs and self._notice is not None and self._notice.ended is Ended.STOPPED

    @property
    def failed(self) -> bool:
        """Whether the script failed, or the process ended without a word."""
        return self.failed_s < NEVER

    @property
    def ending(self) -> str:
        """How it ended, one word or two, for its peers."""
        if self._notice is not None:
            return self._notice.ended.value
        return "killed" if self.end.signal_number is not None else "ended without a word"

    @property
    def exit_code(self) -> int:
        """What a shell would report."""
        if self._notice is not None:
            return self._notice.exit_code or (1 if self.failed else 0)
        end = self.end
        return SIGNAL_EXIT_BASE + end.signal_number if end.signal_number else end.exit_code or 1

    @property
    def end(self) -> RankEnd:
        """How the process ended; only once it has."""
        status = self._status
        assert status is not None
        signaled = os.WIFSIGNALED(status)
        return RankEnd(
            self.rank,
            exit_code=None if signaled else os.WEXITSTATUS(status),
            signal_number=os.WTERMSIG(status) if signaled else None,
            told=self.has_told,
        )

    def look(self, now_s: float) -> bool:
        """Take in what has happened; True if the rank has just become one nobody need wait for.

        That is when its process ends, or when it says that its script failed.
        """
        news = False
        if self._notice is None:
            self._notice = self.line.notice()
            if self._notice is not None:
                self.told_s = now_s
                if self._notice.ended not in GOOD_ENDINGS or self._notice.exit_code != 0:
                    self.failed_s = now_s
                    news = True
                if self._notice.ended is not Ended.STOPPED:
                    self.leave_by_s = now_s + LEAVE_WITHIN_S
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid == self._pid:
                self._status = status
                if self._notice is None:  # it may have spoken between our two looks
                    self._notice = self.line.notice()
                self._settle_end(now_s)
                return True
        return news

    def _settle_end(self, now_s: float) -> None:
        if self._notice is None:
            early_s = CAUSE_NOT_CONSEQUENCE_S if self.end.signal_number is not None else 0.0
            self.failed_s = min(self.failed_s, now_s - early_s)
        elif self.told_s == NEVER:
            self.told_s = now_s
            if self._notice.ended not in GOOD_ENDINGS or self._notice.exit_code != 0:
                self.failed_s = now_s

    def let_go(self, now_s: float, letter: bytes) -> None:
        """Tell it to go (GO), or to write what it has and end (END, STOP), once."""
        if self._let_go or not self.runs:
            return
        self._let_go = True
        self.was_ended_by_us = not self.has_told
        self.line.say(letter)
        self.leave_by_s = min(self.leave_by_s, now_s + LEAVE_WITHIN_S)

    def signal(self, number: int) -> None:
        """Send a signal if the process is still there."""
        if self.runs:
            os.kill(self._pid, number)

    def kill(self) -> None:
        """End the process at once and reap it."""
        if self._status is None:
            self.was_ended_by_us = self.was_ended_by_us or not self.has_told
            os.kill(self._pid, signal.SIGKILL)
            self._status = os.waitpid(self._pid, 0)[1]
            if self._notice is None:
                self._notice = self.line.notice()
