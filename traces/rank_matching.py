"""Do the ranks of a job agree? Every collective and every message is matched with its peers'.

The members of a communicator must call the same collectives in the same order with sizes that fit;
each send needs its receive and the other way round. Whatever lies behind a rank's last iteration may
lack its peers: ranks are stopped there, and one may already have gone on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

import numpy as np

from maya.traces.chakra_schema import CollectiveType
from maya.traces.operations import Kind
from maya.traces.rank_reader import RankTrace
from maya.traces.tables import Communicator

RANKS_NAMED = 8
"""Ranks that a message spells out."""

_NAMES = {kind.value: kind.name.lower().replace("_", "-") for kind in CollectiveType}
_SAME_INPUT = frozenset(
    {
        CollectiveType.ALL_REDUCE,
        CollectiveType.REDUCE,
        CollectiveType.GATHER,
        CollectiveType.BROADCAST,
        CollectiveType.REDUCE_SCATTER,
        CollectiveType.REDUCE_SCATTER_BLOCK,
    }
)
"""Collectives to which every member brings as much. All-gathers and all-to-alls may be uneven."""
_REDUCING = frozenset(
    {
        CollectiveType.ALL_REDUCE,
        CollectiveType.REDUCE,
        CollectiveType.REDUCE_SCATTER,
        CollectiveType.REDUCE_SCATTER_BLOCK,
    }
)


@dataclass(frozen=True)
class Mismatch:
    """Something on which ranks do not agree.

    Attributes:
        rank: where it shows.
        node: id of the operation there.
        place: what the operation is and where the script calls it.
        problem: what is wrong, with the other rank's operation.
        excused: the peer may be missing because it was stopped before: not an error.
    """

    rank: int
    node: int
    place: str
    problem: str
    excused: bool = False

    @property
    def message(self) -> str:
        """`rank 1, node 12 (c10d::allreduce_, train.py:3): ...`."""
        return f"rank {self.rank}, node {self.node} ({self.place}): {self.problem}"


@dataclass(frozen=True)
class _Call:
    """One rank's part in a collective or a message."""

    trace: RankTrace
    node: int
    row: np.void

    @property
    def size(self) -> int:
        """Bytes of a message, on whichever side."""
        return max(int(self.row["input_bytes"]), int(self.row["output_bytes"]))

    @property
    def is_behind(self) -> bool:
        """Whether it comes after the rank's last iteration."""
        ends = self.trace.tables.iteration_ends
        return bool(ends) and self.node > ends[-1]

    def place(self) -> str:
        """Operator and source line."""
        row, tables = self.trace.operations.rows[self.node], self.trace.tables
        name, line = tables.operators[int(row["operator"])], int(row["source_line"])
        return f"{name}, {tables.source_lines[line]}" if line >= 0 else name

    def mismatch(self, problem: str, *, excused: bool = False) -> Mismatch:
        return Mismatch(self.trace.rank, self.node, self.place(), problem, excused)


def find_mismatches(traces: Sequence[RankTrace], limit: int = 100) -> list[Mismatch]:
    """Where ranks do not agree, at most `limit` places.

    Args:
        traces: every rank of the job; communicators with members that are not there are checked
            among those that are.
    """
    return list(islice(_mismatches(traces), limit))


