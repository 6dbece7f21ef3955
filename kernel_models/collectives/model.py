"""The cost model of collectives: which ranks, how many bytes → how long, and how sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log2
from typing import Protocol

import numpy as np

from maya.hardware import ClusterSpec, GpuSpec, cluster_for
from maya.kernel_models.collectives.algorithms import (
    FAMILY_OF,
    MEASURED,
    island_times,
    network_times,
    wire_share,
)
from maya.kernel_models.collectives.card import CollectiveFits, FamilyFit, load_fits
from maya.kernel_models.collectives.curve import KNOTS_LOG2, Curve, correction_at, make_curve
from maya.kernel_models.collectives.kinds import Collective, known_collective, whole_bytes
from maya.kernel_models.collectives.occupancy import Occupancy, occupancy
from maya.kernel_models.collectives.placement import Placement, place
from maya.kernel_models.contract import Source

ABOVE_SLACK = 4.0
"""Sizes up to four times the largest measured count as inside: there time is a bandwidth times bytes."""
LATENCY_BYTES = 4096
"""If sizes down to this one were measured, smaller ones count as inside: there time is a latency."""
CLASS_CENTRES_LOG2 = (14.0, 18.0, 22.0)
"""Sizes (16 KiB, 256 KiB, 4 MiB) at which a class's interval stands; between them it is interpolated."""
OUTSIDE_WIDTH = 0.15
"""Added to the half-width in log time outside the measured sizes or rank counts."""
BETWEEN_WIDTH = 0.12
"""Added for a rank count between measured ones: held-out counts are 9% off in the median, up to 19% where the
tuner changes its algorithm (benchmarks/collective_accuracy.md)."""
CARRIED_WIDTH = 0.30
"""Added for a link of another generation or bandwidth: between A100, H100 and B200 the share of the link that
NCCL reaches differs by up to 20%, latencies by up to 60%."""
DERIVED_WIDTH = 0.25
"""Added for a collective whose time follows from another one's parameters."""
NETWORK_WIDTH = 0.25
"""Added for what was never measured between nodes: anything but an all-reduce over whole nodes."""
OTHER_NETWORK_WIDTH = 0.35
"""Added between nodes joined by anything but InfiniBand: of two such clusters in the table RoCE is as fast,
and TCP has four times the latency (benchmarks/collective_accuracy.md)."""

COPY_LATENCY_NS = 2_000.0
"""One rank: NCCL copies the input to the output (a device-to-device memcpy) unless they are the same."""


@dataclass(frozen=True)
class CollectiveTime:
    """One call alone on an idle network, from the last member's arrival to its end.

    Attributes:
        time_ns: at least 1.
        low_ns, high_ns: an 80% interval.
        source: LEARNED inside what was measured; EXTRAPOLATED for other links, ranks, sizes or kinds.
        algorithm: such as `ring LL128`, `NVLS`, `tree Simple`, `direct Simple`, `none`.
    """

    time_ns: int
    low_ns: int
    high_ns: int
    source: Source
    algorithm: str


class TransferLike(Protocol):
    """The part of the simulator's Transfer that decides its time."""

    @property
    def collective(self) -> int: ...
    @property
    def ranks(self) -> tuple[int, ...]: ...
    @property
    def communicator(self) -> CommunicatorLike: ...
    @property
    def input_bytes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...


