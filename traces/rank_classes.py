"""Ranks that do the same are stored once: finding them, and rebuilding each one's trace.

`merge_equal_ranks` groups the ranks of a finished run by a hash of what decides their cost
(`maya.traces.cost_view`) and keeps the files of each group's lowest rank as they are. The rule that
makes a member's trace of them is in its RankClass, and is tried before anything is deleted: the
rebuilt trace must say of every communication what the member's own said. `read_ranks` follows it.

What ranks of a class have each to themselves is the representative's afterwards: source lines, seeds
and storage ids in the trace, and the log of assumed values (whose counts are of one rank, not summed).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maya.errors import MayaError
from maya.traces.cost_view import cost_view, relative_peers, used_communicators
from maya.traces.manifest import Manifest
from maya.traces.memory_file import memory_path
from maya.traces.operations import Kind
from maya.traces.rank_class import RankClass, single_rank
from maya.traces.rank_reader import RankTrace, read_rank
from maya.traces.tables import Communicator
from maya.traces.tables_file import tables_path
from maya.traces.writer import assumptions_path, trace_path

_MESSAGES = (Kind.SEND, Kind.RECV)


@dataclass
class _Group:
    trace: RankTrace
    members: list[int]
    communicators: dict[int, tuple[Communicator, ...]]


def merge_equal_ranks(run_dir: str | os.PathLike[str], world_size: int) -> tuple[RankClass, ...]:
    """Find the classes of a run's ranks and delete the files of all but each class's lowest rank.

    A rank that left no whole trace is a class of its own.

    Args:
        run_dir: with every rank's files; no rank writes any more.
        world_size: how many ranks.

    Returns:
        The classes by their lowest rank, for the manifest.

    Raises:
        MayaError: a trace is damaged. Nothing has been deleted then.
    """
    if world_size == 1:
        return single_rank()
    groups: list[_Group] = []
    by_digest: dict[bytes, _Group] = {}
    alone: list[RankClass] = []
    for rank in range(world_size):
        if not trace_path(run_dir, rank).exists():
            alone.append(RankClass(rank, (rank,)))
            continue
        trace = read_rank(run_dir, rank)
        digest = cost_view(trace).digest
        found = by_digest.get(digest)
        rule = None if found is None else _rule(found.trace, trace)
        if found is None or rule is None:
            group = _Group(trace, [rank], {})
            groups.append(group)
            by_digest.setdefault(digest, group)
            continue
        found.members.append(rank)
        if rule != found.trace.tables.communicators:
            found.communicators[rank] = rule
    for group in groups:
        for rank in group.members[1:]:
            delete_rank(run_dir, rank)
    classes = [RankClass(group.members[0], tuple(group.members), group.communicators) for group in groups]
    return tuple(sorted(classes + alone, key=lambda each: each.rank))


def delete_rank(run_dir: str | os.PathLike[str], rank: int) -> None:
    """Remove one rank's trace, the trace itself first: without it the rest counts for nothing."""
    for path in (trace_path, tables_path, memory_path, assumptions_path):
        Path(path(run_dir, rank)).unlink(missing_ok=True)


def read_ranks(run_dir: str | os.PathLike[str], manifest: Manifest) -> tuple[RankTrace, ...]:
    """The trace of every rank of the job, ascending; equal ranks share their columns.

    Raises:
        MayaError: a file is missing or damaged, or a class's rule does not fit its trace.
    """
    traces: dict[int, RankTrace] = {}
    for group in manifest.rank_classes:
        traces |= ranks_of_class(read_rank(run_dir, group.rank), group)
    return tuple(traces[rank] for rank in sorted(traces))


def ranks_of_class(representative: RankTrace, group: RankClass) -> dict[int, RankTrace]:
    """Rank → trace of every rank of a class.

    Raises:
        MayaError: the class's rule does not fit the trace.
    """
    return {rank: rebuild_rank(representative, rank, group.communicators.get(rank)) for rank in group.ranks}


def rebuild_rank(
    representative: RankTrace, rank: int, communicators: Sequence[Communicator] | None = None
) -> RankTrace:
    """The trace of another rank of the representative's class.

    Args:
        representative: the trace that was kept.
        rank: whose trace is wanted.
        communicators: that rank's, in the order of the representative's tables; None: the same.

    Raises:
        MayaError: the communicators do not fit the trace.
    """
    if rank == representative.rank:
        return representative
    theirs = representative.tables.communicators
    mine = theirs if communicators is None else tuple(communicators)
    used = used_communicators(representative)
    for index in used:
        if (
            index >= min(len(mine), len(theirs))
            or len(mine[index].ranks) != len(theirs[index].ranks)
            or rank not in mine[index].ranks
        ):
            raise MayaError(
                f"rank {rank} cannot be rebuilt from rank {representative.rank}: communicator {index} "
                "of its class's rule does not fit the trace",
                hint="manifest.json and the traces are not of one run; record the run again",
            )
    operations = replace(representative.operations, communications=_with_peers(representative, rank, mine))
    return RankTrace(
        rank=rank,
        operations=operations,
        tables=replace(representative.tables, communicators=mine),
        memory=representative.memory,
        assumptions=representative.assumptions,
    )


def _with_peers(representative: RankTrace, rank: int, mine: tuple[Communicator, ...]) -> NDArray[np.void]:
    """The communication table with peers as `rank` has them."""
    rows = representative.operations.rows
    table = representative.operations.communications
    operation = np.flatnonzero(rows["communication"] >= 0)
    index = rows["communication"][operation]
    kinds = rows["kind"][operation]
    peers = relative_peers(representative.rank, representative.tables.communicators, table[index], kinds)
    if all(peer < 0 for peer in peers):
        return table
    changed = table.copy()
    for row, peer, kind in zip(index.tolist(), peers, kinds.tolist(), strict=True):
        if peer < 0:
            continue
        members = mine[int(table["communicator"][row])].ranks
        place = peer + members.index(rank) if kind in _MESSAGES else peer
        changed["peer"][row] = members[place % len(members)]
    return changed


def _rule(representative: RankTrace, member: RankTrace) -> tuple[Communicator, ...] | None:
    """The member's communicators in the representative's order; None if they do not rebuild it."""
    mine = list(representative.tables.communicators)
    for index, own in zip(used_communicators(representative), used_communicators(member), strict=True):
        mine[index] = member.tables.communicators[own]
    try:
        rebuilt = rebuild_rank(representative, member.rank, mine)
    except MayaError:
        return None
    return tuple(mine) if _said(rebuilt) == _said(member) else None


def _said(trace: RankTrace) -> list[Mapping[str, object]]:
    """Everything the trace says of its communications to the other ranks, in issue order."""
    index = trace.operations.rows["communication"]
    details = trace.operations.communications[index[index >= 0]]
    kept = (
        "sequence_in_communicator",
        "collective",
        "reduce_op",
        "input_bytes",
        "output_bytes",
        "peer",
        "tag",
    )
    columns = [details[name].tolist() for name in kept]
    groups = [trace.tables.communicators[i] for i in details["communicator"].tolist()]
    return [
        {"communicator": group, **dict(zip(kept, values, strict=True))}
        for group, *values in zip(groups, *columns, strict=True)
    ]
