"""A rank's operations as flat Python lists: what the engines read once for each operation.

Lists, because reading a NumPy scalar costs more than the whole step that uses it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from maya.errors import MayaError
from maya.simulator.inputs import NETWORK_KINDS, RankInput
from maya.simulator.settings import Settings
from maya.simulator.timeline import Activity
from maya.traces.operations import MARK_DATA_WAIT_END, Kind


class Action(IntEnum):
    """What the host does at an operation, after its gap."""

    PASS = 0
    LAUNCH = 1
    RECORD = 2
    STREAM_WAIT = 3
    EVENT_SYNC = 4
    STREAM_SYNC = 5
    DEVICE_SYNC = 6
    HANDLE_WAIT = 7
    """Wait for an asynchronous communication."""
    DATA_WAIT = 8
    TRANSFER = 9
    """Enqueue a communication with other ranks."""


class Engine(IntEnum):
    """Which part of the device an item occupies."""

    SM = 0
    COPY_H2D = 1
    COPY_D2H = 2
    COPY_P2P = 3


_ACTION_OF_KIND = {
    Kind.KERNEL: Action.LAUNCH,
    Kind.MEMCPY: Action.LAUNCH,
    Kind.MEMSET: Action.LAUNCH,
    Kind.EVENT_RECORD: Action.RECORD,
    Kind.STREAM_WAIT: Action.STREAM_WAIT,
    Kind.EVENT_SYNC: Action.EVENT_SYNC,
    Kind.STREAM_SYNC: Action.STREAM_SYNC,
    Kind.DEVICE_SYNC: Action.DEVICE_SYNC,
    Kind.COLLECTIVE: Action.TRANSFER,
    Kind.SEND: Action.TRANSFER,
    Kind.RECV: Action.TRANSFER,
    Kind.WAIT: Action.HANDLE_WAIT,
    Kind.HOST: Action.PASS,
    Kind.MARKER: Action.PASS,
}
_ENGINE_OF_DIRECTION = {
    "h2d": Engine.COPY_H2D,
    "d2h": Engine.COPY_D2H,
    "p2p": Engine.COPY_P2P,
    "d2d": Engine.SM,  # within one device a copy is a kernel or as good as one: it shares HBM
}


@dataclass(frozen=True)
class Program:
    """One rank, ready to run. An *item* is one entry of device work: a kernel, copy or transfer.

    Attributes:
        source: what it was made from, for names in errors.
        actions, gaps, streams, events, blocking: one for each operation; `streams` are dense
            indices into `stream_keys`, (device, stream id) pairs.
        handles: asynchronous communication handle of each operation, -1 if none.
        transfer_group: of a TRANSFER, which operations start together with it (dense), else -1.
        group_items: last operation of each group -> the group's items.
        first_item: [n + 1], operation i's items are first_item[i]:first_item[i + 1].
        data_wait_ns: what each DATA_WAIT takes.
        work: ns of each item alone (0 for transfers, whose time the network decides).
        engines: Engine of each item.
        shares: (SM, HBM, link) of each item.
        item_operation, item_kernel, item_activity: int64[items], columns of the result.
    """

    source: RankInput
    actions: list[int]
    gaps: list[int]
    streams: list[int]
    stream_keys: list[tuple[int, int]]
    events: list[int]
    blocking: list[int]
    handles: list[int]
    transfer_group: list[int]
    group_items: dict[int, tuple[int, ...]]
    first_item: list[int]
    data_wait_ns: int
    work: list[int]
    engines: list[int]
    shares: list[tuple[float, float, float]]
    item_operation: NDArray[np.int64]
    item_kernel: NDArray[np.int64]
    item_activity: NDArray[np.uint8]

    def used_streams(self) -> set[int]:
        """Dense indices of the streams that get any entry."""
        enqueues = (Action.LAUNCH, Action.TRANSFER, Action.RECORD, Action.STREAM_WAIT, Action.HANDLE_WAIT)
        actions = np.asarray(self.actions)
        return set(np.asarray(self.streams)[np.isin(actions, enqueues)].tolist())


def compile_program(rank: RankInput, settings: Settings) -> Program:
    """Flatten a checked rank. Raises MayaError where the trace lacks what an operation needs."""
    rows = rank.operations.rows
    kinds = rows["kind"]
    table = np.zeros(max(Kind) + 1, dtype=np.int64)
    for kind, action in _ACTION_OF_KIND.items():
        table[kind] = action
    actions = table[kinds]
    network = np.isin(kinds, NETWORK_KINDS)
    alone = network & _alone(rank)
    actions[alone] = Action.LAUNCH
    data_wait_ns = settings.data_wait_ns if rank.data_wait_ns is None else rank.data_wait_ns
    actions[_data_wait_ends(rank, data_wait_ns)] = Action.DATA_WAIT

    offsets = np.asarray(rank.kernels.operation_offsets, dtype=np.int64)
    launched = np.diff(offsets)
    transfers = network & ~alone
    counts = np.where(transfers, 1, launched)
    first_item = np.concatenate([[0], np.cumsum(counts)])
    item_operation = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(item_operation)) - first_item[item_operation]
    item_kernel = np.where(launched[item_operation] > 0, offsets[item_operation] + within, -1)
    is_transfer = transfers[item_operation]

    work = np.where(is_transfer, 0, _take(rank.kernels.work_ns, item_kernel))
    engines = _engines(rank)[item_operation]
    activity = np.where(engines == Engine.SM, Activity.COMPUTE, Activity.COPY)
    activity[network[item_operation]] = Activity.COMMUNICATION
    sm, hbm, link = (
        _take(column, item_kernel).astype(np.float64)
        for column in (rank.kernels.sm_share, rank.kernels.hbm_share, rank.kernels.link_share)
    )
    # A host copy's link is its copy engine, which runs one copy at a time; copies within a device
    # use no link at all.
    copies = np.isin(kinds, (Kind.MEMCPY, Kind.MEMSET))[item_operation]
    link[copies & (engines != Engine.COPY_P2P)] = 0.0
    keys, streams = _dense_streams(rows)
    group_of, group_items = _groups(rank, np.flatnonzero(transfers).tolist(), streams, first_item)
    return Program(
        source=rank,
        actions=actions.tolist(),
        gaps=np.asarray(rank.host_gap_ns).tolist(),
        streams=streams.tolist(),
        stream_keys=keys,
        events=rows["event"].tolist(),
        blocking=rows["blocking"].tolist(),
        handles=_handles(rank).tolist(),
        transfer_group=group_of,
        group_items=group_items,
        first_item=first_item.tolist(),
        data_wait_ns=data_wait_ns,
        work=work.tolist(),
        engines=engines.tolist(),
        shares=list(zip(sm.tolist(), hbm.tolist(), link.tolist(), strict=True)),
        item_operation=item_operation,
        item_kernel=item_kernel,
        item_activity=activity.astype(np.uint8),
    )


def _dense_streams(rows: NDArray[np.void]) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """(device, stream) pairs in ascending order, and each operation's index into them."""
    ids, of_id = np.unique(rows["stream"], return_inverse=True)
    combined = rows["device"].astype(np.int64) * max(len(ids), 1) + of_id
    codes, streams = np.unique(combined, return_inverse=True)
    keys = [(code // len(ids), int(ids[code % len(ids)])) for code in codes.tolist()]
    return keys, streams.astype(np.int64)


def _take(column: NDArray[np.generic], index: NDArray[np.int64]) -> NDArray[np.generic]:
    """`column[index]`, 0 where the index is -1."""
    values = np.asarray(column)
    padded = np.concatenate([values, np.zeros(1, dtype=values.dtype)])
    return padded[index]


def _handles(rank: RankInput) -> NDArray[np.int64]:
    index = rank.operations.rows["communication"]
    handles = np.full(len(index), -1, dtype=np.int64)
    has = index >= 0
    handles[has] = rank.operations.communications["async_handle"][index[has]]
    return handles


def _alone(rank: RankInput) -> NDArray[np.bool_]:
    """Operations whose communicator has this rank only: no other rank to meet."""
    index = rank.operations.rows["communication"]
    alone = np.zeros(len(index), dtype=np.bool_)
    for operation in np.flatnonzero(np.isin(rank.operations.rows["kind"], NETWORK_KINDS)).tolist():
        communicator = int(rank.operations.communications["communicator"][index[operation]])
        if rank.tables is None or not 0 <= communicator < len(rank.tables.communicators):
            raise MayaError(
                f"rank {rank.rank}: {rank.operation_name(operation)} names communicator {communicator}, "
                "which the tables do not have",
                hint="give RankInput the trace's tables; without members nobody can be waited for",
            )
        alone[operation] = len(rank.tables.communicators[communicator].ranks) == 1
    return alone


def _groups(
    rank: RankInput, transfers: list[int], streams: NDArray[np.int64], first_item: NDArray[np.int64]
) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Group of each operation, and the items of each group under its last operation.

    Operations of one stream with the same `coalescing_group` >= 0 start together (ncclGroupStart
    to ncclGroupEnd); the ids are taken to be used once in a rank's trace.
    """
    rows = rank.operations.rows
    group_of = [-1] * len(rows)
    members: dict[tuple[int, int, int], list[int]] = {}
    for operation in transfers:
        label = int(rank.operations.communications["coalescing_group"][rows["communication"][operation]])
        key = (int(streams[operation]), label, -1 if label >= 0 else operation)
        members.setdefault(key, []).append(operation)
    group_items = {}
    for group, operations in enumerate(members.values()):
        for operation in operations:
            group_of[operation] = group
        group_items[operations[-1]] = tuple(int(first_item[operation]) for operation in operations)
    return group_of, group_items


def _data_wait_ends(rank: RankInput, data_wait_ns: int) -> NDArray[np.int64]:
    rows = rank.operations.rows
    if data_wait_ns == 0 or rank.tables is None or MARK_DATA_WAIT_END not in rank.tables.operators:
        return np.zeros(0, dtype=np.int64)
    name = rank.tables.operators.index(MARK_DATA_WAIT_END)
    return np.flatnonzero((rows["kind"] == Kind.MARKER) & (rows["operator"] == name))


def _engines(rank: RankInput) -> NDArray[np.int64]:
    rows = rank.operations.rows
    engines = np.full(len(rows), int(Engine.SM), dtype=np.int64)
    copies = rows["kind"] == Kind.MEMCPY
    if rank.tables is None:
        engines[copies] = np.where(rows["blocking"][copies] == 1, Engine.COPY_D2H, Engine.COPY_H2D)
        return engines
    for index in np.unique(rows["metadata"][copies]).tolist():
        engine = _engine_of(rank.tables.metadata[index], rank.rank) if index >= 0 else Engine.SM
        engines[copies & (rows["metadata"] == index)] = engine
    return engines


def _engine_of(metadata: str, rank: int) -> Engine:
    copy = json.loads(metadata).get("memcpy")
    direction = copy.get("direction") if isinstance(copy, dict) else None
    if direction not in _ENGINE_OF_DIRECTION:
        raise MayaError(
            f"rank {rank}: a MEMCPY has the direction {direction!r} in {metadata[:120]}",
            hint=f"its metadata needs memcpy.direction, one of {', '.join(_ENGINE_OF_DIRECTION)}",
        )
    return _ENGINE_OF_DIRECTION[direction]
