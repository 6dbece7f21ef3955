"""The parametric cost model: operators → kernels → time, each distinct pair once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models.artifact import Efficiencies, load_efficiencies
from maya.kernel_models.collectives import CollectiveModel
from maya.kernel_models.contract import KernelTimes
from maya.kernel_models.families import communication, copies, expand_operator
from maya.kernel_models.families.communication import COMMUNICATION_KINDS, CommunicationKernel
from maya.kernel_models.pricing import Prices, price
from maya.kernel_models.work import KernelWork
from maya.traces.operations import Kind, Operations
from maya.traces.tables import Tables, parse_metadata

PRICED_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


class RooflineModel:
    """Roofline with efficiencies fitted per family, arithmetic and GPU generation.

    Args:
        efficiencies: fitted parameters, or a path to a card; by default the one that ships.
        collectives: prices communications; without it they have no kernels.
    """

    learned = False
    """Whether families with a learned model are priced by it."""

    def __init__(
        self,
        efficiencies: Efficiencies | Path | None = None,
        collectives: CollectiveModel | None = None,
    ) -> None:
        self._efficiencies = (
            efficiencies if isinstance(efficiencies, Efficiencies) else load_efficiencies(efficiencies)
        )
        self._collectives = collectives

    def price_operator(self, operator: str, metadata_json: str, gpu: GpuSpec) -> KernelTimes:
        """Kernels of one call, as `predict` gives them for one operation."""
        works = expand_operator(operator, parse_metadata(metadata_json))
        offsets = np.asarray([0, len(works)], dtype=np.int64)
        return self._times(works, [], np.arange(len(works)), offsets, gpu)

    def predict(self, operations: Operations, tables: Tables, gpu: GpuSpec) -> KernelTimes:
        """Implements `KernelCostModel`."""
        rows = operations.rows
        priced = np.isin(rows["kind"], PRICED_KINDS)
        selected = np.flatnonzero(priced)
        pairs = np.stack(
            [rows["kind"][selected], rows["operator"][selected], rows["metadata"][selected]], axis=1
        ).astype(np.int64)
        _check(pairs, tables)
        # One integer a pair: sorting rows of three columns would take most of the time.
        key = (pairs[:, 0] * max(1, len(tables.operators)) + pairs[:, 1]) * max(1, len(tables.metadata))
        _, first, inverse = np.unique(key + pairs[:, 2], return_index=True, return_inverse=True)
        works: list[KernelWork] = []
        starts = np.zeros(len(first) + 1, dtype=np.int64)
        for position, row in enumerate(first):
            kind, operator, metadata = pairs[row]
            works += _expand(int(kind), tables.operators[operator], tables.metadata[metadata])
            starts[position + 1] = len(works)
        per_operation = np.zeros(len(rows), dtype=np.int64)
        begins = np.zeros(len(rows), dtype=np.int64)
        if len(first):
            per_operation[selected] = np.diff(starts)[inverse]
            begins[selected] = starts[:-1][inverse]
        communications: list[CommunicationKernel] = []
        if self._collectives is not None:
            talking = np.flatnonzero(np.isin(rows["kind"], COMMUNICATION_KINDS))
            communications, chosen = communication.communication_kernels(
                operations, tables, talking, self._collectives
            )
            per_operation[talking] = 1
            begins[talking] = len(works) + chosen
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(per_operation, out=offsets[1:])
        # Kernel j of operation i is distinct kernel begins[i] + j.
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], per_operation)
        return self._times(works, communications, np.repeat(begins, per_operation) + within, offsets, gpu)

    def _times(
        self,
        works: Sequence[KernelWork],
        communications: Sequence[CommunicationKernel],
        index: NDArray[np.int64],
        offsets: NDArray[np.int64],
        gpu: GpuSpec,
    ) -> KernelTimes:
        prices = price(works, gpu, self._efficiencies, learned=self.learned)
        if communications:
            prices = _joined(prices, communications)
        family, families = _intern(
            [work.family for work in works] + [communication.FAMILY] * len(communications)
        )
        name, names = _intern([work.name for work in works] + [each.name for each in communications])
        flops = np.asarray([work.flops for work in works] + [0] * len(communications), dtype=np.int64)
        moved = np.asarray(
            [work.moved_bytes for work in works] + [each.moved_bytes for each in communications],
            dtype=np.int64,
        )
        return KernelTimes(
            operation_offsets=offsets,
            work_ns=prices.work_ns[index],
            low_ns=prices.low_ns[index],
            high_ns=prices.high_ns[index],
            source=prices.source[index],
            family=family[index],
            families=families,
            name=name[index],
            names=names,
            flops=flops[index],
            moved_bytes=moved[index],
            sm_share=prices.sm_share[index],
            hbm_share=prices.hbm_share[index],
            link_share=prices.link_share[index],
            unknown_operators=tuple(sorted({work.name for work in works if not work.known})),
        )


class LearnedModel(RooflineModel):
    """Maya's own model: learned families by their trees, the others by the fitted roofline."""

    learned = True


def _joined(prices: Prices, communications: Sequence[CommunicationKernel]) -> Prices:
    """The prices of compute kernels, then those of communications."""
    times = [each.time for each in communications]
    shares = [each.occupancy for each in communications]

    def after(column: NDArray[Any], values: Sequence[float]) -> NDArray[Any]:
        return np.concatenate([column, np.asarray(values, dtype=column.dtype)])

    return Prices(
        work_ns=after(prices.work_ns, [time.time_ns for time in times]),
        low_ns=after(prices.low_ns, [time.low_ns for time in times]),
        high_ns=after(prices.high_ns, [time.high_ns for time in times]),
        source=after(prices.source, [time.source for time in times]),
        sm_share=after(prices.sm_share, [share.sm for share in shares]),
        hbm_share=after(prices.hbm_share, [share.hbm for share in shares]),
        link_share=after(prices.link_share, [share.link for share in shares]),
    )


def _expand(kind: int, operator: str, metadata_json: str) -> list[KernelWork]:
    metadata = parse_metadata(metadata_json)
    works = expand_operator(operator, metadata)
    if works or kind == Kind.KERNEL:
        return works
    if kind == Kind.MEMSET:
        return copies.expand_zero("zero_", metadata)
    return copies.expand_memcpy_entry(metadata) if metadata.memcpy else works


def _intern(values: Sequence[str]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    table: dict[str, int] = {}
    index = [table.setdefault(value, len(table)) for value in values]
    return np.asarray(index, dtype=np.int32), tuple(table)


def _check(pairs: NDArray[np.int64], tables: Tables) -> None:
    for column, what, size in ((1, "operator", len(tables.operators)), (2, "metadata", len(tables.metadata))):
        values = pairs[:, column]
        if len(values) and (values.min() < 0 or values.max() >= size):
            raise ValueError(f"an operation's {what} index is outside 0..{size - 1}")
