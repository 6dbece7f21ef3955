"""Where the ranks' output goes: the terminal, or files as torchrun's --redirects and --tee ask.

A stream that is teed goes to its file, and from there line by line to our own stream with
torchrun's prefix, `[default0]:`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from maya.pipeline.launch import Launch

NAMES = {1: "stdout.log", 2: "stderr.log"}
"""torchrun's file names, by descriptor (which are the bits of its `Std` too)."""
CHUNK_BYTES = 1 << 20
LOGS_NAME = "logs"
"""Folder for teed streams when no log folder was named."""


@dataclass
class _Tee:
    """A file that is followed: how far it is shown, on which descriptor, after which prefix."""

    path: Path
    descriptor: int
    prefix: bytes
    shown_bytes: int = 0
    rest: bytes = b""


class RankStreams:
    """The files of all ranks.

    Args:
        launch: says what is redirected and teed.
        run_dir: for teed streams when no log folder was named; removed with the run's other
            temporary files.
    """

    def __init__(self, launch: Launch, run_dir: Path) -> None:
        self._launch = launch
        self._logs = Path(launch.log_dir) / launch.run_id if launch.log_dir else run_dir / LOGS_NAME
        self._tees: list[_Tee] = []
        for rank in range(launch.world_size):
            for descriptor, path in self.files(rank).items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"")
                if self._bits(launch.tee, rank) & descriptor:
                    prefix = f"[{launch.role}{rank % launch.nproc_per_node}]:".encode()
                    self._tees.append(_Tee(path, descriptor, prefix))

    def files(self, rank: int) -> dict[int, Path]:
        """The file of each redirected descriptor of a rank."""
        wanted = self._bits(self._launch.redirects, rank) | self._bits(self._launch.tee, rank)
        folder = self._logs / "attempt_0" / str(rank)
        return {descriptor: folder / name for descriptor, name in NAMES.items() if wanted & descriptor}

    def pump(self) -> None:
        """Show the lines that teed streams have gained."""
        for tee in self._tees:
            self._show(tee)

    def close(self) -> None:
        """Show what is left, half a line included."""
        for tee in self._tees:
            self._show(tee)
            if tee.rest:
                _write(tee.descriptor, tee.prefix + tee.rest + b"\n")
                tee.rest = b""

    def _show(self, tee: _Tee) -> None:
        with tee.path.open("rb") as file:
            file.seek(tee.shown_bytes)
            while chunk := file.read(CHUNK_BYTES):
                tee.shown_bytes += len(chunk)
                *lines, tee.rest = (tee.rest + chunk).split(b"\n")
                _write(tee.descriptor, b"".join(tee.prefix + line + b"\n" for line in lines))

    def _bits(self, per_local_rank: tuple[int, ...], rank: int) -> int:
        local_rank = rank % self._launch.nproc_per_node
        return per_local_rank[local_rank] if local_rank < len(per_local_rank) else 0


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
