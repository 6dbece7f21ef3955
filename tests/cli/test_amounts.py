"""Bytes, counts and seconds of the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from maya.cli.amounts import memory_limit, positive_seconds, whole_number
from maya.pipeline.request import UNLIMITED_BYTES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("40GiB", 40 * 2**30),
        ("40gb", 40 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("24g", 24 * 2**30),
        ("85899345920", 80 * 2**30),
        ("8e10", 8 * 10**10),
        ("unlimited", UNLIMITED_BYTES),
    ],
)
def test_amounts_of_memory(text: str, expected: int) -> None:
    assert memory_limit(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "40GB/s", "nan", "1e99", "0x10", "100000TiB"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        memory_limit(text)


def test_counts_and_seconds() -> None:
    assert whole_number("0") == 0
    assert positive_seconds("0.5") == 0.5
    for text in ("inf", "nan", "0", "soon"):
        with pytest.raises(ArgumentTypeError):
            positive_seconds(text)
