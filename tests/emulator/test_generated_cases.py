"""Over 1,000 generated cases run on the real CPU and on the emulated GPU: the same outputs, layouts,
gradients, aliases and exceptions, with values and without. What differs by right stands in
support/cuda_differences.py.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parent))
from agreement import disagreements
from cuda_differences import DIFFERENCES
from generated_case import Case, draw
from on_device import on_device

FAMILIES = (
    "attention",
    "autograd",
    "convolution",
    "elementwise",
    "embedding",
    "fourier",
    "function_transforms",
    "indexing",
    "interpolation",
    "linear_algebra",
    "normalization",
    "pooling",
    "random_numbers",
    "recurrent",
    "scripted",
    "sorting",
)
LEAST = 1000
LEAST_IN_DEFAULT_RUN = 200
IN_DEFAULT_RUN = 16
"""Cases of each family that are not left to the slow tests."""

_used: set[int] = set()
"""Entries of the table of differences that explained something in this process."""
_ran: dict[str, int] = {}
"""Cases run of each family in this process."""


def cases_of(family: str) -> list[Case]:
    """All cases of a family."""
    module = importlib.import_module(f"cases.{family}")
    return draw(module.CASES, module.COUNT)


def run(family: str, cases: list[Case]) -> None:
    """Run cases; fail with all that differ without a reason."""
    torch.set_num_threads(1)
    failures = []
    for case in cases:
        unexplained = []
        for found in disagreements(case):
            reasons = [n for n, difference in enumerate(DIFFERENCES) if difference.explains(case, found)]
            _used.update(reasons)
            if not reasons:
                unexplained.append(f"    {found}")
        if unexplained:
            failures.append("\n".join([f"- {case}", *unexplained]))
    _ran[family] = len(cases)
    assert not failures, f"{len(failures)} of {len(cases)} cases of {family} differ:\n" + "\n".join(failures)


@on_device
@pytest.mark.parametrize("family", FAMILIES)
def test_some_cases(family: str) -> None:
    cases = cases_of(family)[:IN_DEFAULT_RUN]
    assert len(cases) == IN_DEFAULT_RUN
    run(family, cases)


def test_enough_cases_in_the_default_run() -> None:
    assert IN_DEFAULT_RUN * len(FAMILIES) >= LEAST_IN_DEFAULT_RUN


@on_device
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_cases(family: str) -> None:
    run(family, cases_of(family))


@on_device
@pytest.mark.slow
def test_there_are_a_thousand_cases_and_every_difference_is_needed() -> None:
    for family in FAMILIES:
        if _ran.get(family, 0) <= IN_DEFAULT_RUN:  # this test alone, or another selection
            run(family, cases_of(family))
    assert sum(_ran.values()) >= LEAST, _ran
    unused = [DIFFERENCES[n] for n in range(len(DIFFERENCES)) if n not in _used]
    assert not unused, unused
