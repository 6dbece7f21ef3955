"""A learned family on disk: a JSON card and the trees as LightGBM's own text."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maya.errors import MayaError
from maya.kernel_models.card import read_card
from maya.kernel_models.columns import Floats
from maya.kernel_models.learned.family import LearnedFamily
from maya.kernel_models.learned.intervals import Intervals

if TYPE_CHECKING:
    import lightgbm

SCHEMA_VERSION = 1
FOLDER = "artifacts/learned"
SINGLE_THREAD_ROWS = 4_000
"""Below so many rows threads cost more than they save."""


@dataclass(frozen=True)
class Range:
    """What was learned of one arithmetic on one generation.

    Attributes:
        low, high: [d] range of the drivers.
        gpus: names of its GPUs.
        variants: those among its rows.
        rows: how many.
    """

    low: Floats
    high: Floats
    gpus: frozenset[str]
    variants: frozenset[str]
    rows: int


@dataclass(frozen=True)
class Trained:
    """A family ready to predict.

    Attributes:
        parameters: of the base.
        ranges: by "math/generation".
        intervals: by standing.
        booster: the trees; None for a family that is only its base.
    """

    family: LearnedFamily
    parameters: Mapping[str, float]
    ranges: Mapping[str, Range]
    intervals: Intervals
    booster: lightgbm.Booster | None

    def log_factor(self, features: Floats) -> Floats:
        """[k] what the trees add to the log of the base."""
        if self.booster is None or not len(features):
            return np.zeros(len(features))
        threads = 1 if len(features) < SINGLE_THREAD_ROWS else 0
        result: Floats = np.asarray(self.booster.predict(features, num_threads=threads), dtype=np.float64)
        return result


@cache
def load_trained(family: LearnedFamily) -> Trained | None:
    """The family's artifacts that ship with Maya; None if it has none.

    Raises:
        MayaError: they are damaged, or were made for other features than this Maya computes.
    """
    folder = files("maya.kernel_models") / FOLDER
    card_file = folder / f"{family.name}.json"
    if not card_file.is_file():
        return None
    return read_trained(family, read_card(card_file), (folder / f"{family.name}.txt").read_text("utf-8"))


def read_trained(family: LearnedFamily, card: Mapping[str, Any], text: str) -> Trained:
    """From a card and LightGBM's text."""
    import lightgbm

    remedy = "retrain with `make train-models`, or restore the file from the repository"
    wanted = (SCHEMA_VERSION, list(family.feature_names), list(family.variants), list(family.driver_names))
    found = tuple(card.get(key) for key in ("schema_version", "features", "variants", "drivers"))
    if found != wanted or set(card.get("parameters", ())) != set(family.defaults()):
        raise MayaError(f"the model {family.name} was trained for other features or variants", hint=remedy)
    try:
        booster = lightgbm.Booster(model_str=text) if text else None
        ranges = {
            key: Range(
                np.asarray(entry["low"], dtype=np.float64),
                np.asarray(entry["high"], dtype=np.float64),
                frozenset(entry["gpus"]),
                frozenset(entry["variants"]),
                int(entry["rows"]),
            )
            for key, entry in card["ranges"].items()
        }
        intervals = Intervals({key: (float(a), float(b)) for key, (a, b) in card["intervals"].items()})
        parameters = {name: float(value) for name, value in card["parameters"].items()}
    except (KeyError, TypeError, ValueError, lightgbm.basic.LightGBMError) as error:
        raise MayaError(f"the model {family.name} is damaged: {error!r}", hint=remedy) from error
    return Trained(family, parameters, ranges, intervals, booster)


def write_trained(folder: Path, name: str, card: Mapping[str, Any], text: str) -> None:
    """Write both files, each in one step, the trees first."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, content in ((".txt", text), (".json", json.dumps(card, indent=1, sort_keys=True) + "\n")):
        partial = folder / f"{name}{suffix}.partial"
        partial.write_text(content, encoding="utf-8")
        os.replace(partial, folder / f"{name}{suffix}")
