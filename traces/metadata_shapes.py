"""Shapes and types of an operator's arguments as Chakra's IOInfo texts.

Chakra leaves the texts to the writer. These are JSON lists with one element an argument: the
shape (`[]` for what is no tensor, a list of shapes for a list of tensors), and the type,
`Tensor(bfloat16)`, `GenericList[...]`, `Int`, `Double`, `Bool`, `String` or `None` as PyTorch's own
execution traces call them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

ELEMENT_BYTES = {
    "float64": 8,
    "complex128": 16,
    "complex64": 8,
    "complex32": 4,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "qint32": 4,
}
"""Bytes an element by dtype name; every dtype not listed has one (int8, bool, float8_*, ...)."""


@dataclass(frozen=True)
class Shapes:
    """What one distinct metadata says.

    Attributes:
        inputs: (shapes, types) texts of the arguments, None without metadata.
        outputs: the same of the outputs.
        device_bytes: bytes of all tensors on the device, inputs and outputs.
    """

    inputs: tuple[str, str] | None = None
    outputs: tuple[str, str] | None = None
    device_bytes: int = 0


class MetadataShapes:
    """`Shapes` of each distinct metadata, parsed once."""

    def __init__(self) -> None:
        self._known: dict[int, Shapes] = {-1: Shapes()}

    def of(self, metadata_id: int, metadata: str) -> Shapes:
        """Shapes of a metadata text; empty for a text without `args` (a marker's, say)."""
        known = self._known.get(metadata_id)
        if known is None:
            known = self._known[metadata_id] = describe(metadata)
        return known


def describe(metadata: str) -> Shapes:
    """Parse one metadata text (see `maya.traces.tables`)."""
    try:
        value = json.loads(metadata)
    except json.JSONDecodeError:
        return Shapes()  # these texts are for display; parse_metadata is who complains
    if not isinstance(value, dict) or not isinstance(value.get("args"), dict):
        return Shapes()
    inputs = list(value["args"].values())
    outputs = value.get("out")
    outputs = outputs if isinstance(outputs, list) else []
    return Shapes(_texts(inputs), _texts(outputs), sum(map(_device_bytes, (*inputs, *outputs))))


def _texts(values: list[Any]) -> tuple[str, str]:
    return (
        json.dumps([_shape(value) for value in values], separators=(",", ":")),
        json.dumps([_type(value) for value in values], separators=(",", ":")),
    )


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return value.get("shape", [])
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return []


def _type(value: Any) -> str:
    if isinstance(value, dict):
        return f"Tensor({value['dtype']})" if "dtype" in value else "ScalarType"
    if isinstance(value, list):
        return f"GenericList[{','.join(_type(item) for item in value)}]"
    names = {bool: "Bool", int: "Int", float: "Double", str: "String"}
    return names.get(type(value), "None")


def _device_bytes(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_device_bytes, value))
    if not isinstance(value, dict) or value.get("device", "cuda") == "cpu":
        return 0
    shape = value.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        return 0
    return math.prod(shape) * ELEMENT_BYTES.get(str(value.get("dtype")), 1)
