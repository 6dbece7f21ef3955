"""What the process of one rank must know, as the parent writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maya.traces import Ended

UNLIMITED_BYTES = 64 << 40
"""`gpu_memory_bytes` from here on means no limit: more than any model, less than the address space."""


@dataclass(frozen=True)
class RankSpec:
    """One rank.

    Attributes:
        run_dir: folder to record into; must exist.
        program: script path or module name, then its arguments.
        is_module: the program is a module's name (`-m`).
        gpu: catalogue name.
        visible_gpus: how many GPUs the script sees.
        gpu_memory_bytes: replaces the GPU's own capacity; UNLIMITED_BYTES: no limit; None keeps it.
        steps, warmup: iterations to run.
        step_marker: `module:function` in place of optimizer steps, or None.
        data_loading: "excluded" or "measured".
        rank, world_size: global.
        verbosity: -1 quiet, 0 normal, 1 and 2 more.
    """

    run_dir: Path
    program: tuple[str, ...]
    is_module: bool = False
    gpu: str = "H100-SXM5-80GB"
    visible_gpus: int = 1
    gpu_memory_bytes: int | None = None
    steps: int = 3
    warmup: int = 1
    step_marker: str | None = None
    data_loading: str = "excluded"
    rank: int = 0
    world_size: int = 1
    verbosity: int = 0

    @staticmethod
    def from_json(text: str) -> RankSpec:
        """Read what `maya.pipeline.job` wrote; keys that are not ours are left alone.

        Raises:
            ValueError: a key is missing.
        """
        return RankSpec.from_values(json.loads(text))

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> RankSpec:
        """As `from_json`, of values that are read already."""
        if "run_dir" not in values or not values.get("program"):
            raise ValueError("a rank's specification needs 'run_dir' and 'program'")
        known = {name: values[name] for name in RankSpec.__dataclass_fields__ if name in values}
        known["run_dir"] = Path(known["run_dir"])
        known["program"] = tuple(known["program"])
        return RankSpec(**known)


@dataclass(frozen=True)
class RankOutcome:
    """How the rank ended. `exit_code` is the script's own, 0 if Maya stopped it."""

    ended: Ended
    exit_code: int
