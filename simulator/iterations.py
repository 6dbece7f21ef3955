"""Where iterations end on the device, and how long each took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.simulator.timeline import Timeline, completion_ns


@dataclass(frozen=True)
class IterationTimes:
    """Iterations of one rank.

    The host usually runs ahead of the device, so an iteration ends when the host has passed its
    last operation *and* everything issued up to there has finished; it begins where the one before
    ended (the first: at the start of the run, with all set-up before it).

    Attributes:
        start_ns, end_ns: int64[n].
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]

    @property
    def duration_ns(self) -> NDArray[np.int64]:
        """int64[n]."""
        return self.end_ns - self.start_ns

    def steady_ns(self, warmup: int = 1) -> int:
        """Mean duration of the iterations after the first `warmup`, rounded to a ns.

        The mean of consecutive differences is exact for a periodic schedule whose period is
        longer than one iteration. With nothing left after the warm-up the last iteration counts.

        Raises:
            ValueError: there is no iteration, or `warmup` is negative.
        """
        if warmup < 0:
            raise ValueError(f"warmup must not be negative, not {warmup}")
        count = len(self.end_ns)
        if count == 0:
            raise ValueError("no iteration ends in the trace, so there is no iteration time")
        first = min(warmup, count - 1)
        total = int(self.end_ns[-1]) - int(self.start_ns[first])
        kept = count - first
        return (2 * total + kept) // (2 * kept)


def iteration_times(
    timeline: Timeline, iteration_ends: Sequence[int], *, rank: int | None = None
) -> IterationTimes:
    """When each iteration of a rank begins and ends.

    Args:
        timeline: result of `simulate`.
        iteration_ends: ids of the operations after which each iteration ends, ascending
            (`Tables.iteration_ends`).
        rank: default: the lowest simulated rank.

    Raises:
        ValueError: ids outside the rank's operations or not ascending; unknown rank.
    """
    chosen = timeline.ranks[0] if rank is None else rank
    done = completion_ns(timeline, chosen)
    ends = np.asarray(iteration_ends, dtype=np.int64).reshape(-1)
    if len(ends) and (ends[0] < 0 or ends[-1] >= len(done) or (np.diff(ends) <= 0).any()):
        raise ValueError(f"iteration_ends must ascend within 0..{len(done) - 1}: {ends[:8].tolist()}")
    end_ns = done[ends]
    start_ns = np.concatenate([np.zeros(min(1, len(ends)), dtype=np.int64), end_ns[:-1]])
    return IterationTimes(start_ns=start_ns, end_ns=end_ns)
