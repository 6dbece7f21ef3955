"""ResNets in Kineto traces: shapes by the network's definition, checked against the trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")

from maya.errors import MayaError
from maya.kernel_models.fit import network_traces
from maya.kernel_models.fit.network_traces import Trace, calls, layers_of, load_networks


def test_the_layers_are_those_of_the_published_networks() -> None:
    large, small = layers_of(bottleneck=True), layers_of(bottleneck=False)
    assert (len(large), len(small)) == (53, 20)
    weights = [sum(a.c_in * a.c_out * a.taps**2 for a in layers) for layers in (large, small)]
    assert weights == [23_454_912, 11_166_912]
    multiplications = sum(a.c_in * a.c_out * a.taps**2 * a.out_edge**2 for a in large)
    assert multiplications == pytest.approx(4.09e9, rel=0.01)


def events(layers: int, channels_of_norm: int = 0) -> list[dict[str, Any]]:
    """One step: each operator launches one kernel; a norm's grid is its channels."""
    made: list[dict[str, Any]] = []
    clock, key = 0.0, 0
    network = layers_of(bottleneck=False)

    def add(operator: str, kernel: str, blocks: int, duration: float) -> None:
        nonlocal clock, key
        key += 1
        made.append({"ph": "X", "cat": "cpu_op", "name": operator, "ts": clock, "dur": 8, "tid": 1})
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": clock + 2, "dur": 1}
        made.append(launch | {"tid": 1, "args": {"correlation": key}})
        done = {"ph": "X", "cat": "kernel", "name": kernel, "ts": clock + 50, "dur": duration, "tid": 7}
        made.append(done | {"args": {"correlation": key, "grid": [blocks, 1, 1]}})
        clock += 10

    for layer in network[:layers]:
        add(network_traces.CONVOLUTION, "xmma_fprop_nhwc", 9, 100.0)
        add(network_traces.NORM, "bn_fw", channels_of_norm or layer.c_out, 20.0)
    add(network_traces.POOL, "pool", 1, 30.0)
    add(network_traces.POOL_BACKWARD, "pool_back", 1, 40.0)
    for layer in reversed(network[:layers]):
        add(network_traces.NORM_BACKWARD, "bn_bw", channels_of_norm or layer.c_out, 25.0)
        add(network_traces.CONVOLUTION_BACKWARD, "xmma_dgrad_nhwc", 9, 150.0)
    return made


def prepare(folder: Path, found: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "traces").mkdir()
    with gzip.open(folder / "traces" / "made.json.gz", "wt") as handle:
        json.dump({"traceEvents": found}, handle)
    monkeypatch.setattr(
        network_traces, "TRACES", (Trace("made.json.gz", "A100-SXM4-40GB", 128, False, "tf32"),)
    )


def test_each_call_gets_its_kernels_and_its_layers_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, events(20), monkeypatch)
    found = {measurements.family: measurements for measurements in load_networks(tmp_path)}
    assert set(found) == {"convolution", "batch_norm", "batch_norm_backward", "pool"}
    # Whole forward and backward calls, and the channels-last kernels of forward and data gradient.
    assert len(found["convolution"].time_ns) == 20 + 20 + 20 + 19
    assert sorted(set(found["convolution"].time_ns)) == [100e3, 150e3]
    assert found["batch_norm"].works[-1].shape == (512.0, 128.0 * 49)
    assert found["pool"].time_ns == [30e3, 40e3]


def test_another_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, events(20, channels_of_norm=64), monkeypatch)
    with pytest.raises(MayaError, match="not those of the expected network"):
        load_networks(tmp_path)


def test_a_cut_off_step_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, events(19), monkeypatch)
    with pytest.raises(MayaError, match="19 calls of aten::cudnn_convolution, want a multiple of 20"):
        load_networks(tmp_path)


def test_a_kernel_belongs_to_the_call_that_launched_it() -> None:
    found = calls(events(2))
    assert [call[0].name for call in found[network_traces.NORM]] == ["bn_fw", "bn_fw"]
    assert [len(call) for call in found[network_traces.CONVOLUTION_BACKWARD]] == [1, 1]
