"""CostView: what of a rank's trace decides its cost, in a form that equal ranks share.

In it: operators, metadata, kinds, phases, modules, blocking calls, streams and devices, events, CUDA
graphs, communications, iteration ends, and what the allocator took. Names that a rank gives as it
likes (stream, event, handle, table indices) are replaced by the order of their first use; devices and
communicators too, so that `cuda:3` of rank 3 is `cuda:0` of rank 0.

Left out, because a rank has its own without costing more or less: seeds and other numbers that are
data (`DATA_ARGUMENTS`, every float), shapes of views, storage ids, offsets and addresses, source
lines, autograd's sequence numbers, host threads, host times, values the script read, and when memory is
given back.

A peer is its distance within the communicator (rank r to r + 1 is the same for all r of a ring), the
root of a collective its place there (all members mean the same one).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.traces.operations import COMMUNICATION_DTYPE, Kind, MemoryAction
from maya.traces.rank_reader import RankTrace
from maya.traces.tables import Communicator

DATA_ARGUMENTS = frozenset(
    {
        "value",
        "other",
        "alpha",
        "beta",
        "fill_value",
        "start",
        "end",
        "from",
        "to",
        "low",
        "high",
        "seed",
        "offset",
        "philox_seed",
        "philox_offset",
        "storage_offset",
        "index",
        "min",
        "max",
        "p",
    }
)
"""Arguments whose numbers are data: they decide what is computed, and where from, not how much. What
they do to sizes (`arange`) is in the shapes of the outputs. Tensors of these names count."""

_WITHOUT_DEVICE = (Kind.HOST, Kind.MARKER)
_TAKES_MEMORY = (
    MemoryAction.ALLOCATE,
    MemoryAction.SEGMENT_ALLOCATE,
    MemoryAction.SEGMENT_FREE,
    MemoryAction.OUT_OF_MEMORY,
)
"""What counts of the allocator's log. Blocks given back are left out: many are freed at once in an order
that depends on addresses; where it matters, segments differ."""
_MESSAGES = (Kind.SEND, Kind.RECV)


@dataclass(frozen=True)
class CostView:
    """Columns as they are compared, by name, and the texts they count in order of first use.

    Attributes:
        columns: name → [n], all of one length within a table; the name begins with its table.
        texts: name of a column → texts that its numbers stand for.
    """

    columns: dict[str, NDArray[Any]]
    texts: dict[str, tuple[str, ...]]

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal views."""
        hashed = hashlib.blake2b(digest_size=32)
        for name, column in self.columns.items():
            hashed.update(f"{name}:{len(column)};".encode())
            hashed.update(np.ascontiguousarray(column).tobytes())
        for name, texts in self.texts.items():
            hashed.update(f"{name}:{len(texts)};".encode())
            for text in texts:
                encoded = text.encode(errors="surrogatepass")
                hashed.update(f"{len(encoded)}:".encode())
                hashed.update(encoded)
        return hashed.digest()


def cost_view(trace: RankTrace) -> CostView:
    """The view of one rank."""
    rows = trace.operations.rows
    tables = trace.tables
    kinds = rows["kind"]
    on_device = ~np.isin(kinds, _WITHOUT_DEVICE)
    texts: dict[str, tuple[str, ...]] = {}
    columns: dict[str, NDArray[Any]] = {
        "operation.kind": kinds,
        "operation.phase": rows["phase"],
        "operation.blocking": rows["blocking"],
        "operation.wraps_autograd": rows["wraps_autograd"],
        "operation.tensor_count": rows["tensor_count"],
        "operation.device": _by_first_use(rows["device"], on_device),
        "operation.stream": _by_first_use(_pairs(rows["device"], rows["stream"]), on_device),
        "operation.event": _by_first_use(rows["event"], rows["event"] >= 0),
        "operation.graph": _by_first_use(rows["graph"], rows["graph"] >= 0),
    }
    named: tuple[tuple[str, NDArray[np.bool_], tuple[str, ...]], ...] = (
        ("operator", np.ones(len(rows), dtype=np.bool_), tables.operators),
        ("metadata", on_device & (rows["metadata"] >= 0), tables.metadata),
        ("module", rows["module"] >= 0, tables.modules),
    )
    for name, chosen, entries in named:
        simplify = cost_of_metadata if name == "metadata" else str
        columns[f"operation.{name}"], texts[name] = _texts(rows[name], chosen, entries, simplify)
    columns |= _communications(trace)
    columns["iteration.end"] = np.asarray(tables.iteration_ends, dtype=np.int64)
    columns |= _memory(trace)
    return CostView(columns, texts)


