"""Sees that ranks will meet before they are simulated together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from maya.simulator import CommunicationError
from maya.traces import RankClass, RankTrace, find_mismatches, ranks_of_class

MISMATCHES_NAMED = 3
"""Each is a sentence; the first ones show the pattern, `maya trace validate` all."""

MISMATCHES_LOOKED_AT = 10_000
"""Excused ones among them."""


def meeting_traces(
    classes: Sequence[RankClass], traces: Sequence[RankTrace], *, every_rank: bool
) -> list[RankTrace]:
    """The classes' traces, without what lies behind the last iteration if ranks do not meet there.

    Args:
        classes: all of the job's.
        traces: of their representatives.
        every_rank: match all ranks; false where the representatives are known to stand for them.

    Raises:
        CommunicationError: ranks do not agree; names ranks, nodes and source lines.
    """
    if sum(len(group.ranks) for group in classes) == 1:
        return list(traces)
    matched = list(traces)
    if every_rank:
        pairs = zip(classes, traces, strict=True)
        matched = [member for group, trace in pairs for member in ranks_of_class(trace, group).values()]
    found = find_mismatches(matched, limit=MISMATCHES_LOOKED_AT)
    wrong = [mismatch.message for mismatch in found if not mismatch.excused]
    if wrong:
        more = f"\n... and {len(wrong) - MISMATCHES_NAMED} more" if len(wrong) > MISMATCHES_NAMED else ""
        raise CommunicationError(
            "ranks do not agree on what they communicate:\n" + "\n".join(wrong[:MISMATCHES_NAMED]) + more,
            hint="all members of a process group must call the same collectives in the same order",
        )
    return [_upto_last_iteration(trace) for trace in traces] if found else list(traces)


def _upto_last_iteration(trace: RankTrace) -> RankTrace:
    ends = trace.tables.iteration_ends
    if not ends:
        return trace
    count = ends[-1] + 1
    tensors = int(trace.operations.tensor_offsets()[count])
    operations = replace(
        trace.operations,
        rows=trace.operations.rows[:count],
        tensors=trace.operations.tensors[:tensors],
    )
    return replace(trace, operations=operations)
