"""`maya trace info` and `maya trace validate`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from maya.cli import main
from maya.traces import (
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Ended,
    Kind,
    Manifest,
    Operations,
    RankWriter,
    Tables,
    no_communications,
    single_rank,
    write_manifest,
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run of four kernels in two iterations."""
    rows = np.zeros(4, OPERATION_DTYPE)
    rows["id"] = np.arange(4)
    for column in ("sequence", "event", "module", "source_line", "communication", "graph", "metadata"):
        rows[column] = -1
    rows["kind"] = Kind.KERNEL
    operations = Operations(rows, np.zeros(0, TENSOR_DTYPE), no_communications())
    folder = tmp_path / "a.maya"
    tables = Tables(operators=("aten::mm",), iteration_ends=(1, 3))
    writer = RankWriter(folder, 0)
    writer.append(operations, tables.operators, (), (), ())
    writer.finish(tables)
    write_manifest(
        folder, Manifest(("train.py",), "H100-SXM5-80GB", "2.13", 1, single_rank(), Ended.FINISHED)
    )
    return folder


def test_info_of_a_run(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "info", str(run_dir)]) == 0
    out = capsys.readouterr().out
    assert "train.py" in out
    assert "4: 4 kernel" in out
    assert "2: 2, 2 operations" in out
    assert main(["trace", "info", "--json", str(run_dir)]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["ranks"][0]["iterations"] == [2, 2]
    assert value["manifest"]["gpu"] == "H100-SXM5-80GB"


def test_info_of_a_file(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "info", str(run_dir / "rank-0.et"), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["nodes"], value["by_maya"], value["control_dependencies"]) == (4, True, 3)
    assert main(["trace", "info", str(run_dir / "rank-0.et")]) == 0
    assert "0.0.4, recorded by Maya" in capsys.readouterr().out


def test_validate(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "validate", str(run_dir)]) == 0
    assert capsys.readouterr().out == f"{run_dir}: valid, 1 trace checked\n"
    trace = run_dir / "rank-0.et"
    trace.write_bytes(trace.read_bytes()[:-3])
    for target in (run_dir, trace):
        assert main(["trace", "validate", str(target)]) == 1
        captured = capsys.readouterr()
        assert "rank-0.et at byte" in captured.err
        assert "truncated" in captured.err
        assert "not valid" in captured.out
    assert main(["trace", "validate", str(trace), "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["valid"] is False
    assert value["problems"][0]["offset"] > 0


def test_repair(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = run_dir / "rank-0.et"
    trace.write_bytes(trace.read_bytes()[:-3])
    assert main(["trace", "validate", str(trace), "--repair", str(tmp_path / "b.et")]) == 0
    assert "repaired cut: " in capsys.readouterr().err
    assert main(["trace", "validate", str(tmp_path / "b.et")]) == 0
    assert main(["trace", "validate", str(run_dir), "--repair", str(tmp_path / "c.et")]) == 2


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "info", str(tmp_path / "none.et")]) == 2
    assert main(["trace"]) == 2
    assert main(["trace", "info", str(tmp_path)]) == 1
    assert "manifest is missing" in capsys.readouterr().err
