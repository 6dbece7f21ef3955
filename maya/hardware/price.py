"""What a GPU hour costs: list prices with their date, or a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from maya.errors import UsageError
from maya.hardware.gpu import GpuSpec
from maya.hardware.gpu_catalogue import find_gpu
from maya.hardware.reading import Row, read_toml, rows_of

SHIPPED = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True)
class Price:
    """The price of one GPU for one hour, its share of the host included where the seller bills nodes."""

    usd_per_gpu_hour: float
    source: str
    """Who asks this price, for what, and where it was read."""
    date: str
    """ISO date on which the price stood (`2026-08-27`)."""


def price_of(gpu: GpuSpec | str, prices: Mapping[str, Price] | None = None) -> Price | None:
    """The price of `gpu`, or None when none is known.

    Args:
        gpu: a GPU or any name `find_gpu` accepts.
        prices: a user's prices (`load_prices`), used *instead of* the shipped ones, never mixed with them.

    Raises:
        UsageError: `gpu` is a name and unknown.
    """
    name = gpu.name if isinstance(gpu, GpuSpec) else find_gpu(gpu).name
    return (_shipped() if prices is None else prices).get(name)


def load_prices(path: str | Path, extra_gpus: Sequence[GpuSpec] = ()) -> dict[str, Price]:
    """Prices of a TOML file by catalogue name of the GPU.

    Each row is a table `[[price]]` with `gpu` (a name or alias), `usd_per_gpu_hour`, `source` and `date`.

    Args:
        path: the file of `--prices`.
        extra_gpus: GPUs of a user's file, which may be named as well.

    Raises:
        UsageError: the file is missing or malformed, a GPU is unknown or priced twice, a price is not
            positive, a date is none; the message names file and row.
    """
    return _read(Path(path), extra_gpus)


@cache
def _shipped() -> dict[str, Price]:
    return _read(SHIPPED, ())


def _read(path: Path, extra_gpus: Sequence[GpuSpec]) -> dict[str, Price]:
    prices: dict[str, Price] = {}
    for row in rows_of(read_toml(path), "price", path):
        written = row.text("gpu")
        try:
            gpu = find_gpu(written, extra_gpus)
        except UsageError as error:
            raise UsageError(f"{row.place}: {error.message}", hint=error.hint) from error
        if gpu.name in prices:
            raise UsageError(f"{row.place}: {gpu.name} is priced twice", hint="Keep one row for each GPU.")
        prices[gpu.name] = Price(row.number("usd_per_gpu_hour"), row.text("source"), _date(row))
        row.finish()
    if not prices:
        raise UsageError(f"{path}: holds no price", hint="Each price is a table under a line `[[price]]`.")
    return prices


def _date(row: Row) -> str:
    """`date` as ISO text; TOML writes dates with quotes or without."""
    import datetime  # imported here: `import maya.hardware` must stay cheap

    value = row.value("date")
    if isinstance(value, datetime.datetime):
        value = value.date()
    if isinstance(value, datetime.date):
        return value.isoformat()
    try:
        return datetime.date.fromisoformat(value).isoformat()
    except (TypeError, ValueError) as error:
        raise row.mistake("date", value, "a date such as 2026-08-27") from error
