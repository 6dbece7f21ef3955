"""`torch.save` of device tensors without terabytes of made-up bytes.

Contents that were never computed are written as holes: torch's own writer can leave out a
record's bytes (`write_record_metadata`, what `torch.serialization.skip_data` uses), which keeps
the file's layout, reads back as zeros and costs no disk blocks. The loop in `torch.save` copies
each storage to the host first (`storage.cpu()`) and then writes it; during a save both steps are
replaced for storages whose values are not real.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import serialization

from maya.emulator.script.kept_files import KeptFiles
from maya.emulator.script.native import ScriptNative
from maya.errors import MayaError

WRITTEN_CONSTANT_BYTES = 64 << 20
"""A constant tensor (ones, zeros) up to this size is written for real, a larger one as a hole."""
ASSUMPTION_KIND = "checkpoint"


def made_up_storages(native: ScriptNative) -> Callable[[Any], bool]:
    """The question `SparseCheckpoints` asks of a device storage, answered by the backend."""

    def is_made_up(storage: Any) -> bool:
        if storage.device.type != "cuda":
            return False
        return storage.nbytes() > WRITTEN_CONSTANT_BYTES or not native.storage_is_known(storage._cdata)

    return is_made_up


class _Hole:
    """Stands for the host copy of a storage whose values were never computed."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class _Saving(threading.local):
    """How many `torch.save` calls this thread is inside of."""

    def __init__(self) -> None:
        self.depth = 0


class _HoleWriter:
    """torch's zip writer, leaving out the bytes of holes."""

    def __init__(self, writer: Any, on_hole: Callable[[], None]) -> None:
        self._writer = writer
        self._on_hole = on_hole

    def write_record(self, name: str, data: Any, size: int) -> None:
        if isinstance(data, _Hole):
            self._writer.write_record_metadata(name, size)
            self._on_hole()
        else:
            self._writer.write_record(name, data, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class SparseCheckpoints:
    """Makes `torch.save` leave holes, until `remove`.

    Args:
        is_made_up: whether a device storage's contents were never computed.
        record_copy: called with the address of each such storage instead of copying it to the host.
        assume: notes an assumption: kind, producer, value.
    """

    def __init__(
        self,
        is_made_up: Callable[[Any], bool],
        record_copy: Callable[[int], object],
        assume: Callable[[str, str, Any], object],
    ) -> None:
        self._is_made_up = is_made_up
        self._record_copy = record_copy
        self._assume = assume
        self._saving = _Saving()
        self.files = KeptFiles()
        self._open_writer: Any = None
        self._open_file: Any = None
        self._cpu: Any = None

    def install(self) -> None:
        """Hook torch's zip writer and `UntypedStorage.cpu`.

        Raises:
            MayaError: this torch's serialization has other parts.
        """
        self._open_writer = getattr(serialization, "_open_zipfile_writer", None)
        has_parts = hasattr(serialization, "_open_file_like") and hasattr(
            torch._C.PyTorchFileWriter, "write_record_metadata"
        )
        if self._open_writer is None or not has_parts:
            raise MayaError(
                f"torch {torch.__version__} has no torch.serialization._open_zipfile_writer,"
                " which Maya writes checkpoints by",
                hint="Use a torch version that this release of Maya supports (`maya doctor` lists them).",
            )
        self._cpu = torch.UntypedStorage.cpu
        outer = self

        def cpu(storage: Any) -> Any:
            if outer._saving.depth and storage.device.type != "cpu" and outer._is_made_up(storage):
                outer._record_copy(storage._cdata)
                return _Hole(storage.nbytes())
            return outer._cpu(storage)

        torch.UntypedStorage.cpu = cpu
        serialization._open_zipfile_writer = lambda target: _SparseOpener(outer, target)
        self._open_file = serialization._open_file_like
        serialization._open_file_like = lambda target, mode: outer._open_file(
            outer.files.place_of(target) if "r" in mode else target, mode
        )
        self.files.install()

    def remove(self) -> None:
        """Put torch's own functions back."""
        if self._open_writer is not None:
            serialization._open_zipfile_writer = self._open_writer
            serialization._open_file_like = self._open_file
            self.files.remove()
            del torch.UntypedStorage.cpu  # it was inherited before
            self._open_writer = None

    def note_hole(self) -> None:
        """One more storage was written as zeros."""
        self._assume(ASSUMPTION_KIND, "torch.save", 0)


class _SparseOpener:
    """The context manager that `torch.save` writes within."""

    def __init__(self, outer: SparseCheckpoints, target: Any) -> None:
        self._outer = outer
        self._target = target
        self._place = outer.files.place_for(target)
        self._opener = outer._open_writer(self._place)
        self._pinned = False
        self._has_holes = False

    def __enter__(self) -> _HoleWriter:
        from torch.utils.serialization import config

        # Copies through pinned memory would bypass `storage.cpu()`.
        self._pinned, config.save.use_pinned_memory_for_d2h = config.save.use_pinned_memory_for_d2h, False
        self._outer._saving.depth += 1
        return _HoleWriter(self._opener.__enter__(), self._note_hole)

    def __exit__(self, *details: Any) -> Any:
        from torch.utils.serialization import config

        config.save.use_pinned_memory_for_d2h = self._pinned
        self._outer._saving.depth -= 1
        answer = self._opener.__exit__(*details)
        if details[0] is None:
            self._outer.files.saved(self._target, self._place, made_up=self._has_holes)
        return answer

    def _note_hole(self) -> None:
        self._has_holes = True
        self._outer.note_hole()
