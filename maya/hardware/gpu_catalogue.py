"""The GPUs Maya ships and those of a user's file, and finding one by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from maya.errors import UsageError
from maya.hardware.gpu import GpuSpec
from maya.hardware.gpu_rows import read_capabilities, read_gpus
from maya.hardware.names import close_names, normalise
from maya.hardware.reading import read_toml

TYPE_CHECKING = False  # known to type checkers; see reading.py
if TYPE_CHECKING:
    from typing import Any

SHIPPED = Path(__file__).with_name("gpus.toml")


def all_gpus() -> tuple[GpuSpec, ...]:
    """Every GPU of the shipped catalogue, in the order of the file (by generation)."""
    return _shipped()


def find_gpu(name: str, extra: Sequence[GpuSpec] = ()) -> GpuSpec:
    """The GPU called `name`, by catalogue name, alias or torch name; case and punctuation do not matter.

    Args:
        name: such as `H100-SXM5-80GB`, `h100`, `NVIDIA H100 80GB HBM3`.
        extra: GPUs of a user's file (`load_gpus`); their names and aliases win over the shipped ones.

    Raises:
        UsageError: no such GPU; the hint lists close names.
    """
    gpus = (*extra, *_shipped())
    key = normalise(name)
    for gpu in gpus:
        if key in (normalise(spelling) for spelling in (gpu.name, *gpu.aliases)):
            return gpu
    # A user's variant of an H100 usually keeps its torch name, which then still means the shipped one.
    for gpu in (*_shipped(), *extra):
        if key == normalise(gpu.torch_name):
            return gpu
    spellings = {s: gpu.name for gpu in gpus for s in (gpu.torch_name, *gpu.aliases, gpu.name)}
    close = list(dict.fromkeys(spellings[found] for found in close_names(name, spellings, limit=6)))[:3]
    if close:
        hint = f"Close names: {', '.join(close)}. `maya gpus` lists all."
    else:
        hint = f"Known: {', '.join(gpu.name for gpu in gpus)}."
    raise UsageError(f"unknown GPU {name!r}", hint=hint)


def load_gpus(path: str | Path) -> tuple[GpuSpec, ...]:
    """GPUs described in a user's TOML file, in the form of the shipped `gpus.toml`.

    Each `[[gpu]]` may say `like = "H100-SXM5-80GB"` and then only needs `name` and what differs.

    Raises:
        UsageError: the file is missing or malformed, a key unknown or missing, a value impossible, or
            two rows share a name; the message names file, row and key.
    """
    path = Path(path)
    gpus = read_gpus(read_toml(path), path, known=_shipped(), capabilities=_shipped_capabilities())
    if not gpus:
        raise UsageError(f"{path}: holds no GPU", hint="Each GPU is a table under a line `[[gpu]]`.")
    return gpus


@cache
def _shipped_content() -> dict[str, Any]:
    return read_toml(SHIPPED)


@cache
def _shipped_capabilities() -> dict[str, dict[str, Any]]:
    return read_capabilities(_shipped_content(), SHIPPED)


@cache
def _shipped() -> tuple[GpuSpec, ...]:
    return read_gpus(_shipped_content(), SHIPPED, known=(), capabilities={})
