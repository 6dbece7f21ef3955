"""RankClass: ranks that issue the same operations, stored once, and its form in the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maya.traces.json_files import JsonRecord
from maya.traces.tables import Communicator

MOST_MEMBERS = 1 << 24
"""A larger communicator in a file is damage, not a cluster."""


@dataclass(frozen=True)
class RankClass:
    """Ranks that issue the same operations, and the one that was run for all of them.

    Attributes:
        rank: the rank that ran; its files are `rank-<rank>.et` and so on.
        ranks: every rank of the class, ascending, `rank` among them.
        communicators: the rule that rebuilds the trace of another rank of the class: what its
            communicators are, in the order of the representative's tables. Peers keep their distance
            within the communicator, roots their place. A rank that is not listed has the
            representative's communicators.
    """

    rank: int
    ranks: tuple[int, ...]
    communicators: Mapping[int, tuple[Communicator, ...]] = field(default_factory=dict)


def single_rank() -> tuple[RankClass, ...]:
    """`rank_classes` of a job of one rank."""
    return (RankClass(rank=0, ranks=(0,)),)


def rank_class_to_json(group: RankClass) -> dict[str, Any]:
    """The object that `manifest.json` holds; `communicators` only where the rule needs some."""
    value: dict[str, Any] = {"rank": group.rank, "ranks": compress_ranks(group.ranks)}
    if group.communicators:
        value["communicators"] = {
            str(rank): [
                {"name": each.name, "ranks": compress_ranks(each.ranks), "backend": each.backend}
                for each in mine
            ]
            for rank, mine in sorted(group.communicators.items())
        }
    return value


def rank_class_from_json(record: JsonRecord, world_size: int) -> RankClass:
    """What `rank_class_to_json` wrote.

    Raises:
        MayaError: not of that form.
    """
    ranks = _ranks(record, world_size)
    if len(ranks) > world_size:
        record.fail(f"more ranks than the world has ({world_size})")
    communicators: dict[int, tuple[Communicator, ...]] = {}
    if "communicators" in record.value:
        rules = JsonRecord(
            record.path, record.get("communicators", dict), f"'communicators' of {record.where}"
        )
        for rank in rules.value:
            if not rank.isdecimal() or int(rank) not in ranks:
                rules.fail(f"{rank!r} is not a rank of the class")
            communicators[int(rank)] = tuple(
                _communicator(
                    JsonRecord(record.path, each, f"communicator {index} of rank {rank}"), world_size
                )
                for index, each in enumerate(rules.items(rank, dict))
            )
    return RankClass(rank=record.get("rank", int), ranks=ranks, communicators=communicators)


def compress_ranks(ranks: tuple[int, ...]) -> list[int | list[int]]:
    """Runs of three or more consecutive ranks as [first, last], so that 100,000 ranks stay short."""
    out: list[int | list[int]] = []
    start = 0
    for index in range(1, len(ranks) + 1):
        if index == len(ranks) or ranks[index] != ranks[index - 1] + 1:
            run = ranks[start:index]
            out.extend([[run[0], run[-1]]] if len(run) > 2 else run)
            start = index
    return out


def _communicator(record: JsonRecord, world_size: int) -> Communicator:
    ranks = _ranks(record, world_size)
    if len(set(ranks)) != len(ranks):
        record.fail("'ranks' must be distinct")
    return Communicator(record.get("name", str), ranks, record.get("backend", str))


def _ranks(record: JsonRecord, world_size: int) -> tuple[int, ...]:
    ranks: list[int] = []
    for item in record.get("ranks", list):
        first, last = item if isinstance(item, list) and len(item) == 2 else (item, item)
        if type(first) is not int or type(last) is not int or not 0 <= first <= last < world_size:
            record.fail(f"{item!r} is neither a rank nor a range [first, last] below {world_size}")
        if len(ranks) + last - first >= MOST_MEMBERS:
            record.fail(f"more than {MOST_MEMBERS} ranks")
        ranks.extend(range(first, last + 1))
        if len(ranks) > world_size:
            record.fail(f"more ranks than the world has ({world_size})")
    return tuple(ranks)
