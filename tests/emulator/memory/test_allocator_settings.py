"""PYTORCH_CUDA_ALLOC_CONF: parsed as torch parses it, and obeyed."""

from __future__ import annotations

import importlib.metadata
import json
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20
New = Callable[..., Any]

TORCH_SIDE = """
import json, sys, torch
answers = []
for text in json.load(sys.stdin):
    try:
        torch._C._accelerator_setAllocatorSettings(text)
        answers.append(["", ""])
    except Exception as error:
        answers.append([type(error).__name__, str(error).split("\\n")[0]])
json.dump(answers, sys.stdout)
"""

PIECES = {
    "max_split_size_mb": ["1", "19", "20", "64", "-1", "abc", "", "99999999999999999999999", "[1]"],
    "max_non_split_rounding_mb": ["3", "20", "100", "True"],
    "garbage_collection_threshold": ["0", "0.5", "1.0", "-3", "nan", "x"],
    "roundup_power2_divisions": [
        "4", "3", "0", "[256:1,512:2,1024:4,>:8]", "[255:1]", "[64:3]", "[>:4]", "[1:2", "[4:0,>:2]", "[]",
        "[256:1 512:2]", "[131072:4,>:8]",
    ],
    "expandable_segments": ["True", "False", "true", "1", "", "True,expandable_segments"],
    "pinned_use_background_threads": ["True", "0"],
    "pinned_max_round_threshold_mb": ["64", "0", "q"],
    "pinned_max_cached_size_mb": ["128", "-"],
    "large_segment_size_mb": ["1", "10", "11", "30", "20", "z"],
    "something_else": ["1", "[1,2]", "[1", ""],
}  # fmt: skip


def _random_texts(count: int) -> list[str]:
    chooser = random.Random(20)
    texts = [
        "",
        ",",
        "a",
        "a,b",
        "max_split_size_mb=200",
        "max_split_size_mb:100;foo:1",
        "max_split_size_mb:200,",
    ]
    for _ in range(count):
        parts = []
        for _ in range(chooser.choice((1, 1, 2, 3))):
            key = chooser.choice(sorted(PIECES))
            parts.append(
                key + chooser.choice((":", ":", ":", ":", " : ", "", "::")) + chooser.choice(PIECES[key])
            )
        texts.append(chooser.choice((",", ",", ",", ";", " ")).join(parts))
    return texts


@pytest.mark.skipif(
    not importlib.metadata.version("torch").startswith("2.13."),
    reason="the parser has the wording of torch 2.13; 2.14 says some mistakes in other words",
)
def test_common_options_fail_as_in_torch(new_allocator: New, allocator_error: Any) -> None:
    texts = _random_texts(500)
    run = subprocess.run(
        [sys.executable, "-c", TORCH_SIDE],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    ours = new_allocator(start=False)
    disagreements = []
    for text, (kind, message) in zip(texts, json.loads(run.stdout), strict=True):
        try:
            ours.configure_common(text)
            answer = ["", ""]
        except allocator_error as error:
            answer = [error.kind, str(error)]
        # Of internal assertions only the kind is compared: their text holds torch's own file and line.
        if answer[0] != kind or ("INTERNAL ASSERT" not in message and answer[1] != message):
            disagreements.append((text, [kind, message], answer))
    assert disagreements == []


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "no_such_option:1",
            "ValueError",
            "Unrecognized key 'no_such_option' in Accelerator allocator config.",
        ),
        ("backend:fancy", "ValueError", "Unknown allocator backend, options are native and cudaMallocAsync"),
        (
            "per_process_memory_fraction:1.5",
            "ValueError",
            "per_process_memory_fraction is invalid, set it in [0.0, 1.0]",
        ),
        (
            "pinned_num_register_threads:3",
            "ValueError",
            "Number of register threads has to be power of 2, got 3",
        ),
        (
            "pinned_num_register_threads:256",
            "ValueError",
            "Number of register threads should be less than or equal to 128, got 256",
        ),
        (
            "pinned_reserve_segment_size_mb:0",
            "ValueError",
            "Pinned reserve segment size has to be greater than 0",
        ),
        (
            "throw_on_cudamalloc_oom:yes",
            "ValueError",
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'yes'",
        ),
    ],
)
def test_cuda_options_fail_with_pytorchs_words(
    new_allocator: New, allocator_error: Any, text: str, kind: str, message: str
) -> None:
    with pytest.raises(allocator_error) as error:
        new_allocator(text, start=False)
    assert (error.value.kind, str(error.value)) == (kind, message)


