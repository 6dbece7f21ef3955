"""Fitted parameters on disk: one JSON card for all families, versioned in the repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from maya.errors import MayaError
from maya.kernel_models.card import read_card
from maya.kernel_models.columns import Floats
from maya.kernel_models.forms import form_of

SCHEMA_VERSION = 1
FILE_NAME = "efficiency.json"


@dataclass(frozen=True)
class Fit:
    """Parameters of one family, arithmetic and GPU generation.

    Attributes:
        family, math, generation: what was fitted.
        parameters: by name, see the family's form.
        driver_low, driver_high: [d] range of the form's drivers in the fitted rows.
        low, high: 80% interval of measured/predicted, from held-out size families.
        rows: training rows.
        held_out_rows: how many rows `low` and `high` come from.
    """

    family: str
    math: str
    generation: str
    parameters: Mapping[str, float]
    driver_low: Floats
    driver_high: Floats
    low: float
    high: float
    rows: int
    held_out_rows: int


@dataclass(frozen=True)
class Efficiencies:
    """Every fit by (family, math, generation)."""

    fits: Mapping[tuple[str, str, str], Fit]


def no_fits() -> Efficiencies:
    """Nothing fitted: everything is a roofline."""
    return Efficiencies({})


def load_efficiencies(path: Path | None = None) -> Efficiencies:
    """Read a card; by default the one that ships with Maya.

    Raises:
        MayaError: the file is missing, damaged, or of another schema version.
    """
    source = path if path is not None else files("maya.kernel_models") / "artifacts" / FILE_NAME
    card = read_card(source)
    if card.get("schema_version") != SCHEMA_VERSION:
        raise MayaError(
            f"{source} has schema version {card.get('schema_version')}, this Maya reads {SCHEMA_VERSION}",
            hint="refit with python -m maya.kernel_models.fit --data DIR",
        )
    try:
        fits = [_fit(entry) for entry in card["fits"]]
    except (KeyError, TypeError, ValueError) as error:
        raise MayaError(f"{source} is damaged: {error!r}", hint="restore it from the repository") from error
    return Efficiencies({(fit.family, fit.math, fit.generation): fit for fit in fits})


def _fit(entry: Mapping[str, Any]) -> Fit:
    """One entry, checked against the formula it was made for (ValueError if that has changed since)."""
    form = form_of(entry["family"])
    names = {parameter.name for parameter in form.parameters}
    widths = {len(entry["driver_low"]), len(entry["driver_high"])}
    if set(entry["parameters"]) != names or widths != {len(form.driver_names)}:
        raise ValueError(f"{entry['family']} was fitted with another formula than {form.name}")
    return Fit(
        family=entry["family"],
        math=entry["math"],
        generation=entry["generation"],
        parameters={name: float(value) for name, value in entry["parameters"].items()},
        driver_low=np.asarray(entry["driver_low"], dtype=np.float64),
        driver_high=np.asarray(entry["driver_high"], dtype=np.float64),
        low=float(entry["low"]),
        high=float(entry["high"]),
        rows=int(entry["rows"]),
        held_out_rows=int(entry["held_out"]["rows"]),
    )
