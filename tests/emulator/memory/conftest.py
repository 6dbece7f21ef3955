"""Compiles the caching allocator alone (no torch) and drives it through ctypes."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY_SOURCES = Path(__file__).resolve().parents[3] / "emulator" / "csrc" / "memory"
GIB = 1 << 30


class AllocatorError(Exception):
    """An error of the C++ side; `kind` names the Python exception it becomes."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Allocator:
    """One device's allocator with a clock that stands still and a list of events."""

    def __init__(
        self,
        library: Any,
        settings: str = "",
        total: int = 80 * GIB,
        context: int = 0,
        unlimited: bool = False,
        address_bytes: int = 1 << 42,
        small_bytes: int = 0,
        start: bool = True,
    ) -> None:
        self.library = library
        self.handle = library.harness_new()
        if settings:
            self.configure(settings)
        if start:
            self._check(
                library.harness_start(self.handle, total, context, int(unlimited), address_bytes, small_bytes)
            )

    def close(self) -> None:
        self.library.harness_delete(self.handle)

    def _check(self, failed: int) -> None:
        if failed:
            raise AllocatorError(
                self.library.harness_error_kind(self.handle).decode(),
                self.library.harness_error(self.handle).decode(),
            )

    def configure(self, settings: str) -> None:
        self._check(self.library.harness_settings(self.handle, settings.encode()))

    def configure_common(self, settings: str) -> None:
        self._check(self.library.harness_common_settings(self.handle, settings.encode()))

    def round(self, size: int) -> int:
        return self.library.harness_round(self.handle, size)

    def allocate(self, size: int, stream: int = 0) -> int:
        block = self.library.allocator_allocate(self.handle, size, stream)
        self._check(bool(self.library.harness_error_kind(self.handle)))
        return block or 0

    def free(self, block: int) -> None:
        self._check(self.library.allocator_free(self.handle, block))

    def address(self, block: int) -> int:
        return self.library.block_address(block)

    def size(self, block: int) -> int:
        return self.library.block_size(block)

    def call(self, function: str, *arguments: Any) -> Any:
        """Any other function of the C interface that takes the handle first."""
        return getattr(self.library, function)(self.handle, *arguments)

    def pool(self, function: str, pool: tuple[int, int], *arguments: Any) -> None:
        self._check(self.call(function, *pool, *arguments))

    def empty_cache(self, pool: tuple[int, int] = (0, 0)) -> None:
        self.call("allocator_empty_cache", *pool)

    @property
    def statistics(self) -> dict[str, Any]:
        return json.loads(self.call("statistics_json"))

    def current(self, name: str, kind: str = "all") -> int:
        return self.statistics[f"{name}.{kind}"][0]

    def snapshot(self, pool: tuple[int, int] = (0, 0)) -> list[dict[str, Any]]:
        return json.loads(self.call("snapshot_json", *pool))

    def events(self) -> list[list[int]]:
        """[action, small, expandable, id, address, size, requested, stream] since the last call."""
        return json.loads(self.call("events_json"))


def _prototypes(library: Any) -> None:
    handle, block = ctypes.c_void_p, ctypes.c_void_p
    i64, u64, integer, text = ctypes.c_int64, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p
    table: dict[str, tuple[Any, list[Any]]] = {
        "harness_new": (handle, []),
        "harness_delete": (None, [handle]),
        "harness_error": (text, [handle]),
        "harness_error_kind": (text, [handle]),
        "harness_settings": (integer, [handle, text]),
        "harness_common_settings": (integer, [handle, text]),
        "harness_round": (i64, [handle, i64]),
        "harness_start": (integer, [handle, i64, i64, integer, u64, u64]),
        "allocator_allocate": (block, [handle, i64, i64]),
        "allocator_free": (integer, [handle, block]),
        "allocator_record_stream": (None, [handle, block, i64]),
        "allocator_empty_cache": (None, [handle, u64, u64]),
        "allocator_set_fraction": (None, [handle, ctypes.c_double]),
        "allocator_fraction": (ctypes.c_double, [handle]),
        "allocator_free_bytes": (i64, [handle]),
        "allocator_take_outside": (integer, [handle, i64]),
        "allocator_reset_peak": (None, [handle]),
        "allocator_reset_accumulated": (None, [handle]),
        "allocator_largest": (i64, [handle, i64]),
        "allocator_find": (block, [handle, u64]),
        "pool_begin": (integer, [handle, u64, u64, i64]),
        "pool_end": (integer, [handle, u64, u64]),
        "pool_retain": (integer, [handle, u64, u64]),
        "pool_release": (integer, [handle, u64, u64]),
        "pool_use_count": (integer, [handle, u64, u64]),
        "pool_options": (None, [handle, u64, u64, integer, integer]),
        "capture_mark": (None, [handle, integer]),
        "block_address": (u64, [block]),
        "block_size": (i64, [block]),
        "block_id": (i64, [block]),
        "clock_set": (None, [handle, i64]),
        "clock_now": (i64, [handle]),
        "clock_set_ready": (None, [handle, i64, i64]),
        "clock_synchronizations": (integer, [handle]),
        "statistics_json": (text, [handle]),
        "snapshot_json": (text, [handle, u64, u64]),
        "events_json": (text, [handle]),
        "workspace_bytes": (i64, [integer, text]),
        "lt_workspace_bytes": (i64, [text]),
        "stress_threads": (None, [handle, integer, i64]),
        "nanoseconds_per_pair": (ctypes.c_double, [i64, integer]),
    }
    for name, (result, arguments) in table.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


@pytest.fixture(scope="session")
def allocator_library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The compiled C interface."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++, as the emulator itself does")
    output = tmp_path_factory.mktemp("allocator") / "liballocator.so"
    source = MEMORY_SOURCES / "testing_c_api.cpp"
    # Warnings are errors here because this is the only place that compiles these headers alone.
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-fPIC", "-shared"]
    subprocess.run([compiler, *flags, str(source), "-o", str(output)], check=True)
    library = ctypes.CDLL(str(output))
    _prototypes(library)
    return library


@pytest.fixture
def new_allocator(allocator_library: Any) -> Iterator[Callable[..., Allocator]]:
    """A factory: `new_allocator("expandable_segments:True", total=...)`."""
    made: list[Allocator] = []

    def make(settings: str = "", **layout: Any) -> Allocator:
        made.append(Allocator(allocator_library, settings, **layout))
        return made[-1]

    yield make
    for allocator in made:
        allocator.close()


@pytest.fixture
def allocator(new_allocator: Callable[..., Allocator]) -> Allocator:
    """80 GiB, default settings."""
    return new_allocator()


@pytest.fixture(scope="session")
def allocator_error() -> type[AllocatorError]:
    return AllocatorError


@pytest.fixture(scope="session")
def allocator_class() -> type[Allocator]:
    """For hypothesis, which wants a fresh one for every example."""
    return Allocator
