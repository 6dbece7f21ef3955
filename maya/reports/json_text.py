"""A report as `prediction.json` has it."""

from __future__ import annotations

from typing import BinaryIO

from maya.reports.report import Report


class JsonRenderer:
    """The prediction as JSON."""

    def render(self, report: Report, out: BinaryIO) -> None:
        """Write the prediction's object."""
        out.write(report.prediction.to_json().encode())
