"""The follower on the real emulated device, through `maya run`: what fakes cannot show."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from maya.traces import Kind, Phase, RankTrace, read_rank

MODEL = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
        self.head = nn.Linear(256, 1)
    def forward(self, x):
        return self.head(checkpoint(self.inner, x, use_reentrant=False)).square().mean()
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(64, 256, device="cuda")
"""


def maya_run(folder: Path, source: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], RankTrace]:
    (folder / "script.py").write_text(MODEL + source)
    done = subprocess.run(
        [sys.executable, "-m", "maya.cli", "run", "-o", "out.maya", "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads((folder / "out.maya" / "outcome-0.json").read_text())
    return done, outcome, read_rank(folder / "out.maya", 0)


def markers(trace: RankTrace) -> Counter[str]:
    rows = trace.operations.rows
    return Counter(trace.tables.operators[index] for index in rows["operator"][rows["kind"] == Kind.MARKER])


def test_phases_modules_values_and_a_checkpoint(tmp_path: Path) -> None:
    done, outcome, trace = maya_run(
        tmp_path,
        "best = float('inf')\n"
        "while True:\n"
        "    loss = model(x); loss.backward()\n"
        "    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "    optimizer.step(); optimizer.zero_grad()\n"
        "    value = loss.item()\n"
        "    assert value < best and not torch.isnan(loss); best = value\n"
        "    torch.save(model.state_dict(), 'model.pt')\n",
    )
    assert "Traceback" not in done.stderr
    assert (outcome["ended"], outcome["iterations"], outcome["optimizer_steps"]) == ("stopped", 4, 4)
    assert len(trace.tables.iteration_ends) == 4
    assert markers(trace)["maya::batch"] == 4
    rows = trace.operations.rows
    kernels = rows[rows["kind"] == Kind.KERNEL]
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE):
        own = kernels[kernels["phase"] == phase]
        assert len(own) > 0
        assert (own["module"] >= 0).mean() >= 0.99
    assert (kernels["phase"] == Phase.OPTIMIZER).any()
    recomputed = kernels["module"][kernels["phase"] == Phase.RECOMPUTE]
    assert {trace.tables.modules[index] for index in recomputed} <= {
        "Net.inner",
        "Net.inner.0",
        "Net.inner.1",
        "Net.inner.2",
    }
    assumptions = json.loads((tmp_path / "out.maya" / "assumptions-0.json").read_text())
    kinds = {(use["kind"], use["producer"]): use for use in assumptions}
    assert kinds["checkpoint", "torch.save"]["source_line"].endswith("script.py:22")
    assert all(use["source_line"].partition(":")[0].endswith("script.py") for use in assumptions)
    state = torch.load(tmp_path / "model.pt", map_location="cpu")
    assert state["inner.0.weight"].shape == (512, 256)
    assert (tmp_path / "model.pt").stat().st_size > 1 << 20
    assert (tmp_path / "model.pt").stat().st_blocks * 512 < 1 << 18


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(
            "while True:\n    try:\n        model(x).backward(); optimizer.step()\n"
            "    except BaseException: pass\n",
            id="catching everything",
        ),
        pytest.param(
            "from torch.utils.data import DataLoader, TensorDataset\n"
            "data = TensorDataset(torch.randn(1000, 256))\n"
            "loader = DataLoader(data, batch_size=8, num_workers=2, pin_memory=True,\n"
            "                    persistent_workers=True)\n"
            "while True:\n"
            "    for batch, in loader:\n"
            "        model(batch.cuda(non_blocking=True)).backward(); optimizer.step()\n",
            id="loader workers",
        ),
    ],
)
def test_endless_loops_end_quietly(tmp_path: Path, loop: str) -> None:
    done, outcome, trace = maya_run(tmp_path, loop)
    assert (outcome["ended"], outcome["iterations"]) == ("stopped", 4)
    assert len(trace.tables.iteration_ends) == 4
    lines = [line for line in done.stderr.splitlines() if not line.startswith("maya: ")]
    assert lines == []
