"""Start a rank's process, wait for it, and pass on what happens to us meanwhile.

Signals are blocked and taken one at a time with `sigtimedwait`, so nothing runs in a handler, and
each tells who sent it: Ctrl-C at the terminal reaches the child by itself, while a `kill` of `maya`
has to be passed on.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from maya.errors import MayaError
from maya.pipeline import rank_process
from maya.pipeline.process_tree import Descendants

FORWARDED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals after which we do not go on to predict."""
PATIENCE_S = 10.0
"""How long a script may take to end after SIGTERM or SIGHUP; after Ctrl-C it has all the time it
wants, and a second Ctrl-C ends it."""
STARTUP_LIMIT_S = 900.0
"""How long importing torch and, the first time, compiling the backend may take beyond the timeout."""
STACKS_WAIT_S = 1.0
"""How long a process that timed out may take to write where it is."""
TICK_S = 0.5
NEVER = float("inf")


@dataclass(frozen=True)
class ChildEnd:
    """How a rank's process ended, seen from outside.

    Attributes:
        exit_code: its exit code, or None if a signal ended it.
        signal_number: the signal that ended it, or None.
        interrupted_by: the signal sent to us that made us end it, or None.
        timed_out: it was ended after the timeout.
        where: Python stacks at the timeout or crash, `faulthandler`'s text; "" if unknown.
        stacks: at a timeout, the same of every rank of a job of several.
        leftovers: processes of the script's that were still running and were ended.
    """

    exit_code: int | None
    signal_number: int | None
    interrupted_by: int | None = None
    timed_out: bool = False
    where: str = ""
    leftovers: int = 0
    stacks: Mapping[int, str] = field(default_factory=dict)


def supervise(
    spec: Path,
    *,
    run_dir: Path,
    rank: int = 0,
    timeout_s: float | None = None,
    stdout_to_stderr: bool = False,
    meanwhile: Sequence[Callable[[], None]] = (),
    on_wait: Callable[[float], None] = lambda _: None,
    program: Sequence[str] = (),
    ranks: int = 1,
    environment: Mapping[str, str] | None = None,
) -> ChildEnd:
    """Run one rank's process, or that of the launcher of several, to its end.

    Args:
        spec: the rank's specification (JSON), handed to the process by name.
        run_dir: the partial run folder.
        rank: global rank.
        timeout_s: end it when the script has run this long; None waits forever. The script's time
            starts with its trace file, so that compiling the backend does not count.
        stdout_to_stderr: what the script prints on stdout goes to stderr.
        meanwhile: short pieces of work to do while the process starts up.
        on_wait: called about twice a second with the seconds since the start.
        program: command to run in place of `rank_process.py` (tests).
        ranks: how many the process launches.
        environment: variables to add to ours.

    Raises:
        MayaError: the process could not be started.
    """
    command = [*(program or (sys.executable, rank_process.__file__)), str(spec)]
    watched = FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        with Descendants() as descendants:
            pid = _spawn(command, before, stdout_to_stderr, {**os.environ, **(environment or {})})
            watch = _Watch(pid, watched, time.monotonic(), timeout_s, run_dir, rank, ranks, on_wait)
            try:
                return watch.until_end(descendants, list(meanwhile))
            except BaseException:
                watch.kill()
                raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(
    command: list[str],
    mask: set[int | signal.Signals],
    stdout_to_stderr: bool,
    environment: Mapping[str, str],
) -> int:
    sys.stdout.flush()
    try:
        return os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else [],
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them; its children must not
        )
    except OSError as error:
        raise MayaError(f"cannot start {command[0]}: {error.strerror}") from error


