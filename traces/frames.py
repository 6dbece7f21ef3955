"""Cuts a Chakra file into its length-delimited messages; gzip is recognised and unpacked.

No length is believed before it is held against the bytes that are there, so a corrupt one costs
an error message and not gigabytes.
"""

from __future__ import annotations

import gzip
import mmap
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maya.errors import MayaError

GZIP_MAGIC = b"\x1f\x8b"
MAX_MESSAGE_BYTES = 1 << 28
"""A longer message is damage: the largest real ones (a fused optimizer's) have some 100 KB."""
MAX_LENGTH_BYTES = 5
"""Bytes of a length: varint32."""
MAX_UNPACKED_BYTES = 4 << 30
"""Where unpacking a gzip file stops, lest a small file fill the machine."""

_UNPACK_BYTES = 1 << 22


class TraceError(MayaError):
    """A trace file that cannot be read, at a place.

    Args:
        path: the file.
        problem: what is wrong.
        offset: byte offset in the (unpacked) file; None where it has no place.
        node: node id, None if unknown.
        hint: the likely cause and fix.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        problem: str,
        *,
        offset: int | None = None,
        node: int | None = None,
        hint: str = "",
    ) -> None:
        place = "" if offset is None else f" at byte {offset}"
        who = "" if node is None else f", node {node}"
        super().__init__(f"{os.fspath(path)}{place}{who}: {problem}", hint=hint)
        self.path = Path(path)
        self.problem = problem
        self.offset = offset
        self.node = node


Buffer = bytes | mmap.mmap


def open_trace(path: str | os.PathLike[str]) -> Buffer:
    """The bytes of a trace: a map of the file, or what a gzip file holds.

    Raises:
        TraceError: missing, unreadable, empty, or a broken gzip file.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            if file.read(2) == GZIP_MAGIC:
                return _unpack(path)
            if file.seek(0, os.SEEK_END) == 0:
                raise TraceError(path, "the file is empty", hint="whoever wrote it was stopped at once")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise TraceError(path, "no such file") from error
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error


def _unpack(path: Path) -> bytes:
    parts: list[bytes] = []
    total = 0
    try:
        with gzip.open(path, "rb") as file:
            while part := file.read(_UNPACK_BYTES):
                parts.append(part)
                total += len(part)
                if total > MAX_UNPACKED_BYTES:
                    raise TraceError(path, f"unpacks to more than {MAX_UNPACKED_BYTES} bytes")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            path, f"broken gzip file: {error}", offset=total, hint="the copy is incomplete; fetch it again"
        ) from error
    if not total:
        raise TraceError(path, "the gzip file holds nothing")
    return b"".join(parts)


def find_messages(
    buffer: Buffer, path: str | os.PathLike[str], *, most: int | None = None, keep_whole: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each message lies.

    Args:
        buffer: the whole file.
        path: its name, for messages.
        most: look no further than this many.
        keep_whole: at the first message that is not whole, return those before it.

    Returns:
        starts and ends, int64[messages]: offsets of each message's body in `buffer`.

    Raises:
        TraceError: cut short, or a length that cannot be (with `keep_whole`: in the first message).
    """
    size = len(buffer)
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    try:
        while position < size and len(starts) != most:
            length = buffer[position]
            start = position + 1
            if length > 127:
                length, start = _long_length(buffer, path, position, len(starts))
            end = start + length
            if end > size:
                raise _truncated(
                    path,
                    position,
                    len(starts),
                    f"message {len(starts)} needs {length} bytes, {size - start} are left",
                )
            starts.append(start)
            ends.append(end)
            position = end
    except TraceError:
        if not keep_whole or not starts:
            raise
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def _long_length(
    buffer: Buffer, path: str | os.PathLike[str], position: int, messages: int
) -> tuple[int, int]:
    """A length of two bytes or more: its value and where it ends."""
    value = shift = 0
    for place in range(position, position + MAX_LENGTH_BYTES):
        if place >= len(buffer):
            raise _truncated(path, position, messages, f"ends inside the length of message {messages}")
        byte = buffer[place]
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if value > MAX_MESSAGE_BYTES:
                raise _bad_length(path, position, messages, f"a length of {value} bytes")
            return value, place + 1
    raise _bad_length(path, position, messages, f"a length of more than {MAX_LENGTH_BYTES} bytes")


def _truncated(path: str | os.PathLike[str], offset: int, messages: int, problem: str) -> TraceError:
    return TraceError(
        path,
        f"truncated: {problem}",
        offset=offset,
        hint="the writer was killed or the copy is incomplete" if messages else "not a Chakra trace",
    )


def _bad_length(path: str | os.PathLike[str], offset: int, messages: int, problem: str) -> TraceError:
    return TraceError(
        path,
        f"corrupt: message {messages} announces {problem}",
        offset=offset,
        hint="bytes before this place are damaged" if messages else "not a Chakra trace",
    )
