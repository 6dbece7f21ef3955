"""What `maya run` was asked to do, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maya.pipeline.launch import Launch

if TYPE_CHECKING:
    from maya.reports.prediction import Prediction


UNLIMITED_BYTES = 1 << 46
"""`gpu_memory_bytes` from here on means no limit, as in `maya.emulator.RankSpec`: 64 TiB."""


@dataclass(frozen=True)
class RunRequest:
    """One `maya run`.

    Attributes:
        program: the script's path or the module's name, then its own arguments.
        is_module: `program[0]` is a module's name.
        gpu: catalogue name or alias.
        visible_gpus: how many GPUs the script sees.
        steps: iterations to predict from.
        warmup: iterations before them that are left out.
        gpu_memory_bytes: replaces the GPU's own capacity; None keeps it.
        step_marker: `module:function` whose call ends an iteration, None for optimizer steps.
        timeout_s: give up on the script after this many seconds, None for never.
        prices: price list that replaces Maya's, None for Maya's.
        data_loading: "excluded" or "measured".
        output: the run folder to write, None for one named after the program.
        force: replace an earlier run of that name.
        stdout_is_ours: what the script prints on stdout goes to stderr.
        verbosity: -1 quiet, 0 normal, 1 and 2 more.
        launch: several ranks, or one as torchrun would start it; None for a plain process.
    """

    program: tuple[str, ...]
    is_module: bool = False
    gpu: str = "H100-SXM5-80GB"
    visible_gpus: int = 1
    steps: int = 3
    warmup: int = 1
    gpu_memory_bytes: int | None = None
    step_marker: str | None = None
    timeout_s: float | None = None
    prices: Path | None = None
    data_loading: str = "excluded"
    output: Path | None = None
    force: bool = False
    stdout_is_ours: bool = False
    verbosity: int = 0
    launch: Launch | None = None

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return 1 if self.launch is None else self.launch.world_size

    def default_output(self) -> Path:
        """`train.maya` in the working directory for `dir/train.py` and for `-m pkg.train`."""
        if self.is_module:
            name = self.program[0].rpartition(".")[2]
        else:
            name = Path(self.program[0]).stem
        return Path(f"{name}.maya")


@dataclass(frozen=True)
class JobResult:
    """What `maya run` has to show.

    Attributes:
        exit_code: of `maya run`.
        prediction: also for a run that failed (verdict "failed"); None if interrupted.
        run_dir: the whole run folder; None if there is none.
    """

    exit_code: int
    prediction: Prediction | None
    run_dir: Path | None
