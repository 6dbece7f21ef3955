"""The timeline says what was simulated, in a form that Perfetto's own schema reads."""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maya.hardware import default_host, find_gpu
from maya.kernel_models import CollectiveModel, RooflineModel
from maya.pipeline.priced_run import price_run
from maya.reports.perfetto import PerfettoRenderer, _lanes, render_timeline
from maya.reports.perfetto_packets import TraceStream, varint
from maya.reports.prediction import Prediction
from maya.reports.report import Report, SimulatedRun
from maya.simulator import KERNEL_ROW_DTYPE
from maya.traces import RankClass, single_rank

perfetto_trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


@pytest.fixture
def simulated(tmp_path: Path, synthetic_run: Callable[..., Any]) -> Callable[..., SimulatedRun]:
    def make(**attributes: Any) -> SimulatedRun:
        synthetic_run(**attributes).write(tmp_path)
        gpu = find_gpu("H100-SXM5-80GB")
        priced = price_run(
            tmp_path, single_rank(), gpu=gpu, host=default_host(), model=RooflineModel(), warmup=1
        )
        return priced.simulated()

    return make


class Decoded:
    """A trace by tracks: name → [(name, start, end, arguments)], and counters' samples."""

    def __init__(self, data: bytes) -> None:
        trace = perfetto_trace.Trace()
        trace.ParseFromString(data)
        self.names: dict[int, str] = {}
        self.slices: dict[str, list[tuple[str, int, int, dict[str, Any]]]] = defaultdict(list)
        self.counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.flows: dict[int, list[str]] = defaultdict(list)
        strings: dict[str, dict[int, str]] = defaultdict(dict)
        opened: dict[int, tuple[str, int, dict[str, Any]]] = {}
        assert trace.packet[0].sequence_flags == 1  # a reader may rely on what follows
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            for entry in packet.interned_data.event_names:
                strings["name"][entry.iid] = entry.name
            for entry in packet.interned_data.debug_annotation_names:
                strings["argument"][entry.iid] = entry.name
            for entry in packet.interned_data.debug_annotation_string_values:
                strings["value"][entry.iid] = entry.str.decode()
            if packet.HasField("track_descriptor"):
                descriptor = packet.track_descriptor
                self.names[descriptor.uuid] = descriptor.name or descriptor.process.process_name
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            track = self.names[event.track_uuid]
            if event.type == event.TYPE_SLICE_BEGIN:
                assert event.track_uuid not in opened, "slices of a track overlap"
                arguments = {
                    strings["argument"][argument.name_iid]: strings["value"][argument.string_value_iid]
                    if argument.HasField("string_value_iid")
                    else argument.int_value
                    for argument in event.debug_annotations
                }
                opened[event.track_uuid] = (strings["name"][event.name_iid], packet.timestamp, arguments)
                for flow in event.flow_ids:
                    self.flows[flow].append(track)
            elif event.type == event.TYPE_SLICE_END:
                name, start, arguments = opened.pop(event.track_uuid)
                assert packet.timestamp >= start
                self.slices[track].append((name, start, packet.timestamp, arguments))
            else:
                self.counters[track].append((packet.timestamp, event.counter_value))
        assert not opened


def decode(run: SimulatedRun) -> Decoded:
    out = io.BytesIO()
    render_timeline(run, out)
    return Decoded(out.getvalue())


def test_every_kernel_is_on_its_stream(simulated: Callable[..., SimulatedRun]) -> None:
    run = simulated()
    decoded = decode(run)
    shown = [
        (start, end)
        for track, slices in decoded.slices.items()
        if "GPU" in track
        for _, start, end, _ in slices
    ]
    wanted = zip(
        run.timeline.kernels["start_ns"].tolist(), run.timeline.kernels["end_ns"].tolist(), strict=True
    )
    assert sorted(shown) == sorted(wanted)


def test_kernels_carry_names_shapes_modules_and_source(simulated: Callable[..., SimulatedRun]) -> None:
    decoded = decode(simulated())
    name, _, _, arguments = decoded.slices["GPU 0 default stream"][0]
    assert "addmm" in name
    assert arguments["operator"] == "aten::addmm"
    assert arguments["inputs"] == "bf16[2048], bf16[2048, 2048], bf16[2048, 2048]"
    assert arguments["outputs"] == "bf16[2048, 2048]"
    assert arguments["module"] == "Net.layers.0"
    assert arguments["phase"] == "forward"
    assert arguments["source line"] == "train.py:10"
    assert arguments["time rests on"] in ("measured", "learned", "extrapolated", "roofline")


def test_iterations_phases_host_and_memory_have_tracks(simulated: Callable[..., SimulatedRun]) -> None:
    run = simulated()
    decoded = decode(run)
    iterations = decoded.slices["iterations"]
    assert [entry[0] for entry in iterations] == [
        "iteration 0 (warm-up)",
        "iteration 1",
        "iteration 2",
        "iteration 3",
    ]
    assert {entry[0] for entry in decoded.slices["phases"]} == {"forward", "backward", "other"}
    hosts = [slices for track, slices in decoded.slices.items() if track.startswith("host thread")]
    assert len(hosts) == 2  # the script's and autograd's
    assert sum(map(len, hosts)) > len(decoded.slices["GPU 0 default stream"])
    assert [value for _, value in decoded.counters["GPU 0 memory allocated"]] == [0, 2**30, 0]
    assert decoded.counters["GPU 0 memory reserved"][-1][1] == 2 * 2**30


def test_an_arrow_leads_from_each_launch_to_its_kernel(simulated: Callable[..., SimulatedRun]) -> None:
    decoded = decode(simulated())
    assert decoded.flows
    for tracks in decoded.flows.values():
        assert len(tracks) == 2
        assert "host" in tracks[0]
        assert "GPU" in tracks[1]


