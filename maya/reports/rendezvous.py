"""Which slices of a timeline are one communication: arrows lead from member to member."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from maya.reports.report import SimulatedRun
from maya.traces import CollectiveType, Kind, RankTrace

FIRST_ARROW = 1 << 62
"""Ids of these arrows, clear of those of the ranks' launches."""

_COLLECTIVES = {kind.value: kind.name.lower().replace("_", "-") for kind in CollectiveType}


def arrows(run: SimulatedRun) -> dict[int, dict[int, int]]:
    """Rank → operation → id of the arrow through all members of its communication.

    Communications of which only one member was simulated have none.
    """
    meetings: dict[Hashable, list[tuple[int, int]]] = {}
    for rank in run.ranks:
        trace = rank.trace
        rows = trace.operations.rows
        messages: dict[Hashable, int] = {}
        kinds = np.isin(rows["kind"], (Kind.COLLECTIVE, Kind.SEND, Kind.RECV))
        for operation in np.flatnonzero(kinds).tolist():
            details = trace.operations.communications[int(rows["communication"][operation])]
            group = trace.tables.communicators[int(details["communicator"])]
            key: Hashable
            if rows["kind"][operation] == Kind.COLLECTIVE:
                key = group, int(details["sequence_in_communicator"])
            else:
                ends = (trace.rank, int(details["peer"]))
                ends = ends if rows["kind"][operation] == Kind.SEND else ends[::-1]
                channel = group, *ends, int(details["tag"])
                number = messages[channel] = messages.get(channel, -1) + 1
                key = *channel, number
            meetings.setdefault(key, []).append((trace.rank, operation))
    found: dict[int, dict[int, int]] = {rank.trace.rank: {} for rank in run.ranks}
    together = [members for members in meetings.values() if len(members) > 1]
    for number, members in enumerate(together, start=FIRST_ARROW):
        for rank_number, operation in members:
            found[rank_number][operation] = number
    return found


def described(trace: RankTrace, row: int) -> dict[str, str | int]:
    """What a slice says of a communication, given its row of the communication table."""
    details = trace.operations.communications[row]
    group = trace.tables.communicators[int(details["communicator"])]
    shown: dict[str, str | int] = {"communicator": group.name, "ranks": ", ".join(map(str, group.ranks))}
    collective = int(details["collective"])
    if collective in _COLLECTIVES:
        shown["collective"] = _COLLECTIVES[collective]
        shown["number in communicator"] = int(details["sequence_in_communicator"])
    elif int(details["peer"]) >= 0:
        shown["peer"] = int(details["peer"])
    shown["bytes in"], shown["bytes out"] = int(details["input_bytes"]), int(details["output_bytes"])
    return shown