def cost_of_metadata(text: str) -> str:
    """A metadata text without the numbers that are data; as it is if it cannot be parsed."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text  # whoever prices it complains
    if not isinstance(value, dict) or not isinstance(value.get("args"), dict):
        return text
    value["args"] = {name: _without_data(name, item) for name, item in value["args"].items()}
    return json.dumps(value, separators=(",", ":"))


def used_communicators(trace: RankTrace) -> tuple[int, ...]:
    """Indices of the communicators that a rank's operations use, in the order of their first use."""
    index = trace.operations.rows["communication"]
    used = trace.operations.communications["communicator"][index[index >= 0]]
    first = np.unique(used, return_index=True)[1]
    return tuple(used[np.sort(first)].tolist())


def _without_data(name: str, item: Any) -> Any:
    if isinstance(item, float) or item in ("nan", "inf", "-inf"):
        return "number"
    if name not in DATA_ARGUMENTS:
        return item
    if isinstance(item, list):
        return [_without_data(name, each) for each in item]
    return "number" if isinstance(item, int) or item == "other" else item


def _pairs(device: NDArray[Any], stream: NDArray[Any]) -> NDArray[Any]:
    """One number for each distinct (device, stream)."""
    ids = np.unique(stream, return_inverse=True)[1].astype(np.int64)
    return device.astype(np.int64) * (int(ids.max(initial=0)) + 1) + ids


def _by_first_use(values: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """int64[n]: 0 for the first value that is used, 1 for the next, ...; -1 where not chosen."""
    out = np.full(len(values), -1, dtype=np.int64)
    _, first, inverse = np.unique(values[chosen], return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    out[chosen] = place[inverse.reshape(-1)]
    return out


def _texts(
    index: NDArray[Any], chosen: NDArray[np.bool_], entries: tuple[str, ...], simplify: Any
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """A column that counts texts by first use; entries whose simplified texts agree are one."""
    number = _by_first_use(index, chosen)
    count = int(number.max(initial=-1)) + 1
    where = np.full(count, -1, dtype=np.int64)
    where[number[chosen]] = index[chosen]
    known: dict[str, int] = {}
    merged = np.array(
        [known.setdefault(simplify(entries[entry]), len(known)) for entry in where.tolist()], dtype=np.int64
    )
    out = np.full(len(index), -1, dtype=np.int64)
    out[chosen] = merged[number[chosen]]
    return out, tuple(known)


def _communications(trace: RankTrace) -> dict[str, NDArray[Any]]:
    """One row for each operation that communicates, in issue order."""
    rows = trace.operations.rows
    operation = np.flatnonzero(rows["communication"] >= 0)
    details = trace.operations.communications[rows["communication"][operation]]
    everyone = np.ones(len(details), dtype=np.bool_)
    columns: dict[str, NDArray[Any]] = {
        f"communication.{name}": details[name]
        for name in COMMUNICATION_DTYPE.names or ()
        if name not in ("communicator", "peer", "coalescing_group", "async_handle")
    }
    columns["communication.operation"] = operation
    columns["communication.communicator"] = _by_first_use(details["communicator"], everyone)
    for name in ("coalescing_group", "async_handle"):
        columns[f"communication.{name}"] = _by_first_use(details[name], details[name] >= 0)
    groups = trace.tables.communicators
    columns["communication.peer"] = np.array(
        relative_peers(trace.rank, groups, details, rows["kind"][operation]), dtype=np.int64
    )
    columns["communicator.size"] = np.array([len(groups[i].ranks) for i in used_communicators(trace)])
    return columns


def relative_peers(
    rank: int, groups: tuple[Communicator, ...], details: NDArray[np.void], kinds: Iterable[int]
) -> list[int]:
    """Of each communication: the distance to its peer (messages) or its root's place; -1 without one.

    A peer or a rank that is not a member, which no sound trace has, counts from 1 << 32 upwards.
    """
    places = [{member: place for place, member in enumerate(group.ranks)} for group in groups]
    out = []
    for index, peer, kind in zip(
        details["communicator"].tolist(), details["peer"].tolist(), kinds, strict=True
    ):
        if peer < 0:
            out.append(-1)
            continue
        place = places[index] if 0 <= index < len(places) else {}
        if peer not in place or (kind in _MESSAGES and rank not in place):
            out.append((1 << 32) + peer)
        elif kind in _MESSAGES:
            out.append((place[peer] - place[rank]) % len(place))
        else:
            out.append(place[peer])
    return out


def _memory(trace: RankTrace) -> dict[str, NDArray[Any]]:
    log = trace.memory[np.isin(trace.memory["action"], _TAKES_MEMORY)]
    # Two threads may log what belongs to one operation in either order.
    log = log[np.lexsort((log["size_bytes"], log["action"], log["operation"]))]
    return {
        "memory.operation": log["operation"],
        "memory.action": log["action"],
        "memory.size_bytes": log["size_bytes"],
        "memory.device": _by_first_use(log["device"], np.ones(len(log), dtype=np.bool_)),
    }
