"""Scripts that use torch.compile run on, operator by operator, and are told so once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MODULE = """
import torch
model = torch.nn.Linear(3, 3)
compiled = torch.compile(model, mode="max-autotune", dynamic=True)
assert compiled._orig_mod is model and list(compiled.state_dict())[0] == "_orig_mod.weight"
assert torch.compiler.is_compiling() is False
again = torch.compile(torch.nn.Linear(3, 3))
compiled.eval()
print(torch.equal(compiled(torch.ones(3)), model(torch.ones(3))), model.training)
"""
FUNCTION = """
import torch
@torch.compile
def double(x):
    return 2 * x
@torch.compile(fullgraph=True)
def triple(x):
    return 3 * x
model = torch.nn.Linear(3, 3)
model.compile()
print(double(torch.ones(())).item(), triple(torch.ones(())).item(), model(torch.ones(3)).shape[0])
"""
EAGER = """
import torch
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(())).item())
"""


@pytest.mark.parametrize(
    ("source", "printed"), [(MODULE, "True False\n"), (FUNCTION, "2.0 3.0 3\n")], ids=["module", "function"]
)
def test_what_is_compiled_runs_eagerly(follow: Callable[..., Any], source: str, printed: str) -> None:
    followed = follow(source)
    assert (followed.exit_code, followed.stdout) == (0, printed), followed.stderr
    assert followed.stderr.count("torch.compile is not modelled yet") == 1
    assert "global hooks" not in followed.stderr


def test_other_backends_are_torchs_own(follow: Callable[..., Any]) -> None:
    followed = follow(EAGER)
    assert (followed.exit_code, followed.stdout) == (0, "2.0\n"), followed.stderr
    assert "not modelled" not in followed.stderr
