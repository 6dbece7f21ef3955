"""The fake CUDA device, and running a user's script on it.

Nothing here imports torch until a rank runs or a device is installed.
"""

from __future__ import annotations

from maya.emulator.rank_spec import RankOutcome, RankSpec
from maya.traces import DurationOracle

__all__ = ["RankOutcome", "RankSpec", "run_rank"]


def run_rank(spec: RankSpec, oracle: DurationOracle | None = None) -> RankOutcome:
    """Run the script on the emulated device and record it, in this process.

    Writes `rank-N.et` with its tables, memory log and assumptions, then `outcome-N.json`.

    Raises:
        MayaError: Maya's own failure; the script's are in the outcome.
    """
    from maya.emulator.rank import Rank  # imports torch

    return Rank(spec, oracle).run()
