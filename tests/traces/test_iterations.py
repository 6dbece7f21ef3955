"""Iterations, microbatches and phases of operations, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from maya.traces import Kind, Operations, Phase, Tables, iteration_of, microbatch_of, phase_mask

BACKWARD_END = 5
"""Index of that marker in the tables of conftest."""


def operations_of(build: Callable[..., Operations], op: Callable[..., Any], letters: str) -> Operations:
    """k: kernel, b: backward end, B: a kernel whose operator index is the marker's."""
    made = {
        "k": op(Kind.KERNEL),
        "b": op(Kind.MARKER, BACKWARD_END),
        "B": op(Kind.KERNEL, BACKWARD_END),
    }
    return build([made[letter] for letter in letters])


def test_iterations(build_operations: Any, op: Any, tables: Tables) -> None:
    operations = operations_of(build_operations, op, "kkkkkkk")
    assert iteration_of(operations, replace(tables, iteration_ends=(1, 4))).tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert iteration_of(operations, replace(tables, iteration_ends=(1, 6))).tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert iteration_of(operations, tables).tolist() == [0] * 7


def test_microbatches(build_operations: Any, op: Any, tables: Tables) -> None:
    # Two microbatches and an optimizer; one microbatch; an evaluation; one that was not finished.
    operations = operations_of(build_operations, op, "kbkbkkkbkkBkbkk")
    found = microbatch_of(operations, replace(tables, iteration_ends=(5, 8, 10)))
    assert found.tolist() == [0, 0, 1, 1, -1, -1, 0, 0, -1, 0, 0, 0, 0, -1, -1]


def test_microbatches_without_iterations(build_operations: Any, op: Any, tables: Tables) -> None:
    assert microbatch_of(operations_of(build_operations, op, "kkk"), tables).tolist() == [0, 0, 0]
    assert microbatch_of(operations_of(build_operations, op, ""), tables).tolist() == []


def test_iterations_without_operations_between(build_operations: Any, op: Any, tables: Tables) -> None:
    operations = operations_of(build_operations, op, "kb")
    assert microbatch_of(operations, replace(tables, iteration_ends=(1,))).tolist() == [0, 0]


def test_phases(small: Operations) -> None:
    assert phase_mask(small, Phase.FORWARD, Phase.BACKWARD).nonzero()[0].tolist() == [0, 1, 3]
    assert not phase_mask(small).any()
