"""The life of a run folder: `RUN.maya.partial-PID` while it is written, `RUN.maya` once whole.

A folder is whole when it has a manifest, which is written last; only then is it renamed. Maya
removes nothing that is not recognisably its own: a folder with a manifest, or a partial folder
whose owner is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
from pathlib import Path

from maya.errors import MayaError, UsageError

MANIFEST = "manifest.json"
OWNER = "owner.json"
"""Who writes a partial folder; tells a leftover from a run that is still going."""


class RunFolder:
    """A run folder being written.

    Args:
        final: the folder's name once it is whole.
        force: replace an earlier run of that name.

    Raises:
        UsageError: `final` exists and may not be replaced, or cannot be created here.
    """

    def __init__(self, final: Path, *, force: bool) -> None:
        self.final = final
        self._replaces = _check_replaceable(final, force=force)
        self.partial = final.with_name(f"{final.name}.partial-{os.getpid()}")
        _remove_leftovers(final)
        try:
            if self.partial.exists():  # an earlier process had our id
                shutil.rmtree(self.partial)
            self.partial.mkdir(parents=True)
            owner = {"host": socket.gethostname(), "pid": os.getpid()}
            (self.partial / OWNER).write_text(json.dumps(owner) + "\n")
        except OSError as error:
            raise UsageError(
                f"cannot write the run to {final}: {error.strerror}",
                hint="choose another place with -o",
            ) from error

    def complete(self) -> Path:
        """Give the folder its final name.

        Raises:
            MayaError: somebody else made a folder of that name meanwhile.
        """
        (self.partial / OWNER).unlink(missing_ok=True)
        replaced = self.final.with_name(f"{self.final.name}.replaced-{os.getpid()}")
        if self._replaces and os.path.lexists(self.final):
            os.rename(self.final, replaced)
        try:
            os.rename(self.partial, self.final)
        except OSError as error:
            raise MayaError(
                f"cannot name the finished run {self.final}: {error.strerror}",
                hint=f"it is whole and stays in {self.partial}",
            ) from error
        if self._replaces and replaced.exists():
            shutil.rmtree(replaced)
        return self.final

    def discard(self) -> None:
        """Remove what was written so far."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.partial)


def is_run_folder(path: Path) -> bool:
    """Whether `path` is a whole run folder of Maya's."""
    return path.is_dir() and (path / MANIFEST).is_file()


def _check_replaceable(final: Path, *, force: bool) -> bool:
    if not os.path.lexists(final):
        return False
    if final.is_dir() and not final.is_symlink():
        if not any(final.iterdir()):
            final.rmdir()
            return False
        if is_run_folder(final):
            if force:
                return True
            raise UsageError(f"{final} exists already", hint="-f overwrites it, -o chooses another name")
    raise UsageError(
        f"{final} exists and is not a run of Maya's, so it is left alone",
        hint="choose another name with -o",
    )


def _remove_leftovers(final: Path) -> None:
    """Remove partial folders of this name whose writer, on this machine, is gone."""
    pattern = re.compile(re.escape(final.name) + r"\.partial-(\d+)")
    if not final.parent.is_dir():
        return
    for candidate in final.parent.iterdir():
        if pattern.fullmatch(candidate.name) and candidate.is_dir() and _is_abandoned(candidate):
            shutil.rmtree(candidate, ignore_errors=True)


def _is_abandoned(partial: Path) -> bool:
    try:
        owner = json.loads((partial / OWNER).read_text())
        host, pid = str(owner["host"]), int(owner["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if host != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
