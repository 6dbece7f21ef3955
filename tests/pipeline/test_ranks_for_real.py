"""Real data parallel jobs: which ranks count as equal, and what `maya report` makes of what was kept."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from maya.traces import CollectiveType, Kind, find_mismatches, read_manifest, read_rank, read_ranks

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

variant = sys.argv[1]
dist.init_process_group("nccl")
rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
torch.manual_seed(1234 + rank)
layers = [torch.nn.Linear(512, 512) for _ in range(6)]
model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[local], bucket_cap_mb=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * (rank + 1), momentum=0.9)
everything = torch.randn(32 * world, 512, device="cuda")
for step in range(20):
    batch = 64 if variant == "uneven" and rank == world - 1 else 32
    if variant == "offsets":
        inputs = everything[rank * 32 : (rank + 1) * 32] * (rank + 0.5) + torch.rand(32, 512, device="cuda")
    else:
        inputs = torch.randn(batch, 512, device="cuda")
    if variant == "odd" and rank == 0 and step >= 2:  # when no small tensor crosses ranks any more
        dist.all_reduce(everything)
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if variant == "logs" and rank == 0:
        print("loss", loss.item())
"""


def maya(folder: Path, *words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "maya.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def run(folder: Path, variant: str, ranks: int, code: int = 0) -> tuple[Path, dict[str, Any]]:
    """The run folder and prediction.json of one variant."""
    (folder / "ddp.py").write_text(SCRIPT)
    name = f"{variant}.maya"
    maya(folder, "run", "-q", "-f", "-o", name, "--nproc-per-node", str(ranks), "ddp.py", variant, code=code)
    return folder / name, json.loads((folder / name / "prediction.json").read_text())


def test_seeds_and_offsets_do_not_split_ranks(tmp_path: Path) -> None:
    run_dir, prediction = run(tmp_path, "offsets", 4)
    assert [each["ranks"] for each in prediction["rank_classes"]] == [[0, 1, 2, 3]]
    assert len(list(run_dir.glob("rank-*.et"))) == 1
    assert prediction["verdict"] == "ok"
    communication = prediction["communication"]
    # Every gradient once: six layers of 512 x 512 weights and 512 biases, float32.
    assert communication["bytes_per_step"]["all_reduce"] == 6 * (512 * 512 + 512) * 4
    assert 0 < communication["exposed_ms"] == prediction["breakdown"]["exposed_communication"]
    assert sum(prediction["breakdown"].values()) == pytest.approx(prediction["iteration_time_ms"])
    trace = read_rank(run_dir, 0)
    rows = trace.operations.rows[trace.tables.iteration_ends[0] + 1 :]
    calls = trace.operations.communications[rows["communication"][rows["kind"] == Kind.COLLECTIVE]]
    # The reducer says once, after the first backward pass, in which order gradients came.
    kinds = {CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST}
    assert set(calls["collective"].tolist()) == kinds
    assert calls["input_bytes"][calls["collective"] == CollectiveType.BROADCAST].sum() < 1024
    assert not find_mismatches(read_ranks(run_dir, read_manifest(run_dir)))
    assert "valid, 1 trace checked" in maya(tmp_path, "trace", "validate", run_dir.name)
    again = tmp_path / "again.maya"
    shutil.copytree(run_dir, again)
    derived = ("prediction.json", "durations-0.npz", "timeline.perfetto-trace", "assumptions.json")
    for name in derived:
        (again / name).unlink()
    shown = maya(tmp_path, "report", "again.maya", "--format", "json")
    assert shown == (run_dir / "prediction.json").read_text()
    for name in derived:
        assert (again / name).read_bytes() == (run_dir / name).read_bytes(), name


def test_a_rank_that_logs_is_a_class_of_its_own(tmp_path: Path) -> None:
    run_dir, prediction = run(tmp_path, "logs", 2)
    assert [each["ranks"] for each in prediction["rank_classes"]] == [[0], [1]]
    assert "differs     from rank 0 from operation" in maya(tmp_path, "trace", "info", run_dir.name)


def test_an_uneven_rank_is_a_class_of_its_own_and_the_slowest_every_time(tmp_path: Path) -> None:
    run_dir, prediction = run(tmp_path, "uneven", 3)
    assert [each["ranks"] for each in prediction["rank_classes"]] == [[0, 1], [2]]
    assert prediction["slowest_rank"] == 2
    assert prediction["samples_per_s"] == pytest.approx((2 * 32 + 64) / prediction["iteration_time_ms"] * 1e3)
    first = {path.name: path.read_bytes() for path in run_dir.iterdir() if "outcome" not in path.name}
    run(tmp_path, "uneven", 3)
    assert {path.name: path.read_bytes() for path in run_dir.iterdir() if "outcome" not in path.name} == first


def test_ranks_that_call_different_collectives_fail_with_both_places_named(tmp_path: Path) -> None:
    """On GPUs this hangs. Here large collectives wait for nobody, so the simulation is who notices."""
    run_dir, prediction = run(tmp_path, "odd", 2, code=1)
    assert prediction["verdict"] == "failed"
    cause = prediction["cause"]
    assert cause.startswith("ranks do not agree on what they communicate: rank ")
    assert "all-reduce number " in cause
    assert "ddp.py:" in cause
    assert "rank 0, node " in cause
    assert "rank 1" in cause
    assert "not valid" in maya(tmp_path, "trace", "validate", run_dir.name, code=1)
