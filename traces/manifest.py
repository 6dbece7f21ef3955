"""`manifest.json`: what was run, for which machine, and how it ended. Written last.

A folder without a manifest is a run that never finished. The file is for people and for every
command that starts from a finished run; it carries no measurement and no time of day, so that
the same run gives the same file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from maya.errors import MayaError
from maya.traces.json_files import JsonRecord, read_json, write_json
from maya.traces.rank_class import RankClass, rank_class_from_json, rank_class_to_json

MANIFEST_NAME = "manifest.json"
MANIFEST_SCHEMA_VERSION = 1
"""Raised whenever a reader of the old form would misunderstand the new one."""
VERSION_WITH_RULES = 2
"""Of a manifest whose rank classes say how a member's communicators differ from the representative's; a
reader of version 1 would take all of a class for the same rank. Written only where there is such a rule."""
READABLE_VERSIONS = (MANIFEST_SCHEMA_VERSION, VERSION_WITH_RULES)

MAX_WORLD_SIZE = 1 << 24
"""A larger figure in a file is damage, not a cluster."""


class Ended(StrEnum):
    """How the script's process came to its end."""

    STOPPED = "stopped"
    """Maya stopped it after the steps asked for."""
    FINISHED = "finished"
    """The script ran to its end by itself after at least one step."""
    NEVER_STEPPED = "never_stepped"
    """The script ran to its end without an optimizer step: the whole run is the prediction."""
    EXIT = "exit"
    """The script called `sys.exit` with a code other than 0."""
    EXCEPTION = "exception"
    """The script let an exception escape."""
    OOM = "oom"
    """The emulated GPU's memory did not suffice and the script did not catch the error."""
    INTERRUPTED = "interrupted"
    """Ctrl-C or SIGTERM."""
    KILLED = "killed"
    """The child died of a signal (SIGKILL, SIGSEGV, the host's out-of-memory killer)."""
    TIMEOUT = "timeout"
    HANG = "hang"
    """Ranks wait for each other in a way that cannot resolve."""
    INTERNAL_ERROR = "internal_error"
    """Maya itself failed."""


@dataclass(frozen=True)
class StepSettings:
    """Which iterations were asked for.

    Attributes:
        steps: iterations that count.
        warmup: iterations before them that do not.
        marker: qualified name of the function whose call ends an iteration; "" = optimizer steps.
    """

    steps: int = 3
    warmup: int = 1
    marker: str = ""


@dataclass(frozen=True)
class Manifest:
    """The contents of `manifest.json`.

    Attributes:
        command: the script and its arguments as the user gave them (`sys.argv` of the script,
            or `-m module ...`).
        gpu: catalogue name, `H100-SXM5-80GB`.
        torch: version of the torch that ran, with its build suffix.
        world_size: ranks of the job, run or not.
        rank_classes: each rank of 0..world_size-1 in exactly one.
        ended: how the script's process ended.
        exit_code: of the script's process; negative: the signal that killed it, as in subprocess.
        cause: one line for people: the exception, the allocation that failed, the signal.
        iterations: complete iterations recorded, warm-up included.
        settings: steps asked for.
        working_directory: where the command was started.
        python: version of the interpreter.
        maya: version of Maya.
        host: name of the host model the launches were costed with.
        gpu_memory_bytes: the capacity emulated; None = unlimited.
        oom_caught: an allocation failed but the script went on.
        options: other options of the command, JSON values.
        schema_version: of this file.
    """

    command: tuple[str, ...]
    gpu: str
    torch: str
    world_size: int
    rank_classes: tuple[RankClass, ...]
    ended: Ended
    exit_code: int = 0
    cause: str = ""
    iterations: int = 0
    settings: StepSettings = field(default_factory=StepSettings)
    working_directory: str = ""
    python: str = ""
    maya: str = ""
    host: str = ""
    gpu_memory_bytes: int | None = None
    oom_caught: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int = MANIFEST_SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise ValueError(f"world_size must be at least 1, not {self.world_size}")
        if self.iterations < 0:
            raise ValueError(f"iterations must not be negative, not {self.iterations}")
        covered = sorted(rank for group in self.rank_classes for rank in group.ranks)
        if covered != list(range(self.world_size)):
            raise ValueError(
                f"rank_classes must name each of the {self.world_size} ranks exactly once, not {covered[:8]}"
            )
        for group in self.rank_classes:
            if group.rank not in group.ranks:
                raise ValueError(f"rank {group.rank} ran for a class it is not in: {group.ranks[:8]}")
            strangers = set(group.communicators) - set(group.ranks)
            if strangers:
                raise ValueError(f"rank {min(strangers)} has communicators in a class it is not in")

    def class_of(self, rank: int) -> RankClass:
        """The class a rank belongs to.

        Raises:
            ValueError: no such rank.
        """
        for group in self.rank_classes:
            if rank in group.ranks:
                return group
        raise ValueError(f"rank {rank} is not one of the {self.world_size} ranks of this run")


