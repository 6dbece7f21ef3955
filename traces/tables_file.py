"""`rank-N.tables.json`: the interned tables beside a rank's operations."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from maya.errors import MayaError
from maya.traces.json_files import JsonRecord, read_json, write_json
from maya.traces.tables import Communicator, Tables

TABLES_SCHEMA_VERSION = 1


def tables_path(run_dir: str | os.PathLike[str], rank: int) -> Path:
    """Where a rank's tables lie."""
    return Path(run_dir) / f"rank-{rank}.tables.json"


def write_tables(path: str | os.PathLike[str], tables: Tables, operation_count: int) -> None:
    """Write tables as JSON (temporary name, then rename).

    Args:
        path: the file.
        tables: what to write.
        operation_count: operations in the trace beside it: a Chakra file that was cut between two
            nodes shows no sign of it.
    """
    write_json(
        path,
        {
            "schema_version": TABLES_SCHEMA_VERSION,
            "operation_count": operation_count,
            "operators": tables.operators,
            "metadata": tables.metadata,
            "modules": tables.modules,
            "source_lines": tables.source_lines,
            "iteration_ends": tables.iteration_ends,
            "communicators": [
                {"name": group.name, "ranks": group.ranks, "backend": group.backend}
                for group in tables.communicators
            ],
        },
    )


def read_tables(path: str | os.PathLike[str]) -> Tables:
    """Read and check tables; see `read_tables_and_count` for errors."""
    return read_tables_and_count(path)[0]


def read_tables_and_count(path: str | os.PathLike[str]) -> tuple[Tables, int]:
    """Read and check tables, and how many operations the trace beside them has.

    Raises:
        MayaError: missing, damaged or of another schema version.
    """
    path = Path(path)
    hint = "the run was not finished, or the file was not copied with its .et"
    record = JsonRecord(path, read_json(path, "the trace's tables", hint))
    version = record.get("schema_version", int)
    if version != TABLES_SCHEMA_VERSION:
        raise MayaError(
            f"{path}: tables schema version {version}, this Maya reads {TABLES_SCHEMA_VERSION}",
            hint="read it with the Maya that wrote it, or record the run again",
        )
    ends = record.items("iteration_ends", int)
    count = record.get("operation_count", int)
    if count < 0 or (ends and ends[-1] >= count):
        record.fail(f"'iteration_ends' lie beyond the {count} operations")
    if any(later <= earlier for earlier, later in itertools.pairwise(ends)) or (ends and ends[0] < 0):
        record.fail("'iteration_ends' must be ascending operation ids")
    tables = Tables(
        operators=record.items("operators", str),
        metadata=record.items("metadata", str),
        modules=record.items("modules", str),
        source_lines=record.items("source_lines", str),
        iteration_ends=ends,
        communicators=tuple(
            _communicator(JsonRecord(path, group, f"communicator {index}"))
            for index, group in enumerate(record.items("communicators", dict))
        ),
    )
    return tables, count


def _communicator(record: JsonRecord) -> Communicator:
    ranks = record.items("ranks", int)
    if any(rank < 0 for rank in ranks) or len(set(ranks)) != len(ranks):
        record.fail("'ranks' must be distinct and not negative")
    return Communicator(name=record.get("name", str), ranks=ranks, backend=record.get("backend", str))
