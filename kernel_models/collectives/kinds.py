"""Which communications there are, and how large NCCL takes each of them to be.

A trace gives the bytes that go into and come out of one rank. NCCL's own measure, that of nccl-tests
and of the measured table, is the larger of the two: the buffer of an all-reduce, broadcast or reduce,
and the total over ranks of the others. `whole_bytes` converts.
"""

from __future__ import annotations

from enum import IntEnum

from maya.errors import UsageError


class Collective(IntEnum):
    """Chakra's CollectiveCommType, and MESSAGE for a send matched with its receive."""

    MESSAGE = -1
    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9

    @property
    def label(self) -> str:
        """As users write it: `all-reduce`."""
        return self.name.lower().replace("_", "-")


BARRIER_BYTES = 4
"""ProcessGroupNCCL's barrier all-reduces one float32."""


def known_collective(value: int) -> Collective:
    """The member with this number.

    Raises:
        ValueError: there is none.
    """
    try:
        return Collective(value)
    except ValueError:
        known = ", ".join(f"{member.value} {member.label}" for member in Collective)
        raise UnknownCollective(f"no collective has the number {value}", hint=f"Known: {known}.") from None


class UnknownCollective(UsageError, ValueError):
    """A number that is no CollectiveCommType; a ValueError too, as for any caller's mistake."""


def whole_bytes(collective: Collective, ranks: int, input_bytes: int, output_bytes: int) -> int:
    """Bytes of a call as NCCL counts them.

    Args:
        collective: which.
        ranks: how many take part.
        input_bytes, output_bytes: of one rank, the largest where ranks differ (an uneven all-to-all takes
            as long as its busiest rank).

    Raises:
        ValueError: a negative size.
    """
    if input_bytes < 0 or output_bytes < 0:
        raise ValueError(f"{collective.label}: bytes must be >= 0, not {input_bytes} in, {output_bytes} out")
    if collective == Collective.BARRIER:
        return max(BARRIER_BYTES, input_bytes, output_bytes)
    if collective in (Collective.ALL_GATHER, Collective.GATHER):
        # A rank that is not the root of a gather has no output.
        return output_bytes if output_bytes > input_bytes else input_bytes * ranks
    if collective in (Collective.REDUCE_SCATTER, Collective.REDUCE_SCATTER_BLOCK, Collective.SCATTER):
        return input_bytes if input_bytes > output_bytes else output_bytes * ranks
    return max(input_bytes, output_bytes)
