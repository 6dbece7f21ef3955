"""A ResNet-50 step records what a real run recorded: the same operators, in one order, on the same shapes.

The real run is PyTorch's execution trace of three iterations on two GPUs (`pytorch_et/resnet_et.json.gz` of
the shared data: June 2024, batch 32, float32, DDP, SGD with momentum, class probabilities as targets). Every
difference is in one of the tables below, with its number and its reason; a further one fails.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parent / "support"
REAL_RUN = Path(__file__).parents[3] / "shared" / "data" / "pytorch_et" / "resnet_et.json.gz"
ITERATIONS = 3
CONVOLUTIONS, PARAMETERS, BUFFERS = 53, 161, 159
Counts = dict[str, int]

# 1. Innermost operators of the trace that the CUDA kernels of these operators call back into ATen for. The
#    emulated device takes the outer operator whole: it has the CUDA kernel, and its cost is modelled.
INSIDE: dict[str, tuple[Counts, str]] = {
    "aten::cudnn_batch_norm": (
        {"aten::empty.memory_format": 5, "aten::view": 1},
        "output (empty_like), saved mean and variance, workspace, reserve; a parameter seen as 4-dim",
    ),
    "aten::cudnn_batch_norm_backward": (
        {"aten::empty.memory_format": 4, "aten::view": 1},
        "three gradients and the workspace",
    ),
    "aten::convolution": (
        {"aten::cudnn_convolution": 1},
        "convolution chooses its backend in C++; the device registers it whole, as cuDNN gets it",
    ),
    "aten::convolution_backward": (
        {"aten::empty.memory_format": 1, "aten::to.dtype_layout": 1},
        "gradients of a bias that is not there",
    ),
    "aten::relu_": ({"aten::clamp_min_": 1}, "relu_ is registered for CUDA, and is clamp_min_(0)"),
    "aten::max_pool2d_with_indices_backward": (
        {"aten::fill_.Scalar": 1},
        "zero_ of the result, into which the kernel adds",
    ),
    "aten::sum.dim_IntList (whole tensor)": (
        {"aten::as_strided": 1},
        "the result with its reduced dimensions",
    ),
    "aten::_foreach_mul_.Scalar": (
        {"aten::result_type.Scalar": PARAMETERS},
        "the check that the fast path can be taken; it launches one multi-tensor kernel",
    ),
    "aten::_foreach_add_.List": ({"aten::result_type.Scalar": PARAMETERS}, "likewise"),
}

# 2. Operators without a CUDA kernel: PyTorch composes them of others or only looks at the arguments.
WITHOUT_CUDA_KERNEL: Counts = {
    "aten::detach": PARAMETERS,  # AccumulateGrad takes the gradient over: another tensor object, no dispatch
    "aten::to.dtype_layout": 1,  # cross_entropy's log_softmax in its input's dtype: returns its argument
}

# 3. DDP, which this step does without: the reducer and c10d.
OF_DDP: Counts = {
    "torch::distributed::reducer::mul_out > aten::mul.out": PARAMETERS,  # gradients into buckets, averaged
    "torch.distributed.ddp.reducer::copy_bucket_to_grad > aten::copy_": PARAMETERS,
    "[pytorch|profiler|execution_trace|thread] > aten::as_strided": PARAMETERS,  # views of the buckets
    "aten::flatten_dense_tensors > aten::view": BUFFERS,  # the broadcast of buffers before a forward
    "aten::flatten_dense_tensors > aten::cat": 2,
    "aten::unflatten_dense_tensors > aten::view": BUFFERS,
    "aten::slice > aten::as_strided": BUFFERS,  # of unflatten_dense_tensors
    "DistributedDataParallel.forward > aten::copy_": BUFFERS,
    "DistributedDataParallel.forward > c10d::broadcast_": 2,
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad > c10d::allreduce_": 5,
}


@dataclass(frozen=True)
class Called:
    """An operator and the shapes of its tensors of one dimension or more, with their dtypes."""

    operator: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]


DTYPES = {
    "float": "float32",
    "long int": "int64",
    "long": "int64",
    "unsigned char": "uint8",
    "double": "float64",
}
HOST_ONLY = 12


class RealRun:
    """The trace's tree of operators, with `INSIDE` folded away."""

    def __init__(self, path: Path) -> None:
        nodes = json.loads(gzip.decompress(path.read_bytes()))["nodes"]
        self._nodes = {node["id"]: node for node in nodes}
        self._children: dict[int, list[int]] = {}
        for node in nodes:
            self._children.setdefault(node["ctrl_deps"], []).append(node["id"])
        self._memory: dict[int, list[int]] = {}
        self.left_out: Counter[str] = Counter()
        self.threads: dict[int, list[Called]] = {}
        folded = {i for i, node in self._nodes.items() if self._folds(i)}
        hidden = {inner for outer in folded for inner in self._innermost(outer) if inner != outer}
        for i in sorted(self._nodes):
            innermost = bool(self._schema(i)) and self._innermost(i) == [i]
            if i in folded or (innermost and i not in hidden):
                self._take(i)

    def _attribute(self, i: int, name: str) -> Any:
        return next((a["value"] for a in self._nodes[i]["attrs"] if a["name"] == name), None)

    def _schema(self, i: int) -> str:
        return str(self._attribute(i, "op_schema") or "").split("(")[0]

    def _innermost(self, i: int) -> list[int]:
        """Operators under a node that have no operators under them; the node itself if it has none."""
        if i not in self._memory:
            below = [x for child in self._children.get(i, []) if child != i for x in self._innermost(child)]
            self._memory[i] = below or ([i] if self._schema(i) else [])
        return self._memory[i]

    def _name(self, i: int) -> str:
        schema = self._schema(i)
        whole = schema == "aten::sum.dim_IntList" and self._nodes[i]["outputs"]["shapes"] == [[]]
        return schema + " (whole tensor)" * whole

    def _folds(self, i: int) -> bool:
        name = self._name(i)
        if name not in INSIDE or self._innermost(i) == [i]:
            return False
        below = Counter(self._schema(inner) for inner in self._innermost(i))
        assert below == INSIDE[name][0], f"{name} holds {below}, expected {INSIDE[name][0]}"
        return True

    def _take(self, i: int) -> None:
        operator = self._schema(i)
        parent = self._nodes[self._nodes[i]["ctrl_deps"]]["name"]
        if operator in WITHOUT_CUDA_KERNEL:
            self.left_out[operator] += 1
        elif f"{parent} > {operator}" in OF_DDP:
            self.left_out[f"{parent} > {operator}"] += 1
        else:
            tid = int(self._attribute(i, "tid"))
            self.threads.setdefault(tid, []).append(Called(operator, self._tensors(i)))

    def _tensors(self, i: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
        found: list[tuple[str, tuple[int, ...]]] = []
        inputs = self._nodes[i]["inputs"]
        for shape, kind in zip(inputs["shapes"], inputs["types"], strict=True):
            shapes, kinds = ([shape], [kind])
            if kind.startswith("GenericList["):
                shapes, kinds = shape, kind.removeprefix("GenericList[").removesuffix("]").split(",")
            for one, name in zip(shapes, kinds, strict=False):
                if name.startswith("Tensor(") and one:
                    found.append((DTYPES[name.removeprefix("Tensor(").removesuffix(")")], tuple(one)))
        return tuple(found)


def called(operation: dict[str, Any]) -> Called:
    found: list[tuple[str, tuple[int, ...]]] = []
    for value in operation.get("args", {}).values():
        for tensor in value if isinstance(value, list) else [value]:
            if isinstance(tensor, dict) and tensor.get("shape"):
                found.append((tensor["dtype"], tuple(tensor["shape"])))
    return Called(operation["operator"], tuple(found))


def recorded(mode: str) -> dict[str, Any]:
    words = [sys.executable, str(SUPPORT / "resnet50_steps.py"), mode]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def real() -> RealRun:
    if not REAL_RUN.exists():
        pytest.skip(f"{REAL_RUN} is not there")
    return RealRun(REAL_RUN)


@pytest.fixture(scope="module")
def ours() -> dict[int, list[dict[str, Any]]]:
    threads: dict[int, list[dict[str, Any]]] = {}
    for operation in recorded("float32")["operations"]:
        threads.setdefault(operation["host_thread"], []).append(operation)
    return threads


def test_what_is_left_out_of_the_real_run_is_all_explained(real: RealRun) -> None:
    expected = {name: number * ITERATIONS for name, number in (WITHOUT_CUDA_KERNEL | OF_DDP).items()}
    assert real.left_out == expected


def test_the_multiset_of_operators(real: RealRun, ours: dict[int, list[dict[str, Any]]]) -> None:
    theirs = Counter(call.operator for calls in real.threads.values() for call in calls)
    mine = Counter(operation["operator"] for operations in ours.values() for operation in operations)
    assert theirs == Counter({operator: number * ITERATIONS for operator, number in mine.items()})
    assert mine["aten::convolution"] == mine["aten::cudnn_batch_norm"] == CONVOLUTIONS


def test_order_and_shapes(real: RealRun, ours: dict[int, list[dict[str, Any]]]) -> None:
    """Each iteration, call by call: the script's thread, then autograd's."""
    for thread, (_, theirs) in zip(sorted(ours), sorted(real.threads.items()), strict=True):
        kernels = {o["operator"] for o in ours[thread] if o["kind"] != HOST_ONLY}
        mine = [called(operation) for operation in ours[thread]]
        assert len(theirs) == ITERATIONS * len(mine)
        for iteration in range(ITERATIONS):
            part = theirs[iteration * len(mine) : (iteration + 1) * len(mine)]
            for number, (a, b) in enumerate(zip(mine, part, strict=True)):
                where = f"thread {thread}, iteration {iteration}, operation {number}"
                # Views and allocations are recorded without shapes: they cost the device nothing.
                assert a.operator == b.operator, where
                assert a.tensors == b.tensors or a.operator not in kernels, f"{where}: {a} but a GPU had {b}"