def test_a_run_without_iterations_is_drawn_too(simulated: Callable[..., SimulatedRun]) -> None:
    decoded = decode(simulated(iterations=0))
    assert "iterations" not in decoded.slices
    assert decoded.slices["GPU 0 default stream"]


def test_the_same_run_gives_the_same_bytes(simulated: Callable[..., SimulatedRun]) -> None:
    run = simulated()
    first, second = io.BytesIO(), io.BytesIO()
    render_timeline(run, first)
    render_timeline(run, second)
    assert first.getvalue() == second.getvalue()


def test_a_large_trace_is_written_within_its_budget(simulated: Callable[..., SimulatedRun]) -> None:
    """25,000 operations under 1 s on a quiet machine; three times that here, for a busy one."""
    run = simulated(layers=1040)
    assert run.ranks[0].trace.operations.count > 24_900
    began = time.process_time()
    render_timeline(run, io.BytesIO())
    assert time.process_time() - began < 3


def test_nothing_simulated_is_an_error() -> None:
    from maya.errors import MayaError

    nothing = Report(Prediction("H100-SXM5-80GB", 1, (0,), "failed", "no GPU used"), None, None)
    with pytest.raises(MayaError, match="no timeline"):
        PerfettoRenderer().render(nothing, io.BytesIO())


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_varints_are_protobufs(number: int) -> None:
    packet = perfetto_trace.TracePacket()
    packet.ParseFromString(b"\x40" + varint(number))
    assert packet.timestamp == number


def test_strings_are_written_once() -> None:
    out = io.BytesIO()
    stream = TraceStream(out)
    track = stream.track("t", stream.process("p", 1))
    kind = stream.slice_kind(track, "a long enough name", stream.annotations({"key": "a value", "number": 3}))
    stream.slices(track, [0, 5, 9], [5, 9, 10], [kind] * 3)
    stream.close()
    assert out.getvalue().count(b"a long enough name") == 1
    assert out.getvalue().count(b"a value") == 1


def test_every_rank_is_a_process_and_arrows_join_its_communications(
    tmp_path: Path, synthetic_run: Callable[..., Any]
) -> None:
    synthetic_run(world_size=3, slow_rank=1, layers=2).write(tmp_path)
    classes = tuple(RankClass(rank, (rank,)) for rank in range(3))
    gpu = find_gpu("H100-SXM5-80GB")
    priced = price_run(
        tmp_path,
        classes,
        gpu=gpu,
        host=default_host(),
        model=RooflineModel(),
        warmup=1,
        prices=CollectiveModel(gpu),
    )
    decoded = decode(priced.simulated())
    processes = [name for name in decoded.names.values() if name.startswith("rank ")]
    assert processes == [f"rank {rank} (H100-SXM5-80GB)" for rank in range(3)]
    tracks = [f"GPU {rank} stream {20 + rank} communication" for rank in range(3)]
    together = [flow for flow in decoded.flows.values() if len(flow) == 3]
    assert together == [tracks] * (2 * 4)  # a bucket for each of two layers in each of four iterations
    spans = [[(start, end) for _, start, end, _ in decoded.slices[track]] for track in tracks]
    assert spans[0] == spans[1] == spans[2]
    name, _, _, arguments = decoded.slices[tracks[2]][0]
    assert name == "c10d::allreduce_"
    assert arguments["communicator"] == "0"
    assert arguments["ranks"] == "0, 1, 2"
    assert arguments["collective"] == "all-reduce"
    assert arguments["bytes in"] == 8 << 20


def test_waits_for_a_slow_rank_are_drawn(tmp_path: Path, synthetic_run: Callable[..., Any]) -> None:
    synthetic_run(world_size=2, slow_rank=1, layers=2).write(tmp_path)
    gpu = find_gpu("H100-SXM5-80GB")
    priced = price_run(
        tmp_path,
        (RankClass(0, (0,)), RankClass(1, (1,))),
        gpu=gpu,
        host=default_host(),
        model=RooflineModel(),
        warmup=1,
        prices=CollectiveModel(gpu),
    )
    decoded = decode(priced.simulated())
    waits = decoded.slices["GPU 0 stream 20 waits for its peers"]
    begun = decoded.slices["GPU 0 stream 20 communication"]
    assert len(waits) >= 4  # the first bucket of each iteration
    starts = {start for _, start, _, _ in begun}
    assert all(name == "waits for its peers" and end in starts for name, _, end, _ in waits)
    assert not decoded.slices["GPU 1 stream 21 waits for its peers"]


def test_communications_of_one_group_are_drawn_beside_each_other() -> None:
    rows = np.zeros(4, KERNEL_ROW_DTYPE)
    rows["start_ns"], rows["end_ns"] = [0, 0, 5, 9], [7, 5, 8, 12]
    lanes = [
        list(zip(lane["start_ns"].tolist(), lane["end_ns"].tolist(), strict=True)) for lane in _lanes(rows)
    ]
    assert lanes == [[(0, 7), (9, 12)], [(0, 5), (5, 8)]]
    assert len(_lanes(rows[2:])) == 1


def test_a_rank_shown_for_others_says_so(tmp_path: Path, synthetic_run: Callable[..., Any]) -> None:
    synthetic_run(world_size=4).write(tmp_path)
    gpu = find_gpu("H100-SXM5-80GB")
    priced = price_run(
        tmp_path,
        (RankClass(0, (0, 1, 2, 3)),),
        gpu=gpu,
        host=default_host(),
        model=RooflineModel(),
        warmup=1,
        prices=CollectiveModel(gpu),
    )
    assert "rank 0 (H100-SXM5-80GB), as 3 more" in decode(priced.simulated()).names.values()
