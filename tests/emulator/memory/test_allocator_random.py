"""Random programs: against a naive model without any index, and against what must always hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

MIB = 1 << 20
SEGMENT_ALLOCATE, SEGMENT_FREE = 3, 4

New = Callable[..., Any]

SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 3 * MIB),
    st.integers(MIB, 12 * MIB),
    st.integers(10 * MIB, 200 * MIB),
    st.sampled_from([512, MIB, MIB + 1, 10 * MIB, 20 * MIB, 21 * MIB]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), SIZES, st.integers(0, 2)),
        st.tuples(st.just("free"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("free"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=60,
)
STREAM_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), SIZES, st.integers(0, 2)),
        st.tuples(st.just("free"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("record"), st.integers(0, 1000), st.integers(0, 3)),
        st.tuples(st.just("ready"), st.integers(0, 100), st.integers(0, 3)),
        st.tuples(st.just("clock"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("route"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("capture"), st.just(0), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=60,
)
SETTINGS = st.sampled_from(
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:64",
        "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9",
        "expandable_segments:True,garbage_collection_threshold:0.3,per_process_memory_fraction:0.8",
        "large_segment_size_mb:32,max_split_size_mb:40",
    ]
)


class NaiveModel:
    """The default settings' rules, spelled out over plain lists of [address, size, in use]."""

    def __init__(self, capacity: int) -> None:
        self.free_bytes = capacity
        self.segments: list[dict[str, Any]] = []

    def allocate(self, size: int, stream: int) -> tuple[str, int]:
        """("reuse", address), ("grow", segment bytes) or ("fail", 0). After "grow": adopt()."""
        rounded = max(512, -(-size // 512) * 512)
        small = rounded <= MIB
        fitting = [
            (block[1], block[0], index, segment)
            for segment in self.segments
            if segment["small"] == small and segment["stream"] == stream
            for index, block in enumerate(segment["blocks"])
            if not block[2] and block[1] >= rounded
        ]
        if fitting:
            _, address, index, segment = min(fitting, key=lambda item: item[:2])
            self._carve(segment, index, rounded)
            return "reuse", address
        if small:
            total = 2 * MIB
        else:
            total = 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
        if total > self.free_bytes:
            self.empty()
        if total > self.free_bytes:
            return "fail", 0
        self.free_bytes -= total
        self.segments.append({"small": small, "stream": stream, "total": total, "blocks": []})
        self.rounded = rounded
        return "grow", total

    def adopt(self, address: int) -> None:
        segment = self.segments[-1]
        segment["blocks"] = [[address, segment["total"], False]]
        self._carve(segment, 0, self.rounded)

    def _carve(self, segment: dict[str, Any], index: int, rounded: int) -> None:
        block = segment["blocks"][index]
        block[2] = True
        left = block[1] - rounded
        if left >= 512 if segment["small"] else left > MIB:
            segment["blocks"].insert(index + 1, [block[0] + rounded, left, False])
            block[1] = rounded

    def free(self, address: int) -> None:
        for segment in self.segments:
            for block in segment["blocks"]:
                if block[0] == address:
                    block[2] = False
            joined: list[list[Any]] = []
            for block in segment["blocks"]:
                if joined and not joined[-1][2] and not block[2]:
                    joined[-1][1] += block[1]
                else:
                    joined.append(block)
            segment["blocks"] = joined

    def empty(self) -> None:
        for segment in [s for s in self.segments if len(s["blocks"]) == 1 and not s["blocks"][0][2]]:
            self.free_bytes += segment["total"]
            self.segments.remove(segment)

    def layout(self) -> list[list[tuple[int, int, bool]]]:
        return sorted([(a, s, u) for a, s, u in segment["blocks"]] for segment in self.segments)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, capacity=st.sampled_from([64, 300, 100_000]))
def test_decisions_equal_the_naive_model(
    allocator_library: Any,
    allocator_class: Any,
    allocator_error: Any,
    steps: list[tuple[str, int, int]],
    capacity: int,
) -> None:
    allocator = allocator_class(allocator_library, total=capacity * MIB)
    model = NaiveModel(capacity * MIB)
    live: list[int] = []
    try:
        for action, value, stream in steps:
            if action == "allocate":
                decision, where = model.allocate(value, stream)
                try:
                    block = allocator.allocate(value, stream)
                except allocator_error:
                    assert decision == "fail"
                    continue
                grown = [e for e in allocator.events() if e[0] == SEGMENT_ALLOCATE]
                assert decision == ("grow" if grown else "reuse")
                if grown:
                    assert grown[0][5] == where
                    model.adopt(grown[0][4])
                else:
                    assert allocator.address(block) == where
                live.append(block)
            elif action == "free" and live:
                block = live.pop(value % len(live))
                address = allocator.address(block)
                allocator.free(block)
                model.free(address)
            elif action == "empty":
                allocator.empty_cache()
                model.empty()
            allocator.events()
            ours = [[(b[0], b[1], b[3] == 0) for b in s["blocks"]] for s in allocator.snapshot()]
            assert ours == model.layout()
    finally:
        allocator.close()


def check_invariants(allocator: Any, capacity: int) -> None:
    """Blocks tile their segments, free neighbours are joined, and the counters are sums over blocks."""
    snapshot, statistics = allocator.snapshot(), allocator.statistics
    end = 0
    totals = dict.fromkeys(("reserved", "allocated", "active", "requested", "blocks", "active_blocks"), 0)
    split = {"bytes": 0, "blocks": 0}
    for segment in snapshot:
        assert segment["address"] >= end, "segments overlap"
        position = segment["address"]
        was_free = False
        for address, size, requested, state in segment["blocks"]:
            assert address == position
            assert size > 0
            assert size % 512 == 0
            position += size
            assert not (was_free and state == 2), "free neighbours were not joined"
            was_free = state == 2
            if state != 2:
                assert 0 < requested <= size
                totals["requested"] += requested
                totals["active_blocks"] += 1
            if state == 2 and len(segment["blocks"]) > 1 and not segment["expandable"]:
                split["bytes"] += size
                split["blocks"] += 1
            totals["blocks"] += state == 0
        assert position == segment["address"] + segment["total"]
        end = position
        for name in ("allocated", "active"):
            totals[name] += segment[name]
        totals["reserved"] += segment["total"]
    expected = {
        "reserved_bytes": totals["reserved"],
        "allocated_bytes": totals["allocated"],
        "active_bytes": totals["active"],
        "requested_bytes": totals["requested"],
        "allocation": totals["blocks"],
        "active": totals["active_blocks"],
        "inactive_split_bytes": split["bytes"],
        "inactive_split": split["blocks"],
        "segment": sum(not segment["expandable"] for segment in snapshot),
    }
    for name, value in expected.items():
        current, peak, allocated, freed = statistics[f"{name}.all"]
        assert current == value, name
        assert peak >= current
        assert allocated - freed == current
        for column in (0, 2, 3):
            small, large = (statistics[f"{name}.{kind}"][column] for kind in ("small_pool", "large_pool"))
            assert small + large == statistics[f"{name}.all"][column]
    assert allocator.call("allocator_free_bytes") == capacity - totals["reserved"] >= 0


@settings(max_examples=300, deadline=None)
@given(steps=STREAM_STEPS, text=SETTINGS, capacity=st.sampled_from([100, 400, 100_000]))
def test_invariants_hold_whatever_happens(
    allocator_library: Any,
    allocator_class: Any,
    allocator_error: Any,
    steps: list[tuple[str, int, int]],
    text: str,
    capacity: int,
) -> None:
    allocator = allocator_class(allocator_library, text, total=capacity * MIB)
    live: list[int] = []
    routed: int | None = None
    capturing = False
    try:
        for action, value, stream in steps:
            if action == "allocate":
                try:
                    live.append(allocator.allocate(value, stream))
                except allocator_error as error:
                    if error.kind != "OutOfMemory":
                        raise
            elif action == "free" and live:
                allocator.free(live.pop(value % len(live)))
            elif action == "record" and live:
                allocator.call("allocator_record_stream", live[value % len(live)], stream)
            elif action == "ready":
                allocator.call("clock_set_ready", stream, value)
            elif action == "clock":
                allocator.call("clock_set", max(value, allocator.call("clock_now")))
            elif action == "route":
                if routed is None:
                    routed = value
                    allocator.pool("pool_begin", (0, value + 1), value)
                else:
                    allocator.pool("pool_end", (0, routed + 1))
                    allocator.pool("pool_release", (0, routed + 1))
                    routed = None
            elif action == "capture":
                capturing = not capturing
                allocator.call("capture_mark", int(capturing))
            elif action == "empty":
                allocator.empty_cache()
            check_invariants(allocator, capacity * MIB)
        # Once everything is given up nothing may be left behind.
        if capturing:
            allocator.call("capture_mark", 0)
        if routed is not None:
            allocator.pool("pool_end", (0, routed + 1))
            allocator.pool("pool_release", (0, routed + 1))
        for block in live:
            allocator.free(block)
        allocator.empty_cache()
        assert allocator.snapshot() == []
        check_invariants(allocator, capacity * MIB)
    finally:
        allocator.close()


def test_threads_leave_a_consistent_allocator(new_allocator: New) -> None:
    allocator = new_allocator(total=4000 * MIB)
    allocator.call("stress_threads", 4, 4000)  # ctypes lets go of the GIL
    check_invariants(allocator, 4000 * MIB)
    statistics = allocator.statistics
    assert statistics["allocation.all"][2:] == [16000, 16000]
    identities = [event[3] for event in allocator.events() if event[0] == 0]
    assert len(set(identities)) == 16000
    allocator.empty_cache()
    assert allocator.snapshot() == []
