"""Numbers as people write them on a command line: bytes with units, seconds, counts."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

from maya.pipeline.request import UNLIMITED_BYTES

UNITS = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
"""Bytes a unit. KiB and KB differ as IEC 80000-13 says; a bare letter is binary, as in `docker -m`."""

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([A-Za-z]*)")


def memory_limit(text: str) -> int:
    """Bytes of `40GiB`, `8e10`, `80 GB`; UNLIMITED_BYTES for `unlimited`.

    Raises:
        ArgumentTypeError: no amount, an unknown unit, or not above zero.
    """
    if text.strip().lower() == "unlimited":
        return UNLIMITED_BYTES
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2].lower() not in UNITS:
        raise ArgumentTypeError(f"'{text}' is no amount of memory; examples: 40GiB, 85899345920, unlimited")
    amount = (
        int(float(match[1]) * UNITS[match[2].lower()])
        if "." in match[1] or "e" in match[1].lower()
        else (int(match[1]) * UNITS[match[2].lower()])
    )
    if not 0 < amount <= UNLIMITED_BYTES:
        raise ArgumentTypeError(f"'{text}' is not between 1 byte and 64TiB; `unlimited` is the most")
    return amount


def positive_integer(text: str) -> int:
    """An integer of at least 1."""
    return _integer(text, least=1)


def whole_number(text: str) -> int:
    """An integer of at least 0."""
    return _integer(text, least=0)


def positive_seconds(text: str) -> float:
    """Seconds above 0, fractions allowed."""
    try:
        seconds = float(text)
    except ValueError:
        raise ArgumentTypeError(f"'{text}' is no number of seconds") from None
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"'{text}' is not a positive number of seconds")
    return seconds


def _integer(text: str, *, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ArgumentTypeError(f"'{text}' is no whole number") from None
    if value < least:
        raise ArgumentTypeError(f"{value} is less than {least}")
    return value
