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
class SimulatedRun:
    """What a timeline is drawn from.

    Attributes:
        trace: of the rank shown.
        times: of its kernels.
        timeline: when everything happened.
        gpu: catalogue name.
        first_operation: of the iterations that the prediction is about; earlier ones are warm-up.
    """

    trace: RankTrace
    times: KernelTimes
    timeline: Timeline
    gpu: str
    first_operation: int


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
