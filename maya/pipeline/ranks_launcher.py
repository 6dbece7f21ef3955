"""The process that has torch and the device ready, forks the ranks, and sees them to their ends.

It stands where torchrun's agent stands: it hosts the store, gives each rank its environment, passes
signals on, and ends the others when one fails. As in `maya.pipeline.supervise`, signals are blocked
and taken one at a time, so nothing runs in a handler.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from maya.pipeline import rank_process
from maya.pipeline.agent_store import AgentStore, HangWatch, describe_wait, open_listener
from maya.pipeline.launch import Launch
from maya.pipeline.launch_report import LaunchReport, write_report
from maya.pipeline.rank_child import RankChild
from maya.pipeline.rank_link import END, GO, STOP, RankSide, open_line
from maya.pipeline.rank_seat import Seat
from maya.pipeline.rank_streams import RankStreams

PASSED_ON = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})
INTERRUPTING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
WATCHED = PASSED_ON | {signal.SIGCHLD, rank_process.WHERE_SIGNAL}
TICK_S = 0.25
LOOK_FOR_HANG_S = 1.0
OTHERS_GRACE_S = 1.0
"""How long ranks may take to fail by themselves after the first has: most do, for want of a peer."""
END_PATIENCE_S = 5.0
"""How long a rank may take to write what it has when told to end."""
LINGER_LIMIT_S = 60.0
"""How long ranks that were stopped wait for one that neither stops nor waits for anybody."""
NEVER = float("inf")


class RanksLauncher:
    """Forks the ranks of a job and waits for them.

    Args:
        values: the specification that the parent wrote: a `RankSpec`'s keys, and "launch".
    """

    def __init__(self, values: dict[str, Any]) -> None:
        from maya.emulator import RankSpec

        self._launch = Launch.from_json(values["launch"])
        self._spec = RankSpec.from_values(values)
        self._run_dir = self._spec.run_dir
        self._children: list[RankChild] = []
        self._streams = RankStreams(self._launch, self._run_dir)
        self._hang_watch = HangWatch()
        self._hang: dict[int, str] = {}
        self._stopped_late: tuple[int, ...] = ()
        self._interrupted = False
        self._end_at_s = NEVER
        self._kill_at_s = NEVER
        self._look_at_s = 0.0

    def fork_ranks(self) -> Seat | None:
        """Get everything ready and fork. None in the launcher; in each rank, what it needs.

        Raises:
            MayaError: the device cannot be installed. Nothing has been forked then.
        """
        from maya.emulator import warm_device

        native = warm_device(self._spec)
        oracle = rank_process.duration_oracle(self._spec.gpu)
        listener = open_listener(self._launch.master_port)
        port = listener.getsockname()[1]
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()  # a collection in a rank would otherwise copy every page of ours
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        launcher_pid = os.getpid()
        for rank in range(self._launch.world_size):
            ours, theirs = open_line()
            pid = os.fork()
            if pid == 0:
                listener.close()
                ours.close()
                for child in self._children:
                    child.line.close()
                return Seat(
                    spec=replace(
                        self._spec, rank=rank, program=self._launch.program(rank, self._spec.program)
                    ),
                    oracle=oracle,
                    native=native,
                    line=RankSide(theirs, launcher_pid),
                    launcher_pid=launcher_pid,
                    environment=self._launch.environment(rank, port, self._error_file(rank), os.environ),
                    mask=self._mask,
                    streams=self._streams.files(rank),
                )
            theirs.close()
            self._children.append(RankChild(rank, pid, ours))
        self._store = AgentStore(listener)
        return None

    def until_all_have_ended(self) -> int:
        """Wait for every rank; returns the exit code of the one that failed first, 0 if none did."""
        try:
            while any(child.runs for child in self._children):
                self._handle(signal.sigtimedwait(WATCHED, TICK_S))
                now_s = time.monotonic()
                for child in self._children:
                    if child.look(now_s):
                        self._store.tell_ended(child.rank, child.ending)
                self._streams.pump()
                self._look_for_failure(now_s)
                self._let_go(now_s)
                self._look_for_hang(now_s)
                self._enforce(now_s)
        except BaseException:
            for child in self._children:
                child.kill()
            raise
        self._streams.close()
        first = self._first_failure()
        write_report(
            self._run_dir,
            LaunchReport(
                ends=tuple(child.end for child in self._children),
                first_failure=None if first is None else first.rank,
                hang=self._hang,
                stopped_late=self._stopped_late,
            ),
        )
        return 0 if first is None else first.exit_code

    def _handle(self, arrived: signal.struct_siginfo | None) -> None:
        if arrived is None or arrived.si_signo == signal.SIGCHLD:
            return
        number = arrived.si_signo
        self._interrupted = self._interrupted or number in INTERRUPTING
        from_terminal = arrived.si_code > 0  # SI_KERNEL: the ranks, in our process group, got it too
        if not from_terminal:
            for child in self._children:
                child.signal(number)

    def _look_for_failure(self, now_s: float) -> None:
        """After the first failure give the others a moment, then have them ended."""
        if self._end_at_s < NEVER or self._interrupted:
            return
        if any(child.failed for child in self._children):
            self._end_at_s = now_s + OTHERS_GRACE_S

    def _let_go(self, now_s: float) -> None:
        """Ranks that were stopped may go when no other is still busy."""
        if all(child.has_told or not child.runs for child in self._children):
            for child in self._children:
                child.let_go(now_s, GO)

    def _look_for_hang(self, now_s: float) -> None:
        busy = [child for child in self._children if child.runs and not child.has_told]
        lingering_since_s = min((child.told_s for child in self._children if child.lingers), default=NEVER)
        if now_s < self._look_at_s or self._end_at_s < NEVER or not busy:
            return
        self._look_at_s = now_s + LOOK_FOR_HANG_S
        waits = self._store.waits(child.rank for child in busy)
        hangs = self._hang_watch.hangs(now_s, [child.rank for child in busy], waits)
        if lingering_since_s < NEVER:
            if hangs or now_s - lingering_since_s > LINGER_LIMIT_S:
                self._stopped_late = tuple(child.rank for child in busy)
                self._end_now(now_s, STOP)
        elif hangs:
            self._hang = {rank: describe_wait(text) for rank, text in sorted(waits.items())}
            self._end_now(now_s, END)

    def _end_now(self, now_s: float, letter: bytes) -> None:
        for child in self._children:
            child.let_go(now_s, letter)
        self._end_at_s = now_s
        self._kill_at_s = now_s + END_PATIENCE_S

    def _enforce(self, now_s: float) -> None:
        if now_s >= self._end_at_s and self._kill_at_s == NEVER:
            self._end_now(now_s, END)
        for child in self._children:
            if child.runs and now_s >= min(self._kill_at_s, child.leave_by_s):
                child.kill()

    def _first_failure(self) -> RankChild | None:
        failed = [child for child in self._children if child.failed and not child.was_ended_by_us]
        if self._hang or not failed:
            return None
        return min(failed, key=lambda child: (child.failed_s, child.rank))

    def _error_file(self, rank: int) -> str:
        return str(Path(self._run_dir) / f"error-{rank}.json")
