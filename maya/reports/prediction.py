"""The prediction of a run: what `prediction.json` holds and every report shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PREDICTION_SCHEMA_VERSION = 1
"""Raised whenever a reader of the old form would misunderstand the new one."""

OK = "ok"
OOM = "oom"
FAILED = "failed"

NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class TimeParts:
    """What an iteration's time goes to, ms; the parts add up to it.

    Attributes:
        compute: a GPU runs kernels or copies.
        exposed_communication: only communication runs.
        host: the GPU is idle and the host is busy issuing work.
        idle: the rest: launch latency, waiting for data or for another rank.
    """

    compute: float
    exposed_communication: float
    host: float
    idle: float


@dataclass(frozen=True)
class RankMemory:
    """Peaks of one class of ranks, bytes.

    Attributes:
        allocated: of tensors, as `torch.cuda.max_memory_allocated()`.
        reserved: held by the caching allocator.
        capacity: of the GPU, as the script sees it.
    """

    allocated: int
    reserved: int
    capacity: int


@dataclass(frozen=True)
class Cost:
    """What the GPUs cost, and by which price."""

    usd_per_step: float
    usd_per_1000_steps: float
    usd_per_gpu_hour: float
    price_source: str
    price_date: str


@dataclass(frozen=True)
class KernelShare:
    """One kernel name's part of an iteration.

    Attributes:
        name: as the kernel model calls it.
        family: of the cost model.
        calls: launches an iteration, a fraction if iterations differ.
        time_ms: device time an iteration, all launches.
        share: of all kernels' device time, 0..1.
        source: what most of its time rests on: measured, learned, extrapolated or roofline.
    """

    name: str
    family: str
    calls: float
    time_ms: float
    share: float
    source: str


@dataclass(frozen=True)
class BusiestCollective:
    """The kind, size and group of communication that takes most time, an iteration's worth of it."""

    name: str
    calls: float
    time_ms: float


@dataclass(frozen=True)
class Communication:
    """An iteration's communication of the slowest rank.

    Attributes:
        bytes_per_step: kind (`all_reduce`, `send`, ...) → bytes, the larger of what this rank puts in
            and gets out.
        calls_per_step: the same kinds → how many.
        total_ms: time during which any runs.
        exposed_ms: the part of it that hides behind no computation; as in the breakdown.
        overlapped_share: the rest of it over the whole, 0..1.
        waiting_ms: time in which this rank computes nothing and waits for others to join in; not part of
            the others.
        busiest: what takes most time.
    """

    bytes_per_step: Mapping[str, int]
    calls_per_step: Mapping[str, float]
    total_ms: float
    exposed_ms: float
    overlapped_share: float
    waiting_ms: float
    busiest: BusiestCollective


@dataclass(frozen=True)
class RankClassTimes:
    """Ranks that do the same.

    Attributes:
        rank: the one whose trace was kept.
        ranks: all of them.
        iteration_time_ms: of the slowest of them; None where the verdict is not "ok".
        breakdown: that rank's. Waiting for a slower class is idle time here.
    """

    rank: int
    ranks: tuple[int, ...]
    iteration_time_ms: float | None = None
    breakdown: TimeParts | None = None


@dataclass(frozen=True)
class Coverage:
    """Shares of device time by what the kernels' times rest on; they add up to 1."""

    measured: float
    learned: float
    extrapolated: float
    roofline: float


@dataclass(frozen=True)
class Assumption:
    """A value that was taken for granted.

    Attributes:
        kind: "item", "copy", "bool", "count" for an unknown value that the script read;
            "model" for one of Maya's own.
        producer: the operator that wrote the value, or the part of Maya.
        count: how often.
        source_line: where the script read it, "" for Maya's own.
        value: what was assumed.
    """

    kind: str
    producer: str
    count: int
    source_line: str
    value: Any


@dataclass(frozen=True)
class Prediction:
    """One run, predicted. Times are None where the verdict is not "ok".

    Attributes:
        gpu: catalogue name.
        world_size: ranks of the job.
        ranks_run: ranks that were really emulated.
        verdict: "ok", "oom" or "failed".
        cause: what went wrong; for "ok" something worth knowing, such as a caught OOM; else None.
        scope: "iteration", or "run" for a script that never steps: the times are then of all of it.
        iterations: how many the prediction is the mean of.
        iteration_time_ms: exact to the nanosecond; of several ranks the slowest's, whose breakdown and
            kernels are shown.
        low_ms, high_ms: an 80% interval (`maya.pipeline.interval` says of what).
        breakdown: of the iteration, by the central estimate.
        tokens_per_s, samples_per_s: of the whole job; None where it cannot be inferred.
        model_flops_per_step: of the whole job: matrix products, convolutions and attention;
            recomputation left out.
        mfu: those over time and the dense peak of `mfu_peak`, of all GPUs.
        mfu_peak: which peak, as "bf16".
        peak_memory_bytes: rank of each class that ran → its peaks.
        cost: None without a price.
        top_kernels: by device time, longest first.
        coverage: None if no kernel ran.
        assumptions: all that were made.
        communication: None if no rank communicates with another.
        rank_classes: every rank of the job in one of them.
        slowest_rank: whose times are shown; None where there are none.
        command: script and arguments.
        torch: version it ran under.
    """

    gpu: str
    world_size: int
    ranks_run: tuple[int, ...]
    verdict: str
    cause: str | None
    scope: str = "iteration"
    iterations: int = 0
    iteration_time_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    breakdown: TimeParts | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    model_flops_per_step: int | None = None
    mfu: float | None = None
    mfu_peak: str | None = None
    peak_memory_bytes: Mapping[int, RankMemory] | None = None
    cost: Cost | None = None
    top_kernels: tuple[KernelShare, ...] = ()
    coverage: Coverage | None = None
    assumptions: tuple[Assumption, ...] = ()
    command: tuple[str, ...] = ()
    torch: str = ""
    communication: Communication | None = None
    rank_classes: tuple[RankClassTimes, ...] = ()
    slowest_rank: int | None = None
    schema_version: int = PREDICTION_SCHEMA_VERSION

    def largest_memory(self) -> RankMemory | None:
        """The rank class that comes closest to its capacity."""
        classes = (self.peak_memory_bytes or {}).values()
        return max(classes, key=lambda memory: memory.reserved / max(1, memory.capacity), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The object that `prediction.json` holds.

        `peak_memory_bytes` there has `allocated`, `reserved`, `capacity` of the fullest rank class,
        and each class under `rank_classes`.
        """
        value = asdict(self)
        largest = self.largest_memory()
        if largest is not None and self.peak_memory_bytes is not None:
            value["peak_memory_bytes"] = {
                **asdict(largest),
                "rank_classes": {
                    str(rank): asdict(memory) for rank, memory in self.peak_memory_bytes.items()
                },
            }
        return {"schema_version": value.pop("schema_version"), **value}

    def to_json(self) -> str:
        """`to_dict` as text; the same prediction gives the same bytes."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
