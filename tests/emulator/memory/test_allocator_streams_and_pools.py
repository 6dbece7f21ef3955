"""record_stream, private pools, captures and expandable segments, as exact cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20
GIB = 1 << 30
RECLAIM, SEGMENT_ALLOCATE, SEGMENT_FREE = 2, 3, 4
POOL = (0, 1)

New = Callable[..., Any]


def _block_states(allocator: Any) -> list[int]:
    return [block[3] for segment in allocator.snapshot() for block in segment["blocks"]]


def test_a_block_used_elsewhere_waits_for_that_stream(allocator: Any) -> None:
    block = allocator.allocate(30 * MIB)
    where = allocator.address(block)
    allocator.call("allocator_record_stream", block, 5)
    allocator.call("clock_set_ready", 5, 1000)
    allocator.free(block)
    assert _block_states(allocator) == [1]
    assert allocator.current("allocated_bytes") == 0
    assert allocator.current("active_bytes") == 30 * MIB
    allocator.call("clock_set", 999)
    early = allocator.allocate(30 * MIB)
    assert allocator.address(early) != where
    allocator.call("clock_set", 1000)
    allocator.events()
    late = allocator.allocate(30 * MIB)
    assert allocator.address(late) == where
    assert [event[0] for event in allocator.events()] == [RECLAIM, 0]


def test_the_readiness_at_the_free_counts(allocator: Any) -> None:
    block = allocator.allocate(30 * MIB)
    allocator.call("allocator_record_stream", block, 5)
    allocator.call("clock_set_ready", 5, 10)
    allocator.free(block)
    allocator.call("clock_set_ready", 5, 10**9)  # later work on the stream does not matter
    allocator.call("clock_set", 10)
    assert allocator.allocate(30 * MIB) == block


def test_all_streams_must_have_finished(allocator: Any) -> None:
    block = allocator.allocate(30 * MIB)
    for stream, ready in ((5, 10), (6, 20), (0, 30)):
        allocator.call("allocator_record_stream", block, stream)
        allocator.call("clock_set_ready", stream, ready)
    allocator.free(block)
    allocator.call("clock_set", 10)
    assert allocator.allocate(30 * MIB) != block
    allocator.call("clock_set", 20)  # stream 0 is the block's own and needs no waiting
    assert allocator.allocate(30 * MIB) == block


def test_empty_cache_waits_for_streams(allocator: Any) -> None:
    block = allocator.allocate(30 * MIB)
    allocator.call("allocator_record_stream", block, 5)
    allocator.call("clock_set_ready", 5, 5000)
    allocator.free(block)
    allocator.empty_cache()
    assert allocator.call("clock_now") == 5000
    assert allocator.call("clock_synchronizations") == 1  # cudaFree
    assert allocator.current("reserved_bytes") == 0
    assert allocator.statistics["num_sync_all_streams"] == 1


def test_a_pool_serves_only_what_is_routed_to_it(allocator: Any) -> None:
    allocator.pool("pool_retain", POOL)
    outside = allocator.allocate(4 * MIB)
    allocator.pool("pool_begin", POOL, 3)
    routed, other = allocator.allocate(4 * MIB, stream=3), allocator.allocate(4 * MIB, stream=4)
    allocator.pool("pool_end", POOL)
    assert [segment["blocks"][0][0] for segment in allocator.snapshot(POOL)] == [allocator.address(routed)]
    assert allocator.statistics["private_0_1.large_pool"][0] == 20 * MIB
    allocator.free(routed)
    for block in (outside, other):
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.current("reserved_bytes") == 20 * MIB  # the pool is still in use
    allocator.pool("pool_release", POOL)
    assert allocator.call("pool_use_count", *POOL) == 1
    allocator.pool("pool_release", POOL)
    allocator.empty_cache(POOL)
    assert allocator.current("reserved_bytes") == 0
    assert allocator.statistics["private_0_1.all"] == [0, 20 * MIB, 20 * MIB, 20 * MIB]
    assert allocator.call("pool_use_count", *POOL) == 0


def test_a_released_pool_lives_as_long_as_its_blocks(allocator: Any) -> None:
    allocator.pool("pool_begin", POOL, -1)
    gone, kept = allocator.allocate(4 * MIB), allocator.allocate(4 * MIB)
    allocator.pool("pool_end", POOL)
    allocator.pool("pool_release", POOL)
    allocator.free(gone)
    allocator.empty_cache()
    (segment,) = allocator.snapshot(POOL)
    assert [block[3] for block in segment["blocks"]] == [2, 0, 2]
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.snapshot() == []


def test_pool_misuse_is_named(allocator: Any, allocator_error: Any) -> None:
    allocator.pool("pool_begin", POOL, -1)
    with pytest.raises(allocator_error, match="already recording to mempool_id"):
        allocator.pool("pool_begin", POOL, -1)
    allocator.pool("pool_end", POOL)
    with pytest.raises(allocator_error, match="not currently recording to mempool_id"):
        allocator.pool("pool_end", POOL)
    with pytest.raises(allocator_error, match="Could not find pool of id"):
        allocator.pool("pool_release", (0, 99))


def test_a_pool_can_help_out_before_failing(new_allocator: New, allocator_error: Any) -> None:
    allocator = new_allocator(total=100 * MIB)
    allocator.pool("pool_begin", POOL, -1)
    block = allocator.allocate(60 * MIB)
    where = allocator.address(block)
    allocator.pool("pool_end", POOL)
    allocator.free(block)
    with pytest.raises(allocator_error, match=r"with 60\.00 MiB allocated in private pools"):
        allocator.allocate(50 * MIB)
    allocator.call("pool_options", *POOL, 1, 0)
    cached = allocator.allocate(20 * MIB)
    allocator.free(cached)
    assert allocator.address(allocator.allocate(50 * MIB)) == where
    assert allocator.current("reserved_bytes") == 80 * MIB  # the pool comes before a flush of the cache


def test_a_pool_can_refuse_to_split(allocator: Any) -> None:
    allocator.pool("pool_retain", POOL)
    allocator.call("pool_options", *POOL, 0, 1)
    allocator.pool("pool_begin", POOL, -1)
    assert allocator.size(allocator.allocate(4 * MIB)) == 20 * MIB


def test_a_capture_defers_the_look_at_streams(allocator: Any) -> None:
    block = allocator.allocate(30 * MIB)
    allocator.call("allocator_record_stream", block, 5)
    allocator.call("capture_mark", 1)
    captured = allocator.allocate(31 * MIB)
    allocator.call("allocator_record_stream", captured, 6)
    for b in (block, captured):
        allocator.free(b)
    assert allocator.allocate(30 * MIB) != block  # no events during a capture
    assert _block_states(allocator).count(1) == 2
    allocator.call("capture_mark", 0)
    allocator.call("clock_set_ready", 5, 50)
    allocator.call("clock_set_ready", 6, 50)
    # What only the capture used is free at once; stream 5's work has to end first.
    assert allocator.allocate(31 * MIB) == captured
    assert _block_states(allocator).count(1) == 1
    allocator.call("clock_set", 50)
    assert allocator.allocate(30 * MIB) == block


def test_an_expandable_segment_grows_in_place(new_allocator: New) -> None:
    allocator = new_allocator("expandable_segments:True")
    blocks = [allocator.allocate(size) for size in (15 * MIB, 30 * MIB, 8 * MIB)]
    starts = [allocator.address(block) for block in blocks]
    assert starts == [starts[0], starts[0] + 15 * MIB, starts[0] + 45 * MIB]
    (segment,) = allocator.snapshot()
    assert segment["expandable"]
    assert segment["total"] == 60 * MIB  # pages of 20 MiB
    assert allocator.statistics["num_device_alloc"] == 2  # 20 and 40 MiB
    assert allocator.current("segment") == 0  # PyTorch counts cudaMalloc'ed segments only
    assert allocator.current("inactive_split") == 0
    small = allocator.allocate(100)
    assert allocator.current("reserved_bytes", "small_pool") == 2 * MIB
    allocator.free(small)


def test_an_expandable_segment_gives_back_whole_pages(new_allocator: New) -> None:
    allocator = new_allocator("expandable_segments:True")
    first, middle, last = (allocator.allocate(size * MIB) for size in (25, 50, 25))
    allocator.free(middle)
    allocator.events()
    allocator.empty_cache()
    # 25..75 MiB were free; the pages 40..60 lie wholly inside.
    assert allocator.current("reserved_bytes") == 80 * MIB
    assert [event[5] for event in allocator.events()] == [20 * MIB]
    assert [segment["total"] // MIB for segment in allocator.snapshot()] == [40, 40]
    again = allocator.allocate(50 * MIB)  # fills the hole
    assert allocator.address(again) == allocator.address(first) + 25 * MIB
    assert allocator.current("reserved_bytes") == 100 * MIB
    for block in (first, again, last):
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.snapshot() == []
    assert allocator.call("allocator_free_bytes") == 80 * GIB


def test_pieces_beside_unmapped_pages_stay_free(new_allocator: New) -> None:
    allocator = new_allocator("expandable_segments:True")
    allocator.allocate(19 * MIB + MIB // 2)
    middle = allocator.allocate(41 * MIB)
    allocator.allocate(2 * MIB)
    allocator.free(middle)
    allocator.empty_cache()  # 19.5..60.5 MiB were free, the pages 20..60 go
    below, above = allocator.snapshot()
    assert below["blocks"][-1][1::2] == [MIB // 2, 2]
    assert above["blocks"][0][1::2] == [MIB // 2, 2]
    assert (below["total"], above["total"]) == (20 * MIB, 20 * MIB)


def test_expandable_segments_survive_what_fragments_fixed_ones(
    new_allocator: New, allocator_error: Any
) -> None:
    def grow(settings: str) -> None:
        allocator = new_allocator(settings, total=200 * MIB)
        allocator.free(allocator.allocate(100 * MIB))
        for size in (60, 50, 80):  # 60 leave 40 of the first segment, too few for 80
            allocator.allocate(size * MIB)

    with pytest.raises(allocator_error, match="out of memory"):
        grow("expandable_segments:False")
    grow("expandable_segments:True")


def test_switching_expandable_segments_off_leaves_their_blocks_alone(new_allocator: New) -> None:
    allocator = new_allocator("expandable_segments:True")
    block = allocator.allocate(30 * MIB)
    where = allocator.address(block)
    allocator.free(block)
    allocator.configure("expandable_segments:False")
    assert allocator.address(allocator.allocate(30 * MIB)) != where
    allocator.configure("expandable_segments:True")
    assert allocator.address(allocator.allocate(30 * MIB)) == where
