"""`maya trace`, `maya report` of a job of several ranks, and damage that is told once, with its place."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maya.cli import main
from maya.hardware import default_host
from maya.traces import (
    COMMUNICATION_DTYPE,
    Ended,
    Manifest,
    StepSettings,
    merge_equal_ranks,
    read_rank,
    write_manifest,
)


@pytest.fixture
def job(tmp_path: Path, synthetic_run: Callable[..., Any]) -> Callable[..., Path]:
    """Writes and merges the ranks of a job."""

    def make(**attributes: Any) -> Path:
        attributes.setdefault("world_size", 4)
        run_dir = tmp_path / "job.maya"
        run_dir.mkdir()
        run = synthetic_run(**attributes)
        run.write(run_dir)
        classes = merge_equal_ranks(run_dir, run.world_size)
        settings = StepSettings(3, 1)
        manifest = Manifest(
            ("train.py",), "H100-SXM5-80GB", "2.13", run.world_size, classes, Ended.STOPPED,
            settings=settings, host=default_host().name,
        )  # fmt: skip
        write_manifest(run_dir, manifest)
        return run_dir

    return make


def change_communications(run_dir: Path, rank: int, change: Callable[[Any], None]) -> None:
    """Alter the communication rows of a rank's file in place."""
    rows = read_rank(run_dir, rank).operations.communications
    path = run_dir / f"rank-{rank}.et"
    data = path.read_bytes()
    for row in rows[::-1]:  # so that a number that moves up is not mistaken for the next
        changed = np.array(row, dtype=COMMUNICATION_DTYPE)
        change(changed)
        assert data.count(row.tobytes()) == 1
        data = data.replace(row.tobytes(), changed.tobytes())
    path.write_bytes(data)


