"""The seam to network models: what the engine asks, and the simplest model that answers.

The engine decides *when* a communication may start (every member's stream has reached it) and how
fast its kernels may run beside other kernels of their GPUs; a NetworkModel decides how long it
takes from there. `FixedTimeNetwork` serves models that know one time for each communication; a model
of flows on links implements `NetworkModel` itself and re-times its flows as neighbours come and go.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from maya.traces.tables import Communicator

MESSAGE = -1
"""`Transfer.collective` of a send matched with its receive."""


@dataclass(frozen=True)
class Transfer:
    """One communication whose members have all arrived.

    Attributes:
        id: dense, in the order in which transfers start.
        communicator: name and members.
        sequence: number within the communicator; of a message, within its (source, destination, tag).
        collective: Chakra's CollectiveCommType, or MESSAGE.
        reduce_op: as recorded.
        input_bytes, output_bytes: of one rank, the largest where ranks differ.
        ranks: global ranks that take part and are simulated; a message: (source, destination).
        tag: of a message, else 0.
    """

    id: int
    communicator: Communicator
    sequence: int
    collective: int
    reduce_op: int
    input_bytes: int
    output_bytes: int
    ranks: tuple[int, ...]
    tag: int


class NetworkModel(Protocol):
    """Decides when transfers finish. Times never go back; ties are broken by transfer id."""

    @property
    def shares_links(self) -> bool:
        """True: the model itself divides links among transfers, so the engine must not."""
        ...

    def begin(self, transfer: Transfer, now_ns: int) -> None:
        """All members have arrived."""
        ...

    def set_speed(self, transfer: int, speed: float, now_ns: int) -> None:
        """From now on other kernels leave the transfer's kernels this share (0..1) of their speed."""
        ...

    def next_event_ns(self) -> int | None:
        """When the model next wants `advance`, at least the last time it saw; None: nothing runs."""
        ...

    def advance(self, now_ns: int) -> Sequence[int]:
        """Move to now and return the ids of the transfers that have finished, ascending."""
        ...


class TransferCost(Protocol):
    """Knows how long a transfer takes when nothing disturbs it."""

    def duration_ns(self, transfer: Transfer) -> int:
        """Time from the last member's arrival to the end, at least 0."""
        ...


_ROUNDING_NS = 1e-3
"""Tolerance when rounding an end up to a whole ns: far above float error, far below a ns."""


@dataclass
class _Running:
    remaining_ns: float
    updated_ns: int
    speed: float
    end_ns: int


class FixedTimeNetwork:
    """Transfers take what `cost` says, independently of one another, slower at lower speed."""

    shares_links = False

    def __init__(self, cost: TransferCost) -> None:
        """`cost` is asked once for each transfer, in order of start."""
        self._cost = cost
        self._running: dict[int, _Running] = {}
        self._ends: list[tuple[int, int]] = []

    def begin(self, transfer: Transfer, now_ns: int) -> None:
        """See NetworkModel. Raises ValueError for a negative or non-integer duration."""
        duration = self._cost.duration_ns(transfer)
        if not isinstance(duration, int) or duration < 0:
            raise ValueError(
                f"a transfer's duration must be an integer >= 0 ns, not {duration!r}: {transfer}"
            )
        self._running[transfer.id] = _Running(float(duration), now_ns, 1.0, now_ns + duration)
        heapq.heappush(self._ends, (now_ns + duration, transfer.id))

    def set_speed(self, transfer: int, speed: float, now_ns: int) -> None:
        """See NetworkModel. Raises ValueError for a speed outside (0, 1]."""
        if not 0 < speed <= 1:
            raise ValueError(f"speed must lie in (0, 1], not {speed}")
        running = self._running[transfer]
        running.remaining_ns -= (now_ns - running.updated_ns) * running.speed
        running.updated_ns = now_ns
        running.speed = speed
        left = math.ceil(max(running.remaining_ns, 0.0) / speed - _ROUNDING_NS)
        if now_ns + left != running.end_ns:
            running.end_ns = now_ns + left
            heapq.heappush(self._ends, (running.end_ns, transfer))

    def next_event_ns(self) -> int | None:
        """See NetworkModel."""
        while self._ends:
            end, transfer = self._ends[0]
            running = self._running.get(transfer)
            if running is not None and running.end_ns == end:
                return end
            heapq.heappop(self._ends)  # re-timed since
        return None

    def advance(self, now_ns: int) -> list[int]:
        """See NetworkModel."""
        finished = []
        while (end := self.next_event_ns()) is not None and end <= now_ns:
            transfer = heapq.heappop(self._ends)[1]
            del self._running[transfer]
            finished.append(transfer)
        return sorted(finished)
