"""A learned family end to end on made-up rows: training repeats, predictions stay physical."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maya.errors import MayaError, UsageError
from maya.hardware import find_gpu
from maya.kernel_models.contract import Source
from maya.kernel_models.fit.learned import evaluate, ship
from maya.kernel_models.fit.learned_rows import MeasuredCalls, balanced, folds, sampled
from maya.kernel_models.fit.tree_text import compact
from maya.kernel_models.learned.artifact import read_trained
from maya.kernel_models.learned.calls import Calls, Devices
from maya.kernel_models.learned.family import Training
from maya.kernel_models.learned.gemm import GEMM
from maya.kernel_models.learned.prediction import predict_calls
from maya.kernel_models.learned.tables import TableFormat, predict_formats
from maya.kernel_models.table_prediction import TablePrediction

pytest.importorskip("lightgbm")
pytest.importorskip("scipy")

SMALL = replace(GEMM, training=Training(rounds=30, leaves=15, learning_rate=0.2))


def made_up_rows(count: int = 1_200) -> MeasuredCalls:
    """Products on two GPUs whose time is the peak's over an efficiency that depends on depth."""
    random = np.random.default_rng(7)
    gpus = [find_gpu("A100-SXM4-80GB"), find_gpu("H100-SXM5-80GB")]
    devices = Devices.of_rows([gpus[row % 2] for row in range(count)])
    size = {name: 2.0 ** random.integers(7, 13, count) for name in ("m", "n", "k")}
    ones = np.ones(count)
    columns = size | {"batch": ones, "item_bytes": 2 * ones, "out_bytes": 2 * ones}
    columns |= {"a_along_k": ones, "b_along_k": ones}
    calls = Calls(columns, np.full(count, "bf16"), np.zeros(count, dtype=np.int64), devices)
    flops = 2 * size["m"] * size["n"] * size["k"]
    time_ns = 4_000 + 1e9 * flops / calls.peak / (0.5 + 0.03 * np.log2(size["k"]))
    return MeasuredCalls(calls, time_ns, balanced(calls), np.zeros(count, dtype=np.int64), ("made up",))


def test_training_repeats_and_predicts() -> None:
    rows = made_up_rows()
    held_out = evaluate(SMALL, rows)
    card, text = ship(SMALL, rows, held_out)
    again, same_text = ship(SMALL, rows, held_out)
    assert (card, text) == (again, same_text)
    assert {each.what for each in held_out} == {
        "size families", "single shapes", "generation:ampere", "generation:hopper"
    }  # fmt: skip
    assert card["held_out"]["size families"]["p50"] < 0.1
    trained = read_trained(SMALL, card, text)
    found = predict_calls(trained, rows.calls)
    assert np.median(np.abs(found.time_ns / rows.time_ns - 1)) < 0.03
    assert (found.low_ns < found.time_ns).all()
    assert (found.time_ns < found.high_ns).all()
    assert (found.source == Source.LEARNED).mean() > 0.95


def test_beyond_the_training_range_time_still_grows_and_says_so() -> None:
    rows = made_up_rows()
    card, text = ship(SMALL, rows, [])
    trained = read_trained(SMALL, card, text)
    big = {name: values[:1] * (16.0 if name in "mnk" else 1.0) for name, values in rows.calls.columns.items()}
    one = rows.calls.take(np.arange(1))
    larger = predict_calls(trained, replace(one, columns=big))
    assert larger.time_ns[0] > 1_000 * predict_calls(trained, one).time_ns[0]
    assert larger.source[0] == Source.EXTRAPOLATED
    blackwell = replace(one, devices=Devices.all_the_same(find_gpu("B200-SXM"), 1))
    assert predict_calls(trained, blackwell).source[0] == Source.EXTRAPOLATED


def test_a_row_is_priced_for_itself() -> None:
    rows = made_up_rows(400)
    trained = read_trained(SMALL, *ship(SMALL, rows, []))
    together = predict_calls(trained, rows.calls).time_ns
    order = np.random.default_rng(1).permutation(len(rows))
    assert (predict_calls(trained, rows.calls.take(order)).time_ns == together[order]).all()
    assert predict_calls(trained, rows.calls.take(np.asarray([17]))).time_ns[0] == together[17]


def test_a_model_for_other_features_is_refused() -> None:
    card, text = ship(SMALL, made_up_rows(400), [])
    with pytest.raises(MayaError, match="other features"):
        read_trained(SMALL, card | {"features": ["log_m"]}, text)
    with pytest.raises(MayaError, match="damaged"):
        read_trained(SMALL, card | {"ranges": {"bf16/hopper": {}}}, text)


def test_a_sample_keeps_small_groups_and_repeats() -> None:
    rows = made_up_rows(1_000)
    few = sampled(rows, 100)
    assert 90 <= len(few) <= 100
    assert (few.time_ns == sampled(rows, 100).time_ns).all()
    assert set(np.unique(folds(np.arange(1000))).tolist()) == {0, 1, 2, 3, 4}


def test_tables_are_read_row_by_row_with_errors_that_name_the_column() -> None:
    def constant(value: float) -> TableFormat:
        def predict(_: object, gpus: object) -> TablePrediction:
            count = len(gpus)  # type: ignore[arg-type]
            time = np.full(count, value)
            return TablePrediction(time, time, time, np.zeros(count, dtype=np.uint8))

        return TableFormat(f"table {value}", ("m",), lambda operator: operator == f"op{value:.0f}", predict)

    formats = (constant(1.0), constant(2.0))
    gpus = [find_gpu("H100")] * 3
    columns = {"op": np.asarray(["op2", "op1", "op2"]), "m": np.ones(3)}
    assert predict_formats(columns, gpus, formats).time_ns.tolist() == [2.0, 1.0, 2.0]
    with pytest.raises(UsageError, match="lack the column m"):
        predict_formats({"op": columns["op"]}, gpus, formats)
    with pytest.raises(UsageError, match="unknown operator 'other'"):
        predict_formats({"op": np.asarray(["other"] * 3), "m": np.ones(3)}, gpus, formats)


def test_compact_trees_predict_the_same() -> None:
    import lightgbm

    random = np.random.default_rng(3)
    inputs = random.normal(size=(2_000, 4))
    target = inputs[:, 0] * inputs[:, 1] + np.sin(3 * inputs[:, 2])
    options = {"objective": "regression", "num_leaves": 31, "verbosity": -1, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(inputs, target), num_boost_round=20)
    text = booster.model_to_string()
    short = compact(text)
    assert len(short) < 0.6 * len(text)
    found = np.asarray(lightgbm.Booster(model_str=short).predict(inputs))
    assert np.abs(found - np.asarray(booster.predict(inputs))).max() < 1e-4
    assert compact(short).strip() == short.strip()
