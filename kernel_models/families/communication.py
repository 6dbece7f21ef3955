"""Communications as kernels: what the simulator and the tables of a report see of NCCL's.

Not operators with metadata alone: what a call costs stands in the communication table, so that these
are not among `EXPANDERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.collectives import Collective, CollectiveModel, CollectiveTime, Occupancy
from maya.traces.operations import Kind, Operations
from maya.traces.tables import Tables, parse_metadata

FAMILY = "communication"
COMMUNICATION_KINDS = (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_VERBS = {Kind.SEND: "send", Kind.RECV: "recv"}


@dataclass(frozen=True)
class CommunicationKernel:
    """One distinct communication: `name` as shown to the user, `moved_bytes` of this rank's memory."""

    name: str
    moved_bytes: int
    time: CollectiveTime
    occupancy: Occupancy


def communication_kernels(
    operations: Operations, tables: Tables, selected: NDArray[np.int64], model: CollectiveModel
) -> tuple[list[CommunicationKernel], NDArray[np.int64]]:
    """The distinct kernels of communications, and which one each operation launches.

    A message's own end is not in the table: it is taken to be the communicator's member before the peer (of
    two members that is the other one).

    Args:
        operations: of one rank.
        tables: with its communicators.
        selected: rows of `operations` whose kind is one of COMMUNICATION_KINDS.
        model: prices them.

    Returns:
        kernels, and [len(selected)] indices into them.

    Raises:
        ValueError: a row without communication, or one that indexes outside the tables.
    """
    rows = operations.rows[selected]
    index = rows["communication"]
    if len(index) and (index.min() < 0 or index.max() >= len(operations.communications)):
        raise ValueError(f"an operation's communication is outside 0..{len(operations.communications) - 1}")
    details = operations.communications[index]
    columns = ("communicator", "collective", "input_bytes", "output_bytes", "peer")
    keys = [rows["kind"], rows["metadata"], *(details[column] for column in columns)]
    kernels: list[CommunicationKernel] = []
    known: dict[tuple[int, ...], int] = {}
    chosen = np.zeros(len(rows), dtype=np.int64)
    for position, key in enumerate(zip(*(column.tolist() for column in keys), strict=True)):
        place = known.get(key)
        if place is None:
            place = known[key] = len(kernels)
            kernels.append(_kernel(key, tables, model))
        chosen[position] = place
    return kernels, chosen


def _kernel(key: Sequence[int], tables: Tables, model: CollectiveModel) -> CommunicationKernel:
    kind, metadata, communicator, collective, into, out, peer = key
    if not 0 <= communicator < len(tables.communicators):
        raise ValueError(
            f"a communicator's index is outside 0..{len(tables.communicators) - 1}: {communicator}"
        )
    members = tables.communicators[communicator].ranks
    if kind != Kind.COLLECTIVE:
        collective = Collective.MESSAGE
        ranks = _ends(members, peer)
    else:
        ranks = members
    label = _VERBS.get(Kind(kind), Collective(collective).label)
    name = f"{label} {_dtype(metadata, tables)} {format_bytes(max(into, out))} x{len(ranks)}"
    time = model.price(collective, ranks, into, out)
    return CommunicationKernel(name, into + out, time, model.occupancy(collective, ranks, into, out))


def _ends(members: Sequence[int], peer: int) -> tuple[int, ...]:
    """A message's two ranks; a rank that sends to itself is one."""
    others = [rank for rank in members if rank != peer]
    if not others:
        raise ValueError(f"a message to rank {peer} in a communicator of {list(members)[:16]}")
    place = members.index(peer) if peer in members else 0
    return (members[place - 1] if peer in members else others[0], peer)


def _dtype(metadata: int, tables: Tables) -> str:
    """dtype of the first tensor; "bytes" where the trace has none."""
    if not 0 <= metadata < len(tables.metadata):
        return "bytes"
    entry = parse_metadata(tables.metadata[metadata])
    tensors = entry.input_tensors() + entry.output_tensors()
    return tensors[0].dtype if tensors else "bytes"


def format_bytes(size: int) -> str:
    """`25.0 MiB`; whole bytes below 1 KiB."""
    value = float(size)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"
