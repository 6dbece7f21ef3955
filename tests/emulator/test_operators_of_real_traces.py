"""What real GPUs recorded, held against the emulated device: names that launch kernels, shapes that come out.

Skipped where the shared traces are not there.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parent / "support"
DATA = Path(__file__).parents[3] / "shared" / "data"
EXECUTION_TRACES = {
    # How many distinct calls, of how many operators, each holds.
    "linear_et.json.gz": (31, 22),
    "resnet_et.json.gz": (609, 31),
    "hf_GPT2_et.json.tar.gz": (193, 42),
    "dlrm_pytorch_et.tar.gz": (394, 37),
}
UNREPLAYABLE = {"aten::record_stream": "its stream is not told"}
KINETO_TRACES = (
    "hta_a100_8gpu_control_rank3.json.gz",
    "hta_a100_2gpu_nccl_data_rank0.json.gz",
    "hta_a100_alexnet_like.json.gz",
    "hta_v100_32g_1gpu_ns_resolution.json.gz",
    "param_2080ti_linear.json.gz",
    "param_2080ti_resnet.json.gz",
    "param_v100_8gpu_dlrm_kineto.tar.gz",
)

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")


@pytest.fixture(scope="module")
def replayed() -> dict[str, dict[str, Any]]:
    paths = [str(DATA / "pytorch_et" / name) for name in EXECUTION_TRACES]
    words = [sys.executable, str(SUPPORT / "replayed_operators.py"), *paths]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {Path(path).name: answer for path, answer in json.loads(done.stdout).items()}


@pytest.mark.parametrize("trace", EXECUTION_TRACES)
def test_every_call_gives_the_shapes_and_dtypes_it_gave_on_a_gpu(
    replayed: dict[str, dict[str, Any]], trace: str
) -> None:
    answer = replayed[trace]
    assert answer["differences"] == []
    assert (answer["calls"], len(answer["operators"])) == EXECUTION_TRACES[trace]
    assert {text.split(": ")[0] for text in answer["unreplayable"]} <= set(UNREPLAYABLE)


@pytest.mark.parametrize("trace", KINETO_TRACES)
def test_every_aten_operator_that_launched_a_kernel_is_one_the_device_takes(trace: str) -> None:
    from maya.emulator.backend.operators import cuda_operators

    taken = {f"aten::{name.partition('.')[0]}" for name in cuda_operators()}
    launching = launching_operators(events_of(DATA / "traces" / trace))
    from_aten = {name for name in launching if name.startswith("aten::")}
    assert len(from_aten) >= 8
    assert from_aten - taken == set()


def events_of(path: Path) -> list[dict[str, Any]]:
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            first = min((m for m in archive.getmembers() if m.isfile()), key=lambda member: member.name)
            file = archive.extractfile(first)
            assert file is not None
            return list(json.load(file)["traceEvents"])
    return list(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])


def launching_operators(events: list[dict[str, Any]]) -> Counter[str]:
    """Names of the innermost operators around each kernel launch."""
    operators: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)
    launches: dict[Any, list[float]] = defaultdict(list)
    for event in events:
        if event.get("ph") != "X":
            continue
        thread = (event["pid"], event["tid"])
        if event.get("cat", "").lower() in ("cpu_op", "operator"):
            operators[thread].append((event["ts"], event["ts"] + event["dur"], event["name"]))
        elif "LaunchKernel" in event["name"]:
            launches[thread].append(event["ts"])
    found: Counter[str] = Counter()
    for thread, times in launches.items():
        waiting = sorted(operators[thread], reverse=True)
        around: list[tuple[float, float, str]] = []
        for time in sorted(times):
            while waiting and waiting[-1][0] <= time:
                around.append(waiting.pop())
            around = [operator for operator in around if operator[1] >= time]
            if around:
                found[around[-1][2]] += 1
    return found
