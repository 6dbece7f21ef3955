"""Turns operations into the bytes of Chakra nodes, cheaply: this runs inside the user's script.

Most of a node depends only on (operator, metadata, module, stream, ...), a few hundred distinct
combinations repeated every iteration. Those bytes are made once each; a node is its columns, its
id, its dependencies and a ready-made tail joined together.
"""

from __future__ import annotations

from collections.abc import Sequence

from maya.traces import names
from maya.traces.chakra_schema import SCHEMA_VERSION, NodeType, value_field
from maya.traces.dependencies import HOST_KINDS, DependencyTracker
from maya.traces.file_header import layout_of
from maya.traces.metadata_shapes import MetadataShapes
from maya.traces.operations import (
    COMMUNICATION_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Kind,
    Operations,
    Phase,
)
from maya.traces.wire import LENGTH_DELIMITED, attribute, delimited, key, number, packed, text, varint

_KIND_NAMES = tuple(kind.name for kind in Kind)
_PHASE_NAMES = tuple(phase.name.lower() for phase in Phase)
_NODE_TYPES = {
    Kind.COLLECTIVE: NodeType.COMM_COLL,
    Kind.SEND: NodeType.COMM_SEND,
    Kind.RECV: NodeType.COMM_RECV,
}
"""Everything else is a COMP node: ASTRA-sim asserts on METADATA nodes."""

MAX_TAILS = 1 << 16
"""Distinct tails kept (about 300 bytes each) before starting afresh."""

MAX_SHAPES_TEXT = 2048
"""Longer shape lists (foreach operators over every parameter) are in the tables only."""

_NODE_ID, _NODE_NAME, _NODE_TYPE, _CTRL_DEPS, _DATA_DEPS, _INPUTS, _OUTPUTS = 1, 2, 3, 4, 5, 8, 9
_ROW_BYTES = OPERATION_DTYPE.itemsize
_TENSOR_BYTES = TENSOR_DTYPE.itemsize
_COMMUNICATION_BYTES = COMMUNICATION_DTYPE.itemsize

ROW_PREFIX = attribute(names.ROW, "bytes", b"\0" * _ROW_BYTES)[:-_ROW_BYTES]
"""What every node of Maya's begins with, before the bytes of its row."""
COMMUNICATION_PREFIX = attribute(names.COMMUNICATION, "bytes", b"\0" * _COMMUNICATION_BYTES)[
    :-_COMMUNICATION_BYTES
]

TENSORS_PREFIX = text(1, names.TENSORS) + key(value_field("bytes"), LENGTH_DELIMITED)
"""Within the attribute of the tensors: up to the length of its value."""


def global_metadata(rank: int) -> bytes:
    """The first message of a rank's file, without its length."""

    def entry(name: str, scalar: str, value: int | str) -> bytes:
        return attribute(name, scalar, value, of_metadata=True)

    return (
        text(1, SCHEMA_VERSION)
        + entry(names.SCHEMA, "int64", names.MAYA_TRACE_SCHEMA_VERSION)
        + entry(names.RANK, "int64", rank)
        + entry(names.ROW_LAYOUT, "string", layout_of(OPERATION_DTYPE))
        + entry(names.TENSORS_LAYOUT, "string", layout_of(TENSOR_DTYPE))
        + entry(names.COMMUNICATION_LAYOUT, "string", layout_of(COMMUNICATION_DTYPE))
    )


