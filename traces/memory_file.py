"""`memory-N.npy`: the allocator's log, a plain NumPy file written while it grows.

The header is written first with room for the final count and put right at the close, so that
the rows stream to disk and memory stays flat.
"""

from __future__ import annotations

import os
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from maya.errors import MayaError
from maya.traces.operations import MEMORY_DTYPE

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER_BYTES = 512
"""Magic, length and dictionary together; a multiple of 64 as the format asks, ample for the dtype."""


def memory_path(run_dir: str | os.PathLike[str], rank: int) -> Path:
    """Where a rank's allocator log lies."""
    return Path(run_dir) / f"memory-{rank}.npy"


def _header(count: int) -> bytes:
    descr = np.lib.format.dtype_to_descr(MEMORY_DTYPE)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({count},), }}"
    room = _HEADER_BYTES - len(_MAGIC) - 2
    body = text.ljust(room - 1) + "\n"
    return _MAGIC + room.to_bytes(2, "little") + body.encode("latin1")


class MemoryWriter:
    """Streams rows of MEMORY_DTYPE to a `.npy` file.

    Args:
        path: the file; whoever opens this renames it when it is whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._file = path.open("wb")
        self._file.write(_header(0))

    def append(self, rows: NDArray[np.void]) -> None:
        """Add rows, [n] of MEMORY_DTYPE (ValueError for another dtype)."""
        if rows.dtype != MEMORY_DTYPE:
            raise ValueError(f"memory rows must be of MEMORY_DTYPE, not {rows.dtype}")
        self._file.write(rows.tobytes())
        self.count += len(rows)

    def close(self) -> None:
        """Write the final header and close."""
        if not self._file.closed:
            self._file.seek(0)
            self._file.write(_header(self.count))
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_memory(path: str | os.PathLike[str]) -> NDArray[np.void]:
    """Read an allocator log: [n] of MEMORY_DTYPE, mapped from the file and not writable.

    Raises:
        MayaError: missing, damaged, cut short, or rows of another form.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("another version of the .npy format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            header_bytes = file.tell()
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError as error:
        raise MayaError(f"{path}: the allocator log is missing", hint="the run was not finished") from error
    except (ValueError, SyntaxError, TokenError, OSError) as error:  # what NumPy's header parser lets out
        raise MayaError(
            f"{path}: not a readable allocator log: {error}", hint="the file is damaged or cut short"
        ) from error
    if dtype != MEMORY_DTYPE or len(shape) != 1:
        raise MayaError(
            f"{path}: rows of {dtype} in {len(shape)} dimensions are not an allocator log of this Maya",
            hint="read it with the Maya that wrote it, or record the run again",
        )
    expected = header_bytes + shape[0] * dtype.itemsize
    if size != expected:
        raise MayaError(
            f"{path}: {shape[0]} rows announced, which makes {expected} bytes, but the file has {size}",
            hint="the file is damaged or cut short; record the run again",
        )
    if not shape[0]:
        return np.zeros(0, dtype=MEMORY_DTYPE)
    return np.memmap(path, dtype=MEMORY_DTYPE, mode="r", offset=header_bytes, shape=shape)
