"""GPU rows from TOML, shipped or written by a user, and finding one by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from maya.errors import UsageError
from maya.hardware.gpu import FIGURE_GROUPS, GENERATIONS, PEAK_KEYS, GpuSpec
from maya.hardware.names import close_names, normalise
from maya.hardware.reading import Row, read_toml, rows_of

TYPE_CHECKING = False  # known to type checkers; see reading.py
if TYPE_CHECKING:
    from typing import Any

SHIPPED = Path(__file__).with_name("gpus.toml")

_NOT_INHERITED = ("name", "aliases")
_SM_LIMITS = FIGURE_GROUPS["sm_limits"]


def all_gpus() -> tuple[GpuSpec, ...]:
    """Every GPU of the shipped catalogue, in the order of the file (by generation)."""
    return _shipped()


def find_gpu(name: str, extra: Sequence[GpuSpec] = ()) -> GpuSpec:
    """The GPU called `name`, by catalogue name, alias or torch name; case and punctuation do not matter.

    Args:
        name: such as `H100-SXM5-80GB`, `h100`, `NVIDIA H100 80GB HBM3`.
        extra: GPUs of a user's file (`load_gpus`), which win over the shipped ones.

    Raises:
        UsageError: no such GPU; the hint lists close names.
    """
    key = normalise(name)
    for gpus in (extra, _shipped()):
        for gpu in gpus:
            if key in keys_of(gpu):
                return gpu
    known = [gpu.name for gpu in (*extra, *_shipped())]
    spellings = {spelling: gpu.name for gpu in (*extra, *_shipped()) for spelling in _spellings(gpu)}
    close = dict.fromkeys(spellings[found] for found in close_names(name, spellings, limit=5))
    if close:
        hint = f"Close names: {', '.join(list(close)[:3])}. `maya gpus` lists all."
    else:
        hint = f"Known: {', '.join(known)}. A file of your own GPUs can be given as well."
    raise UsageError(f"unknown GPU {name!r}", hint=hint)


def load_gpus(path: str | Path) -> tuple[GpuSpec, ...]:
    """GPUs described in a user's TOML file, in the form of the shipped `gpus.toml`.

    Each `[[gpu]]` may say `like = "H100-SXM5-80GB"` and then only needs `name` and what differs.

    Raises:
        UsageError: the file is missing or malformed, a key unknown or missing, a value impossible, or
            two rows share a name; the message names file, row and key.
    """
    path = Path(path)
    content = read_toml(path)
    gpus = _read(content, path, known=_shipped(), capabilities=_shipped_capabilities())
    if not gpus:
        raise UsageError(f"{path}: holds no GPU", hint="Each GPU is a table under a line `[[gpu]]`.")
    return gpus


def keys_of(gpu: GpuSpec) -> frozenset[str]:
    """The normalised names under which `gpu` is found."""
    return frozenset(normalise(spelling) for spelling in _spellings(gpu))


def _spellings(gpu: GpuSpec) -> tuple[str, ...]:
    return (gpu.name, *gpu.aliases, gpu.torch_name)


@cache
def _shipped_content() -> dict[str, Any]:
    return read_toml(SHIPPED)


@cache
def _shipped() -> tuple[GpuSpec, ...]:
    return _read(_shipped_content(), SHIPPED, known=(), capabilities=_shipped_capabilities())


@cache
def _shipped_capabilities() -> dict[str, dict[str, Any]]:
    return dict(_shipped_content().get("compute_capability", {}))


def _read(
    content: Mapping[str, Any],
    path: Path,
    *,
    known: Iterable[GpuSpec],
    capabilities: Mapping[str, Mapping[str, Any]],
) -> tuple[GpuSpec, ...]:
    tables: dict[str, dict[str, Any]] = {}
    documents = content.get("documents", {})
    capabilities = {**capabilities, **content.get("compute_capability", {})}
    found: dict[str, GpuSpec] = {}
    taken: dict[str, str] = {}
    models = {gpu.name: _as_table(gpu) for gpu in known}
    for row in rows_of(content, "gpu", path, others=("documents", "compute_capability", "notes")):
        table = dict(row.as_written)
        name = row.text("name")
        row.place = f"{path}: GPU {name}"
        if "like" in row:
            model = row.text("like")
            base = tables.get(model) or models.get(model)
            if base is None:
                close = close_names(model, [*tables, *models])
                raise UsageError(
                    f"{row.place}: like = {model!r} is no GPU above this one or in the shipped catalogue",
                    hint=f"Close names: {', '.join(close)}." if close else "`maya gpus` lists all.",
                )
            del table["like"]
            inherited = {key: value for key, value in base.items() if key not in _NOT_INHERITED}
            sources = {**inherited.get("sources", {}), **table.get("sources", {})}
            table = {**inherited, **table, "sources": sources}
        tables[name] = table
        gpu = _gpu(Row(table, row.place), documents, capabilities)
        for key in keys_of(gpu):
            if taken.setdefault(key, gpu.name) != gpu.name:
                raise UsageError(
                    f"{row.place}: the name or alias {key!r} also belongs to {taken[key]}",
                    hint="Give each GPU names of its own.",
                )
        if gpu.name in found:
            raise UsageError(f"{row.place}: described twice", hint="Remove one of the two tables.")
        found[gpu.name] = gpu
    return tuple(found.values())


def _gpu(row: Row, documents: Mapping[str, str], capabilities: Mapping[str, Mapping[str, Any]]) -> GpuSpec:
    generation = row.text("generation")
    if generation not in GENERATIONS:
        raise row.mistake("generation", generation, f"one of {', '.join(GENERATIONS)}")
    capability = _capability(row)
    sources = {group: _source(row, group, text, documents) for group, text in row.table("sources").items()}
    defaults = capabilities.get(f"{capability[0]}.{capability[1]}", {})
    limits: dict[str, int] = {}
    for key in _SM_LIMITS:
        limits[key] = row.integer(key) if key in row or key not in defaults else int(defaults[key])
    if "sm_limits" not in sources and "source" in defaults:
        sources["sm_limits"] = _source(row, "sm_limits", defaults["source"], documents)
    missing = [group for group in FIGURE_GROUPS if group not in sources]
    if missing:
        raise UsageError(
            f"{row.place}: no source for {', '.join(FIGURE_GROUPS[missing[0]])}",
            hint=f'Add `sources.{missing[0]} = "where the figures come from"`.',
        )
    gpu = GpuSpec(
        name=row.text("name"),
        aliases=row.texts("aliases") if "aliases" in row else (),
        torch_name=row.text("torch_name"),
        generation=generation,
        compute_capability=capability,
        sm_count=row.integer("sm_count"),
        memory_bytes=row.integer("memory_bytes"),
        total_memory_bytes=row.integer("total_memory_bytes"),
        context_bytes=row.integer("context_bytes", least=0),
        hbm_bandwidth_gbps=row.number("hbm_bandwidth_gbps"),
        l2_bytes=row.integer("l2_bytes"),
        l2_bandwidth_gbps=row.number("l2_bandwidth_gbps") if "l2_bandwidth_gbps" in row else None,
        boost_clock_mhz=row.integer("boost_clock_mhz"),
        memory_clock_mhz=row.integer("memory_clock_mhz"),
        memory_bus_bits=row.integer("memory_bus_bits"),
        peak_tflops=row.numbers("peak_tflops", PEAK_KEYS),
        nvlink_gbps=row.number("nvlink_gbps", positive=False),
        pcie_gbps=row.number("pcie_gbps"),
        tdp_watts=row.integer("tdp_watts"),
        sources=sources,
        tensor_clock_mhz=row.integer("tensor_clock_mhz") if "tensor_clock_mhz" in row else None,
        **limits,
    )
    row.finish()
    _check_sizes(gpu, row)
    return gpu


def _check_sizes(gpu: GpuSpec, row: Row) -> None:
    if gpu.total_memory_bytes > gpu.memory_bytes:
        wanted = f"at most memory_bytes ({gpu.memory_bytes})"
        raise row.mistake("total_memory_bytes", gpu.total_memory_bytes, wanted)
    if gpu.context_bytes >= gpu.total_memory_bytes:
        raise row.mistake("context_bytes", gpu.context_bytes, "less than total_memory_bytes")


def _capability(row: Row) -> tuple[int, int]:
    value = row.value("compute_capability")
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise row.mistake("compute_capability", value, 'a string such as "9.0"')
    return int(parts[0]), int(parts[1])


def _source(row: Row, group: str, value: object, documents: Mapping[str, str]) -> str:
    """A source: free text, or a list in which keys of `[documents]` stand for their full titles."""
    if group not in FIGURE_GROUPS:
        raise row.mistake(f"sources.{group}", value, f"under one of the keys {', '.join(FIGURE_GROUPS)}")
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or not all(isinstance(p, str) and p.strip() for p in parts):
        raise row.mistake(f"sources.{group}", value, "a string or a list of strings")
    for part in parts:
        if " " not in part and part not in documents:
            raise row.mistake(f"sources.{group}", part, "a key of [documents] or a sentence")
    return "; ".join(documents.get(part, part) for part in parts)


def _as_table(gpu: GpuSpec) -> dict[str, Any]:
    """The table that `_gpu` would read back as `gpu`, for `like` in a user's file."""
    table: dict[str, Any] = {key: value for key, value in vars(gpu).items() if value is not None}
    table["aliases"] = list(gpu.aliases)
    table["compute_capability"] = f"{gpu.compute_capability[0]}.{gpu.compute_capability[1]}"
    table["peak_tflops"] = dict(gpu.peak_tflops)
    table["sources"] = dict(gpu.sources)
    return table