def write_manifest(run_dir: str | os.PathLike[str], manifest: Manifest) -> Path:
    """Write `manifest.json` (temporary name, then rename) and return its path."""
    value = {entry.name: getattr(manifest, entry.name) for entry in fields(manifest)}
    value["settings"] = vars(manifest.settings)
    value["rank_classes"] = [rank_class_to_json(group) for group in manifest.rank_classes]
    value["command"] = list(manifest.command)
    value["options"] = dict(manifest.options)
    path = Path(run_dir) / MANIFEST_NAME
    version = value.pop("schema_version")
    if any(group.communicators for group in manifest.rank_classes):
        version = VERSION_WITH_RULES
    write_json(path, {"schema_version": version, **value}, indent=2)
    return path


def read_manifest(run_dir: str | os.PathLike[str]) -> Manifest:
    """Read and check `manifest.json` of a run.

    Raises:
        MayaError: missing, damaged, inconsistent, or of another schema version.
    """
    path = Path(run_dir) / MANIFEST_NAME
    hint = "not a folder that `maya run` finished writing; record the run again"
    record = JsonRecord(path, read_json(path, "the run's manifest", hint))
    version = record.get("schema_version", int)
    if version not in READABLE_VERSIONS:
        readable = " and ".join(map(str, READABLE_VERSIONS))
        raise MayaError(
            f"{path}: manifest schema version {version}, this Maya reads {readable}",
            hint="read it with the Maya that wrote it, or record the run again",
        )
    record.no_others(frozenset(entry.name for entry in fields(Manifest)))
    world_size = record.get("world_size", int)
    if not 1 <= world_size <= MAX_WORLD_SIZE:
        record.fail(f"world_size {world_size} is not between 1 and {MAX_WORLD_SIZE}")
    ended = record.get("ended", str)
    if ended not in set(Ended):
        record.fail(f"'ended' is {ended!r}, none of {', '.join(Ended)}")
    memory = record.value.get("gpu_memory_bytes")
    settings = JsonRecord(path, record.get("settings", dict), "'settings'")
    try:
        return Manifest(
            command=record.items("command", str),
            gpu=record.get("gpu", str),
            torch=record.get("torch", str),
            world_size=world_size,
            rank_classes=tuple(
                rank_class_from_json(JsonRecord(path, group, f"rank class {index}"), world_size)
                for index, group in enumerate(record.items("rank_classes", dict))
            ),
            ended=Ended(ended),
            exit_code=record.get("exit_code", int),
            cause=record.get("cause", str),
            iterations=record.get("iterations", int),
            settings=StepSettings(
                steps=settings.get("steps", int),
                warmup=settings.get("warmup", int),
                marker=settings.get("marker", str),
            ),
            working_directory=record.get("working_directory", str),
            python=record.get("python", str),
            maya=record.get("maya", str),
            host=record.get("host", str),
            gpu_memory_bytes=None if memory is None else record.get("gpu_memory_bytes", int),
            oom_caught=record.get("oom_caught", bool),
            options=record.get("options", dict),
        )
    except ValueError as error:  # the dataclass's own checks
        record.fail(str(error))
