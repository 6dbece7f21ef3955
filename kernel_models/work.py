"""What one kernel has to do: the currency between operator families and pricing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from maya.traces.tables import OperatorMetadata, TensorMetadata

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "uint64": 8,
    "int32": 4,
    "uint32": 4,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
    "float4_e2m1fn_x2": 1,
}
"""Bytes of one element. Every dtype that starts with "float8" has one."""

MATRIX_MATH = {
    "float64": "fp64_tensor",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "complex64": "fp32",
    "complex128": "fp64_tensor",
    "int8": "int8",
    "uint8": "int8",
    "float4_e2m1fn_x2": "fp4",
}
"""dtype of a matrix operand → key of `GpuSpec.peak_tflops`."""


class IncompleteMetadata(ValueError):
    """An operator's metadata lacks an argument that its family needs."""


@dataclass(frozen=True, slots=True)
class KernelWork:
    """One kernel launch, before anybody says how long it takes.

    Attributes:
        family: which cost model prices it.
        name: as shown to the user.
        math: key of `GpuSpec.peak_tflops` that bounds its arithmetic.
        flops: floating point operations of the algorithm (a multiply-add is two).
        moved_bytes: compulsory traffic, inputs read once and outputs written once.
        blocks: estimate of thread blocks in its grid.
        shape: what else the family's model looks at; its meaning is the family's.
        engine: "sm", or "link" for a copy over the host or peer link, or "hbm" for a copy engine
            that stays on the device.
        known: False if no family knows the operator.
    """

    family: str
    name: str
    math: str
    flops: int
    moved_bytes: int
    blocks: int
    shape: tuple[float, ...] = ()
    engine: str = "sm"
    known: bool = True


def item_bytes(dtype: str) -> int:
    """Bytes of one element of `dtype`; an unknown name counts as 4."""
    if dtype.startswith("float8"):
        return 1
    return ITEM_BYTES.get(dtype, 4)


def tensor_bytes(tensor: TensorMetadata) -> int:
    """Bytes that touching every element once moves; an expanded (stride 0) axis counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride, strict=False):
        if stride != 0 or size == 0:
            count *= size
    return count * item_bytes(tensor.dtype)


def on_device(tensors: Iterable[TensorMetadata]) -> list[TensorMetadata]:
    """Those that live in device memory (a wrapped number or a CPU scalar moves nothing)."""
    return [tensor for tensor in tensors if tensor.device != "cpu" and not tensor.scalar]


def total_bytes(tensors: Iterable[TensorMetadata]) -> int:
    """Bytes of all device tensors, each touched once."""
    return sum(tensor_bytes(tensor) for tensor in on_device(tensors))


def matrix_math(dtype: str, *, tf32: bool = False) -> str:
    """Which peak bounds a matrix product of `dtype`."""
    if dtype.startswith("float8"):
        return "fp8"
    if dtype == "float32" and tf32:
        return "tf32"
    return MATRIX_MATH.get(dtype, "fp32")


def vector_math(dtype: str) -> str:
    """Which peak bounds element-wise arithmetic: half types are computed in float32."""
    return "fp64" if dtype in ("float64", "complex128") else "fp32"


def tensor_argument(metadata: OperatorMetadata, *names: str) -> TensorMetadata:
    """The first of the named arguments that is a tensor.

    Raises:
        IncompleteMetadata: none is.
    """
    for name in names:
        value = metadata.args.get(name)
        if isinstance(value, TensorMetadata):
            return value
    raise IncompleteMetadata(f"no tensor argument {' or '.join(names)} among {sorted(metadata.args)}")


def tensor_list(metadata: OperatorMetadata, *names: str) -> list[TensorMetadata]:
    """The first of the named arguments that is a list with tensors in it; [] if none is."""
    for name in names:
        value = metadata.args.get(name)
        if isinstance(value, list):
            tensors = [item for item in value if isinstance(item, TensorMetadata)]
            if tensors:
                return tensors
    return []


def integers(metadata: OperatorMetadata, name: str, count: int, default: int) -> tuple[int, ...]:
    """An integer-list argument, stretched to `count` entries as PyTorch does."""
    value = metadata.args.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,) * count
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return tuple(value) if len(value) == count else (value[0],) * count
    return (default,) * count


def main_tensor(metadata: OperatorMetadata) -> TensorMetadata | None:
    """The largest device tensor, outputs first: it names the work's dtype and grid."""
    best: TensorMetadata | None = None
    for tensor in on_device(metadata.output_tensors()) + on_device(metadata.input_tensors()):
        if best is None or tensor.numel > best.numel:
            best = tensor
    return best


def distinct_bytes(metadata: OperatorMetadata) -> int:
    """Inputs read once plus outputs written once.

    Outputs of in-place operators appear both as an argument and as an output: read and written.
    """
    return total_bytes(metadata.input_tensors()) + total_bytes(metadata.output_tensors())


def ceil_div(a: int, b: int) -> int:
    """Integer division rounded up."""
    return -(-a // b)


def names(text: str) -> tuple[str, ...]:
    """A long list of operator names, written as one text."""
    return tuple(text.split())
