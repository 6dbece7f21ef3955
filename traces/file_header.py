"""The first message of a Chakra file: which schema, and whether Maya wrote it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maya.traces import names
from maya.traces.chakra_schema import SCHEMA_VERSION, messages
from maya.traces.frames import Buffer, TraceError, find_messages
from maya.traces.operations import COMMUNICATION_DTYPE, OPERATION_DTYPE, TENSOR_DTYPE

_OTHER_SCHEMA_HINT = "other schemas number their fields otherwise; convert the trace with Chakra's own tools"


@dataclass(frozen=True)
class Header:
    """What a Chakra file says of itself.

    Attributes:
        version: schema version as written; some writers leave it empty.
        attributes: of the global metadata, name → value.
    """

    version: str
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def of_maya(self) -> bool:
        """Whether the nodes carry Maya's columns."""
        return names.SCHEMA in self.attributes


def check_header(buffer: Buffer, path: str | os.PathLike[str], *, of_maya: bool = False) -> Header:
    """Parse the first message and see that this code understands the file.

    Args:
        buffer: the file.
        path: for messages.
        of_maya: demand Maya's columns as well.

    Raises:
        TraceError: not a Chakra file, another schema version, or (`of_maya`) not Maya's.
    """
    from google.protobuf.message import DecodeError

    starts, ends = find_messages(buffer, path, most=1)
    try:
        message = messages().GlobalMetadata.FromString(buffer[int(starts[0]) : int(ends[0])])
    except DecodeError as error:
        raise TraceError(
            path,
            f"does not begin with Chakra's global metadata: {error}",
            offset=0,
            hint="not a Chakra trace",
        ) from error
    header = Header(message.version, {entry.name: attribute_value(entry) for entry in message.attr})
    if header.version not in ("", SCHEMA_VERSION):
        raise TraceError(
            path,
            f"Chakra schema {header.version[:40]!r}, this Maya reads {SCHEMA_VERSION}",
            offset=0,
            hint=_OTHER_SCHEMA_HINT,
        )
    if of_maya:
        _check_maya(header, path)
    return header


def refuse_unknown_fields(node: Any, path: str | os.PathLike[str], offset: int) -> None:
    """Fail on a node with fields that schema 0.0.4 does not have.

    Older schemas number them otherwise, and many files do not state their schema.

    Raises:
        TraceError: the node has such fields.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet

    parts = [UnknownFieldSet(part) for part in (node, *node.attr)]
    unknown = {part[index].field_number for part in parts for index in range(len(part))}
    if unknown:
        raise TraceError(
            path,
            f"fields {sorted(unknown)[:8]} are not of Chakra schema {SCHEMA_VERSION}",
            offset=offset,
            node=node.id,
            hint=_OTHER_SCHEMA_HINT,
        )


def attribute_value(attribute: Any) -> Any:
    """The value of an AttributeProto: a scalar, a list, or None if it has none."""
    which = attribute.WhichOneof("value")
    if which is None:
        return None
    value = getattr(attribute, which)
    return list(value.values) if which.endswith("_list") else value


def _check_maya(header: Header, path: str | os.PathLike[str]) -> None:
    if not header.of_maya:
        raise TraceError(path, "a Chakra trace, but not one recorded by Maya", offset=0)
    version = header.attributes[names.SCHEMA]
    if version != names.MAYA_TRACE_SCHEMA_VERSION:
        raise TraceError(
            path,
            f"Maya trace schema {version!r}, this Maya reads {names.MAYA_TRACE_SCHEMA_VERSION}",
            offset=0,
            hint="read it with the Maya that wrote it, or record the run again",
        )
    for name, dtype in (
        (names.ROW_LAYOUT, OPERATION_DTYPE),
        (names.TENSORS_LAYOUT, TENSOR_DTYPE),
        (names.COMMUNICATION_LAYOUT, COMMUNICATION_DTYPE),
    ):
        if header.attributes.get(name) != layout_of(dtype):
            raise TraceError(
                path, f"{name} is not this Maya's", offset=0, hint="record the run again with this version"
            )


def layout_of(dtype: np.dtype[np.void]) -> str:
    """A record layout as the JSON text in the global metadata: a list of [column, type]."""
    return json.dumps(np.lib.format.dtype_to_descr(dtype))
