"""Execution traces: the columns of an operation, and their files on disk (Chakra 0.0.4).

Everything other rooms use is named here. protobuf is imported only when a Chakra file is read.
"""

from maya.traces.iterations import iteration_of, microbatch_of, phase_mask
from maya.traces.manifest import (
    MANIFEST_NAME,
    Ended,
    Manifest,
    RankClass,
    StepSettings,
    read_manifest,
    single_rank,
    write_manifest,
)
from maya.traces.operations import (
    COMMUNICATION_DTYPE,
    MARK_BACKWARD_BEGIN,
    MARK_BACKWARD_END,
    MARK_BATCH,
    MARK_DATA_WAIT_BEGIN,
    MARK_DATA_WAIT_END,
    MARK_ITERATION_END,
    MARK_OPTIMIZER_BEGIN,
    MARK_OPTIMIZER_END,
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Kind,
    MemoryAction,
    Operations,
    Phase,
    Role,
    no_communications,
)
from maya.traces.oracle import DurationOracle
from maya.traces.rank_reader import RankTrace, read_rank
from maya.traces.tables import (
    Communicator,
    OperatorMetadata,
    Tables,
    TensorMetadata,
    parse_metadata,
)
from maya.traces.writer import RankWriter

__all__ = [
    "COMMUNICATION_DTYPE",
    "MANIFEST_NAME",
    "MARK_BACKWARD_BEGIN",
    "MARK_BACKWARD_END",
    "MARK_BATCH",
    "MARK_DATA_WAIT_BEGIN",
    "MARK_DATA_WAIT_END",
    "MARK_ITERATION_END",
    "MARK_OPTIMIZER_BEGIN",
    "MARK_OPTIMIZER_END",
    "MEMORY_DTYPE",
    "OPERATION_DTYPE",
    "TENSOR_DTYPE",
    "Communicator",
    "DurationOracle",
    "Ended",
    "Kind",
    "Manifest",
    "MemoryAction",
    "Operations",
    "OperatorMetadata",
    "Phase",
    "RankClass",
    "RankTrace",
    "RankWriter",
    "Role",
    "StepSettings",
    "Tables",
    "TensorMetadata",
    "iteration_of",
    "microbatch_of",
    "no_communications",
    "parse_metadata",
    "phase_mask",
    "read_manifest",
    "read_rank",
    "single_rank",
    "write_manifest",
]
