"""Reads a Chakra trace with nothing but the published schema: field numbers and protobuf's wire format.

Written apart from `maya.traces` on purpose, so that a mistake there is not made here as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# chakra/schema/protobuf/et_def.proto 0.0.4
ID, NAME, TYPE, CONTROL, DATA, INPUTS, OUTPUTS, ATTRIBUTES = 1, 2, 3, 4, 5, 8, 9, 10
COMP_NODE = 4
ATTRIBUTE_NAME = 1


@dataclass
class Node:
    """A node, its dependencies and its attributes as raw values by name."""

    id: int = -1
    name: str = ""
    type: int = -1
    control: list[int] = field(default_factory=list)
    data: list[int] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A string attribute, "" if it is absent."""
        value = self.attributes.get(name, b"")
        assert isinstance(value, bytes)
        return value.decode()


def varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = varint(data, at)
            assert at + size <= len(data), "a field reaches past its message"
            yield number, data[at : at + size]
            at += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire} is not protobuf 3")


def packed(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found


def read(path: Path) -> list[Node]:
    """The nodes in file order; the first message is the global metadata."""
    data = path.read_bytes()
    messages, at = [], 0
    while at < len(data):
        size, at = varint(data, at)
        assert at + size <= len(data), "the file ends within a message"
        messages.append(data[at : at + size])
        at += size
    return [_node(message) for message in messages[1:]]


def _node(message: bytes) -> Node:
    node = Node()
    for number, value in fields(message):
        if number == ID:
            node.id = value
        elif number == NAME:
            node.name = value.decode()
        elif number == TYPE:
            node.type = value
        elif number == CONTROL:
            node.control += packed(value)
        elif number == DATA:
            node.data += packed(value)
        elif number == ATTRIBUTES:
            parts = dict(fields(value))
            name = parts.pop(ATTRIBUTE_NAME).decode()
            parts.pop(2, None)  # doc_string
            (node.attributes[name],) = parts.values() or (0,)
        elif number not in (INPUTS, OUTPUTS, 6, 7):
            raise ValueError(f"the schema has no field {number} in a node")
    return node
