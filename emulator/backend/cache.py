"""Where built backends are kept: one folder for each torch, Python and state of our sources."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from maya.errors import MayaError

SOURCES = Path(__file__).resolve().parent.parent / "csrc"


def cache_folder() -> Path:
    """`$MAYA_CACHE`, else `$XDG_CACHE_HOME/maya`, else `~/.cache/maya`."""
    if chosen := os.environ.get("MAYA_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "maya"


def builds_folder() -> Path:
    """The folder of all builds."""
    return cache_folder() / "backend"


def sources_digest() -> str:
    """A digest of every C++ source: a changed source is another build."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix in (".h", ".cpp") and not path.name.startswith("testing_"):
            digest.update(str(path.relative_to(SOURCES)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def build_folder() -> Path:
    """The folder of the build for this torch, this Python and these sources."""
    import torch

    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    # Two builds of one version differ (CPU, CUDA, nightly): the commit and the C++ ABI tell them apart.
    commit = (torch.version.git_version or "")[:10]
    return builds_folder() / f"torch-{torch.__version__}-{commit}-{python}-{sources_digest()}"


def cached_builds() -> list[Path]:
    """Finished builds, oldest first."""
    folder = builds_folder()
    if not folder.is_dir():
        return []
    return sorted(
        (path.parent for path in folder.glob("torch-*/maya_device.so")), key=lambda p: p.stat().st_mtime
    )


def clear_builds() -> int:
    """Delete every build; how many there were."""
    builds = cached_builds()
    shutil.rmtree(builds_folder(), ignore_errors=True)
    return len(builds)


@contextlib.contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """Held while one process builds; others wait for it and then find the result.

    Raises:
        MayaError: the cache folder cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder.parent / f".{folder.name}.lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise MayaError(
            f"cannot write to the cache folder {folder.parent}: {error.strerror}",
            hint="Set MAYA_CACHE to a folder that can be written.",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