class NodeEncoder:
    """Encodes the operations of one rank in issue order.

    Args:
        rank: for the source of its sends and the destination of its receives.
    """

    def __init__(self, rank: int) -> None:
        self.dependencies = DependencyTracker()
        self._rank = rank
        self._tails: dict[tuple[int, ...], bytes] = {}
        self._shapes = MetadataShapes()

    def encode(
        self,
        operations: Operations,
        first_communication: int,
        operators: Sequence[str],
        metadata: Sequence[str],
        modules: Sequence[str],
        source_lines: Sequence[str],
    ) -> bytes:
        """Length-delimited nodes of a batch that continues the ones before.

        Args:
            operations: the batch; `communication` counts rows from the rank's first operation.
            first_communication: how many communication rows came before this batch.
            operators: interned names so far, as are the other three.
            metadata: JSON texts.
            modules: dotted paths.
            source_lines: `file:line`.
        """
        raw_rows = operations.rows.tobytes()
        raw_tensors = operations.tensors.tobytes()
        raw_communications = operations.communications.tobytes()
        storages = operations.tensors["storage"].tolist()
        offsets = operations.tensors["offset_bytes"].tolist()
        extents = operations.tensors["extent_bytes"].tolist()
        roles = operations.tensors["role"].tolist()
        communications = operations.communications.tolist()
        control = self.dependencies.control
        data = self.dependencies.data
        tails = self._tails
        pieces: list[bytes] = []
        tensor = 0
        position = 0
        for row in operations.rows.tolist():
            # The order of OPERATION_DTYPE.
            (
                identifier,
                sequence,
                stream_id,
                event,
                operator,
                metadata_id,
                module,
                source_line,
                communication,
                _,
                thread,
                tensor_count,
                device,
                kind,
                phase,
                blocking,
                _,
                _,
            ) = row
            stream = (device, stream_id)
            node = [ROW_PREFIX, raw_rows[position : position + _ROW_BYTES]]
            position += _ROW_BYTES
            next_tensor = tensor + tensor_count
            if tensor_count:
                node.append(
                    attribute(
                        names.TENSORS,
                        "bytes",
                        raw_tensors[tensor * _TENSOR_BYTES : next_tensor * _TENSOR_BYTES],
                    )
                )
            handle = None
            variable = b""
            if communication >= first_communication:
                start = (communication - first_communication) * _COMMUNICATION_BYTES
                node.append(COMMUNICATION_PREFIX)
                node.append(raw_communications[start : start + _COMMUNICATION_BYTES])
                details = communications[communication - first_communication]
                if details[9] >= 0:
                    handle = (details[0], details[9])
                variable = _communication_attributes(kind, details, self._rank)
            node.append(b"\x08")  # field 1, the id
            node.append(varint(identifier))
            follows = control(identifier, kind, stream, event, handle, thread, blocking)
            if follows:
                node.append(packed(_CTRL_DEPS, sorted(follows)))
            if tensor_count and kind not in HOST_KINDS:
                follows = data(
                    identifier,
                    stream,
                    storages[tensor:next_tensor],
                    offsets[tensor:next_tensor],
                    extents[tensor:next_tensor],
                    roles[tensor:next_tensor],
                )
                if follows:
                    node.append(packed(_DATA_DEPS, sorted(follows)))
            tensor = next_tensor
            tail_key = (operator, metadata_id, module, source_line, stream_id, device, kind, phase)
            tail = tails.get(tail_key)
            if tail is None:
                if len(tails) >= MAX_TAILS:
                    tails.clear()
                tail = tails[tail_key] = self._tail(
                    operators[operator],
                    metadata_id,
                    metadata[metadata_id] if metadata_id >= 0 else "",
                    modules[module] if module >= 0 else "",
                    source_lines[source_line] if source_line >= 0 else "",
                    stream,
                    kind,
                    phase,
                )
            node.append(tail)
            if event >= 0:
                node.append(attribute(names.EVENT, "int64", event))
            if sequence >= 0:
                node.append(attribute(names.SEQUENCE, "int64", sequence))
            node.append(variable)
            body = b"".join(node)
            pieces.append(varint(len(body)))
            pieces.append(body)
        return b"".join(pieces)

    def _tail(
        self,
        operator: str,
        metadata_id: int,
        metadata: str,
        module: str,
        source_line: str,
        stream: tuple[int, int],
        kind: int,
        phase: int,
    ) -> bytes:
        """The part of a node that repeats."""
        on_host = kind in HOST_KINDS
        node_type = _NODE_TYPES.get(Kind(kind), NodeType.COMP)
        parts = [text(_NODE_NAME, operator), number(_NODE_TYPE, node_type)]
        shapes = self._shapes.of(metadata_id, metadata)
        for field, info in ((_INPUTS, shapes.inputs), (_OUTPUTS, shapes.outputs)):
            if info is not None and len(info[0]) <= MAX_SHAPES_TEXT:
                parts.append(delimited(field, text(2, info[0]) + text(3, info[1])))
        parts.append(attribute(names.IS_CPU_OP, "bool", int(on_host)))
        if node_type == NodeType.COMP and not on_host:
            parts.append(attribute(names.TENSOR_SIZE, "uint64", shapes.device_bytes))
        parts.append(attribute(names.KIND, "string", _KIND_NAMES[kind]))
        parts.append(attribute(names.PHASE, "string", _PHASE_NAMES[phase]))
        parts.append(attribute(names.DEVICE, "int32", stream[0]))
        if not on_host:
            parts.append(attribute(names.STREAM, "int64", stream[1]))
        if module:
            parts.append(attribute(names.MODULE, "string", module))
        if source_line:
            parts.append(attribute(names.SOURCE_LINE, "string", source_line))
        return b"".join(parts)


def _communication_attributes(kind: int, details: tuple[int, ...], rank: int) -> bytes:
    """What feeders read of a communication. `details` is in the order of COMMUNICATION_DTYPE."""
    communicator, _, collective, _, input_bytes, output_bytes, peer, tag, _, _ = details
    if kind == Kind.COLLECTIVE:
        return (
            attribute(names.COMM_TYPE, "int64", collective)
            # Chakra and ASTRA-sim count what one rank puts in, for an all-gather its shard.
            + attribute(names.COMM_SIZE, "int64", input_bytes)
            # "0" would mean every rank of the job, which only the finished tables can tell.
            + attribute(names.PG_NAME, "string", str(communicator + 1))
        )
    if kind == Kind.SEND or kind == Kind.RECV:
        source, destination = (rank, peer) if kind == Kind.SEND else (peer, rank)
        return (
            attribute(names.COMM_SIZE, "int64", max(input_bytes, output_bytes))
            + attribute(names.COMM_SRC, "int32", source)
            + attribute(names.COMM_DST, "int32", destination)
            + attribute(names.COMM_TAG, "int32", tag)
        )
    return b""
