"""How the ranks' processes ended, as their launcher saw it: `ranks.json`, gone once it is concluded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPORT_NAME = "ranks.json"


@dataclass(frozen=True)
class RankEnd:
    """One rank's process, seen from its launcher.

    Attributes:
        rank: global.
        exit_code: None if a signal ended it.
        signal_number: None if it exited.
        told: the rank wrote an outcome.
    """

    rank: int
    exit_code: int | None
    signal_number: int | None
    told: bool


@dataclass(frozen=True)
class LaunchReport:
    """All ranks of a job.

    Attributes:
        ends: by rank.
        first_failure: the rank that failed first, of which other failures may be a consequence.
        hang: what each rank waited for when they were found to wait for each other; empty: no hang.
        stopped_late: ranks that were still busy long after the others had been stopped.
    """

    ends: tuple[RankEnd, ...]
    first_failure: int | None = None
    hang: Mapping[int, str] = field(default_factory=dict)
    stopped_late: tuple[int, ...] = ()


def write_report(run_dir: Path, report: LaunchReport) -> None:
    """Write it whole or not at all."""
    path = run_dir / REPORT_NAME
    partial = path.with_suffix(".json.partial")
    partial.write_text(json.dumps(asdict(report), indent=1) + "\n")
    partial.replace(path)


def read_report(run_dir: Path) -> LaunchReport | None:
    """What the launcher wrote; None if it did not live to."""
    path = run_dir / REPORT_NAME
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    return LaunchReport(
        ends=tuple(RankEnd(**end) for end in value["ends"]),
        first_failure=value["first_failure"],
        hang={int(rank): text for rank, text in value["hang"].items()},
        stopped_late=tuple(value["stopped_late"]),
    )
