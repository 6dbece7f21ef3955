"""manifest.json: round trip, and what a reader refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maya.errors import MayaError
from maya.traces import Ended, Manifest, RankClass, StepSettings, read_manifest, single_rank, write_manifest


def manifest(**changes: Any) -> Manifest:
    """A manifest of one rank."""
    values: dict[str, Any] = {
        "command": ("train.py", "--lr", "0.1"),
        "gpu": "H100-SXM5-80GB",
        "torch": "2.13.0+cpu",
        "world_size": 1,
        "rank_classes": single_rank(),
        "ended": Ended.STOPPED,
        "iterations": 4,
        "gpu_memory_bytes": 80 << 30,
        "options": {"visible_gpus": 1},
    }
    return Manifest(**{**values, **changes})


def test_round_trip(tmp_path: Path) -> None:
    written = manifest(
        world_size=9,
        rank_classes=(RankClass(0, (0, 1, 2, 3, 8)), RankClass(6, (4, 6)), RankClass(5, (5, 7))),
        ended=Ended.OOM,
        exit_code=-9,
        cause="CUDA out of memory",
        settings=StepSettings(5, 2, "pkg.step"),
        gpu_memory_bytes=None,
        oom_caught=True,
    )
    path = write_manifest(tmp_path, written)
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]
    assert read_manifest(tmp_path) == written
    value = json.loads(path.read_text())
    assert value["schema_version"] == 1
    assert value["ended"] == "oom"
    assert value["rank_classes"][0] == {"rank": 0, "ranks": [[0, 3], 8]}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_any_partition_of_ranks_survives(tmp_path_factory: pytest.TempPathFactory, owner: list[int]) -> None:
    groups = {which: tuple(rank for rank, mine in enumerate(owner) if mine == which) for which in set(owner)}
    classes = tuple(RankClass(ranks[-1], ranks) for ranks in groups.values())
    folder = tmp_path_factory.mktemp("run")
    write_manifest(folder, manifest(world_size=len(owner), rank_classes=classes))
    read = read_manifest(folder)
    assert read.rank_classes == classes
    assert read.class_of(len(owner) - 1).rank == groups[owner[-1]][-1]


def test_a_large_job_is_a_small_file(tmp_path: Path) -> None:
    ranks = tuple(range(100_000))
    path = write_manifest(tmp_path, manifest(world_size=100_000, rank_classes=(RankClass(0, ranks),)))
    assert path.stat().st_size < 2_000
    assert read_manifest(tmp_path).rank_classes[0].ranks == ranks


def test_same_run_same_file(tmp_path: Path) -> None:
    first = write_manifest(tmp_path, manifest()).read_bytes()
    assert write_manifest(tmp_path, manifest()).read_bytes() == first


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"world_size": 0}, "world_size must be at least 1"),
        ({"world_size": 2}, "each of the 2 ranks exactly once"),
        ({"rank_classes": (RankClass(1, (0,)),)}, "rank 1 ran for a class it is not in"),
        ({"iterations": -1}, "iterations must not be negative"),
    ],
)
def test_inconsistent_manifests_cannot_be_made(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        manifest(**changes)


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one key."""
    return lambda document: document.update({key: value})


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (change("schema_version", 3), "manifest schema version 3, this Maya reads 1 and 2"),
        (change("schema_version", True), "'schema_version' must be int, not bool"),
        (change("ended", "exploded"), "'ended' is 'exploded', none of stopped, finished"),
        (change("world_size", 10**12), "world_size 1000000000000 is not between"),
        (change("world_size", 2), "each of the 2 ranks exactly once"),
        (change("command", "train.py"), "'command' must be list, not str"),
        (change("command", ["a", 3]), "element 1 of 'command' must be str, not int"),
        (change("rank_classes", [{"rank": 0, "ranks": [[0, 10**9]]}]), "in rank class 0"),
        (change("rank_classes", [{"rank": 0, "ranks": ["0"]}]), "neither a rank nor a range"),
        (change("rank_classes", [{"ranks": [0]}]), "key 'rank' is missing in rank class 0"),
        (change("settings", {"steps": 1, "warmup": 1}), "key 'marker' is missing in 'settings'"),
        (change("gpu_memory_bytes", "80GB"), "'gpu_memory_bytes' must be int, not str"),
        (change("colour", 1), "unknown key 'colour'"),
        (lambda document: document.pop("torch"), "key 'torch' is missing"),
    ],
)
def test_damaged_manifests_are_refused(
    tmp_path: Path, damage: Callable[[dict[str, Any]], Any], problem: str
) -> None:
    path = write_manifest(tmp_path, manifest())
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))
    with pytest.raises(MayaError, match=problem) as caught:
        read_manifest(tmp_path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_not_a_manifest(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(MayaError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(MayaError, match="the run's manifest is missing") as caught:
        read_manifest(tmp_path)
    assert "record the run again" in caught.value.hint


def test_no_such_rank() -> None:
    with pytest.raises(ValueError, match="rank 4 is not one of the 1 ranks"):
        manifest().class_of(4)
