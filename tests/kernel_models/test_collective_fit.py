"""The fit of collectives finds made-up parameters, repeats itself and ships what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("pandas")

from maya.errors import MayaError
from maya.hardware import find_gpu
from maya.kernel_models.collectives.algorithms import island_times
from maya.kernel_models.collectives.card import FILE_NAME, SIZE_CLASSES, load_fits, read_fits
from maya.kernel_models.collectives.curve import (
    KNOTS_LOG2,
    Correction,
    correction_at,
    make_curve,
    never_falling,
)
from maya.kernel_models.collectives.kinds import Collective
from maya.kernel_models.fit.collective_data import CollectiveRows, read_table
from maya.kernel_models.fit.collective_errors import weighted_quantile
from maya.kernel_models.fit.collective_fit import RANGES, best_times, fit_parameters
from maya.kernel_models.fit.collective_groups import fit_rows, held_out_by_ranks, held_out_by_size
from maya.kernel_models.fit.collectives import main

A100 = find_gpu("A100-SXM4-80GB")
TRUTH = {
    "base_ns": 6_000.0,
    "ll_step_ns": 900.0,
    "ll_efficiency": 0.05,
    "ll128_extra_ns": 3_000.0,
    "ll128_step_ns": 1_300.0,
    "ll128_efficiency": 0.4,
    "simple_extra_ns": 20_000.0,
    "simple_step_ns": 2_500.0,
    "simple_efficiency": 0.72,
}


def made_rows(bump: float = 0.0) -> CollectiveRows:
    """All-reduces that obey TRUTH, but for a bump around 1 MiB."""
    sizes = np.tile(2.0 ** np.arange(9, 30, 0.5), 3)
    ranks = np.repeat([2, 4, 8], len(sizes) // 3)
    times = np.zeros(len(sizes))
    for count in (2, 4, 8):
        mask = ranks == count
        found = island_times(Collective.ALL_REDUCE, count, "nvswitch", A100.nvlink_gbps, TRUTH, sizes[mask])
        times[mask] = np.min(list(found.values()), axis=0)
    times *= np.exp(bump * np.exp(-(((np.log2(sizes) - 20.0) / 2.0) ** 2)))
    zeros = np.zeros(len(sizes), dtype=np.int64)
    return CollectiveRows(
        "nvswitch-ampere",
        "all_reduce",
        (A100,),
        zeros,
        ranks,
        sizes,
        times,
        ("made",),
        zeros,
        zeros + 1,
        0.0 * sizes,
    )


def test_parameters_are_found_back() -> None:
    rows = made_rows()
    found = fit_parameters(rows)
    assert set(found) == set(RANGES)
    assert found["simple_efficiency"] == pytest.approx(0.72, rel=0.02)
    assert found["ll_step_ns"] == pytest.approx(900, rel=0.1)
    assert np.abs(np.log(best_times(rows, found) / rows.time_ns)).max() < 0.05


def test_a_correction_takes_up_what_the_formula_misses() -> None:
    rows = made_rows(bump=0.3)
    fitted = fit_rows(rows)
    formula = np.abs(np.log(best_times(rows, fitted.parameters) / rows.time_ns))
    left = np.abs(fitted.log_ratio(rows))
    assert formula.max() > 0.05
    assert np.median(left) < 0.01
    assert left.max() < 0.5 * formula.max()


def test_held_out_rows_are_not_seen() -> None:
    """An octave that lies far off is far off when it is held out, and only then."""
    rows = made_rows()
    strange = (rows.size >= 2.0**29) & (rows.ranks == 4)
    rows.time_ns[strange] *= 1.4
    assert np.abs(held_out_by_size(rows)[strange]).min() > 0.2
    inner, errors = held_out_by_ranks(rows)
    assert set(rows.ranks[inner]) == {4}
    assert len(errors) == inner.sum()
    assert np.abs(errors[strange[inner]]).min() > 0.2
    assert np.abs(fit_rows(rows).log_ratio(rows)[strange]).max() < 0.2


def test_a_curve_never_falls() -> None:
    assert never_falling(np.array([1.0, 3.0, 2.0, 4.0])).tolist() == [1.0, 2.5, 2.5, 4.0]
    sizes = 2.0**KNOTS_LOG2
    times = {"ring LL": 5_000.0 + sizes / 20.0, "ring Simple": 30_000.0 + sizes / 200.0}
    correction = Correction(16.0, (0.0, 0.5, -0.6, 0.4, -0.4, 0.0))
    curve = make_curve(times, correction.at(KNOTS_LOG2))
    found = [curve.time_ns(size) for size in range(1, 2_000_000, 997)]
    assert found == sorted(found)
    assert curve.algorithm(1_000) == "ring LL"
    assert curve.algorithm(1 << 30) == "ring Simple"
    assert curve.time_ns(1 << 50) == pytest.approx(2.0**50 / 200.0, rel=0.01)


def test_corrections_between_rank_counts() -> None:
    known = {2: Correction(10.0, (0.1, 0.1)), 8: Correction(10.0, (0.3, 0.3))}
    place = np.array([5.0, 10.2, 30.0])
    assert correction_at(known, 4, place) == pytest.approx([0.2, 0.2, 0.2])
    assert correction_at(known, 64, place) == pytest.approx([0.3, 0.3, 0.3])
    assert correction_at(known, 2, place) == pytest.approx([0.1, 0.1, 0.1])
    assert correction_at({}, 4, place).tolist() == [0.0, 0.0, 0.0]
    assert Correction(0.0, (9.0,)).at(place).max() < 1.0


def test_weighted_quantiles() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0])
    assert weighted_quantile(values, weights, 0.05) == 1.0
    assert weighted_quantile(values, weights, 0.5) == 2.0
    assert weighted_quantile(values, weights, 0.95) == 3.0


def shipped() -> dict[str, Any]:
    from importlib.resources import files

    text = (files("maya.kernel_models") / "artifacts" / FILE_NAME).read_text(encoding="utf-8")
    card: dict[str, Any] = json.loads(text)
    return card


def test_the_shipped_card_says_what_it_rests_on() -> None:
    card = shipped()
    measured = [each for families in card["links"].values() for each in families.values() if each["rows"]]
    assert len(measured) > 20
    for each in measured:
        assert each["gpus"]
        assert each["sources"]
        assert each["held_out"]["sizes"]
        for name in SIZE_CLASSES:
            assert each["low"][name] <= 1.0 <= each["high"][name]
    large = [
        each["held_out"]["sizes"]["large"]["p50"] for each in measured if "large" in each["held_out"]["sizes"]
    ]
    assert float(np.median(large)) < 0.05


@pytest.mark.parametrize("damage", ["version", "family", "corrections", "generation", "no JSON"])
def test_a_damaged_card_is_named(tmp_path: Path, damage: str) -> None:
    card = shipped()
    path = tmp_path / "card.json"
    if damage == "version":
        card["schema_version"] = 99
    elif damage == "family":
        del card["links"]["nvswitch-hopper"]["message"]
    elif damage == "corrections":
        card["links"]["nvswitch-hopper"]["all_reduce"]["corrections"] = 7
    elif damage == "generation":
        card["links"]["nvswitch-stone"] = card["links"]["nvswitch-hopper"]
    path.write_text("{" if damage == "no JSON" else json.dumps(card))
    with pytest.raises(MayaError, match=str(path)):
        load_fits(path)


def test_the_tables_rows_are_sorted_by_what_they_are_good_for(shared_data: Path) -> None:
    table = read_table(shared_data)
    target = table[table["role"] == "target"]
    assert not target["backend"].str.contains("vLLM|SGLang|TRTLLM|Custom|in-training").any()
    assert set(target[target["group"].str.startswith("nvswitch")]["nodes"]) == {1}
    assert {"nvswitch-ampere", "nvswitch-hopper", "nvswitch-blackwell", "pcie-ada"} <= set(target["group"])
    vidur = target[target["source"].str.contains("vidur") & (target["family"] == "all_reduce")]
    assert vidur["bytes"].min() >= 4 << 20


@pytest.mark.slow
def test_the_command_repeats_the_shipped_card(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "collectives.json"
    assert main(["--data", str(shared_data), "--output", str(path)]) == 0
    made, card = json.loads(path.read_text()), shipped()
    read_fits(made, str(path))
    assert not list(tmp_path.glob("*.partial"))
    for group, families in card["links"].items():
        for family, each in families.items():
            for name, value in each["parameters"].items():
                assert made["links"][group][family]["parameters"][name] == pytest.approx(value, rel=0.05), (
                    name
                )