def _mismatches(traces: Sequence[RankTrace]) -> Iterator[Mismatch]:
    present = {trace.rank for trace in traces}
    collectives: dict[tuple[Communicator, int], dict[int, _Call]] = {}
    channels: dict[tuple[Communicator, int, int, int], tuple[list[_Call], list[_Call]]] = {}
    for trace in traces:
        rows = trace.operations.rows
        kinds = np.isin(rows["kind"], (Kind.COLLECTIVE, Kind.SEND, Kind.RECV))
        for node in np.flatnonzero(kinds).tolist():
            call = _Call(trace, node, trace.operations.communications[int(rows["communication"][node])])
            index = int(call.row["communicator"])
            if not 0 <= index < len(trace.tables.communicators):
                yield call.mismatch(f"its communicator {index} is not in the rank's tables")
                continue
            group = trace.tables.communicators[index]
            if trace.rank not in group.ranks:
                yield call.mismatch(f"is not a member of its {_group(group)}")
            elif rows["kind"][node] == Kind.COLLECTIVE:
                meeting = collectives.setdefault((group, int(call.row["sequence_in_communicator"])), {})
                if trace.rank in meeting:
                    yield call.mismatch(
                        f"is number {call.row['sequence_in_communicator']} of {_group(group)} again, "
                        f"as node {meeting[trace.rank].node} is"
                    )
                meeting[trace.rank] = call
            else:
                is_send = bool(rows["kind"][node] == Kind.SEND)
                peer = int(call.row["peer"])
                ends = (trace.rank, peer) if is_send else (peer, trace.rank)
                channel = channels.setdefault((group, *ends, int(call.row["tag"])), ([], []))
                channel[0 if is_send else 1].append(call)
    for (group, sequence), meeting in collectives.items():
        yield from _collective(group, sequence, meeting, present)
    for (group, source, destination, tag), (sends, receives) in channels.items():
        if {source, destination} <= present:
            yield from _channel(group, tag, sends, receives)


def _collective(
    group: Communicator, sequence: int, meeting: dict[int, _Call], present: set[int]
) -> Iterator[Mismatch]:
    calls = [meeting[rank] for rank in group.ranks if rank in meeting]
    first = calls[0]
    number = f"number {sequence} of {_group(group)}"
    missing = [rank for rank in group.ranks if rank in present and rank not in meeting]
    if missing:
        behind = all(call.is_behind for call in calls)
        yield first.mismatch(f"{_kind(first)} {number} is never called by {_ranks(missing)}", excused=behind)
    kind = int(first.row["collective"])
    for call in calls[1:]:
        other = f"rank {first.trace.rank}, node {first.node} ({first.place()})"
        if int(call.row["collective"]) != kind:
            yield call.mismatch(f"calls {_kind(call)} as {number}, but {other} calls {_kind(first)}")
        elif kind in _REDUCING and int(call.row["reduce_op"]) != int(first.row["reduce_op"]):
            yield call.mismatch(f"{_kind(call)} {number} reduces otherwise than {other}")
        elif kind in _SAME_INPUT and int(call.row["input_bytes"]) != int(first.row["input_bytes"]):
            yield call.mismatch(
                f"{_kind(call)} {number} has {call.row['input_bytes']} bytes, but {other} "
                f"has {first.row['input_bytes']}"
            )


def _channel(group: Communicator, tag: int, sends: list[_Call], receives: list[_Call]) -> Iterator[Mismatch]:
    for send, receive in zip_longest(sends, receives):
        if receive is None:
            yield send.mismatch(
                f"sends {send.size} bytes with tag {tag} in {_group(group)} to "
                f"rank {int(send.row['peer'])}, which never receives them",
                excused=send.is_behind,
            )
        elif send is None:
            yield receive.mismatch(
                f"receives with tag {tag} in {_group(group)} from rank {int(receive.row['peer'])}, "
                "which never sends",
                excused=receive.is_behind,
            )
        elif send.size != receive.size:
            yield receive.mismatch(
                f"receives {receive.size} bytes, but rank {send.trace.rank}, node {send.node} "
                f"({send.place()}) sends {send.size}"
            )


def _kind(call: _Call) -> str:
    kind = int(call.row["collective"])
    return _NAMES.get(kind, f"collective {kind}")


def _group(group: Communicator) -> str:
    return f"communicator '{group.name}'"


def _ranks(ranks: list[int]) -> str:
    more = f" and {len(ranks) - RANKS_NAMED} more" if len(ranks) > RANKS_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:RANKS_NAMED]))}{more}"