def errors(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `maya trace validate` complains of, which is nothing twice."""
    capsys.readouterr()
    code = main(["trace", "validate", str(run_dir)])
    found = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert code == (1 if found else 0)
    assert len(found) == len(set(found))
    return found


def test_info_of_each_class(job: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = job(logging_rank=0)
    assert main(["trace", "info", str(run_dir)]) == 0
    out = capsys.readouterr().out
    assert "rank 0\n" in out
    assert "rank 1, stored for ranks 1-3\n" in out
    assert "all_reduce  16, 134,217,728 bytes" in out
    assert "differs     from rank 0 from operation 43 on (aten::copy_ at train.py:20 against" in out
    assert main(["trace", "info", "--json", str(run_dir)]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert [each["ranks"] for each in ranks] == [[0], [1, 2, 3]]
    assert ranks[1]["communications"] == {"all_reduce": [16, 134217728]}


def test_sound_jobs_are_valid(job: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = job(slow_rank=2)
    assert main(["trace", "validate", str(run_dir)]) == 0
    assert capsys.readouterr() == (f"{run_dir}: valid, 2 traces checked\n", "")


def test_ranks_that_disagree_are_named(job: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = job(slow_rank=2)

    def double_the_second(row: Any) -> None:
        if row["sequence_in_communicator"] == 1:
            row["input_bytes"] *= 2

    change_communications(run_dir, 2, double_the_second)
    (found,) = errors(run_dir, capsys)
    assert f"{run_dir}: rank 2, node " in found
    assert (
        "(c10d::allreduce_, train.py:10): all-reduce number 1 of communicator '0' has 16777216 bytes" in found
    )
    assert "but rank 0, node " in found
    assert main(["trace", "validate", "--json", str(run_dir)]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert isinstance(problem["node"], int)
    # The prediction fails with the same words rather than a traceback.
    assert main(["report", str(run_dir), "--format", "json"]) == 0
    prediction = json.loads(capsys.readouterr().out)
    assert prediction["verdict"] == "failed"
    assert "rank 2, node" in prediction["cause"]
    assert "\n" not in prediction["cause"]


def test_a_missing_call_fails_the_prediction(
    job: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = job(slow_rank=2)

    def renumber(row: Any) -> None:
        if row["sequence_in_communicator"] > 3:
            row["sequence_in_communicator"] += 1

    change_communications(run_dir, 2, renumber)
    found = errors(run_dir, capsys)
    assert any("number 4 of communicator '0' is never called by rank 2" in each for each in found)
    assert main(["report", str(run_dir)]) == 0
    assert "never called by rank 2" in capsys.readouterr().out


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
    path.write_bytes(bytes(data))


def rewrite(path: Path, change: Callable[[list[Any]], None]) -> None:
    """Alter the messages of a Chakra file: the global metadata, then the nodes."""
    from maya.traces.chakra_schema import messages
    from maya.traces.frames import find_messages
    from maya.traces.wire import varint

    data = path.read_bytes()
    starts, ends = find_messages(data, path)
    bodies = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    kinds = [messages().GlobalMetadata, *[messages().Node] * (len(bodies) - 1)]
    parsed = [kind.FromString(body) for kind, body in zip(kinds, bodies, strict=True)]
    change(parsed)
    written = [message.SerializeToString() for message in parsed]
    path.write_bytes(b"".join(varint(len(body)) + body for body in written))


def repeat_a_node(path: Path) -> None:
    rewrite(path, lambda nodes: nodes.append(nodes[4]))


def add_a_cycle(path: Path) -> None:
    rewrite(
        path, lambda nodes: nodes[3].data_deps.append(nodes[9].id) or nodes[9].data_deps.append(nodes[3].id)
    )


def lose_a_node(path: Path) -> None:
    rewrite(path, lambda nodes: nodes[9].data_deps.append(90_000))


def claim_another_version(path: Path) -> None:
    rewrite(path, lambda nodes: setattr(nodes[0], "version", "0.0.3"))


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        ("rank-2.et", cut, "rank-2.et at byte"),
        ("rank-2.et", garble, "rank-2.et at byte"),
        ("rank-2.et", repeat_a_node, ", node 3: duplicate id"),
        ("rank-2.et", add_a_cycle, ": cyclic dependencies: "),
        ("rank-2.et", lose_a_node, ", node 8: dangling data dependency on node 90000"),
        ("rank-2.et", claim_another_version, "rank-2.et at byte 0: Chakra schema '0.0.3'"),
        ("rank-2.et", Path.unlink, "rank-2.et: no such file"),
        ("rank-2.tables.json", cut, "rank-2.tables.json: the trace's tables is not valid JSON"),
        ("memory-2.npy", cut, "memory-2.npy"),
        ("manifest.json", cut, "manifest.json"),
    ],
)
def test_damage_is_told_once(
    job: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    name: str,
    damage: Callable[[Path], None],
    problem: str,
) -> None:
    run_dir = job(slow_rank=2)
    damage(run_dir / name)
    found = errors(run_dir, capsys)
    assert any(problem in each for each in found), found
    if "depend" in problem:
        assert re.search(r"rank-2\.et at byte \d+, node \d+: ", found[0])
    assert not any("rank-0" in each for each in found)


def test_what_is_derived_comes_back_for_several_ranks(
    job: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = job(slow_rank=2)
    assert main(["report", str(run_dir), "--format", "json"]) == 0
    shown = capsys.readouterr().out
    derived = ("prediction.json", "assumptions.json", "durations-0.npz", "durations-2.npz",
               "timeline.perfetto-trace")  # fmt: skip
    first = {name: (run_dir / name).read_bytes() for name in derived}
    assert first["prediction.json"].decode() == shown
    for name in derived:
        (run_dir / name).unlink()
    assert main(["report", str(run_dir), "--format", "json"]) == 0
    assert capsys.readouterr().out == shown
    assert {name: (run_dir / name).read_bytes() for name in derived} == first
    (run_dir / "durations-2.npz").unlink()
    assert main(["report", str(run_dir)]) == 0
    assert (run_dir / "durations-2.npz").read_bytes() == first["durations-2.npz"]


def test_the_summary_of_several_ranks(job: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = job(slow_rank=2)
    assert main(["report", str(run_dir)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 20
    text = "\n".join(lines)
    assert "train.py on 4 x H100-SXM5-80GB: ok" in text
    assert "4 in 2 classes: 0, 1, 3; 2   slowest: rank 2" in text
    assert "exposed communication" in text
    assert "32.0 MiB all-reduce" in text
    assert "most: 4 x all-reduce 8.00 MiB x4" in text
    shutil.rmtree(run_dir)
    assert main(["report", str(job())]) == 0
    assert "4, all alike: priced once" in capsys.readouterr().out
