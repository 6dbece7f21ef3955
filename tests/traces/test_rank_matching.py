"""Every collective and message against its peers': what does not fit is named on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maya.traces import (
    COMMUNICATION_DTYPE,
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    CollectiveType,
    Communicator,
    Kind,
    Operations,
    RankTrace,
    Tables,
    find_mismatches,
)

WORLD = Communicator("0", (0, 1, 2))


def rank(number: int, *calls: dict[str, Any], ends: tuple[int, ...] = ()) -> RankTrace:
    """A rank that only communicates; node i at train.py:i."""
    rows = np.zeros(len(calls), OPERATION_DTYPE)
    rows["id"] = rows["communication"] = rows["source_line"] = np.arange(len(calls))
    communications = np.zeros(len(calls), COMMUNICATION_DTYPE)
    communications["peer"] = -1
    for row, details, each in zip(rows, communications, calls, strict=True):
        row["kind"] = each.get("kind", Kind.COLLECTIVE)
        for name, value in each.items():
            if name != "kind":
                details[name] = value
    lines = tuple(f"train.py:{index}" for index in range(len(calls)))
    tables = Tables(("c10d::allreduce_",), source_lines=lines, iteration_ends=ends, communicators=(WORLD,))
    return RankTrace(
        number, Operations(rows, np.zeros(0, TENSOR_DTYPE), communications), tables, np.zeros(0, MEMORY_DTYPE)
    )


def reduce_(sequence: int = 0, size: int = 8, **columns: Any) -> dict[str, Any]:
    return {"sequence_in_communicator": sequence, "input_bytes": size, **columns}


def send(peer: int, size: int = 8, **columns: Any) -> dict[str, Any]:
    return {"kind": Kind.SEND, "collective": -1, "peer": peer, "input_bytes": size, **columns}


def receive(peer: int, size: int = 8, **columns: Any) -> dict[str, Any]:
    return {"kind": Kind.RECV, "collective": -1, "peer": peer, "output_bytes": size, **columns}


def messages(*ranks: RankTrace) -> list[str]:
    return [found.message for found in find_mismatches(ranks)]


def test_ranks_that_agree() -> None:
    calls = (reduce_(0), reduce_(1, 16), reduce_(2, collective=CollectiveType.ALL_GATHER))
    assert not messages(*(rank(number, *calls) for number in range(3)))
    # Uneven shards are no mistake.
    gather = CollectiveType.ALL_GATHER
    assert not messages(*(rank(number, reduce_(0, 8 + number, collective=gather)) for number in range(3)))
    ring = [rank(me, send((me + 1) % 3, tag=4), receive((me - 1) % 3, tag=4)) for me in range(3)]
    assert not messages(*ring)


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        (reduce_(0, 12), "all-reduce number 0 of communicator '0' has 12 bytes, but rank 0, node 0 "),
        (
            reduce_(0, collective=CollectiveType.BROADCAST),
            "calls broadcast as number 0 of communicator '0', but rank 0, node 0 "
            "(c10d::allreduce_, train.py:0) calls all-reduce",
        ),
        (
            reduce_(0, reduce_op=3),
            "all-reduce number 0 of communicator '0' reduces otherwise than rank 0, node 0",
        ),
    ],
)
def test_members_that_disagree(odd: dict[str, Any], problem: str) -> None:
    found = messages(rank(0, reduce_()), rank(1, reduce_()), rank(2, odd))
    assert len(found) == 1
    assert found[0].startswith("rank 2, node 0 (c10d::allreduce_, train.py:0): ")
    assert problem in found[0]


def test_a_member_that_never_calls() -> None:
    (found,) = find_mismatches([rank(0, reduce_(0), reduce_(1)), rank(1, reduce_(0)), rank(2, reduce_(0))])
    assert (found.rank, found.node, found.excused) == (0, 1, False)
    assert "number 1 of communicator '0' is never called by ranks 1, 2" in found.message


def test_what_lies_behind_the_last_iteration_may_lack_its_peers() -> None:
    stopped = [rank(number, reduce_(0), ends=(0,)) for number in (1, 2)]
    (found,) = find_mismatches([rank(0, reduce_(0), reduce_(1), ends=(0,)), *stopped])
    assert found.excused
    (found,) = find_mismatches([rank(0, reduce_(0), reduce_(1), ends=(1,)), *stopped])
    assert not found.excused


def test_a_number_used_twice() -> None:
    found = messages(rank(0, reduce_(0), reduce_(0)), rank(1, reduce_(0)), rank(2, reduce_(0)))
    assert found == [
        "rank 0, node 1 (c10d::allreduce_, train.py:1): is number 0 of communicator '0' again, as node 0 is"
    ]


def test_messages_without_a_peer_or_of_another_size() -> None:
    found = messages(rank(0, send(1), send(1, 24, tag=2)), rank(1, receive(0, 16), receive(2)), rank(2))
    assert len(found) == 3
    assert "rank 1, node 0 (c10d::allreduce_, train.py:0): receives 16 bytes, but rank 0, node 0" in found[0]
    assert "rank 0, node 1" in found[1]
    assert "sends 24 bytes with tag 2 in communicator '0' to rank 1, which never receives them" in found[1]
    assert "rank 1, node 1" in found[2]
    assert "from rank 2, which never sends" in found[2]


def test_strangers_are_named() -> None:
    assert (
        "rank 7, node 0 (c10d::allreduce_, train.py:0): is not a member of its communicator '0'"
        in messages(rank(7, reduce_()))
    )
    (found,) = messages(rank(0, reduce_(communicator=4)))
    assert "communicator 4 is not in the rank's tables" in found


def test_only_so_many_are_listed() -> None:
    ranks = [rank(0, *(reduce_(index) for index in range(200))), rank(1), rank(2)]
    assert len(find_mismatches(ranks)) == 100
