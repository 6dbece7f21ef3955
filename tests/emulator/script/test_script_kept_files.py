"""Checkpoints with made-up weights never replace a file that the user had before the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from maya.emulator.script.kept_files import KeptFiles

REAL = b"weights" * 10_000


@pytest.fixture
def files() -> Iterator[KeptFiles]:
    replace = os.replace
    files = KeptFiles()
    files.install()
    yield files
    files.remove()
    assert os.replace is replace


def _save(files: KeptFiles, target: Path, *, made_up: bool) -> Path:
    place = Path(files.place_for(target))
    with place.open("wb") as file:
        if made_up:
            file.truncate(1 << 20)
        else:
            file.write(REAL)
    files.saved(target, place, made_up=made_up)
    return place


def test_a_real_checkpoint_is_kept_and_told_of(
    files: KeptFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = tmp_path / "best.pt"
    best.write_bytes(REAL)
    for _ in range(2):
        assert _save(files, best, made_up=True) == tmp_path / "best.pt.maya"
    assert best.read_bytes() == REAL
    assert files.place_of(best) == str(tmp_path / "best.pt.maya")
    assert capsys.readouterr().err.count("maya: kept") == 1


def test_a_temporary_name_does_not_help(files: KeptFiles, tmp_path: Path) -> None:
    best, partial = tmp_path / "best.pt", tmp_path / "best.pt.tmp"
    best.write_bytes(REAL)
    _save(files, partial, made_up=True)
    partial.replace(best)
    assert best.read_bytes() == REAL
    assert (tmp_path / "best.pt.maya").stat().st_size == 1 << 20
    assert not partial.exists()


def test_what_maya_wrote_may_be_replaced(files: KeptFiles, tmp_path: Path) -> None:
    best = tmp_path / "best.pt"
    assert _save(files, best, made_up=True) == best
    assert _save(files, best, made_up=True) == best
    earlier_run = KeptFiles()
    assert earlier_run.place_for(best) == best


def test_real_contents_go_where_they_were_meant_to(files: KeptFiles, tmp_path: Path) -> None:
    best = tmp_path / "best.pt"
    best.write_bytes(b"old" * 10_000)
    _save(files, best, made_up=False)
    assert best.read_bytes() == REAL
    assert files.place_of(best) == best
    assert os.listdir(tmp_path) == ["best.pt"]