class CommunicatorLike(Protocol):
    """A process group."""

    @property
    def ranks(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class _Route:
    """Everything about a (collective, ranks) pair but the size."""

    where: Placement
    curve: Curve
    fit: FamilyFit
    extra_width: float
    learned: bool


class CollectiveModel:
    """NCCL's times on a GPU in a cluster.

    Args:
        gpu: the device of every rank.
        cluster: nodes and network; by default the one the GPU is most often found in (`cluster_for`).
        ranks_per_node: rank r lies on node r // ranks_per_node; by default every GPU of a node has a rank.
        fits: fitted parameters; by default those that ship.

    Raises:
        ValueError: ranks_per_node below 1.
    """

    def __init__(
        self,
        gpu: GpuSpec,
        cluster: ClusterSpec | None = None,
        ranks_per_node: int | None = None,
        *,
        fits: CollectiveFits | None = None,
    ) -> None:
        self.gpu = gpu
        self.cluster = cluster if cluster is not None else cluster_for(gpu)
        self.ranks_per_node = self.cluster.gpus_per_node if ranks_per_node is None else ranks_per_node
        if self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node must be at least 1, not {ranks_per_node}")
        self._fits = fits if fits is not None else load_fits()
        self._places: dict[tuple[int, ...], Placement] = {}
        self._routes: dict[tuple[Collective, Placement], _Route] = {}
        self._prices: dict[tuple[Collective, Placement, int], CollectiveTime] = {}

    def price(
        self, collective: int, ranks: Sequence[int], input_bytes: int, output_bytes: int
    ) -> CollectiveTime:
        """Time of one call; each distinct one is computed once.

        Args:
            collective: Chakra's CollectiveCommType; -1 = a message from `ranks[0]` to `ranks[1]`.
            ranks: global ranks that take part.
            input_bytes, output_bytes: of one rank, the largest where ranks differ.

        Raises:
            ValueError: an unknown collective, negative bytes, no or repeated ranks, a message that is not
                between two ranks.
        """
        kind = known_collective(collective)
        where = self.placement(ranks)
        if kind == Collective.MESSAGE and where.ranks != 2:
            raise ValueError(f"a message goes from one rank to another, not among {where.ranks}")
        size = whole_bytes(kind, where.ranks, input_bytes, output_bytes)
        key = (kind, where, size)
        found = self._prices.get(key)
        if found is None:
            found = self._prices[key] = self._price(kind, where, size)
        return found

    def occupancy(
        self, collective: int, ranks: Sequence[int], input_bytes: int, output_bytes: int
    ) -> Occupancy:
        """What the call's kernel takes of each GPU; same arguments as `price`."""
        time_ns = float(self.price(collective, ranks, input_bytes, output_bytes).time_ns)
        kind, where = known_collective(collective), self.placement(ranks)
        size = whole_bytes(kind, where.ranks, input_bytes, output_bytes)
        sent = size * wire_share(kind, where.ranks)
        return occupancy(self.gpu, where.link, where.ranks, size, sent, where.link_gbps, time_ns)

    def placement(self, ranks: Sequence[int]) -> Placement:
        """How these ranks are joined."""
        key = tuple(ranks)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = place(key, self.gpu, self.cluster, self.ranks_per_node)
        return found

    def duration_ns(self, transfer: TransferLike) -> int:
        """The simulator's TransferCost."""
        return self._transfer(transfer).time_ns

    def at(self, quantile: str) -> IntervalEnd:
        """A TransferCost that gives the "low" or "high" end of the 80% interval.

        Raises:
            ValueError: any other word.
        """
        return IntervalEnd(self, quantile)

    def _transfer(self, transfer: TransferLike) -> CollectiveTime:
        # Of a collective all members count, also those that are not simulated.
        message = transfer.collective == Collective.MESSAGE
        ranks = transfer.ranks if message else transfer.communicator.ranks
        return self.price(transfer.collective, ranks, transfer.input_bytes, transfer.output_bytes)

    def _price(self, kind: Collective, where: Placement, size: int) -> CollectiveTime:
        if where.ranks == 1:
            return self._alone(kind, size)
        if size == 0:
            return CollectiveTime(1, 1, 1, Source.EXTRAPOLATED, "none")
        route = self._routes.get((kind, where))
        if route is None:
            route = self._routes[kind, where] = self._route(kind, where)
        fit = route.fit
        inside = size >= fit.sizes[0] or fit.sizes[0] <= LATENCY_BYTES
        inside &= size <= fit.sizes[1] * ABOVE_SLACK
        width = route.extra_width + (0.0 if inside else OUTSIDE_WIDTH)
        place_log2 = log2(size)
        low = float(np.interp(place_log2, CLASS_CENTRES_LOG2, [log(end) for end in fit.low])) - width
        high = float(np.interp(place_log2, CLASS_CENTRES_LOG2, [log(end) for end in fit.high])) + width
        time = max(1.0, route.curve.time_ns(size))
        whole = round(time)
        return CollectiveTime(
            time_ns=whole,
            low_ns=max(1, min(whole, round(time * np.exp(low)))),
            high_ns=max(whole, round(time * np.exp(high))),
            source=Source.LEARNED if route.learned and inside else Source.EXTRAPOLATED,
            algorithm=route.curve.algorithm(size),
        )

    def _alone(self, kind: Collective, size: int) -> CollectiveTime:
        in_place = kind in (
            Collective.ALL_REDUCE,
            Collective.REDUCE,
            Collective.BROADCAST,
            Collective.BARRIER,
        )
        if in_place or size == 0:
            return CollectiveTime(1, 1, 1, Source.EXTRAPOLATED, "none")
        time = COPY_LATENCY_NS + 2.0 * size / self.gpu.hbm_bandwidth_gbps
        return CollectiveTime(round(time), round(0.6 * time), round(1.6 * time), Source.EXTRAPOLATED, "copy")

    def _route(self, kind: Collective, where: Placement) -> _Route:
        families, same_generation = self._fits.nearest(where.link, self.gpu.generation)
        fit = families[FAMILY_OF[kind]]
        sizes = 2.0**KNOTS_LOG2
        width = 0.0 if kind in MEASURED else DERIVED_WIDTH
        if not same_generation or (fit.rows and where.link_gbps not in fit.link_gbps):
            width += CARRIED_WIDTH
        if not fit.rows:
            width += DERIVED_WIDTH
        if where.islands > 1:
            network = self._fits.network
            times = network_times(kind, where, fit.parameters, network.parameters, sizes)
            curve = make_curve(times, np.zeros(len(sizes)))
            whole_nodes = where.per_island == self.ranks_per_node == self.cluster.gpus_per_node
            known = FAMILY_OF[kind] == "all_reduce" and where.network_gbps in network.link_gbps
            known &= whole_nodes and where.ranks <= network.ranks[1]
            width += 0.0 if known else NETWORK_WIDTH
            width += 0.0 if self.cluster.network == "infiniband" else OTHER_NETWORK_WIDTH
            return _Route(where, curve, network, width, width == 0.0)
        times = island_times(kind, where.ranks, where.link, where.link_gbps, fit.parameters, sizes)
        curve = make_curve(times, correction_at(fit.corrections, where.ranks, KNOTS_LOG2))
        if not fit.ranks[0] <= where.ranks <= fit.ranks[1]:
            width += OUTSIDE_WIDTH
        learned = width == 0.0 and fit.rows > 0
        if learned and where.ranks not in fit.corrections:
            width += BETWEEN_WIDTH
        return _Route(where, curve, fit, width, learned)


@dataclass(frozen=True)
class IntervalEnd:
    """One end of the interval as the simulator's TransferCost."""

    model: CollectiveModel
    quantile: str

    def __post_init__(self) -> None:
        if self.quantile not in ("low", "high"):
            raise ValueError(f'a quantile is "low" or "high", not {self.quantile!r}')

    def duration_ns(self, transfer: TransferLike) -> int:
        """Time at that end."""
        price = self.model._transfer(transfer)
        return price.low_ns if self.quantile == "low" else price.high_ns
