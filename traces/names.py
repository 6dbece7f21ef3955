"""Names of the attributes Maya adds to a Chakra node, and of those that feeders read.

A node written by Maya starts with `maya.row`, the operation's row of OPERATION_DTYPE byte for
byte, then `maya.tensors` and `maya.communication` where it has them; the layouts are spelled out
in the global metadata. Everything in a row is found there by column name. What people and other
tools look for is repeated in readable attributes, and those are never read back by Maya.
"""

from __future__ import annotations

ROW = "maya.row"
TENSORS = "maya.tensors"
COMMUNICATION = "maya.communication"

KIND = "maya.kind"
PHASE = "maya.phase"
MODULE = "maya.module"
SOURCE_LINE = "maya.source_line"
STREAM = "maya.stream"
DEVICE = "maya.device"
EVENT = "maya.event"
SEQUENCE = "maya.sequence"
DURATION_NS = "maya.duration_ns"
HOST_GAP_NS = "maya.host_gap_ns"

# Of the global metadata.
SCHEMA = "maya.schema_version"
RANK = "maya.rank"
ROW_LAYOUT = "maya.row_layout"
TENSORS_LAYOUT = "maya.tensors_layout"
COMMUNICATION_LAYOUT = "maya.communication_layout"

# Read by Chakra feeders, with the types that feeder v1 insists on.
IS_CPU_OP = "is_cpu_op"  # bool
COMM_TYPE = "comm_type"  # int64
COMM_SIZE = "comm_size"  # int64, bytes
NUM_OPS = "num_ops"  # int64
TENSOR_SIZE = "tensor_size"  # uint64, bytes
COMM_SRC = "comm_src"  # int32
COMM_DST = "comm_dst"  # int32
COMM_TAG = "comm_tag"  # int32
PG_NAME = "pg_name"  # string that parses as an integer

MAYA_TRACE_SCHEMA_VERSION = 1
"""Of the `maya.*` attributes; raised when their meaning changes."""
