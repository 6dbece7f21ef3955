"""Collectives: limits that any model of them must keep, whatever was fitted."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import pytest

from maya.hardware import all_clusters, all_gpus, cluster_for, find_cluster, find_gpu
from maya.kernel_models import Collective, CollectiveModel, Source
from maya.kernel_models.collectives import whole_bytes
from maya.traces import Communicator

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = [1, 8, 100, KIB, 10 * KIB, 64 * KIB, 300 * KIB, MIB, 3 * MIB, 25 * MIB, 200 * MIB, GIB, 20 * GIB]
H100 = CollectiveModel(find_gpu("H100-SXM5-80GB"))
A100 = CollectiveModel(find_gpu("A100-SXM4-80GB"))
BUFFERS = (Collective.ALL_REDUCE, Collective.REDUCE, Collective.BROADCAST, Collective.MESSAGE)
GATHERS = (Collective.ALL_GATHER, Collective.GATHER)
SCATTERS = (Collective.REDUCE_SCATTER, Collective.SCATTER, Collective.REDUCE_SCATTER_BLOCK)


def sides(collective: Collective, ranks: int, size: int) -> tuple[int, int]:
    """(input, output) bytes of one rank of a call whose whole is `size`, as traces say it."""
    if collective in GATHERS:
        return size // ranks, size
    if collective in SCATTERS:
        return size, size // ranks
    return size, size


def ns(model: CollectiveModel, collective: Collective, ranks: int, size: int) -> int:
    return model.price(collective, range(ranks), *sides(collective, ranks, size)).time_ns


@pytest.mark.parametrize("collective", list(Collective), ids=lambda kind: kind.label)
@pytest.mark.parametrize(
    "gpu", ["H100-SXM5-80GB", "A100-SXM4-80GB", "L40S", "V100-SXM2-32GB", "A100-PCIE-80GB"]
)
def test_more_bytes_never_take_less_time(collective: Collective, gpu: str) -> None:
    model = CollectiveModel(find_gpu(gpu))
    for ranks in (2,) if collective == Collective.MESSAGE else (2, 3, 8, 16, 24):
        times = [ns(model, collective, ranks, size - size % ranks + ranks) for size in SIZES]
        assert times == sorted(times)
        dense = [ns(model, collective, ranks, 100_000 + 997 * ranks * step) for step in range(300)]
        assert dense == sorted(dense)


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_prices_every_collective_with_an_interval_around_it(gpu) -> None:
    model = CollectiveModel(gpu)
    for collective in Collective:
        for ranks in (2,) if collective == Collective.MESSAGE else (2, 5, 8, 32):
            for size in (8, 32 * KIB, 40 * MIB):
                price = model.price(collective, range(ranks), *sides(collective, ranks, size * ranks))
                assert 1 <= price.low_ns <= price.time_ns <= price.high_ns
                assert price.source in (Source.LEARNED, Source.EXTRAPOLATED)
                share = model.occupancy(collective, range(ranks), *sides(collective, ranks, size * ranks))
                assert 0 < share.sm <= 0.35
                assert 0 <= share.hbm <= 1
                assert 0 < share.link <= 1


def test_small_messages_cost_a_latency_that_grows_with_the_ring() -> None:
    two, eight = (ns(H100, Collective.ALL_REDUCE, ranks, 8) for ranks in (2, 8))
    assert 3_000 < two < eight < 40_000
    assert ns(H100, Collective.ALL_REDUCE, 8, KIB) < 1.1 * eight
    assert ns(H100, Collective.ALL_REDUCE, 16, 8) > 1.3 * eight


@pytest.mark.parametrize(
    ("model", "collective", "share"),
    [
        (A100, Collective.ALL_REDUCE, 2 * 7 / 8),
        (A100, Collective.ALL_GATHER, 7 / 8),
        (A100, Collective.REDUCE_SCATTER, 7 / 8),
        (A100, Collective.ALL_TO_ALL, 7 / 8),
        (H100, Collective.ALL_GATHER, 7 / 8),
        (H100, Collective.REDUCE_SCATTER, 7 / 8),
    ],
)
def test_bus_bandwidth_approaches_the_links(
    model: CollectiveModel, collective: Collective, share: float
) -> None:
    link = model.gpu.nvlink_gbps
    bus = [share * size / ns(model, collective, 8, size) for size in (MIB, 32 * MIB, GIB, 8 * GIB)]
    assert bus == sorted(bus)
    assert 0.65 * link < bus[2] < link
    assert bus[3] < 1.1 * bus[2]


def test_the_switch_reduces_faster_than_a_ring_could() -> None:
    """NVLS: 8 ranks send the buffer once instead of 7/4 of it."""
    price = H100.price(Collective.ALL_REDUCE, range(8), GIB, GIB)
    assert price.algorithm == "NVLS"
    ring = 2 * ns(H100, Collective.ALL_GATHER, 8, GIB)
    assert price.time_ns < 0.95 * ring
    assert A100.price(Collective.ALL_REDUCE, range(8), GIB, GIB).algorithm == "ring Simple"


def test_large_all_reduces_between_nodes_are_bound_by_the_network() -> None:
    for ranks, islands in ((16, 2), (32, 4), (64, 8)):
        across = 2 * (islands - 1) / islands * GIB / 400
        found = ns(H100, Collective.ALL_REDUCE, ranks, GIB)
        assert across < found < 2.2 * across
    assert H100.price(Collective.ALL_REDUCE, range(64), KIB, KIB).algorithm.startswith("tree")


@pytest.mark.parametrize("ranks", [2, 8, 16, 64])
def test_kinds_of_call_keep_their_order(ranks: int) -> None:
    """Between and inside nodes alike: what one kind can be made of bounds it."""
    for size in (64 * KIB, 4 * MIB, 512 * MIB):
        gather, scatter = (
            ns(H100, Collective.ALL_GATHER, ranks, size),
            ns(H100, Collective.REDUCE_SCATTER, ranks, size),
        )
        assert ns(H100, Collective.ALL_REDUCE, ranks, size) < 1.1 * (gather + scatter)
        assert ns(H100, Collective.BROADCAST, ranks, size) >= gather
        assert ns(H100, Collective.REDUCE, ranks, size) >= scatter
        assert (
            ns(H100, Collective.ALL_REDUCE, ranks, size) > 0.9 * ns(H100, Collective.ALL_REDUCE, 2, size) / 2
        )


def test_cards_of_several_boxes_do_not_beat_one_box() -> None:
    """The network cards of a PCIe box hang on the links that are its bottleneck."""
    cards = CollectiveModel(find_gpu("A100-PCIE-80GB"))
    message = cards.price(Collective.MESSAGE, (0, 8), GIB, GIB).time_ns
    assert message > cards.price(Collective.MESSAGE, (0, 2), GIB, GIB).time_ns
    assert ns(cards, Collective.ALL_TO_ALL, 16, GIB) > ns(cards, Collective.ALL_TO_ALL, 8, GIB)


def test_only_where_ranks_sit_matters() -> None:
    def price(ranks: list[int]) -> int:
        return H100.price(Collective.ALL_REDUCE, ranks, 5 * MIB, 5 * MIB).time_ns

    assert price([0, 1, 2, 3]) == price([3, 2, 1, 0]) == price([4, 5, 6, 7]) == price([8, 9, 10, 11])
    assert price([0, 8]) > 2 * price([0, 1])
    assert price([0, 8]) == price([3, 17])


def test_ranks_per_node_places_ranks() -> None:
    spread = CollectiveModel(find_gpu("H100-SXM5-80GB"), ranks_per_node=1)
    assert spread.placement([0, 1]).islands == 2
    assert H100.placement([0, 1]).islands == 1
    rack = CollectiveModel(find_gpu("GB200"))
    assert rack.placement(range(72)).islands == 1
    assert rack.placement(range(144)).islands == 2
    cards = CollectiveModel(find_gpu("A100-PCIE-80GB"))
    assert [cards.placement(ranks).link for ranks in ([0, 1], [1, 2], [0, 1, 2, 3])] == [
        "bridge",
        "pcie",
        "pcie",
    ]


def test_one_rank_costs_nothing_or_a_copy() -> None:
    for collective in (Collective.ALL_REDUCE, Collective.BROADCAST, Collective.BARRIER):
        assert H100.price(collective, [3], GIB, GIB).time_ns == 1
    copied = H100.price(Collective.ALL_GATHER, [3], 64 * MIB, 64 * MIB)
    assert copied.algorithm == "copy"
    assert copied.time_ns < 100_000
    assert H100.price(Collective.ALL_REDUCE, range(8), 0, 0).time_ns == 1
    assert H100.price(Collective.BARRIER, range(8), 0, 0).time_ns > 3_000


def test_bytes_of_one_rank_become_the_tables() -> None:
    """Trace conventions against the table's: buffer of an all-reduce, total over ranks of the others."""
    assert whole_bytes(Collective.ALL_REDUCE, 8, 100, 100) == 100
    assert whole_bytes(Collective.ALL_GATHER, 8, 100, 800) == 800
    assert whole_bytes(Collective.REDUCE_SCATTER, 8, 800, 100) == 800
    assert whole_bytes(Collective.ALL_TO_ALL, 8, 800, 800) == 800
    assert whole_bytes(Collective.GATHER, 8, 100, 0) == whole_bytes(Collective.GATHER, 8, 100, 800) == 800
    assert whole_bytes(Collective.SCATTER, 8, 0, 100) == whole_bytes(Collective.SCATTER, 8, 800, 100) == 800
    assert whole_bytes(Collective.MESSAGE, 2, 100, 0) == 100


