"""How a rank's process ended, as it says itself in `outcome-0.json`, and as its parent saw it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maya.errors import MayaError
from maya.traces import Ended

WRITTEN_BY_RANKS = frozenset(
    {
        Ended.STOPPED,
        Ended.FINISHED,
        Ended.NEVER_STEPPED,
        Ended.EXIT,
        Ended.EXCEPTION,
        Ended.OOM,
        Ended.INTERRUPTED,
        Ended.INTERNAL_ERROR,
    }
)
"""Endings a rank can tell of itself; the others only its parent sees."""


@dataclass(frozen=True)
class HeldMemory:
    """Memory held by one module in one phase when an allocation failed."""

    module: str
    phase: str
    bytes: int


@dataclass(frozen=True)
class OutOfMemory:
    """The allocation that did not fit, whether or not the script caught the error."""

    requested_bytes: int
    module: str
    source_line: str
    held: tuple[HeldMemory, ...]


@dataclass(frozen=True)
class PeakMemory:
    """Peaks of the caching allocator of one GPU, bytes."""

    allocated: int
    reserved: int
    capacity: int


@dataclass(frozen=True)
class RankOutcome:
    """What became of one rank.

    Attributes:
        ended: one of `WRITTEN_BY_RANKS`.
        exit_code: of the script itself; 0 when Maya stopped it.
        cause: {"type", "message", "source_line"} of an exception, or None.
        iterations: how many were seen, the warm-up included.
        optimizer_steps: calls of `Optimizer.step`.
        oom: the allocation that failed, also when the script caught the error and went on.
        memory: peaks of GPU 0.
        torch_version: of the environment.
        data_wait_ns: host time spent waiting for the data loader in the measured iterations.
        emulation_wall_ns: wall time from the script's first line to its end.
        extra: further keys of the file, untouched.
    """

    ended: Ended
    exit_code: int
    cause: Mapping[str, Any] | None = None
    iterations: int = 0
    optimizer_steps: int = 0
    oom: OutOfMemory | None = None
    memory: PeakMemory | None = None
    torch_version: str = ""
    data_wait_ns: int = 0
    emulation_wall_ns: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


def outcome_path(run_dir: Path, rank: int) -> Path:
    """Where a rank writes its outcome."""
    return run_dir / f"outcome-{rank}.json"


def read_outcome(run_dir: Path, rank: int) -> RankOutcome | None:
    """Read `outcome-RANK.json`; None if the rank wrote none.

    Raises:
        MayaError: the file is there and is not an outcome.
    """
    path = outcome_path(run_dir, rank)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MayaError(
            f"{path} is not the outcome of a rank: {error}",
            hint="the run folder is damaged; run the script again",
        ) from error


def _parse(value: Mapping[str, Any]) -> RankOutcome:
    known = dict(value)
    ended = Ended(known.pop("ended"))
    if ended not in WRITTEN_BY_RANKS:
        raise ValueError(f"a rank cannot say of itself that it ended as {ended.value!r}")
    oom, memory = known.pop("oom", None), known.pop("memory", None)
    return RankOutcome(
        ended=ended,
        exit_code=int(known.pop("exit_code")),
        cause=known.pop("cause", None),
        iterations=int(known.pop("iterations", 0)),
        optimizer_steps=int(known.pop("optimizer_steps", 0)),
        oom=None if oom is None else _parse_oom(oom),
        memory=None
        if memory is None
        else PeakMemory(int(memory["allocated"]), int(memory["reserved"]), int(memory["capacity"])),
        torch_version=str(known.pop("torch_version", "")),
        data_wait_ns=int(known.pop("data_wait_ns", 0)),
        emulation_wall_ns=int(known.pop("emulation_wall_ns", 0)),
        extra=known,
    )


def _parse_oom(value: Mapping[str, Any]) -> OutOfMemory:
    return OutOfMemory(
        requested_bytes=int(value["requested_bytes"]),
        module=str(value.get("module") or ""),
        source_line=str(value.get("source_line") or ""),
        held=tuple(
            HeldMemory(str(item.get("module") or ""), str(item.get("phase") or ""), int(item["bytes"]))
            for item in value.get("held") or ()
        ),
    )
