"""The fake CUDA device, and running a user's script on it.

Nothing here imports torch until a rank runs or a device is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from maya.emulator.rank_spec import RankOutcome, RankSpec
from maya.traces import DurationOracle

__all__ = ["ForkedRank", "RankOutcome", "RankSpec", "run_rank", "warm_device"]


def run_rank(spec: RankSpec, oracle: DurationOracle | None = None) -> RankOutcome:
    """Run the script on the emulated device and record it, in this process.

    Writes `rank-N.et` with its tables, memory log and assumptions, then `outcome-N.json`.

    Raises:
        MayaError: Maya's own failure; the script's are in the outcome.
    """
    from maya.emulator.rank import Rank  # imports torch

    return Rank(spec, oracle).run()


def warm_device(spec: RankSpec) -> ModuleType:
    """Install the device and import what ranks would import one by one; then fork them.

    The device itself stays unused, since CUDA cannot be used in a fork of a process that used it.

    Returns:
        the native module, for `ForkedRank`.

    Raises:
        MayaError: the backend cannot be built, or this torch lacks something it hooks.
    """
    from maya.emulator.rank import install_for
    from maya.emulator.warm import import_for_first_step

    native = install_for(spec)
    import_for_first_step()
    return native


class ForkedRank:
    """One of several ranks, in a process forked after `warm_device`.

    Args:
        spec: which rank, and what it runs.
        oracle: the device clock that the script sees.
        native: what `warm_device` returned in the process that forked.
        on_outcome: called once everything is written, before the process goes on to its end.
    """

    def __init__(
        self,
        spec: RankSpec,
        oracle: DurationOracle | None,
        native: ModuleType,
        on_outcome: Callable[[RankOutcome], object],
    ) -> None:
        from maya.emulator.rank import Rank

        self._rank = Rank(spec, oracle, native=native, on_outcome=on_outcome)

    def run(self) -> RankOutcome:
        """As `run_rank`."""
        return self._rank.run()

    def end_process(self, *, exit_code: int, stopped: bool) -> None:
        """Write what has been recorded and end the process; see `Rank.end_process`."""
        self._rank.end_process(exit_code=exit_code, stopped=stopped)
