"""What the device records: layouts, kinds of operations, and the tensors they use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maya.traces import MEMORY_DTYPE, OPERATION_DTYPE, TENSOR_DTYPE, Kind, MemoryAction, Phase, Role

sys.path.insert(0, str(Path(__file__).parent / "support"))
from on_device import on_device
from records import Records, recorded

BIG = 70_000
FIRST_OUTPUT = 256


def backend() -> Any:
    from emulated_gpu import native

    return native


def kinds(records: Records) -> list[tuple[str, Kind]]:
    return [(records.name(row), Kind(row["kind"])) for row in records.rows]


# Layouts


@on_device
def test_rows_have_the_layout_of_the_trace() -> None:
    x, y = torch.randn(100, 700, device="cuda"), torch.randn(700, 50, device="cuda")
    out: list[Tensor] = []
    records = recorded(lambda: out.append(x @ y))
    row = records.one("aten::mm")
    assert row["id"] == records.rows["id"].min() + list(records.rows["id"]).index(row["id"])
    assert (row["stream"], row["device"], row["event"]) == (0, 0, -1)
    assert (row["communication"], row["graph"], row["padding"]) == (-1, -1, 0)
    assert (row["kind"], row["blocking"], row["wraps_autograd"]) == (Kind.KERNEL, 0, 0)
    assert row["tensor_count"] == 3
    uses = records.uses(row)
    assert uses["argument"].tolist() == [0, 1, FIRST_OUTPUT]
    assert uses["role"].tolist() == [Role.READ, Role.READ, Role.WRITE]
    assert uses["extent_bytes"].tolist() == [100 * 700 * 4, 700 * 50 * 4, 100 * 50 * 4]
    assert uses["offset_bytes"].tolist() == [0, 0, 0]
    assert uses["storage"].tolist() == [backend().allocation_id(tensor) for tensor in (x, y, out[0])]
    data = records.data(row)
    assert data["args"]["self"] == {
        "dtype": "float32",
        "shape": [100, 700],
        "stride": [700, 1],
        "device": "cuda",
    }
    assert data["out"] == [
        {"dtype": "float32", "shape": [100, 50], "stride": [50, 1], "device": "cuda"},
    ]
    assert data["math"] in ("ieee", "tf32")


@on_device
def test_every_column_is_where_numpy_looks_for_it() -> None:
    """A marker fills the columns that differ from operation to operation with values of their own."""
    native = backend()
    module = native.module_id("Columns.layout")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(BIG, device="cuda")

    def step() -> None:
        native.enter_module(module)
        with torch.cuda.stream(side):
            x.add_(1.0)
            side.record_event()
        native.leave_module()
        with torch.cuda.graph(graph):
            x.mul_(2.0)

    records = recorded(step)
    added, multiplied, event = (
        records.one("aten::add_.Tensor"),
        records.one("aten::mul_.Tensor"),
        records.one("cudaEventRecord"),
    )
    assert added["stream"] == side.stream_id != 0
    assert records.module(added) == "Columns.layout"
    assert added["phase"] == Phase.FORWARD
    assert multiplied["module"] == -1
    assert multiplied["graph"] >= 0
    assert added["graph"] == -1
    assert event["event"] >= 0
    assert event["kind"] == Kind.EVENT_RECORD
    assert (OPERATION_DTYPE.itemsize, TENSOR_DTYPE.itemsize, MEMORY_DTYPE.itemsize) == (72, 32, 56)
    assert np.array_equal(records.rows["id"], np.arange(len(records.rows)) + records.rows["id"][0])


@on_device
def test_markers_carry_their_metadata() -> None:
    records = recorded(lambda: backend().mark("maya::batch", '{"args":{"samples":8,"tokens":64},"out":[]}'))
    row = records.one("maya::batch")
    assert row["kind"] == Kind.MARKER
    assert records.data(row)["args"] == {"samples": 8, "tokens": 64}


@on_device
def test_memory_rows() -> None:
    kept: list[Tensor] = []

    def step() -> None:
        kept.append(torch.empty(3_000_000, device="cuda"))
        (kept[0] * 2).add_(1)

    records = recorded(step)
    allocated = records.memory[records.memory["action"] == MemoryAction.ALLOCATE]
    assert allocated["requested_bytes"].tolist() == [12_000_000, 12_000_000]
    assert all(allocated["size_bytes"] >= allocated["requested_bytes"])
    assert all(allocated["size_bytes"] % 512 == 0)
    assert allocated["allocation"][0] == backend().allocation_id(kept[0])
    freed = records.memory[records.memory["action"] == MemoryAction.FREE]
    assert freed["allocation"].tolist() == [allocated["allocation"][1]]
    # The memory of an operation's output is there before the operation.
    product = records.one("aten::mul.Tensor")
    assert allocated["operation"][1] == product["id"]
    grown = records.memory[records.memory["action"] == MemoryAction.SEGMENT_ALLOCATE]
    assert (grown["allocation"] == -1).all()


# Kinds


@on_device
def test_kinds_of_copies() -> None:
    host, pinned = torch.zeros(BIG), torch.zeros(BIG).pin_memory()
    device, other = torch.zeros(BIG, device="cuda"), torch.zeros(BIG, device="cuda")
    half = torch.zeros(BIG, device="cuda", dtype=torch.float16)
    cases = (
        (lambda: device.copy_(host), Kind.MEMCPY, "h2d", False, True),
        (lambda: device.copy_(host, non_blocking=True), Kind.MEMCPY, "h2d", False, True),
        (lambda: device.copy_(pinned), Kind.MEMCPY, "h2d", True, True),
        (lambda: device.copy_(pinned, non_blocking=True), Kind.MEMCPY, "h2d", True, False),
        (lambda: host.copy_(device), Kind.MEMCPY, "d2h", False, True),
        (lambda: pinned.copy_(device, non_blocking=True), Kind.MEMCPY, "d2h", True, False),
        (lambda: device.copy_(other), Kind.MEMCPY, "d2d", False, False),
        (lambda: device.copy_(half), Kind.KERNEL, None, None, False),
        (lambda: device.view(100, 700).t().copy_(other.view(700, 100)), Kind.KERNEL, None, None, False),
    )
    for copy, kind, direction, is_pinned, blocking in cases:
        records = recorded(copy)
        row = records.one("aten::copy_")
        assert (row["kind"], row["blocking"]) == (kind, blocking)
        memcpy = records.data(row).get("memcpy")
        expected = direction and {"direction": direction, "bytes": BIG * 4, "pinned": is_pinned}
        assert memcpy == expected
        assert records.uses(row)["role"].tolist() == [Role.WRITE, Role.READ]
        on_host = [use["storage"] == -1 for use in records.uses(row)]
        assert on_host == [direction == "d2h", direction == "h2d"]


@on_device
def test_converting_copies_convert_on_the_host() -> None:
    device = torch.zeros(BIG, device="cuda")
    from_host = recorded(lambda: device.copy_(torch.zeros(BIG, dtype=torch.float64)))
    assert kinds(from_host) == [("aten::copy_", Kind.MEMCPY)]
    assert from_host.data(from_host.rows[0])["memcpy"]["bytes"] == BIG * 4
    to_host = recorded(lambda: device.to("cpu", torch.float64))
    assert kinds(to_host) == [("aten::copy_", Kind.MEMCPY)]
    # A transposed source is packed on its own side first.
    strided = device.view(100, 700).t()
    packed = [kind for name, kind in kinds(recorded(lambda: strided.cpu())) if name == "aten::copy_"]
    assert packed in ([Kind.MEMCPY], [Kind.KERNEL, Kind.MEMCPY])


@on_device
def test_views_and_allocations_launch_nothing() -> None:
    x = torch.zeros(100, 700, device="cuda")

    def step() -> None:
        x.view(700, 100).t()[3:, ::2].expand(2, 97, 350)
        torch.empty(5, device="cuda")
        x.detach().reshape(7, 100, 100).permute(2, 0, 1)

    records = recorded(step)
    assert {kind for _, kind in kinds(records)} == {Kind.HOST}
    assert recorded(lambda: x[1:3, 5]).rows["kind"].tolist().count(Kind.KERNEL) == 0


@on_device
def test_reads_wait_for_the_device() -> None:
    x = torch.zeros(300, 300, device="cuda")
    for read, operator, kind in (
        (lambda: x[0, 0].item(), "aten::_local_scalar_dense", Kind.MEMCPY),
        (lambda: torch.nonzero(x), "aten::nonzero", Kind.KERNEL),
        (lambda: torch.equal(x, x + 1), "aten::equal", Kind.KERNEL),
        (lambda: torch.unique(x), "aten::_unique2", Kind.KERNEL),
    ):
        records = recorded(read)
        row = records.named(operator)[-1]
        assert (row["kind"], row["blocking"]) == (kind, 1)
    assert recorded(lambda: x + 1).one("aten::add.Tensor")["blocking"] == 0


@on_device
def test_streams_and_events() -> None:
    side = torch.cuda.Stream()
    event = torch.cuda.Event()

    def step() -> None:
        event.record()
        side.wait_event(event)
        event.synchronize()
        side.synchronize()
        torch.cuda.synchronize()

    records = recorded(step)
    assert [Kind(kind) for kind in records.rows["kind"]] == [
        Kind.EVENT_RECORD,
        Kind.STREAM_WAIT,
        Kind.EVENT_SYNC,
        Kind.STREAM_SYNC,
        Kind.DEVICE_SYNC,
    ]
    assert len(set(records.rows["event"][:3])) == 1
    assert records.rows["event"][3:].tolist() == [-1, -1]
    assert records.rows["stream"].tolist()[:2] == [0, side.stream_id]


# Tensor uses


@on_device
def test_roles_and_windows() -> None:
    x = torch.zeros(100, 1000, device="cuda")

    def step() -> None:
        x[10:20, 3].add_(1)
        x.fill_(2)
        torch.mul(x, 2, out=x)

    records = recorded(step)
    added = records.uses(records.one("aten::add_.Tensor"))
    assert (added["role"].tolist(), added["argument"].tolist()) == ([Role.READ_WRITE, Role.READ], [0, 1])
    assert added["offset_bytes"][0] == (10 * 1000 + 3) * 4
    assert added["extent_bytes"][0] == (9 * 1000 + 1) * 4
    assert added["storage"][1] == -1  # the number
    assert records.uses(records.one("aten::fill_.Scalar"))["role"].tolist() == [Role.WRITE]
    multiplied = records.uses(records.one("aten::mul.out"))
    assert multiplied["role"][0] == Role.READ
    assert Role.WRITE in multiplied["role"]


@on_device
def test_lists_are_one_operation() -> None:
    tensors = [torch.zeros(BIG, device="cuda") for _ in range(3)]
    records = recorded(lambda: torch._foreach_add_(tensors, 1.0))
    (row,) = records.kernels()
    assert records.name(row) == "aten::_foreach_add_.Scalar"
    assert records.uses(row)["storage"].tolist() == [backend().allocation_id(t) for t in tensors]
    assert len(records.data(row)["args"]["self"]) == 3
