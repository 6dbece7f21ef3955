"""When one simulated rank may stand for all ranks of its class.

Two ranks of a class issue the same operations; their times agree if they also meet the others at the
same times. That is certain where

- no rank of a class of several sends or receives messages (its peer is another rank for each), and
- all ranks of a class use the very same communicators, and every member of a communicator uses it.
  Each communicator then has all of a class as members or none, so that the class's representative is
  one, and there is one instance of it to price.

By induction over the collectives: if all members of a class have arrived at the same times so far,
each next collective starts when the last class arrives, which is when the last representative does.
Data parallel jobs are of this kind, whatever their classes. Tensor and pipeline parallel ones are not
(a class has many tensor-parallel groups): all their ranks are simulated.
`tests/pipeline/test_representatives.py` holds both ways equal to the nanosecond on random programs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maya.traces import Communicator, Kind, RankClass, RankTrace, used_communicators

_MESSAGES = (int(Kind.SEND), int(Kind.RECV))


def stand_for_their_classes(classes: Sequence[RankClass], traces: Sequence[RankTrace]) -> bool:
    """Whether simulating only the classes' representatives gives every rank's times.

    Args:
        classes: all of the job's.
        traces: of their representatives.
    """
    if all(len(group.ranks) == 1 for group in classes):
        return False  # every rank is simulated anyway, and is held to meet all the others
    users: dict[Communicator, set[int]] = {}
    for group, trace in zip(classes, traces, strict=True):
        rows = trace.operations.rows
        several = len(group.ranks) > 1
        if several and bool(np.isin(rows["kind"], _MESSAGES).any()):
            return False
        own = trace.tables.communicators
        for index in used_communicators(trace):
            if not 0 <= index < len(own) or any(
                mine[index] != own[index] for mine in group.communicators.values()
            ):
                return False
            users.setdefault(own[index], set()).update(group.ranks)
    return all(set(communicator.ranks) == members for communicator, members in users.items())
