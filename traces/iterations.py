"""Which iteration, microbatch and phase each operation belongs to.

Not stored with the operations: an iteration's end is known only once the next one has begun
(several optimizers may step in one loop), so it follows from the tables and the markers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maya.traces.operations import MARK_BACKWARD_END, Kind, Operations, Phase
from maya.traces.tables import Tables


def iteration_of(operations: Operations, tables: Tables) -> NDArray[np.int64]:
    """[n]: 0 for the operations up to and including the first iteration end, then 1, and so on.

    What follows the last end counts as one more, incomplete iteration: its number is
    `len(tables.iteration_ends)`.
    """
    ends = np.asarray(tables.iteration_ends, dtype=np.int64)
    return np.searchsorted(ends, operations.rows["id"], side="left").astype(np.int64)


def microbatch_of(operations: Operations, tables: Tables) -> NDArray[np.int64]:
    """[n]: number of the microbatch within its iteration; -1 for what follows the last one.

    A microbatch ends where a backward pass ends. What comes after an iteration's last backward
    (gradient clipping, the optimizer, logging) belongs to none. An iteration without a backward is
    one microbatch, 0.
    """
    count = operations.count
    if not count:
        return np.zeros(0, dtype=np.int64)
    iteration = iteration_of(operations, tables)
    ends_backward = _is_operator(operations, tables, MARK_BACKWARD_END)
    ended: NDArray[np.int64] = np.cumsum(ends_backward, dtype=np.int64)
    before: NDArray[np.int64] = ended - ends_backward.astype(
        np.int64
    )  # the marker itself belongs to the microbatch it ends
    first_of_iteration = np.searchsorted(iteration, np.arange(int(iteration[-1]) + 1), side="left")
    first_of_iteration = np.minimum(first_of_iteration, count - 1)
    microbatch: NDArray[np.int64] = before - before[first_of_iteration][iteration]
    passes = np.bincount(iteration[ends_backward], minlength=int(iteration[-1]) + 1)[iteration]
    microbatch[(passes > 0) & (microbatch >= passes)] = -1
    return microbatch


def phase_mask(operations: Operations, *phases: Phase) -> NDArray[np.bool_]:
    """[n]: which operations were issued in one of the phases."""
    return np.isin(operations.rows["phase"], [int(phase) for phase in phases])


def _is_operator(operations: Operations, tables: Tables, operator: str) -> NDArray[np.bool_]:
    rows = operations.rows
    marks = [index for index, name in enumerate(tables.operators) if name == operator]
    found: NDArray[np.bool_] = (rows["kind"] == Kind.MARKER) & np.isin(rows["operator"], marks)
    return found
