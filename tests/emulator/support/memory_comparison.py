"""What lives at the same point of a step on the CPU and on the emulated GPU, and why it differs.

Both lives are counted in operators (`storage_lifetimes.Storage`). The points compared are those
operators that both devices run under the same name in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

ROUND_TO_BYTES = 512
COPY_OR_FILL = "copy or fill"
ADD = "add"
BATCH_NORM = "batch norm"
BATCH_NORM_BACKWARD = "batch norm backward"
ATTENTION = "attention"
ATTENTION_BACKWARD = "attention backward"
_FILLS = {
    *("", "empty", "empty_strided", "empty_like", "zeros", "zeros_like", "ones_like", "randint", "arange"),
    *("lift_fresh", "_to_copy", "clone", "ones", "randn"),
}
POINTS = {
    *("mm", "addmm", "gelu", "gelu_backward", "native_layer_norm", "native_layer_norm_backward"),
    *("_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"),
    *("embedding_dense_backward", "_fused_adamw_", "_foreach_lerp_", "_foreach_sqrt", "_foreach_addcdiv_"),
    *("convolution", "convolution_backward", "max_pool2d_with_indices", "threshold_backward"),
    *(ADD, ATTENTION, ATTENTION_BACKWARD, BATCH_NORM, BATCH_NORM_BACKWARD),
}


def common_name(operator: str) -> str:
    """One name for what the two devices call differently."""
    if operator.startswith("_scaled_dot_product"):
        return ATTENTION_BACKWARD if "backward" in operator else ATTENTION
    if operator == "add_":  # whether the engine sums gradients in place depends on who holds them
        return ADD
    if operator in ("_foreach_norm", "linalg_vector_norm"):
        return "norm"
    if operator.endswith("_batch_norm"):
        return BATCH_NORM
    if operator.endswith("_batch_norm_backward"):
        return BATCH_NORM_BACKWARD
    if operator == "embedding":  # on a GPU a composite of index_select and a view
        return "index_select"
    return COPY_OR_FILL if operator in _FILLS else operator


@dataclass(frozen=True)
class Kept:
    """A kind of storage: who made it, and its size rounded to 512 bytes."""

    operator: str
    rounded_bytes: int


@dataclass(frozen=True)
class Point:
    """One operator of the step: which, what lives right after it, and what whole blocks add.

    `unsplit_bytes`: what the allocator hands out beyond the rounded request, where the rest of a
    block is too small to be split off (1 MiB and less in large blocks).
    """

    operator: str
    live: Counter[Kept]
    unsplit_bytes: int

    @property
    def live_bytes(self) -> int:
        return total_bytes(self.live) + self.unsplit_bytes


def total_bytes(kept: Counter[Kept]) -> int:
    return sum(kind.rounded_bytes * count for kind, count in kept.items())


def points(told: dict[str, Any], *, every: bool = False) -> Iterator[Point]:
    """The common points of the observed step, or all operators."""
    births: dict[int, list[dict[str, Any]]] = {}
    deaths: dict[int, list[dict[str, Any]]] = {}
    for storage in told["storages"]:
        if storage["born"] == storage["died"] or storage["rounded_bytes"] == 0:
            continue
        births.setdefault(storage["born"], []).append(storage)
        deaths.setdefault(storage["died"], []).append(storage)
    live: Counter[Kept] = Counter()
    unsplit_bytes = 0
    for index, operator in enumerate(told["operators"]):
        for sign, changed in ((-1, deaths.get(index, ())), (1, births.get(index, ()))):
            for storage in changed:
                live[Kept(common_name(storage["operator"]), storage["rounded_bytes"])] += sign
                unsplit_bytes += sign * storage.get("unsplit_bytes", 0)
        if index >= told["begin"] and (every or common_name(operator) in POINTS):
            yield Point(common_name(operator), +live, unsplit_bytes)


@dataclass(frozen=True)
class Reason:
    """A genuine difference: what of either device it explains.

    `on_gpu` and `on_cpu` say whether a kind of storage, live only there, is part of it.
    """

    why: str
    on_gpu: Callable[[Kept], bool] = lambda _: False
    on_cpu: Callable[[Kept], bool] = lambda _: False


@dataclass(frozen=True)
class Difference:
    """What only one device holds at a point, by reason, and what no reason explains.

    `bytes_by_reason`: GPU minus CPU.
    """

    bytes_by_reason: dict[str, int]
    unexplained_on_gpu: Counter[Kept]
    unexplained_on_cpu: Counter[Kept]


def explain(gpu: Point, cpu: Point, reasons: list[Reason]) -> Difference:
    """Assign every storage that only one device holds to the first reason that fits."""
    left = {True: gpu.live - cpu.live, False: cpu.live - gpu.live}
    found = {"blocks too small to split": gpu.unsplit_bytes} if gpu.unsplit_bytes else {}
    for reason in reasons:
        for is_gpu, fits in ((True, reason.on_gpu), (False, reason.on_cpu)):
            explained = Counter({kind: count for kind, count in left[is_gpu].items() if fits(kind)})
            left[is_gpu] = left[is_gpu] - explained
            change = total_bytes(explained) * (1 if is_gpu else -1)
            if explained:
                found[reason.why] = found.get(reason.why, 0) + change
    return Difference(found, left[True], left[False])


def extrapolate(told: dict[tuple[int, int], dict[str, Any]], batch: int, length: int) -> dict[str, Any]:
    """The step at another batch and length, from three: (b, n), (c, n) and (b, m).

    Every size is fixed, or proportional to the length or to batch * length (no attention matrix is
    kept); exact where the three steps' sizes are multiples of 512 bytes.
    """
    (first, second), (short, longer) = sorted({b for b, _ in told}), sorted({n for _, n in told})
    steps = [told[first, short], told[second, short], told[first, longer]]
    base = steps[0]
    if any(step["operators"] != base["operators"] for step in steps):
        raise ValueError("the steps run different operators")
    storages = []
    for same in zip(*(step["storages"] for step in steps), strict=True):
        if len({(storage["operator"], storage["born"], storage["died"]) for storage in same}) > 1:
            raise ValueError(f"a storage lives differently at another size: {same}")
        here, wider, further = (storage["rounded_bytes"] for storage in same)
        by_both = (wider - here) / ((second - first) * short)
        by_length = (further - here) / (longer - short) - first * by_both
        fixed = here - by_length * short - by_both * first * short
        size = round(fixed + by_length * length + by_both * batch * length)
        storages.append({**same[0], "rounded_bytes": -(-size // ROUND_TO_BYTES) * ROUND_TO_BYTES})
    return {**base, "storages": storages}
