"""How the processes of a whole job ended: one rank's own words, or those of all ranks and their launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from maya.errors import EXIT_FAILURE, MayaError
from maya.pipeline import rank_process
from maya.pipeline.launch_report import LaunchReport, read_report
from maya.pipeline.outcome import RankOutcome, read_outcome
from maya.pipeline.supervise import ChildEnd
from maya.pipeline.verdict import SIGNAL_EXIT_BASE, judge, signal_name
from maya.pipeline.where import innermost_user_frame
from maya.traces import Ended

HANG_HINT = "all members of a process group must call the same collectives in the same order"
SHOWN_RANKS = 8
"""Ranks named in one sentence."""


@dataclass(frozen=True)
class Unfinished:
    """A job of which no whole run folder can be made.

    Attributes:
        cause, hint: for the user.
        exit_code: of `maya run`.
        stacks: Python stacks, as `faulthandler` wrote them.
    """

    cause: str
    hint: str
    exit_code: int
    stacks: str = ""


@dataclass(frozen=True)
class JobEnd:
    """A job whose ranks have all told how they ended.

    Attributes:
        outcomes: by rank.
        failed_rank: the rank that failed first, of which other failures may be a consequence.
        hang: sentence about ranks that waited for each other; "" for no hang.
        stopped_late: ranks that were still busy long after the others had been stopped.
    """

    outcomes: Mapping[int, RankOutcome]
    failed_rank: int | None = None
    hang: str = ""
    stopped_late: tuple[int, ...] = ()

    @property
    def telling(self) -> RankOutcome:
        """The outcome that stands for the job: of the rank that failed first, else of the lowest."""
        return self.outcomes[min(self.outcomes) if self.failed_rank is None else self.failed_rank]

    @property
    def ended(self) -> Ended:
        """For the manifest."""
        return Ended.HANG if self.hang else self.telling.ended

    @property
    def exit_code(self) -> int:
        """Of `maya run`, as far as the script's processes decide it."""
        return EXIT_FAILURE if self.hang else judge(self.telling).exit_code

    @property
    def iterations(self) -> int:
        """Complete iterations that every rank has."""
        return min(outcome.iterations for outcome in self.outcomes.values())


def end_of_job(
    run_dir: Path, end: ChildEnd, *, ranks: int | None, timeout_s: float | None
) -> JobEnd | Unfinished:
    """Put together what the ranks, their launcher and their supervisor say.

    Args:
        run_dir: partial run folder.
        end: of the supervised process.
        ranks: how many the launcher forked; None: there was no launcher, the process was the rank.
        timeout_s: what the job was allowed.

    Raises:
        MayaError: Maya itself failed in one of them; or an outcome is damaged.
    """
    outcomes = {}
    for rank in range(ranks or 1):
        outcome = None if end.timed_out else read_outcome(run_dir, rank)
        if outcome is None:
            continue
        if outcome.ended == Ended.INTERNAL_ERROR:
            raise _own_failure(outcome)
        outcomes[rank] = outcome
    if ranks is None:
        return JobEnd(outcomes) if outcomes else _silent_process(end, timeout_s)
    report = read_report(run_dir)
    if end.timed_out or report is None:
        return _silent_process(end, timeout_s)
    if report.first_failure is not None and report.first_failure not in outcomes:
        return _silent_rank(run_dir, report, report.first_failure)
    hang = _hang_sentence(report.hang)
    silent = [each.rank for each in report.ends if each.rank not in outcomes]
    if not silent:
        return JobEnd(outcomes, report.first_failure, hang, report.stopped_late)
    if hang:
        return Unfinished(hang, HANG_HINT, EXIT_FAILURE)
    if report.first_failure is not None:
        failed = outcomes[report.first_failure]
        verdict = judge(failed)
        return Unfinished(f"rank {report.first_failure}: {verdict.cause}", "", verdict.exit_code)
    return _silent_rank(run_dir, report, silent[0])


def _own_failure(outcome: RankOutcome) -> MayaError:
    cause = outcome.cause or {}
    return MayaError(
        str(cause.get("message") or "the emulator failed"),
        hint=str(cause.get("hint") or ""),
        exit_code=outcome.exit_code or EXIT_FAILURE,
    )


def _hang_sentence(hang: Mapping[int, str]) -> str:
    if not hang:
        return ""
    waits = "; ".join(f"rank {rank} waits in {text}" for rank, text in list(hang.items())[:SHOWN_RANKS])
    more = f"; and {len(hang) - SHOWN_RANKS} more" if len(hang) > SHOWN_RANKS else ""
    return f"the ranks wait for each other and none can go on: {waits}{more}"


def _silent_process(end: ChildEnd, timeout_s: float | None) -> Unfinished:
    """The process that was supervised did not live to tell."""
    where, stacks = innermost_user_frame(end.where), end.where
    if end.stacks:
        frames = {rank: innermost_user_frame(text) for rank, text in end.stacks.items()}
        named = [f"rank {rank} {frame}" for rank, frame in frames.items() if frame][:SHOWN_RANKS]
        where = ", ".join(named)
        stacks = "\n".join(f"rank {rank}:\n{text.rstrip()}" for rank, text in end.stacks.items())
    at = "" if not where else f" {where}" if where.startswith("at ") else f", {where}"
    if end.timed_out:
        cause = f"timed out after {timeout_s:g} s{at}"
        return Unfinished(
            cause, "a longer --timeout, or a smaller --steps; -v shows all stacks", EXIT_FAILURE, stacks
        )
    if end.signal_number is not None:
        return _ended_by_signal("the script's process", end.signal_number, at, stacks)
    return _ended_by_code("the script's process", end.exit_code or 0)


def _silent_rank(run_dir: Path, report: LaunchReport, rank: int) -> Unfinished:
    """A rank died without a word while its launcher lived."""
    end = next(each for each in report.ends if each.rank == rank)
    stacks = _read(run_dir / rank_process.CRASH_FILE.format(rank=rank))
    where = innermost_user_frame(stacks)
    at = "" if not where else f" {where}" if where.startswith("at ") else f", {where}"
    if end.signal_number is not None:
        return _ended_by_signal(f"the process of rank {rank}", end.signal_number, at, stacks)
    return _ended_by_code(f"the process of rank {rank}", end.exit_code or 0)


def _ended_by_signal(who: str, number: int, at: str, stacks: str) -> Unfinished:
    name = signal_name(number)
    hint = "often the kernel's out-of-memory killer: `dmesg | tail` tells" if name == "SIGKILL" else ""
    return Unfinished(f"{who} was ended by {name}{at}", hint, SIGNAL_EXIT_BASE + number, stacks)


def _ended_by_code(who: str, code: int) -> Unfinished:
    cause = f"{who} ended with code {code} without giving Maya a chance to finish"
    return Unfinished(cause, "os._exit and exec* cannot be followed", code or EXIT_FAILURE)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
