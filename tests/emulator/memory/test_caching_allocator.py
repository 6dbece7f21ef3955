"""Exact cases of the caching allocator: what PyTorch's would do, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20
GIB = 1 << 30
ALLOCATE, FREE, RECLAIM, SEGMENT_ALLOCATE, SEGMENT_FREE, OUT_OF_MEMORY = range(6)

New = Callable[..., Any]


@pytest.mark.parametrize(
    ("request_bytes", "block_bytes", "segment_bytes"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        # Up to 1 MiB left over in a large segment stays with the block.
        (11 * MIB, 12 * MIB, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (100 * MIB + 1, 100 * MIB + 512, 102 * MIB),
    ],
)
def test_first_request_decides_block_and_segment(
    allocator: Any, request_bytes: int, block_bytes: int, segment_bytes: int
) -> None:
    block = allocator.allocate(request_bytes)
    assert allocator.size(block) == block_bytes
    assert allocator.current("allocated_bytes") == block_bytes
    assert allocator.current("reserved_bytes") == segment_bytes
    assert allocator.current("requested_bytes") == request_bytes
    assert allocator.current("segment") == 1
    assert allocator.address(block) % (2 * MIB) == 0


def test_small_and_large_requests_share_segments_of_their_own_kind(allocator: Any) -> None:
    blocks = [allocator.allocate(size) for size in (512, MIB, 5 * MIB, 9 * MIB)]
    assert allocator.address(blocks[1]) == allocator.address(blocks[0]) + 512
    assert allocator.address(blocks[3]) == allocator.address(blocks[2]) + 5 * MIB
    assert allocator.current("segment", "small_pool") == 1
    assert allocator.current("segment", "large_pool") == 1
    assert allocator.current("inactive_split_bytes", "large_pool") == 6 * MIB
    assert allocator.current("inactive_split_bytes", "small_pool") == MIB - 512


def test_best_fit_takes_the_smallest_sufficient_block_of_the_stream(allocator: Any) -> None:
    a, b, c = (allocator.allocate(size) for size in (40 * MIB, 24 * MIB, 30 * MIB))
    where = allocator.address(b)
    for block in (a, b, c):
        allocator.free(block)
    assert allocator.address(allocator.allocate(23 * MIB)) == where
    other = allocator.allocate(23 * MIB, stream=7)
    assert allocator.address(other) not in (where,)
    assert allocator.current("reserved_bytes") == (40 + 24 + 30 + 24) * MIB


def test_freed_neighbours_become_one_block(allocator: Any) -> None:
    blocks = [allocator.allocate(4 * MIB) for _ in range(5)]
    for index in (0, 2, 4, 3, 1):
        allocator.free(blocks[index])
    (segment,) = allocator.snapshot()
    assert [block[1] for block in segment["blocks"]] == [20 * MIB]
    assert allocator.current("inactive_split") == 0
    assert allocator.current("inactive_split_bytes") == 0
    assert allocator.current("allocated_bytes") == 0
    assert allocator.statistics["allocated_bytes.all"] == [0, 20 * MIB, 20 * MIB, 20 * MIB]


def test_nothing_is_allocated_for_zero_bytes(allocator: Any) -> None:
    assert allocator.allocate(0) == 0
    assert allocator.events() == []


def test_empty_cache_keeps_segments_in_use(allocator: Any) -> None:
    kept = allocator.allocate(4 * MIB)
    for block in [allocator.allocate(4 * MIB), allocator.allocate(50 * MIB), allocator.allocate(100)]:
        allocator.free(block)
    allocator.events()
    allocator.empty_cache()
    assert allocator.current("reserved_bytes") == 20 * MIB
    freed = [event[5] for event in allocator.events() if event[0] == SEGMENT_FREE]
    assert sorted(freed) == [2 * MIB, 50 * MIB]
    assert allocator.statistics["num_device_free"] == 2
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.snapshot() == []
    assert allocator.call("allocator_free_bytes") == 80 * GIB


def test_a_failed_cudamalloc_flushes_the_cache_and_retries(new_allocator: New) -> None:
    allocator = new_allocator(total=100 * MIB)
    allocator.free(allocator.allocate(60 * MIB))
    block = allocator.allocate(80 * MIB)
    assert allocator.size(block) == 80 * MIB
    statistics = allocator.statistics
    assert statistics["num_alloc_retries"] == 1
    assert statistics["num_ooms"] == 0
    assert statistics["num_sync_all_streams"] == 1
    assert statistics["reserved_bytes.all"] == [80 * MIB, 80 * MIB, 140 * MIB, 60 * MIB]


def test_out_of_memory_speaks_as_pytorch_does(new_allocator: New, allocator_error: Any) -> None:
    allocator = new_allocator(total=79 * GIB + 194 * MIB, context=512 * MIB)
    allocator.allocate(60 * GIB)
    allocator.allocate(3 * MIB)
    allocator.events()
    with pytest.raises(allocator_error) as error:
        allocator.allocate(20 * GIB - 1)
    assert error.value.kind == "OutOfMemory"
    assert str(error.value) == (
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.19 GiB of which "
        "18.67 GiB is free. Including non-PyTorch memory, this process has 60.52 GiB memory in use. Of the "
        "allocated memory 60.00 GiB is allocated by PyTorch, and 17.00 MiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )
    assert allocator.events()[-1][:7] == [OUT_OF_MEMORY, 0, 0, -1, 0, 20 * GIB, 20 * GIB - 1]
    assert allocator.statistics["num_ooms"] == 1
    allocator.allocate(GIB)  # the allocator is as usable as before


def test_more_than_an_exabyte_is_refused(allocator: Any, allocator_error: Any) -> None:
    with pytest.raises(allocator_error, match=r"Tried to allocate more than 1EB memory\.$"):
        allocator.allocate((1 << 60) + 1)


def test_memory_fraction_limits_and_is_named(new_allocator: New, allocator_error: Any) -> None:
    allocator = new_allocator(total=100 * MIB)
    assert allocator.call("allocator_fraction") == 1.0
    allocator.call("allocator_set_fraction", 0.5)
    assert allocator.call("allocator_fraction") == 0.5
    allocator.allocate(40 * MIB)
    with pytest.raises(allocator_error, match=r"60\.00 MiB is free.*50\.00 MiB allowed; Of the allocated"):
        allocator.allocate(11 * MIB)
    allocator.call("allocator_set_fraction", 1.0)
    allocator.allocate(11 * MIB)
    limited = new_allocator("per_process_memory_fraction:0.25", total=100 * MIB)
    with pytest.raises(allocator_error):
        limited.allocate(26 * MIB)


def test_other_libraries_memory_counts(new_allocator: New, allocator_error: Any) -> None:
    allocator = new_allocator(total=100 * MIB, context=10 * MIB)
    assert allocator.call("allocator_take_outside", 50 * MIB) == 1
    assert allocator.call("allocator_take_outside", 50 * MIB) == 0
    assert allocator.call("allocator_free_bytes") == 40 * MIB
    with pytest.raises(allocator_error, match=r"this process has 60\.00 MiB memory in use"):
        allocator.allocate(41 * MIB)


def test_unlimited_memory_goes_past_the_device(new_allocator: New) -> None:
    allocator = new_allocator(total=80 * GIB, unlimited=True)
    for _ in range(10):
        allocator.allocate(70 * GIB)
    assert allocator.current("reserved_bytes") == 700 * GIB
    assert allocator.call("allocator_free_bytes") == 0


def test_small_requests_may_live_in_a_range_of_their_own(new_allocator: New) -> None:
    allocator = new_allocator(small_bytes=1 << 36)
    small, large = allocator.allocate(MIB), allocator.allocate(MIB + 1)
    assert 1 << 40 <= allocator.address(small) < (1 << 40) + (1 << 36)
    assert allocator.address(large) >= 1 << 44


def test_released_addresses_are_reused_and_joined(allocator: Any) -> None:
    blocks = [allocator.allocate(20 * MIB) for _ in range(4)]
    first = allocator.address(blocks[0])
    for block in blocks[:3]:
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.address(allocator.allocate(60 * MIB)) == first


def test_released_addresses_join_what_was_released_above_them(allocator: Any) -> None:
    blocks = [allocator.allocate(size * MIB) for size in (60, 40, 20, 12)]
    first = allocator.address(blocks[0])
    for block in blocks[:3]:  # the cache gives back small segments first: 20, 40, 60
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.address(allocator.allocate(120 * MIB)) == first


def test_peaks_and_sums_are_reset_apart(allocator: Any) -> None:
    allocator.free(allocator.allocate(30 * MIB))
    keep = allocator.allocate(12 * MIB)  # the cached 30 MiB are split
    allocator.call("allocator_reset_peak")
    assert allocator.statistics["allocated_bytes.all"] == [12 * MIB, 12 * MIB, 42 * MIB, 30 * MIB]
    allocator.call("allocator_reset_accumulated")
    assert allocator.statistics["allocated_bytes.all"] == [12 * MIB, 12 * MIB, 0, 0]
    assert allocator.statistics["num_device_alloc"] == 0
    allocator.free(keep)
    assert allocator.statistics["allocated_bytes.all"] == [0, 12 * MIB, 0, 12 * MIB]


def test_a_block_is_found_by_address_while_handed_out(allocator: Any) -> None:
    block = allocator.allocate(4096)
    where = allocator.address(block)
    assert allocator.call("allocator_find", where) == block
    allocator.free(block)
    assert allocator.call("allocator_find", where) is None


def test_freeing_twice_is_an_error(allocator: Any, allocator_error: Any) -> None:
    keep, block = allocator.allocate(4096), allocator.allocate(4096)
    allocator.free(block)
    with pytest.raises(allocator_error, match="not allocated"):
        allocator.free(block)
    allocator.free(keep)


def test_every_allocation_has_its_own_id_and_events_tell_the_story(allocator: Any) -> None:
    first = allocator.allocate(1000, stream=3)
    identity = allocator.library.block_id(first)
    where = allocator.address(first)
    allocator.free(first)
    second = allocator.allocate(1000, stream=3)
    assert allocator.address(second) == where
    assert allocator.library.block_id(second) == identity + 1
    assert allocator.events() == [
        [SEGMENT_ALLOCATE, 1, 0, -1, where, 2 * MIB, 2 * MIB, 3],
        [ALLOCATE, 1, 0, identity, where, 1024, 1000, 3],
        [FREE, 1, 0, identity, where, 1024, 1000, 3],
        [ALLOCATE, 1, 0, identity + 1, where, 1024, 1000, 3],
    ]


def test_workspaces_of_cublas(allocator_library: Any) -> None:
    assert allocator_library.workspace_bytes(8, None) == 8_519_680
    assert allocator_library.workspace_bytes(9, None) == 32 * MIB
    assert allocator_library.workspace_bytes(10, None) == 32 * MIB
    assert allocator_library.workspace_bytes(9, b":4096:8") == 32 * MIB
    assert allocator_library.workspace_bytes(9, b":16:8") == 128 * 1024
    assert allocator_library.workspace_bytes(9, b"garbage") == 32 * MIB
    assert allocator_library.lt_workspace_bytes(None) == MIB
    assert allocator_library.lt_workspace_bytes(b"2048") == 2 * MIB
