"""Where operations wait, as they were recorded, until the rank has finished.

Three files of raw records beside the trace. Encoding as Chakra nodes takes some 10 µs an operation,
too much while the user's script runs and the emulator's own cost is a few; writing 72 bytes is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maya.traces.operations import (
    COMMUNICATION_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Operations,
)

BATCH_OPERATIONS = 8192
"""Operations read back at once."""


class OperationSpool:
    """Raw records on disk.

    Args:
        trace: path of the trace they are for; the spool's files take its name and more.
    """

    def __init__(self, trace: Path) -> None:
        self._paths = [
            trace.with_name(f"{trace.name}.{part}.partial") for part in ("rows", "tensors", "communications")
        ]
        self._rows, self._tensors, self._communications = (path.open("wb") for path in self._paths)

    @property
    def closed(self) -> bool:
        """Whether nothing can be added any more."""
        return self._rows.closed

    def append(self, operations: Operations) -> None:
        """Add the records of a batch."""
        self._rows.write(operations.rows.tobytes())
        self._tensors.write(operations.tensors.tobytes())
        self._communications.write(operations.communications.tobytes())

    def close(self) -> None:
        """Flush; the spool can be read after this."""
        for file in (self._rows, self._tensors, self._communications):
            file.close()

    def batches(self) -> Iterator[tuple[NDArray[np.void], NDArray[np.void]]]:
        """Rows and their tensors, in order, a bounded number at a time."""
        with self._paths[0].open("rb") as rows_file, self._paths[1].open("rb") as tensors_file:
            while True:
                rows = np.fromfile(rows_file, dtype=OPERATION_DTYPE, count=BATCH_OPERATIONS)
                if not len(rows):
                    return
                count = int(rows["tensor_count"].sum(dtype=np.int64))
                yield rows, np.fromfile(tensors_file, dtype=TENSOR_DTYPE, count=count)

    def communications(self) -> NDArray[np.void]:
        """Every communication row."""
        return np.fromfile(self._paths[2], dtype=COMMUNICATION_DTYPE)

    def delete(self) -> None:
        """Remove the files."""
        for path in self._paths:
            path.unlink(missing_ok=True)
