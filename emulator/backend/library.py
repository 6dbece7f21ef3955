"""Building the backend if needed, and loading it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from maya.emulator.backend.cache import SOURCES, build_folder, build_lock
from maya.emulator.backend.compiler import compile_library, find_compiler
from maya.emulator.backend.operators import (
    SharedKernels,
    cuda_operators,
    read_operators,
    shared_kernels,
    write_operators,
)
from maya.errors import MayaError

MODULE_NAME = "maya_device"
LIBRARY = f"{MODULE_NAME}.so"
OPERATORS = "operators.txt"
SHARED_SPARSE = "shared_sparse.txt"
SHARED_TO_SPARSE = "shared_to_sparse.txt"
OLDEST_TORCH = (2, 13)


def load(*, quiet: bool = False) -> ModuleType:
    """The native module, built for this environment's torch at first use (20-60 s, then cached).

    The same module is returned to every caller of a process.

    Raises:
        MayaError: no torch or too old a one, no compiler, or it refused.
    """
    if MODULE_NAME in sys.modules:
        return sys.modules[MODULE_NAME]
    _check_torch()
    folder = build_folder()
    if not (folder / LIBRARY).exists():
        with build_lock(folder):
            if not (folder / LIBRARY).exists():  # another process may have built it meanwhile
                _build(folder, quiet=quiet)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, folder / LIBRARY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[MODULE_NAME] = module
    return module


def operators_of_build() -> list[str]:
    """The aten operators that have a CUDA kernel in this torch, as found when the backend was built."""
    loaded = load().__file__
    assert loaded is not None
    return read_operators(Path(loaded).parent / OPERATORS)


def shared_kernels_of_build() -> SharedKernels:
    """The operators whose CPU kernels serve the device too, as found when the backend was built."""
    loaded = load().__file__
    assert loaded is not None
    folder = Path(loaded).parent
    return SharedKernels(
        tuple(read_operators(folder / SHARED_SPARSE)), tuple(read_operators(folder / SHARED_TO_SPARSE))
    )


def _check_torch() -> None:
    try:
        import torch
    except ImportError as error:
        raise MayaError(
            f"PyTorch cannot be imported: {error}",
            hint="Install it into this environment: pip install torch==2.13.0",
        ) from error
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise MayaError(
            f"torch {torch.__version__} is too old: Maya emulates the CUDA device of torch "
            f"{'.'.join(map(str, OLDEST_TORCH))} and newer",
            hint="pip install torch==2.13.0",
        )


def _build(folder: Path, *, quiet: bool) -> None:
    import torch

    compiler = find_compiler()
    if compiler is None:
        raise MayaError(
            f"no C++ compiler (looked for {os.environ.get('CXX') or 'g++, c++, clang++'})",
            hint="Install one (Debian, Ubuntu: apt-get install g++) or set CXX; `maya doctor` checks it.",
        )
    if not quiet:
        print(
            f"maya: compiling the emulated device for torch {torch.__version__} (once, about a minute) ...",
            file=sys.stderr,
            flush=True,
        )
    began_s = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write_operators(work / OPERATORS, cuda_operators())
        shared = shared_kernels()
        write_operators(work / SHARED_SPARSE, list(shared.sparse))
        write_operators(work / SHARED_TO_SPARSE, list(shared.to_sparse))
        compile_library(compiler, SOURCES / "backend.cpp", work / LIBRARY, MODULE_NAME)
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
    except OSError as error:
        raise MayaError(
            f"cannot write the compiled device to {folder}: {error.strerror}",
            hint="Set MAYA_CACHE to a folder with about 10 MB free.",
        ) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(work)
    if not quiet:
        print(f"maya: compiled in {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
