"""Moving records from the native module to the rank's files while the script runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from maya.errors import MayaError
from maya.traces import (
    COMMUNICATION_DTYPE,
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Communicator,
    Operations,
    RankWriter,
    Tables,
)

DRAIN_EVERY_S = 0.25
DRAIN_ABOVE = 20_000
"""Records that may wait in memory, about 3 MB."""
TABLES = ("operators", "metadata", "modules", "source_lines")


class RecordingNative(Protocol):
    """The part of the native module that this file calls."""

    def recording(self, enabled: bool, /) -> None: ...
    def drain(self) -> tuple[bytes, bytes, bytes]: ...
    def drain_memory(self) -> bytes: ...
    def pending(self) -> int: ...
    def interned(self, table: str, start: int, /) -> list[str]: ...
    def communicators(self) -> list[tuple[str, list[int]]]: ...


class RankRecording:
    """Records one rank: a thread drains what waits, `finish` writes the rest.

    Args:
        native: the compiled backend.
        run_dir: the run folder.
        rank: global rank.
    """

    def __init__(self, native: RecordingNative, run_dir: Path, rank: int) -> None:
        self._native = native
        self._pid = os.getpid()
        self._interned: dict[str, list[str]] = {table: [] for table in TABLES}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._error: OSError | None = None
        self._writer = _explain(lambda: RankWriter(run_dir, rank))
        self._thread = threading.Thread(target=self._drain_in_background, name="maya-recording", daemon=True)

    def start(self) -> None:
        """Begin to record."""
        self._native.recording(True)
        self._thread.start()

    def finish(self, iteration_ends: Sequence[int], assumptions: Sequence[dict[str, Any]]) -> None:
        """Stop recording and write the rank's files.

        Raises:
            MayaError: they cannot be written (a full disk, say).
        """
        if os.getpid() != self._pid:
            raise RuntimeError("a forked child must not write its parent's recording")
        self._native.recording(False)
        self._over.set()
        with self._lock:
            _explain(self._drain)
            if self._error is not None:
                _explain(self._raise_error)
            tables = Tables(
                **{table: tuple(texts) for table, texts in self._interned.items()},
                iteration_ends=tuple(end for end in iteration_ends if end >= 0),
                communicators=tuple(
                    Communicator(name, tuple(ranks)) for name, ranks in self._native.communicators()
                ),
            )
            _explain(lambda: self._writer.finish(tables, assumptions))

    def _drain_in_background(self) -> None:
        while not self._over.wait(DRAIN_EVERY_S):
            if self._native.pending() < DRAIN_ABOVE:
                continue
            with self._lock:
                if self._over.is_set() or self._error is not None:
                    return
                try:
                    self._drain()
                except OSError as error:  # told by `finish`: the script must not meet it in a thread
                    self._error = error

    def _drain(self) -> None:
        operations, tensors, communications = self._native.drain()
        memory = self._native.drain_memory()
        for table, texts in self._interned.items():
            texts.extend(self._native.interned(table, len(texts)))
        rows = Operations(
            np.frombuffer(operations, OPERATION_DTYPE),
            np.frombuffer(tensors, TENSOR_DTYPE),
            np.frombuffer(communications, COMMUNICATION_DTYPE),
        )
        self._writer.append(rows, *(self._interned[table] for table in TABLES))
        self._writer.append_memory(np.frombuffer(memory, MEMORY_DTYPE))

    def _raise_error(self) -> None:
        assert self._error is not None
        raise self._error


def _explain(write: Any) -> Any:
    try:
        return write()
    except OSError as error:
        raise MayaError(
            f"the trace cannot be written: {error.strerror or error}",
            hint="Free some disk space, or write the run elsewhere with -o.",
        ) from error
