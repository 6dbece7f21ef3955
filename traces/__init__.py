"""Execution traces: the columns of an operation, and their files on disk (Chakra 0.0.4).

Everything other rooms use is named here. protobuf is imported only when a Chakra file is read.
"""

from maya.traces.chakra_reader import AttributeColumn, ChakraTrace, Dependencies, read_et
from maya.traces.chakra_schema import CollectiveType, NodeType
from maya.traces.cost_view import used_communicators
from maya.traces.export import export_with_durations, write_groups
from maya.traces.file_header import Header
from maya.traces.frames import TraceError
from maya.traces.iterations import iteration_of, microbatch_of, phase_mask
from maya.traces.manifest import (
    MANIFEST_NAME,
    Ended,
    Manifest,
    StepSettings,
    read_manifest,
    write_manifest,
)
from maya.traces.memory_file import memory_path, read_memory
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
from maya.traces.rank_class import RankClass, compress_ranks, single_rank
from maya.traces.rank_classes import merge_equal_ranks, ranks_of_class, read_ranks
from maya.traces.rank_difference import first_difference
from maya.traces.rank_matching import Mismatch, find_mismatches
from maya.traces.rank_reader import RankTrace, read_operations, read_rank
from maya.traces.repair import repair_et
from maya.traces.summary import ChakraSummary, RankSummary, summarise_et, summarise_rank
from maya.traces.tables import (
    Communicator,
    OperatorMetadata,
    Tables,
    TensorMetadata,
    parse_metadata,
)
from maya.traces.tables_file import read_tables, tables_path, write_tables
from maya.traces.validation import find_problems, find_warnings, validate_et
from maya.traces.writer import RankWriter, assumptions_path, trace_path

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
    "AttributeColumn",
    "ChakraSummary",
    "ChakraTrace",
    "CollectiveType",
    "Communicator",
    "Dependencies",
    "DurationOracle",
    "Ended",
    "Header",
    "Kind",
    "Manifest",
    "MemoryAction",
    "Mismatch",
    "NodeType",
    "Operations",
    "OperatorMetadata",
    "Phase",
    "RankClass",
    "RankSummary",
    "RankTrace",
    "RankWriter",
    "Role",
    "StepSettings",
    "Tables",
    "TensorMetadata",
    "TraceError",
    "assumptions_path",
    "compress_ranks",
    "export_with_durations",
    "find_mismatches",
    "find_problems",
    "find_warnings",
    "first_difference",
    "iteration_of",
    "memory_path",
    "merge_equal_ranks",
    "microbatch_of",
    "no_communications",
    "parse_metadata",
    "phase_mask",
    "ranks_of_class",
    "read_et",
    "read_manifest",
    "read_memory",
    "read_operations",
    "read_rank",
    "read_ranks",
    "read_tables",
    "repair_et",
    "single_rank",
    "summarise_et",
    "summarise_rank",
    "tables_path",
    "trace_path",
    "used_communicators",
    "validate_et",
    "write_groups",
    "write_manifest",
    "write_tables",
]