def test_all_cuda_options_are_known(new_allocator: New) -> None:
    new_allocator(
        "backend:native,release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:True,"
        "pinned_num_register_threads:8,pinned_reserve_segment_size_mb:64,pinned_free_catch_all:True,"
        "graph_capture_record_stream_reuse:True,throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5"
    )


@given(size=st.integers(1, 1 << 37), divisions=st.sampled_from([1, 2, 4, 8, 16, 64]))
def test_rounding_is_the_next_of_equal_steps(allocator_library: Any, size: int, divisions: int) -> None:
    handle = allocator_library.harness_new()
    try:
        text = f"roundup_power2_divisions:{divisions}"
        assert allocator_library.harness_settings(handle, text.encode()) == 0
        rounded = allocator_library.harness_round(handle, size)
    finally:
        allocator_library.harness_delete(handle)
    if divisions > 1 and size > 512 * divisions:
        floor = 1 << (size.bit_length() - 1)
        steps = [floor + floor * i // divisions for i in range(divisions + 1)]
        assert rounded == min(step for step in steps if step >= size)
    else:
        assert rounded == max(512, -(-size // 512) * 512)


def test_rounding_by_interval(new_allocator: New) -> None:
    allocator = new_allocator("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", start=False)
    assert allocator.round(300 * MIB) == 300 * MIB  # 1 division: only multiples of 512
    assert allocator.round(600 * MIB) == 768 * MIB
    assert allocator.round(1100 * MIB) == 1280 * MIB
    assert allocator.round(4100 * MIB) == 4608 * MIB


def test_oversize_blocks_are_not_split_and_serve_large_requests_only(new_allocator: New) -> None:
    allocator = new_allocator("max_split_size_mb:100")
    allocator.free(allocator.allocate(300 * MIB))
    small = allocator.allocate(50 * MIB)  # would have been carved out of the 300 MiB
    assert allocator.current("reserved_bytes") == 350 * MIB
    close = allocator.allocate(290 * MIB)  # within the 20 MiB that may be wasted
    assert allocator.size(close) == 300 * MIB
    allocator.free(close)
    far = allocator.allocate(280 * MIB)
    assert allocator.size(far) == 280 * MIB
    statistics = allocator.statistics
    assert statistics["oversize_segments"] == [2, 2, 2, 0]
    assert statistics["oversize_allocations"] == [1, 1, 3, 2]
    assert statistics["max_split_size"] == 100 * MIB
    allocator.free(small)


def test_oversize_blocks_go_before_the_whole_cache(new_allocator: New) -> None:
    allocator = new_allocator("max_split_size_mb:100", total=600 * MIB)
    for block in [allocator.allocate(size * MIB) for size in (200, 150, 120, 50)]:
        allocator.free(block)
    allocator.allocate(300 * MIB)  # 200 and 150 make up for it, the largest first
    assert allocator.current("reserved_bytes") == (300 + 120 + 50) * MIB
    assert allocator.statistics["num_alloc_retries"] == 0
    assert allocator.statistics["num_sync_all_streams"] == 0


def test_garbage_collection_frees_what_went_unused_longest(new_allocator: New) -> None:
    allocator = new_allocator("garbage_collection_threshold:0.5", total=1000 * MIB)
    allocator.call("allocator_set_fraction", 0.999)  # PyTorch collects garbage under a limit only
    old = allocator.allocate(300 * MIB)
    allocator.free(old)
    for _ in range(10):  # each search makes the cached 300 MiB older
        allocator.free(allocator.allocate(310 * MIB))
    allocator.allocate(320 * MIB)
    sizes = sorted(segment["total"] // MIB for segment in allocator.snapshot())
    assert sizes == [310, 320]
    assert allocator.statistics["num_alloc_retries"] == 0


def test_rejection_spares_the_cache(new_allocator: New, allocator_error: Any) -> None:
    allocator = new_allocator("throw_on_cudamalloc_oom:True", total=100 * MIB)
    allocator.free(allocator.allocate(60 * MIB))
    with pytest.raises(allocator_error, match=r"preemptively rejected .* Requested size: 70\.00 MiB$"):
        allocator.allocate(70 * MIB)  # giving back the 60 MiB would have made room
    statistics = allocator.statistics
    assert (statistics["num_oom_rejections"], statistics["num_ooms"]) == (1, 0)
    assert allocator.current("reserved_bytes") == 60 * MIB


def test_large_segments_may_have_another_size(new_allocator: New) -> None:
    allocator = new_allocator("large_segment_size_mb:64")
    allocator.allocate(3 * MIB)
    assert allocator.current("reserved_bytes") == 64 * MIB