class _Watch:
    """One process being waited for."""

    def __init__(
        self,
        pid: int,
        watched: frozenset[signal.Signals],
        began_s: float,
        timeout_s: float | None,
        run_dir: Path,
        rank: int,
        ranks: int,
        on_wait: Callable[[float], None],
    ) -> None:
        self._pid = pid
        self._watched = watched
        self._began_s = began_s
        self._timeout_s = timeout_s
        self._script_began = False
        self._deadline_s = NEVER if timeout_s is None else began_s + STARTUP_LIMIT_S + timeout_s
        self._give_up_s = NEVER
        self._run_dir = run_dir
        self._rank = rank
        self._ranks = ranks
        self._on_wait = on_wait
        self._status: int | None = None
        self._interrupted_by: int | None = None
        self._timed_out = False
        self._where = ""
        self._stacks: dict[int, str] = {}

    def until_end(self, descendants: Descendants, meanwhile: list[Callable[[], None]]) -> ChildEnd:
        while not self._has_ended():
            if meanwhile:
                meanwhile.pop(0)()
                self._handle(signal.sigtimedwait(self._watched, 0))
                continue
            now_s = time.monotonic()
            self._look_for_the_script(now_s)
            if now_s >= self._deadline_s:
                self._where = self._ask_where()
                self._timed_out = True
                self.kill()
            elif now_s >= self._give_up_s:
                self.kill()
            else:
                wait_s = min(self._deadline_s - now_s, self._give_up_s - now_s, TICK_S)
                self._handle(signal.sigtimedwait(self._watched, wait_s))
                self._on_wait(time.monotonic() - self._began_s)
        status = self._status
        assert status is not None
        stopped_by_us = self._timed_out or self._interrupted_by is not None
        leftovers = descendants.end(gently=not stopped_by_us)
        crashed = os.WIFSIGNALED(status)
        if crashed and not self._where:
            self._where = self._read(rank_process.CRASH_FILE)
        return ChildEnd(
            exit_code=None if crashed else os.WEXITSTATUS(status),
            signal_number=os.WTERMSIG(status) if crashed else None,
            interrupted_by=self._interrupted_by,
            timed_out=self._timed_out,
            where=self._where,
            leftovers=leftovers,
            stacks=self._stacks,
        )

    def kill(self) -> None:
        """End the process at once and reap it."""
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            self._status = os.waitpid(self._pid, 0)[1]

    def _look_for_the_script(self, now_s: float) -> None:
        """Start the timeout's clock once the rank has opened its trace."""
        if self._timeout_s is None or self._script_began:
            return
        if any(self._run_dir.glob(f"rank-{self._rank}.et*")):
            self._script_began = True
            self._deadline_s = now_s + self._timeout_s

    def _has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid == self._pid:
                self._status = status
        return self._status is not None

    def _handle(self, arrived: signal.struct_siginfo | None) -> None:
        if arrived is None or arrived.si_signo == signal.SIGCHLD:
            return
        number = arrived.si_signo
        if number in ENDING:
            if self._interrupted_by is not None:
                self.kill()
                return
            self._interrupted_by = number
            if number != signal.SIGINT:
                self._give_up_s = time.monotonic() + PATIENCE_S
        from_terminal = arrived.si_code > 0  # SI_KERNEL: sent to the whole foreground group
        if not from_terminal and not self._has_ended():
            os.kill(self._pid, number)

    def _ask_where(self) -> str:
        """Have the stacks written, wait until they stay the same; a launcher asks its ranks."""
        os.kill(self._pid, rank_process.WHERE_SIGNAL)
        until_s = time.monotonic() + STACKS_WAIT_S
        texts: list[str] = []
        while time.monotonic() < until_s and not self._has_ended():
            time.sleep(0.05)
            numbers = [self._rank] if self._ranks == 1 else range(self._ranks)
            earlier, texts = texts, [self._read(rank_process.WHERE_FILE, number) for number in numbers]
            if all(texts) and texts == earlier:
                break
        if self._ranks > 1:
            self._stacks = dict(enumerate(texts))
        return texts[0] if texts else ""

    def _read(self, name: str, rank: int | None = None) -> str:
        try:
            number = self._rank if rank is None else rank
            return (self._run_dir / name.format(rank=number)).read_text(errors="replace")
        except FileNotFoundError:
            return ""
