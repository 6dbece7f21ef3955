"""One operand can decide a result alone: `unknown | True` is True, `0 * unknown` is 0 in a healthy run.

Text generation depends on it: it ends when each sequence has met its end *or* the length limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
SCRIPT = """
import json, sys
import torch
from recorded_operators import native
state = native.value_state
found = {}
for name, size in (("small", 1 << 10), ("large", 1 << 24)):
    numbers = torch.randn(1 << 24, device="cuda")[:size]
    unknown = numbers > 0
    yes, no = (torch.full((size,), truth, device="cuda") for truth in (True, False))
    found[name] = {
        "or True": state(unknown | yes),
        "True or": state(torch.logical_or(yes, numbers)),
        "in place": state(unknown.clone().logical_or_(yes)),
        "and False": state(unknown & no),
        "times zero": state(numbers * 0),
        "times zeros": state(numbers * torch.zeros_like(numbers)),
        "or False": state(unknown | no),
        "and True": state(unknown & yes),
        "integers or": state(numbers.long() | yes.long()),
        "mixed or": state(unknown | torch.cat([yes[1:], no[:1]])),
    }
logits = torch.randn(4, 1 << 20, device="cuda")
unfinished, length = torch.ones(4, dtype=torch.long, device="cuda"), 0
while unfinished.max() != 0:
    length += 1
    ended = torch.isin(logits.argmax(-1), torch.tensor([7], device="cuda"))
    unfinished = unfinished & ~(ended | torch.full((4,), length >= 12, device="cuda"))
found["generated"] = length
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n{SCRIPT}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("size", ["small", "large"])
def test_only_what_decides_alone_is_absorbed(found: dict[str, dict[str, str]], size: str) -> None:
    states = found[size]
    decided = ("or True", "True or", "in place", "and False", "times zero", "times zeros")
    assert {name: states[name] for name in decided} == dict.fromkeys(decided, "constant")
    undecided = ("or False", "and True", "integers or", "mixed or")
    assert {name: states[name] for name in undecided} == dict.fromkeys(undecided, "unknown")


def test_generation_runs_to_its_length(found: dict[str, int]) -> None:
    assert found["generated"] == 12
