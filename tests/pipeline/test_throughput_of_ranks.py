"""Samples are added up over ranks only where each has its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

SCRIPT = """
    import os, sys, torch, torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (2,))
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
    if sys.argv[1] == "tensor":
        parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    else:
        fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(100):
        net(torch.randn(256, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sharded", "tensor"])
def test_ranks_of_one_batch_are_not_counted_twice(tmp_path: Path, how: str) -> None:
    (tmp_path / "train.py").write_text(dedent(SCRIPT))
    command = [sys.executable, "-m", "maya.cli", "run", "--json", "--nproc-per-node", "2", "train.py", how]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model_flops_per_step"] > 0
    told = any("may share batches" in str(entry["value"]) for entry in found["assumptions"])
    if how == "sharded":
        assert found["samples_per_s"] == pytest.approx(2 * 256 * 1e3 / found["iteration_time_ms"])
        assert not told
    else:
        assert found["samples_per_s"] is None
        assert told
