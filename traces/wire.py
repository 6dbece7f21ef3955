"""Protobuf's wire format, as far as writing Chakra nodes by hand needs it.

Building a node with a dozen attributes through protobuf's Python classes costs tens of µs; the
writer joins prepared pieces instead.
Reference: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from maya.traces.chakra_schema import value_field

VARINT = 0
LENGTH_DELIMITED = 2

SMALL_VARINTS = [bytes((value,)) for value in range(128)] + [
    bytes((value & 127 | 128, value >> 7)) for value in range(128, 1 << 14)
]
"""Every varint of one or two bytes, ready made."""


def varint(value: int) -> bytes:
    """An unsigned varint; a negative value as its 64-bit two's complement (int32, int64 fields)."""
    if 0 <= value < 16384:
        return SMALL_VARINTS[value]
    if 0 <= value < 2097152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def key(field: int, wire_type: int) -> bytes:
    """The tag before a field's value."""
    return varint(field << 3 | wire_type)


def delimited(field: int, value: bytes) -> bytes:
    """A string, bytes, message or packed field."""
    return key(field, LENGTH_DELIMITED) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A string field. Characters that UTF-8 cannot hold (lone surrogates) become `?`."""
    return delimited(field, value.encode("utf-8", errors="replace"))


def number(field: int, value: int) -> bytes:
    """A varint field: bool, enum, int32, int64, uint32, uint64."""
    return key(field, VARINT) + varint(value)


_ATTRIBUTE_OF_NODE = 10
_ATTRIBUTE_OF_METADATA = 2
_ATTRIBUTE_NAME = 1


def attribute(name: str, scalar: str, value: int | str | bytes, *, of_metadata: bool = False) -> bytes:
    """An `AttributeProto` as a field of a Node (or of the GlobalMetadata).

    Args:
        name: the attribute's name.
        scalar: "bool", "int32", "int64", "uint32", "uint64", "string" or "bytes".
        value: what it says; an int for the first five.
        of_metadata: field 2 of GlobalMetadata in place of field 10 of Node.
    """
    field = value_field(scalar)
    if isinstance(value, str):
        body = text(field, value)
    elif isinstance(value, bytes):
        body = delimited(field, value)
    else:
        body = number(field, value)
    outer = _ATTRIBUTE_OF_METADATA if of_metadata else _ATTRIBUTE_OF_NODE
    return delimited(outer, text(_ATTRIBUTE_NAME, name) + body)
