"""Chakra 0.0.4's message classes, built at first use in a descriptor pool of Maya's own.

No protoc output is shipped: generated code demands a protobuf runtime at least as new as the
protoc that made it, and registering `ChakraProtoMsg.Node` in the default pool would clash with
the real Chakra package if the user's script, which shares this process, imports it.
`chakra.proto` beside this file says the same for people and for other languages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

SCHEMA_VERSION = "0.0.4"
"""What `GlobalMetadata.version` of a file of this schema says."""

PACKAGE = "ChakraProtoMsg"


class NodeType(IntEnum):
    """`ChakraProtoMsg.NodeType`; the names in the file end in `_NODE`."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveType(IntEnum):
    """`ChakraProtoMsg.CollectiveCommType`, the value of a collective's `comm_type`."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


ATTRIBUTE_SCALARS = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
"""Scalar types of `AttributeProto`'s oneof, in field order: `X_val` is field 3 + 2i, `X_list` follows."""


def value_field(scalar: str) -> int:
    """Field number of `<scalar>_val` in AttributeProto."""
    return 3 + 2 * ATTRIBUTE_SCALARS.index(scalar)


@dataclass(frozen=True)
class ChakraMessages:
    """The message classes of the private pool."""

    GlobalMetadata: Any
    Node: Any
    AttributeProto: Any
    IOInfo: Any


@cache
def messages() -> ChakraMessages:
    """The message classes; imports protobuf on the first call."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor())

    def message(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))

    return ChakraMessages(
        GlobalMetadata=message("GlobalMetadata"),
        Node=message("Node"),
        AttributeProto=message("AttributeProto"),
        IOInfo=message("IOInfo"),
    )


def file_descriptor() -> Any:
    """`chakra.proto` as a `FileDescriptorProto`, built here field by field."""
    from google.protobuf import descriptor_pb2

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="maya/chakra.proto", package=PACKAGE, syntax="proto3")

    def enum(name: str, values: list[tuple[str, int]]) -> None:
        added = file.enum_type.add(name=name)
        for value_name, number in values:
            added.value.add(name=value_name, number=number)

    def field(
        message: Any, name: str, number: int, kind: str, *, repeated: bool = False, one_of: bool = False
    ) -> None:
        label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
        added = message.field.add(name=name, number=number, label=label)
        if kind in ATTRIBUTE_SCALARS:
            added.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
        else:
            is_enum = any(kind == known.name for known in file.enum_type)
            added.type = field_type.TYPE_ENUM if is_enum else field_type.TYPE_MESSAGE
            added.type_name = f".{PACKAGE}.{kind}"
        if one_of:
            added.oneof_index = 0

    metadata = file.message_type.add(name="GlobalMetadata")
    field(metadata, "version", 1, "string")
    field(metadata, "attr", 2, "AttributeProto", repeated=True)

    enum("NodeType", [(f"{kind.name}_NODE", kind.value) for kind in NodeType])
    enum("CollectiveCommType", [(kind.name, kind.value) for kind in CollectiveType])

    node = file.message_type.add(name="Node")
    field(node, "id", 1, "uint64")
    field(node, "name", 2, "string")
    field(node, "type", 3, "NodeType")
    field(node, "ctrl_deps", 4, "uint64", repeated=True)
    field(node, "data_deps", 5, "uint64", repeated=True)
    field(node, "start_time_micros", 6, "uint64")
    field(node, "duration_micros", 7, "uint64")
    field(node, "inputs", 8, "IOInfo")
    field(node, "outputs", 9, "IOInfo")
    field(node, "attr", 10, "AttributeProto", repeated=True)

    info = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        field(info, name, number, "string")

    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    field(attribute, "name", 1, "string")
    field(attribute, "doc_string", 2, "string")
    for scalar in ATTRIBUTE_SCALARS:
        number = value_field(scalar)
        field(attribute, f"{scalar}_val", number, scalar, one_of=True)
        field(attribute, f"{scalar}_list", number + 1, f"{scalar.capitalize()}List", one_of=True)
    for scalar in ATTRIBUTE_SCALARS:
        values = file.message_type.add(name=f"{scalar.capitalize()}List")
        field(values, "values", 1, scalar, repeated=True)
    return file
