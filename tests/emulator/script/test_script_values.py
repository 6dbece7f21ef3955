"""Values nobody computed: finite, plausible, deterministic, and all of them listed."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maya.emulator.script.values import ValuePolicy, ValueSettings


def policy(line: str = "train.py:1", **settings: Any) -> ValuePolicy:
    return ValuePolicy(ValueSettings(**settings), lambda: line)


def test_a_loss_falls_for_ever_and_stays_positive() -> None:
    read = policy()
    losses = [read("item", "aten::nll_loss_forward", torch.float32, 1, 0) for _ in range(5000)]
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[-1] > 0
    as_float32 = torch.tensor(losses[:2000], dtype=torch.float32)
    assert bool((as_float32[1:] < as_float32[:-1]).all())


def test_early_stopping_does_not_trigger() -> None:
    read, best, patience = policy(), math.inf, 0
    for _ in range(300):
        loss = read("item", "aten::mean", "float32", 1, 0)
        patience = 0 if loss < best - 1e-4 else patience + 1
        best = min(best, loss)
        assert patience < 3


@pytest.mark.parametrize(
    ("kind", "producer", "dtype", "numel", "value"),
    [
        ("item", "aten::linalg_vector_norm", "float32", 1, 1.0),
        ("item", "aten::norm.ScalarOpt_dim", torch.bfloat16, 1, 1.0),
        ("item", "aten::norm", "BFloat16", 1, 1.0),
        ("item", "aten::sum", "Long", 1, 1),
        ("copy", "aten::mm", "Half", 100, 0.5),
        ("item", "aten::eq.Scalar", "Bool", 1, False),
        ("bool", "aten::isin.Tensor_Tensor", "bool", 1, False),
        ("bool", "aten::ne.Tensor", "bool", 1, True),
        ("copy", "aten::_softmax", "float32", 10, 0.5),
        ("bool", "aten::isnan", "bool", 1, False),
        ("bool", "aten::isfinite", "bool", 1, True),
        ("bool", "aten::any", "bool", 1, False),
        ("bool", "aten::all.dim", "bool", 1, True),
        ("bool", "aten::lt.Scalar", "bool", 1, True),
        ("item", "aten::isinf", "bool", 1, False),
        ("copy", "aten::isnan", "bool", 8, False),
        ("item", "aten::sum", "int64", 1, 1),
        ("item", "aten::argmax", "int64", 1, 0),
        ("copy", "aten::sum", "int64", 8, 0),
        ("copy", "aten::mm", "float32", 100, 0.5),
        ("count", "aten::nonzero", "int64", 100, 50),
        ("count", "aten::masked_select", "float32", 1, 1),
        ("count", "aten::nonzero", "int64", 0, 0),
    ],
)
def test_defaults(kind: str, producer: str, dtype: Any, numel: int, value: Any) -> None:
    answer = policy()(kind, producer, dtype, numel, 0)
    assert answer == value
    assert type(answer) is type(value)


def test_a_copy_of_one_float_is_read_like_an_item() -> None:
    read = policy()
    assert read("copy", "aten::mean", "float32", 1, 0) > read("copy", "aten::mean", "float32", 1, 0)


@pytest.mark.parametrize("wanted", [True, False])
def test_rejection_loops_end(wanted: bool) -> None:
    read = policy()
    for _ in range(3):
        attempts = 1
        while read("bool", "aten::gt.Scalar", "bool", 1, 0) is not wanted:
            attempts += 1
        assert attempts <= 1001
        read.iteration_ended()


def test_the_patience_holds_within_one_iteration_and_one_line() -> None:
    line = "a.py:1"
    read = ValuePolicy(ValueSettings(patience=3), lambda: line)

    def answers(count: int) -> list[Any]:
        return [read("bool", "aten::gt.Scalar", "bool", 1, 0) for _ in range(count)]

    assert answers(6) == [True, True, True, False, True, False]
    line = "a.py:2"
    assert answers(2) == [True, True]
    read.iteration_ended()
    line = "a.py:1"
    assert answers(3) == [True, True, True]


def test_producers_can_be_told() -> None:
    read = policy(producers={"aten::mean": 7.5, "argmax": 3})
    assert read("item", "aten::mean", "float32", 1, 0) == 7.5
    assert read("item", "aten::argmax", "int64", 1, 0) == 3


def test_assumptions_list_every_distinct_use() -> None:
    line = "train.py:10"
    read = ValuePolicy(ValueSettings(), lambda: line)
    read("item", "aten::mean", "float32", 1, 0)
    read("item", "aten::mean", "float32", 1, 0)
    line = "train.py:20"
    read("count", "aten::nonzero", "int64", 10, 0)
    read.assume("checkpoint", "torch.save", 0)
    read.assume("checkpoint", "torch.save", 0, count=3)
    expected = [
        {"kind": "item", "producer": "aten::mean", "count": 2, "source_line": "train.py:10", "value": 0.9},
        {"kind": "count", "producer": "aten::nonzero", "count": 1, "source_line": line, "value": 5},
        {"kind": "checkpoint", "producer": "torch.save", "count": 4, "source_line": line, "value": 0},
    ]
    assert read.assumptions() == expected
    assert json.loads(json.dumps(read.assumptions())) == expected


@given(st.integers(0, 2**63), st.sampled_from(["item", "copy"]))
def test_seeds_vary_values_a_little_and_reproducibly(seed: int, kind: str) -> None:
    first, again, base = (policy(seed=s)(kind, "aten::mean", "float32", 1, 0) for s in (seed, seed, 0))
    assert first == again
    assert 0.95 <= first / base <= 1.05


@pytest.mark.parametrize(
    "settings", [{"selected_share": 1.5}, {"first_loss": 0.0}, {"loss_decay": -1.0}, {"patience": 0}]
)
def test_senseless_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ValueSettings(**settings)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="guess"):
        policy()("guess", "", "float32", 1, 0)
