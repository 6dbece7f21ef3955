"""What `maya run` needs of a machine, checked one thing at a time without importing torch."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import metadata, util
from pathlib import Path

import maya

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 13)
NEEDED_BYTES = 1 << 30
"""Free space wanted: the backend's build takes some 100 MB, a run's trace up to a few hundred."""
OLDEST_GCC = 11
"""The first g++ whose C++20 builds the backend."""
DEPENDENCIES = ("numpy", "protobuf", "psutil")


class Health(Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """`maya run` works, something else may not."""
    MISSING = "missing"
    """`maya run` cannot work."""


@dataclass(frozen=True)
class Finding:
    """One checked thing.

    Attributes:
        name: what was looked at.
        health: how it is.
        text: what was found.
        fix: what to do about it; "" if nothing.
    """

    name: str
    health: Health
    text: str
    fix: str = ""


def findings() -> Iterator[Finding]:
    """Check everything, one finding at a time; a check that breaks is itself a finding."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:  # the doctor must get to the end of a sick machine
            name = check.__name__.strip("_").replace("_", " ")
            yield Finding(name, Health.WARNING, f"could not be checked: {type(error).__name__}: {error}")


def _python() -> Iterator[Finding]:
    text = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        fix = f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer"
        yield Finding("python", Health.MISSING, text, fix)
    elif sys.platform != "linux":
        yield Finding("python", Health.MISSING, f"{text} on {sys.platform}", "Maya runs on Linux")
    else:
        yield Finding("python", Health.OK, text)


def _maya() -> Iterator[Finding]:
    other = _version("maya")
    if not other:
        yield Finding("maya", Health.OK, f"{maya.__version__} ({Path(maya.__file__).parent})")
        return
    yield Finding(
        "maya",
        Health.MISSING,
        f"the date library `maya` {other} is installed too and shares our import name",
        "pip uninstall maya, then install maya-emulator again",
    )


def _torch() -> Iterator[Finding]:
    spec = util.find_spec("torch")
    if spec is None or spec.origin is None:
        yield Finding("torch", Health.MISSING, "not installed", "pip install 'torch>=2.13'")
        return
    folder = Path(spec.origin).parent
    version = _version("torch")
    build = (
        "CUDA build" if "+cu" in version or (folder / "lib" / "libtorch_cuda.so").exists() else "CPU build"
    )
    text = f"{version}, {build} ({folder})"
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if release < OLDEST_TORCH:
        wanted = ".".join(map(str, OLDEST_TORCH))
        yield Finding("torch", Health.MISSING, text, f"pip install 'torch>={wanted}'")
        return
    yield Finding("torch", Health.OK, text)
    if not (folder / "include" / "ATen" / "ATen.h").is_file():
        yield Finding(
            "torch headers",
            Health.MISSING,
            f"{folder / 'include'} has no ATen/ATen.h",
            "install torch from a wheel (pip), which brings its headers",
        )


def _compiler() -> Iterator[Finding]:
    from maya.emulator.backend import cached_builds, find_compiler

    compiler = find_compiler()
    if compiler is None:
        wanted = os.environ.get("CXX")
        text = f"CXX names {wanted}, which cannot be run" if wanted else "no g++, c++ or clang++ on the PATH"
        is_built = any(build.name.startswith(f"torch-{_version('torch')}-") for build in cached_builds())
        if is_built:
            text += "; the backend is built already"
        yield Finding(
            "compiler",
            Health.WARNING if is_built else Health.MISSING,
            text,
            f"apt-get install g++ ({OLDEST_GCC} or newer), or set CXX",
        )
        return
    text = f"{compiler.version} ({compiler.path})"
    release = re.search(r"\b(\d+)\.\d+", compiler.version)
    if "clang" not in compiler.version and release is not None and int(release[1]) < OLDEST_GCC:
        fix = f"install g++ {OLDEST_GCC} or newer, which knows C++20, or set CXX to it"
        yield Finding("compiler", Health.MISSING, text, fix)
    else:
        yield Finding("compiler", Health.OK, text)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _python_headers() -> Iterator[Finding]:
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if header.is_file():
        yield Finding("python headers", Health.OK, str(header.parent))
    else:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        yield Finding(
            "python headers", Health.MISSING, f"{header} does not exist", f"apt install python{version}-dev"
        )


def _dependencies() -> Iterator[Finding]:
    for name in DEPENDENCIES:
        if not _version(name):
            yield Finding(name, Health.MISSING, "not installed", f"pip install {name}")


def _backend_builds() -> Iterator[Finding]:
    from maya.emulator.backend import cached_builds

    builds = cached_builds()
    if builds:
        names = ", ".join(build.name for build in builds)
        yield Finding("built backends", Health.OK, names)
    else:
        yield Finding("built backends", Health.OK, "none yet; the first run builds one (about a minute)")


def _cache_folder() -> Iterator[Finding]:
    from maya.emulator.backend.cache import cache_folder

    folder = cache_folder()
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        fix = "set MAYA_CACHE to a folder that you can write"
        yield Finding("cache folder", Health.MISSING, f"{existing} is not a writable folder", fix)
        return
    yield from _space("cache folder", folder, existing)


def _disk() -> Iterator[Finding]:
    here = Path.cwd()
    if not os.access(here, os.W_OK):
        fix = "choose a writable place for runs with -o"
        yield Finding("working folder", Health.WARNING, f"{here} is not writable", fix)
        return
    yield from _space("working folder", here, here)


def _space(name: str, folder: Path, existing: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(existing).free
    text = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < NEEDED_BYTES:
        yield Finding(name, Health.WARNING, text, f"free at least {NEEDED_BYTES / 2**30:.0f} GiB")
    else:
        yield Finding(name, Health.OK, text)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _maya,
    _torch,
    _compiler,
    _python_headers,
    _dependencies,
    _backend_builds,
    _cache_folder,
    _disk,
)