def test_an_uneven_all_to_all_takes_as_long_as_its_busiest_rank() -> None:
    def price(into: int, out: int) -> int:
        return H100.price(Collective.ALL_TO_ALL, range(8), into, out).time_ns

    assert price(10 * MIB, 30 * MIB) == price(30 * MIB, 10 * MIB) == price(30 * MIB, 30 * MIB)


def test_measured_calls_are_learned_and_others_are_not() -> None:
    def source(model: CollectiveModel, collective: Collective, ranks: int) -> Source:
        return model.price(collective, range(ranks), *sides(collective, ranks, 24 * MIB)).source

    assert source(H100, Collective.ALL_REDUCE, 8) == Source.LEARNED
    assert source(H100, Collective.ALL_REDUCE, 32) == Source.LEARNED
    assert source(H100, Collective.ALL_GATHER, 16) == Source.EXTRAPOLATED
    assert source(H100, Collective.BROADCAST, 8) == Source.EXTRAPOLATED
    assert source(CollectiveModel(find_gpu("H800")), Collective.ALL_REDUCE, 8) == Source.EXTRAPOLATED


def test_doubt_grows_away_from_the_data() -> None:
    def width(model: CollectiveModel, collective: Collective, ranks: int) -> float:
        price = model.price(collective, range(ranks), *sides(collective, ranks, 24 * MIB))
        return price.high_ns / price.low_ns

    learned = width(H100, Collective.ALL_GATHER, 8)
    assert learned < width(H100, Collective.BROADCAST, 8)
    assert learned < width(CollectiveModel(find_gpu("H800")), Collective.ALL_GATHER, 8)
    assert learned < width(H100, Collective.ALL_GATHER, 16)
    ethernet = CollectiveModel(H100.gpu, replace(H100.cluster, network="ethernet"))
    assert width(H100, Collective.ALL_REDUCE, 16) < width(ethernet, Collective.ALL_REDUCE, 16)
    assert width(H100, Collective.ALL_REDUCE, 8) == width(ethernet, Collective.ALL_REDUCE, 8)


