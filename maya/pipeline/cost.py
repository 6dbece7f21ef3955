"""What the GPUs cost an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maya.hardware import GpuSpec, load_prices, price_of
from maya.reports.prediction import Cost

SECONDS_PER_HOUR = 3600
PRICE = "price"
"""Key of `Manifest.options`: the price a run was predicted with, so that a recomputation uses the same."""


@dataclass(frozen=True)
class GpuPrice:
    """What one GPU costs an hour, and who said so when (ISO date)."""

    usd_per_gpu_hour: float
    source: str
    date: str


def find_price(gpu: GpuSpec, prices: Path | None) -> GpuPrice | None:
    """The price of one GPU, from Maya's list or a user's; None if it has none.

    Raises:
        UsageError: the user's list is missing or malformed.
    """
    found = price_of(gpu.name) if prices is None else price_of(gpu.name, load_prices(prices))
    return None if found is None else GpuPrice(found.usd_per_gpu_hour, found.source, str(found.date))


def price_to_options(price: GpuPrice | None) -> dict[str, Any]:
    """The entry of `Manifest.options`."""
    return {PRICE: None if price is None else asdict(price)}


def price_from_options(options: Mapping[str, Any]) -> GpuPrice | None:
    """The price of `Manifest.options`; None if there was none."""
    kept = options.get(PRICE)
    return None if kept is None else GpuPrice(**kept)


def cost_of(price: GpuPrice, iteration_ns: int, world_size: int) -> Cost:
    """Cost of one iteration of `world_size` GPUs that are all paid for as long as it takes."""
    per_step = iteration_ns / 1e9 / SECONDS_PER_HOUR * price.usd_per_gpu_hour * world_size
    return Cost(
        usd_per_step=per_step,
        usd_per_1000_steps=per_step * 1000,
        usd_per_gpu_hour=price.usd_per_gpu_hour,
        price_source=price.source,
        price_date=price.date,
    )
