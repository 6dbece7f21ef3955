"""The parts together: what one training step looks like to the recorder."""

from __future__ import annotations

from typing import Any

import pytest

STEP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
"""


def marks(followed: Any) -> list[str]:
    return [name.removeprefix("maya::") for name in followed.summary["marks"]]


def test_one_step(follow: Any) -> None:
    source = STEP + (
        "for x, y in loader:\n"
        "    model(x).argmax()\n"  # a metric with gradients enabled is no batch
        "    loss = (model(x) - y).square().mean()\n"
        "    loss.backward(); optimizer.step(); optimizer.zero_grad()\n"
    )
    ours = follow(source, warmup=0, steps=2)
    step = [
        "data_wait_begin",
        "data_wait_end",
        "batch",
        "backward_begin",
        "backward_end",
        "optimizer_begin",
        "optimizer_end",
    ]
    assert marks(ours) == step * 2
    assert ours.summary["operations"][2] == [
        "maya::batch",
        {"samples": 8, "tokens": 0, "module": "Sequential"},
    ]


def test_gradient_accumulation(follow: Any) -> None:
    source = STEP + (
        "for index, (x, y) in enumerate(loader):\n"
        "    (model(x) - y).square().mean().backward()\n"
        "    if index % 2 == 1:\n        optimizer.step(); optimizer.zero_grad()\n"
    )
    ours = follow(source, warmup=1, steps=2)
    assert marks(ours).count("batch") == marks(ours).count("backward_end") == 6
    assert len(ours.summary["iteration_ends"]) == 3


def test_a_gan_is_one_iteration_a_loop(follow: Any) -> None:
    source = """
import torch
from torch import nn
G, D = nn.Linear(2, 3), nn.Linear(3, 1)
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
loops = 0
while True:
    loops += 1; print(loops)
    fake = G(torch.randn(8, 2))
    od.zero_grad(); D(fake.detach()).mean().backward(); od.step()
    og.zero_grad(); (-D(fake).mean()).backward(); og.step()
"""
    ours = follow(source, warmup=1, steps=3)
    assert ours.stdout.split() == ["1", "2", "3", "4"]
    assert len(ours.summary["iteration_ends"]) == 4
    assert marks(ours).count("optimizer_end") == 8


def test_forward_only(follow: Any) -> None:
    ours = follow(STEP + "with torch.no_grad():\n    print(model(torch.ones(2, 4)).shape)\n")
    assert ours.summary["ending"] == "finished"
    assert ours.summary["iteration_ends"] == []
    assert marks(ours) == []


def test_the_script_runs_to_its_end_without_a_limit(follow: Any) -> None:
    source = STEP + "for _ in range(7):\n    model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
    ours = follow(source, steps=None)
    assert ours.summary["ending"] == "finished"
    assert len(ours.summary["iteration_ends"]) == 7


@pytest.mark.parametrize("end", ["os._exit(0)", "raise RuntimeError('late')", "sys.exit(3)"])
def test_iterations_survive_any_ending(follow: Any, end: str) -> None:
    source = STEP + f"import os, sys\nmodel(torch.ones(2, 4)).sum().backward(); optimizer.step()\n{end}\n"
    assert len(follow(source).summary["iteration_ends"]) == 1


def test_nothing_stays_installed(follow: Any) -> None:
    """Exit handlers run after the hooks are gone, and find torch as it was."""
    source = STEP + (
        "import atexit, os\n"
        "def check():\n"
        "    from torch.nn.modules import module\n"
        "    from torch.optim import optimizer as o\n"
        "    print(len(module._global_forward_pre_hooks), len(module._global_forward_hooks),\n"
        "          len(o._global_optimizer_pre_hooks), len(o._global_optimizer_post_hooks),\n"
        "          hasattr(torch.autograd._engine_run_backward, '__wrapped__'), os._exit.__module__,\n"
        "          torch.amp.GradScaler.step.__code__.co_filename == torch.amp.grad_scaler.__file__)\n"
        "atexit.register(check)\n"
    )
    assert follow(source).stdout.split() == ["0", "0", "0", "0", "False", "posix", "True"]
