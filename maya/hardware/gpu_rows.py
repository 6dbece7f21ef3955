"""Reading `[[gpu]]` tables, shipped or written by a user, into `GpuSpec`s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from maya.errors import UsageError
from maya.hardware.gpu import FIGURE_GROUPS, GENERATIONS, PEAK_KEYS, GpuSpec
from maya.hardware.names import close_names, normalise
from maya.hardware.reading import Row, rows_of

TYPE_CHECKING = False  # known to type checkers; see reading.py
if TYPE_CHECKING:
    from typing import Any

_NOT_INHERITED = ("name", "aliases")
_SM_LIMITS = FIGURE_GROUPS["sm_limits"]


def read_gpus(
    content: Mapping[str, Any],
    path: Path,
    *,
    known: Iterable[GpuSpec],
    capabilities: Mapping[str, Mapping[str, Any]],
) -> tuple[GpuSpec, ...]:
    """The GPUs of a parsed TOML file.

    Args:
        content: the parsed file.
        path: named in errors.
        known: GPUs that `like = NAME` may refer to besides those above in the file.
        capabilities: limits by compute capability (`read_capabilities`), besides those of the file.

    Raises:
        UsageError: as `maya.hardware.load_gpus`.
    """
    documents = _read_documents(content, path)
    capabilities = {**capabilities, **read_capabilities(content, path)}
    tables = {gpu.name: _as_table(gpu) for gpu in known}
    found: dict[str, GpuSpec] = {}
    taken: dict[str, str] = {}
    for row in rows_of(content, "gpu", path, others=("documents", "compute_capability")):
        name = row.text("name")
        row.place = f"{path}: GPU {name}"
        if name in found:
            raise UsageError(f"{row.place}: described twice", hint="Remove one of the two tables.")
        tables[name] = _inherit(row, tables) if "like" in row else dict(row.as_written)
        gpu = _gpu(Row(tables[name], row.place), documents, capabilities)
        for key in (normalise(spelling) for spelling in (gpu.name, *gpu.aliases)):
            if taken.setdefault(key, name) != name:
                raise UsageError(
                    f"{row.place}: the name or alias {key!r} also belongs to {taken[key]}",
                    hint="Give each GPU names of its own.",
                )
        found[name] = gpu
    return tuple(found.values())


def read_capabilities(content: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """`[compute_capability."8.0"]`: what all GPUs of a compute capability share, with its source."""
    titles = _read_documents(content, path)
    place = f"{path}: compute_capability"
    tables = Row(
        Row(content, str(path)).table("compute_capability") if "compute_capability" in content else {}, place
    )
    found: dict[str, dict[str, Any]] = {}
    for name in tables.as_written:
        row = Row(tables.table(name), f"{place} {name}")
        source = row.text("source")
        found[name] = {**{key: row.integer(key) for key in _SM_LIMITS}, "source": titles.get(source, source)}
        row.finish()
    return found


def _read_documents(content: Mapping[str, Any], path: Path) -> dict[str, str]:
    """`[documents]`: keys that sources may use instead of full titles."""
    if "documents" not in content:
        return {}
    titles = Row(Row(content, str(path)).table("documents"), f"{path}: documents")
    return {key: titles.text(key) for key in titles.as_written}


def _inherit(row: Row, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The table of a row that says `like`, completed from the model it names."""
    model = row.text("like")
    if model not in tables:
        close = close_names(model, tables)
        raise UsageError(
            f"{row.place}: like = {model!r} is no GPU above this one or in the shipped catalogue",
            hint=f"Close names: {', '.join(close)}." if close else "`maya gpus` lists all.",
        )
    own = {key: value for key, value in row.as_written.items() if key != "like"}
    inherited = {key: value for key, value in tables[model].items() if key not in _NOT_INHERITED}
    sources = dict(inherited.get("sources", {}))
    for group, keys in FIGURE_GROUPS.items():
        # A source vouches for the model's figures, not for those written over them.
        if any(key in own for key in keys):
            sources[group] = f"written in {row.place.rpartition(': ')[0]}, unlike {model}"
    sources.update(row.table("sources") if "sources" in row else {})
    return {**inherited, **own, "sources": sources}


def _gpu(row: Row, documents: Mapping[str, str], capabilities: Mapping[str, Mapping[str, Any]]) -> GpuSpec:
    generation = row.text("generation")
    if generation not in GENERATIONS:
        raise row.mistake("generation", generation, f"one of {', '.join(GENERATIONS)}")
    capability = _capability(row)
    shared = capabilities.get(f"{capability[0]}.{capability[1]}", {})
    # Before the sources: a capability without limits is a missing figure, not a missing source.
    limits = {
        key: shared[key] if key in shared and key not in row else row.integer(key) for key in _SM_LIMITS
    }
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
        sources=_sources(row, shared, documents),
        tensor_clock_mhz=row.integer("tensor_clock_mhz") if "tensor_clock_mhz" in row else None,
        **limits,
    )
    row.finish()
    if gpu.total_memory_bytes > gpu.memory_bytes:
        wanted = f"at most memory_bytes ({gpu.memory_bytes})"
        raise row.mistake("total_memory_bytes", gpu.total_memory_bytes, wanted)
    if gpu.context_bytes >= gpu.total_memory_bytes:
        raise row.mistake("context_bytes", gpu.context_bytes, "less than total_memory_bytes")
    return gpu


def _capability(row: Row) -> tuple[int, int]:
    value = row.value("compute_capability")
    parts = value.split(".") if isinstance(value, str) and value.isascii() else []
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise row.mistake("compute_capability", value, 'a string such as "9.0"')
    return int(parts[0]), int(parts[1])


def _sources(row: Row, shared: Mapping[str, Any], documents: Mapping[str, str]) -> dict[str, str]:
    """Each group's source as one text; keys of `[documents]` are replaced by their titles."""
    written = row.table("sources")
    if "source" in shared and not any(key in row for key in _SM_LIMITS):
        written = {"sm_limits": shared["source"], **written}
    unknown = sorted(set(written) - set(FIGURE_GROUPS))
    if unknown:
        raise row.mistake(
            f"sources.{unknown[0]}", written[unknown[0]], f"under one of {', '.join(FIGURE_GROUPS)}"
        )
    texts: dict[str, str] = {}
    for group, keys in FIGURE_GROUPS.items():
        if group not in written:
            raise UsageError(
                f"{row.place}: no source for {', '.join(keys)}",
                hint=f'Add `sources.{group} = "where the figures come from"`.',
            )
        value = written[group]
        parts = [value] if isinstance(value, str) else value
        if (
            not isinstance(parts, list)
            or not parts
            or not all(isinstance(p, str) and p.strip() for p in parts)
        ):
            raise row.mistake(f"sources.{group}", value, "a string or a list of strings")
        texts[group] = "; ".join(documents.get(part, part) for part in parts)
    return texts


def _as_table(gpu: GpuSpec) -> dict[str, Any]:
    """The table that would be read back as `gpu`, for `like` in a user's file.

    The limits of its compute capability are left to that capability, which the user may change.
    """
    table: dict[str, Any] = {
        key: value for key, value in vars(gpu).items() if value is not None and key not in _SM_LIMITS
    }
    table["aliases"] = list(gpu.aliases)
    table["compute_capability"] = f"{gpu.compute_capability[0]}.{gpu.compute_capability[1]}"
    table["peak_tflops"] = dict(gpu.peak_tflops)
    table["sources"] = {group: text for group, text in gpu.sources.items() if group != "sm_limits"}
    return table