def test_half_the_links_take_longer() -> None:
    h800 = CollectiveModel(find_gpu("H800"))
    fast, slow = (ns(model, Collective.ALL_GATHER, 8, GIB) for model in (H100, h800))
    assert slow == pytest.approx(fast * 450 / 200, rel=0.05)
    assert ns(h800, Collective.ALL_GATHER, 8, 8) == pytest.approx(
        ns(H100, Collective.ALL_GATHER, 8, 8), rel=0.02
    )


@pytest.mark.parametrize(
    ("collective", "ranks", "sizes", "text"),
    [
        (42, [0, 1], (8, 8), "no collective has the number 42"),
        (0, [0, 1], (-8, 8), "bytes must be >= 0"),
        (0, [], (8, 8), "at least one rank"),
        (0, [0, 0], (8, 8), "distinct"),
        (0, [0, -1], (8, 8), ">= 0"),
        (-1, [0, 1, 2], (8, 8), "from one rank to another"),
    ],
)
def test_mistakes_are_named(collective: int, ranks: list[int], sizes: tuple[int, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        H100.price(collective, ranks, *sizes)


def test_a_cluster_without_a_network_has_no_second_node() -> None:
    alone = replace(find_cluster("DGX-H100"), network="none", nics_per_node=0, nic_gbps=0.0)
    model = CollectiveModel(find_gpu("H100-SXM5-80GB"), alone)
    assert ns(model, Collective.ALL_REDUCE, 8, MIB) > 0
    with pytest.raises(ValueError, match="network"):
        ns(model, Collective.ALL_REDUCE, 16, MIB)


def test_ten_thousand_distinct_calls_in_a_second() -> None:
    model = CollectiveModel(find_gpu("H100-SXM5-80GB"))
    model.price(0, range(8), 8, 8)
    start = time.process_time()
    for step in range(10_000):
        model.price(0, range(8), 4 * step, 4 * step)
    assert time.process_time() - start < 1.0


@dataclass(frozen=True)
class Message:
    """What the simulator hands over."""

    collective: int
    communicator: Communicator
    ranks: tuple[int, ...]
    input_bytes: int
    output_bytes: int


def test_the_simulators_question_counts_all_members() -> None:
    """One simulated rank may stand for its class: the collective still has eight members."""
    everyone = Communicator("world", tuple(range(8)))
    transfer = Message(0, everyone, (0,), 5 * MIB, 5 * MIB)
    price = H100.price(0, range(8), 5 * MIB, 5 * MIB)
    assert H100.duration_ns(transfer) == price.time_ns
    assert H100.at("low").duration_ns(transfer) == price.low_ns
    assert H100.at("high").duration_ns(transfer) == price.high_ns
    message = Message(-1, everyone, (0, 1), MIB, 0)
    assert H100.duration_ns(message) == H100.price(-1, (0, 1), MIB, 0).time_ns
    with pytest.raises(ValueError, match="low"):
        H100.at("middle")


def test_default_clusters() -> None:
    for gpu in all_gpus():
        cluster = cluster_for(gpu)
        assert cluster.gpu == gpu.name
        assert cluster.gpus_per_node >= 4
        assert cluster.source
    for cluster in all_clusters():
        assert cluster_for(find_gpu(cluster.gpu)).gpu == cluster.gpu
    assert cluster_for(find_gpu("H100-SXM5-80GB")).name == "DGX-H100"
    assert cluster_for(find_gpu("RTX4090")).intra_node == "pcie"
    assert cluster_for(find_gpu("GB300")).nvlink_domain_gpus == 72
    assert cluster_for(find_gpu("H20")).intra_node == "nvswitch"
