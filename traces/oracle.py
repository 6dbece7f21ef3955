"""The seam between kernel models and the emulator: how long would this take on the device?"""

from __future__ import annotations

from typing import Protocol


class DurationOracle(Protocol):
    """Answers while the script runs, so that the emulated device has a clock.

    The emulator asks once for each distinct (operator, metadata) and caches the answer. Without
    an oracle the device's clock advances by host time only.
    """

    def duration_ns(self, operator: str, metadata_json: str) -> int:
        """Device time of one operator, all its kernels, running alone; 0 for none.

        Args:
            operator: name with overload, `aten::add.Tensor`.
            metadata_json: as `maya.traces.tables` describes.
        """
        ...
