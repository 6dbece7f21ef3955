"""What a report is made from, and what every renderer of one does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from maya.kernel_models import KernelTimes
from maya.reports.prediction import Prediction
from maya.simulator import Timeline
from maya.traces import RankTrace


@dataclass(frozen=True)
class SimulatedRank:
    """One rank of a timeline.

    Attributes:
        trace: of the rank shown.
        times: of its kernels.
        first_operation: of the iterations that the prediction is about; earlier ones are warm-up.
        stands_for: the ranks that do the same, the one shown among them.
    """

    trace: RankTrace
    times: KernelTimes
    first_operation: int
    stands_for: tuple[int, ...]


@dataclass(frozen=True)
class SimulatedRun:
    """What a timeline is drawn from.

    Attributes:
        ranks: those that were simulated, ascending.
        timeline: when everything happened.
        gpu: catalogue name.
    """

    ranks: tuple[SimulatedRank, ...]
    timeline: Timeline
    gpu: str


@dataclass(frozen=True)
class Report:
    """A predicted run.

    Attributes:
        prediction: the numbers.
        simulated: None if the run left nothing to simulate.
        run_dir: where it lies; None if it was not kept.
    """

    prediction: Prediction
    simulated: SimulatedRun | None
    run_dir: Path | None


class Renderer(Protocol):
    """One form of a report."""

    def render(self, report: Report, out: BinaryIO) -> None:
        """Write the report.

        Raises:
            MayaError: the report lacks what this form shows.
        """
        ...
