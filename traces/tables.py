"""Interned tables beside the operation columns: names, shapes, modules, source lines.

Metadata is what decides an operator's cost: shapes, strides, dtypes and scalar arguments. The
emulator makes one JSON text for each distinct one, once; everything later works on distinct
(operator, metadata) pairs. The JSON object has the keys

- `args`: the schema's arguments by name, in order. A tensor is
  `{"dtype": "bfloat16", "shape": [8, 1024], "stride": [1024, 1], "device": "cuda"}` (device
  "cpu" for host tensors; `"scalar": true` for a Python number that was wrapped), a list of
  tensors is a list of those; numbers, booleans, strings, null and lists of them are themselves;
  a dtype is `{"scalar_type": "float32"}`; a long list of equal-shaped tensors is written in full.
- `out`: list of the outputs in the same form.
- `memcpy` (Kind.MEMCPY only): `{"direction": "h2d"|"d2h"|"d2d"|"p2p", "bytes": n, "pinned": bool}`.
- `math` (optional): how float32 matrix products and convolutions were allowed to compute, "tf32" or
  "ieee" (`torch.backends.cuda.matmul.allow_tf32`, `torch.backends.cudnn.allow_tf32` at the call);
  absent: PyTorch's defaults, ieee for products and tf32 for convolutions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorMetadata:
    """Shape, strides (in elements), dtype name as in `torch.<name>`, and where it lives."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cuda"
    scalar: bool = False

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class OperatorMetadata:
    """One distinct set of argument shapes and cost-relevant scalars.

    Attributes:
        args: argument name → TensorMetadata | list[...] | number | bool | str | None.
        out: outputs, each a TensorMetadata, a list of them, or a scalar.
        memcpy: direction, bytes and pinned of a copy; None for anything else.
        math: "tf32", "ieee" or None (PyTorch's default for the operator).
    """

    args: dict[str, Any]
    out: tuple[Any, ...]
    memcpy: dict[str, Any] | None = None
    math: str | None = None

    def input_tensors(self) -> list[TensorMetadata]:
        """Every tensor argument, lists flattened."""
        return _tensors(self.args.values())

    def output_tensors(self) -> list[TensorMetadata]:
        """Every tensor output, lists flattened."""
        return _tensors(self.out)


def _tensors(values: Any) -> list[TensorMetadata]:
    found: list[TensorMetadata] = []
    for value in values:
        if isinstance(value, TensorMetadata):
            found.append(value)
        elif isinstance(value, list):
            found.extend(item for item in value if isinstance(item, TensorMetadata))
    return found


def parse_metadata(text: str) -> OperatorMetadata:
    """Parse one metadata JSON text.

    Raises:
        ValueError: the text is not an object of the form this module's docstring gives.
    """
    value = json.loads(text)
    if not isinstance(value, dict) or not isinstance(value.get("args"), dict):
        raise ValueError(f"metadata is not an object with 'args': {text[:80]!r}")
    return OperatorMetadata(
        args={name: _value(item) for name, item in value["args"].items()},
        out=tuple(_value(item) for item in value.get("out", [])),
        memcpy=value.get("memcpy"),
        math=value.get("math"),
    )


def _value(item: Any) -> Any:
    if isinstance(item, dict):
        if "shape" in item:
            return TensorMetadata(
                dtype=item["dtype"],
                shape=tuple(item["shape"]),
                stride=tuple(item["stride"]),
                device=item.get("device", "cuda"),
                scalar=bool(item.get("scalar", False)),
            )
        if "scalar_type" in item:
            return item["scalar_type"]
        raise ValueError(f"unknown metadata value {item!r}")
    if isinstance(item, list):
        return [_value(element) for element in item]
    return item


@dataclass(frozen=True)
class Communicator:
    """A process group: its name in the trace and its members' global ranks in group order."""

    name: str
    ranks: tuple[int, ...]
    backend: str = "nccl"


@dataclass(frozen=True)
class Tables:
    """Everything the operation columns index into.

    Attributes:
        operators: names with overload, `aten::add.Tensor`.
        metadata: JSON texts, one for each distinct metadata (`parse_metadata`).
        modules: dotted paths starting with the root module's class, `GPT.transformer.h.0.attn`.
        source_lines: `path/to/train.py:42`, in the user's own code.
        iteration_ends: ids of the operations after which each iteration ends, ascending.
        communicators: process groups.
    """

    operators: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    source_lines: tuple[str, ...] = ()
    iteration_ends: tuple[int, ...] = ()
    communicators: tuple[Communicator, ...] = field(default_factory=tuple)
