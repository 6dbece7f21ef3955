"""Argument shapes of an operation as one readable line: `bf16[8, 1024, 768], f32[768]`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from maya.traces import TensorMetadata, parse_metadata

SHORT_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}
LISTED = 4
"""Of a long list of tensors, how many are spelled out."""


@dataclass(frozen=True)
class Shapes:
    """Tensors going in and coming out."""

    inputs: str
    outputs: str


@lru_cache(maxsize=65536)
def shapes_of(metadata_json: str) -> Shapes:
    """Shapes of one metadata text."""
    metadata = parse_metadata(metadata_json)
    return Shapes(_tensors(list(metadata.args.values())), _tensors(list(metadata.out)))


def _tensors(values: list[Any]) -> str:
    shown: list[str] = []
    for value in values:
        if isinstance(value, TensorMetadata):
            if not value.scalar:
                shown.append(_tensor(value))
        elif isinstance(value, list):
            tensors = [item for item in value if isinstance(item, TensorMetadata)]
            if tensors:
                more = f", +{len(tensors) - LISTED}" if len(tensors) > LISTED else ""
                shown.append("[" + ", ".join(map(_tensor, tensors[:LISTED])) + more + "]")
    return ", ".join(shown)


def _tensor(tensor: TensorMetadata) -> str:
    text = f"{SHORT_DTYPES.get(tensor.dtype, tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"
    return text if tensor.device.startswith("cuda") else f"{text}@{tensor.device}"
