"""The fitted parameters of collectives on disk: one JSON card, versioned in the repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from maya.errors import MayaError
from maya.hardware import GENERATIONS
from maya.kernel_models.card import read_card
from maya.kernel_models.collectives.algorithms import FAMILIES
from maya.kernel_models.collectives.curve import Correction

SCHEMA_VERSION = 1
FILE_NAME = "collectives.json"
REMEDY = "refit with python -m maya.kernel_models.fit.collectives --data DIR"

SIZE_CLASSES = ("small", "medium", "large")
"""Below 64 KiB, below 1 MiB, and the rest: intervals and errors are kept for each."""


@dataclass(frozen=True)
class FamilyFit:
    """One family of calls on one link.

    Attributes:
        parameters: of `algorithms.island_times` (or `network_times`' network).
        corrections: by rank count.
        rows: fitted rows; 0: derived from a relative's.
        ranks: least and most ranks measured.
        sizes: least and most bytes measured.
        link_gbps: links it was measured on.
        low, high: measured/predicted at the ends of an 80% interval, by size class.
    """

    parameters: Mapping[str, float]
    corrections: Mapping[int, Correction]
    rows: int
    ranks: tuple[int, int]
    sizes: tuple[float, float]
    link_gbps: tuple[float, ...]
    low: tuple[float, float, float]
    high: tuple[float, float, float]


@dataclass(frozen=True)
class CollectiveFits:
    """Every fit: `links[link kind, generation][family]`, and the network between islands."""

    links: Mapping[tuple[str, str], Mapping[str, FamilyFit]]
    network: FamilyFit

    def nearest(self, link: str, generation: str) -> tuple[Mapping[str, FamilyFit], bool]:
        """Fits of the link kind in the nearest GPU generation, and whether that is the one asked for.

        Of two generations as near the newer is taken; every kind of link has at least one.
        """
        here = GENERATIONS.index(generation) if generation in GENERATIONS else len(GENERATIONS)
        known = [each for kind, each in self.links if kind == link]
        best = min(known, key=lambda each: (abs(GENERATIONS.index(each) - here), -GENERATIONS.index(each)))
        return self.links[link, best], best == generation


@cache
def shipped_fits() -> CollectiveFits:
    """The card that ships with Maya."""
    return _load(files("maya.kernel_models") / "artifacts" / FILE_NAME)


def load_fits(path: Path | None = None) -> CollectiveFits:
    """A card; by default the one that ships with Maya.

    Raises:
        MayaError: the file is missing, damaged, or of another schema version.
    """
    return shipped_fits() if path is None else _load(path)


def _load(source: Traversable) -> CollectiveFits:
    card = read_card(source)
    if card.get("schema_version") != SCHEMA_VERSION:
        raise MayaError(
            f"{source} has schema version {card.get('schema_version')}, this Maya reads {SCHEMA_VERSION}",
            hint=REMEDY,
        )
    return read_fits(card, str(source))


def read_fits(card: Mapping[str, Any], where: str) -> CollectiveFits:
    """The fits of a card's JSON object.

    Raises:
        MayaError: something is missing or of the wrong form.
    """
    try:
        links = {
            (group.partition("-")[0], group.partition("-")[2]): {
                family: _fit(families[family]) for family in FAMILIES
            }
            for group, families in card["links"].items()
        }
        for _, generation in links:
            GENERATIONS.index(generation)
        network = _fit(card["network"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MayaError(f"{where} is damaged: {error!r}", hint=REMEDY) from error
    return CollectiveFits(links, network)


def _fit(entry: Mapping[str, Any]) -> FamilyFit:
    low, high = (tuple(float(entry[end][name]) for name in SIZE_CLASSES) for end in ("low", "high"))
    return FamilyFit(
        parameters={name: float(value) for name, value in entry["parameters"].items()},
        corrections={
            int(ranks): Correction(float(each["first_log2"]), tuple(map(float, each["log_ratio"])))
            for ranks, each in entry["corrections"].items()
        },
        rows=int(entry["rows"]),
        ranks=(int(entry["ranks"][0]), int(entry["ranks"][1])),
        sizes=(float(entry["sizes"][0]), float(entry["sizes"][1])),
        link_gbps=tuple(map(float, entry["link_gbps"])),
        low=(low[0], low[1], low[2]),
        high=(high[0], high[1], high[2]),
    )
