"""The pieces of the rank's process that do not need the emulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maya.errors import UsageError
from maya.pipeline.outcome import read_outcome
from maya.pipeline.rank_process import PatientOracle, confess
from maya.traces import Ended


class _Oracle:
    def __init__(self) -> None:
        self.asked = 0

    def duration_ns(self, operator: str, metadata_json: str) -> int:
        self.asked += 1
        if operator == "bad":
            raise KeyError(metadata_json)
        return 7


def test_an_oracle_that_fails_stops_the_clock_and_not_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    inner = _Oracle()
    oracle = PatientOracle(inner)
    assert oracle.duration_ns("aten::add", "{}") == 7
    assert oracle.duration_ns("bad", "{}") == 0
    assert oracle.duration_ns("aten::add", "{}") == 0
    assert inner.asked == 2
    assert capsys.readouterr().err.count("maya: warning: bad cannot be priced") == 1


def test_an_error_of_ours_reaches_the_parent_with_its_hint_and_code(tmp_path: Path) -> None:
    confess(tmp_path, 0, UsageError("no such module", hint="look again"))
    outcome = read_outcome(tmp_path, 0)
    assert outcome is not None
    assert outcome.ended is Ended.INTERNAL_ERROR
    assert outcome.exit_code == 2
    assert outcome.cause == {"type": "UsageError", "message": "no such module", "hint": "look again"}
    confess(tmp_path, 0, ZeroDivisionError("oops"))
    outcome = read_outcome(tmp_path, 0)
    assert outcome is not None
    assert outcome.cause is not None
    assert "ZeroDivisionError: oops" in outcome.cause["message"]
    assert "-vv" in outcome.cause["hint"]


@pytest.mark.parametrize(
    "damage",
    ["", "[]", "{", '{"ended": "killed", "exit_code": 0}', '{"exit_code": 0}', '{"ended": "sideways"}'],
)
def test_a_damaged_outcome_is_an_error_that_names_the_file(tmp_path: Path, damage: str) -> None:
    from maya.errors import MayaError

    (tmp_path / "outcome-0.json").write_text(damage)
    with pytest.raises(MayaError, match=r"outcome-0\.json"):
        read_outcome(tmp_path, 0)


def test_keys_we_do_not_know_are_kept(tmp_path: Path) -> None:
    value = {"ended": "stopped", "exit_code": 0, "statistics": {"operations": 3}}
    (tmp_path / "outcome-0.json").write_text(json.dumps(value))
    outcome = read_outcome(tmp_path, 0)
    assert outcome is not None
    assert outcome.extra == {"statistics": {"operations": 3}}
    assert read_outcome(tmp_path, 1) is None


def test_a_full_disk_is_told_in_words(tmp_path: Path) -> None:
    import errno

    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("the trace cannot be written") from error
    except RuntimeError as error:
        confess(tmp_path, 0, error)
    outcome = read_outcome(tmp_path, 0)
    assert outcome is not None
    assert outcome.cause is not None
    assert "no space is left" in outcome.cause["message"]
    assert "-o" in outcome.cause["hint"]
