"""Running out of device memory: what the script sees and can do, and what the run's files say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from maya.traces import MemoryAction, memory_path, read_memory

SUPPORT = Path(__file__).resolve().parent / "support"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_gpt.py"
GIB = 2**30


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What a script on an H100 of 6 GiB found out."""
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "memory_of_six_gib.py")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_error_speaks_as_pytorch_does(found: dict[str, Any]) -> None:
    # 6 GiB, of which the context of an H100 takes 614.4 MiB and the script 3 GiB.
    assert found["message"].startswith(
        "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 6.00 GiB of which "
        "2.40 GiB is free. Including non-PyTorch memory, this process has 3.60 GiB memory in use. Of the "
        "allocated memory 3.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
    )
    assert found["is a RuntimeError"]
    assert found["one class"]
    assert found["ooms"] == 1
    assert found["after"] == GIB


def test_a_script_can_catch_it_and_go_on(found: dict[str, Any]) -> None:
    tried = found["tried"]
    assert len(tried) > 2
    assert tried == [tried[0] >> number for number in range(len(tried))]
    # forward keeps input, two hidden layers; backward adds a gradient of one of them
    assert tried[-1] * (1024 + 3 * 8192) * 4 < 6 * GIB < tried[-2] * (2 * 1024 + 3 * 8192) * 4
    assert found["gradient"]


def test_fragmented_blocks_do_not_serve_a_large_request(found: dict[str, Any]) -> None:
    message, reserved, small = found["fragmented"]
    assert "1024.00 MiB is reserved by PyTorch but unallocated" in message
    assert reserved == 4.5 * GIB
    assert small is None


def test_expandable_segments_do(found: dict[str, Any]) -> None:
    message, reserved, _ = found["expandable"]
    assert message is None
    assert reserved < 5 * GIB


def test_splitting_and_rounding_are_the_caching_allocators(found: dict[str, Any]) -> None:
    mib = 2**20
    assert found["unsplit"] == 300 * mib
    assert found["split"] == 298 * mib
    assert [tuple(row) for row in found["rounded"]] == [
        (1, 512, 2 * mib),
        (512, 512, 2 * mib),
        (513, 1024, 2 * mib),
        (mib, mib, 2 * mib),
        (mib + 1, mib + 512, 20 * mib),
        (10 * mib, 10 * mib, 10 * mib),
        (10 * mib + 1, 10 * mib + 512, 12 * mib),
    ]


def test_figures_summary_and_snapshot_agree(found: dict[str, Any]) -> None:
    assert len(set(found["reserved"])) == 1
    assert len(set(found["allocated"])) == 1
    assert found["blocks fill their segments"]
    context_bytes = found["used"]
    assert 0.5 * GIB < context_bytes < 0.7 * GIB
    assert list(found["stats"].values()) == found["peaks"]
    assert f"{found['allocated'][0] // 2**10} KiB" in found["summary"]
    cached, freed, emptied = found["empty_cache"]
    assert cached == freed > emptied == 0


def test_memory_used_on_another_stream_is_not_reused_before_it(found: dict[str, Any]) -> None:
    assert not found["taken while in use"]
    assert found["active, allocated"] == [128 << 20, 64 << 20]
    assert found["taken afterwards"]


def test_memory_goes_with_its_owners(found: dict[str, Any]) -> None:
    """`__del__` runs before the object lets go of anything; its attributes go in the order they were set."""
    assert found["destroyed"] == [["outer", 128], ["inner", 128], ["cycle", 64]]
    assert found["cycle waits"] == 64
    assert found["after all"] == 0


def maya(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "maya.cli", "run", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=400)


def test_the_example_on_too_small_a_gpu(tmp_path: Path) -> None:
    shown = maya(tmp_path, "--gpu-memory", "6GiB", str(EXAMPLE))
    assert shown.returncode == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in shown.stderr
    folder = tmp_path / "train_gpt.maya"
    prediction = json.loads((folder / "prediction.json").read_text())
    manifest = json.loads((folder / "manifest.json").read_text())
    assert prediction["verdict"] == "oom"
    cause = prediction["cause"]
    # logits of 8 x 1024 tokens in float32; the loss is computed outside of the head
    assert "an allocation of 1.54 GiB in GPT at" in cause
    assert re.search(r"train_gpt\.py:\d+ does not fit in 6\.00 GiB", cause), cause
    assert "held:" in cause
    assert "GPT.blocks.*" in cause
    assert cause in manifest["cause"] or manifest["cause"] in cause
    assert "1.54 GiB" in shown.stdout
    memory = read_memory(memory_path(folder, 0))
    assert (
        memory["action"][-1] == MemoryAction.OUT_OF_MEMORY or MemoryAction.OUT_OF_MEMORY in memory["action"]
    )
    peak = prediction["peak_memory_bytes"]
    assert peak["allocated"] <= peak["reserved"] < peak["capacity"] == 6 * GIB


HALVING = """
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(1024, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 1024))
    net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batch = 1 << 18
    while True:
        try:
            net(torch.ones(batch, 1024, device="cuda")).square().mean().backward()
        except torch.OutOfMemoryError:
            batch //= 2
            print("trying", batch)
            continue
        optimizer.step()
        optimizer.zero_grad()
        print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
"""


def test_a_script_that_halves_its_batch_is_predicted_and_told(tmp_path: Path) -> None:
    (tmp_path / "halve.py").write_text(dedent(HALVING))
    shown = maya(tmp_path, "--gpu-memory", "8GiB", "--steps", "2", "halve.py")
    assert shown.returncode == 0, shown.stderr
    prediction = json.loads((tmp_path / "halve.maya" / "prediction.json").read_text())
    manifest = json.loads((tmp_path / "halve.maya" / "manifest.json").read_text())
    assert prediction["verdict"] == "ok"
    assert prediction["iteration_time_ms"] > 0
    assert "caught by the script: out of memory" in prediction["cause"]
    assert "halve.py:9" in prediction["cause"]
    assert manifest["cause"] == prediction["cause"]
    peaks = [int(word) for word in re.findall(r"peak (\d+) (\d+)", shown.stdout)[-1]]
    told = prediction["peak_memory_bytes"]
    assert [told["allocated"], told["reserved"]] == peaks
