"""Chakra files that Maya did not write: upstream's own, STAGE's, ASTRA-sim's."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from maya.traces import CollectiveType, NodeType, find_warnings, summarise_et, validate_et

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the shared data folder is not here")


@needs_data
def test_upstream_feeder_sample(tmp_path: Path) -> None:
    with tarfile.open(DATA / "chakra" / "feeder_tests_trace.tar.gz") as archive:
        archive.extract("tests/data/chakra.0.et", tmp_path, filter="data")
    trace = validate_et(tmp_path / "tests/data/chakra.0.et")
    summary = summarise_et(trace)
    assert (summary.nodes, summary.host_nodes) == (3664, 2448)
    assert summary.node_types == {"COMP": 3643, "COMM_COLL": 21}
    assert summary.collectives["ALL_REDUCE"] == (5, 102_228_128)
    assert trace.header.attributes["schema"] == "1.0.1"
    assert trace.attributes["involved_dim"].kinds[0] == "bool_list"
    assert any("control dependencies" in warning for warning in find_warnings(trace))


@needs_data
def test_stage_traces_hold_what_their_summary_says() -> None:
    """summary.json was decoded from the same files by other code."""
    files = {
        DATA / "stage" / folder / name: expected
        for folder, entries in json.loads((DATA / "stage" / "summary.json").read_text()).items()
        for name, expected in entries.items()
        if name.endswith(".et")
    }
    assert len(files) == 10
    for path, expected in files.items():
        trace = validate_et(path)
        summary = summarise_et(trace)
        counts = {name: count for name, (count, _) in summary.collectives.items()}
        for name in ("COMP", "COMM_SEND", "COMM_RECV"):
            if name in summary.node_types:
                counts[name.removeprefix("COMM_")] = summary.node_types[name]
        assert (summary.nodes, counts, summary.num_ops) == (
            expected["nodes"],
            expected["count"],
            expected["num_ops"],
        )
        sizes = {name: size for name, (_, size) in summary.collectives.items()}
        assert sizes == {name: size for name, size in expected["bytes"].items() if name in sizes}


@needs_data
def test_every_astra_sim_input_is_sound() -> None:
    files = sorted((DATA / "astra_sim").rglob("*.et"))
    assert len(files) > 100
    kinds: set[int] = set()
    for path in files:
        trace = validate_et(path)
        kinds.update(np.unique(trace.types).tolist())
        comm_type = trace.attributes.get("comm_type")
        if comm_type is not None:
            dense = comm_type.dense(trace.count, "int64_val", -1)
            collectives = trace.types == NodeType.COMM_COLL
            assert ((dense[collectives] >= 0) & (dense[collectives] <= max(CollectiveType))).all()
    assert {NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV} <= kinds
