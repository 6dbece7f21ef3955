"""Markers around backward passes and around waits for the data loader."""

from __future__ import annotations

import functools
import json
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

from maya.emulator.script.native import ScriptNative
from maya.emulator.script.stop import StopController
from maya.errors import MayaError
from maya.traces.operations import (
    MARK_BACKWARD_BEGIN,
    MARK_BACKWARD_END,
    MARK_DATA_WAIT_BEGIN,
    MARK_DATA_WAIT_END,
    Phase,
)

NO_METADATA = '{"args": {}, "out": []}'
RUN_BACKWARD = "_engine_run_backward"


def _missing(name: str) -> MayaError:
    return MayaError(
        f"torch {torch.__version__} has no {name}, which Maya follows the script by",
        hint="Use a torch version that this release of Maya supports (`maya doctor` lists them).",
    )


class BackwardMarkers:
    """Marks where each outermost backward pass begins and ends, until `remove`.

    A backward inside a backward (reentrant checkpointing) is part of the outer one, also when
    the autograd engine runs it on another thread.

    Args:
        on_accumulate: called before each outermost pass that accumulates gradients.

    Attributes:
        out_of_memory_line: the user's line whose backward pass ran out of memory last, "" if none did;
            the engine's threads, where allocations fail, have no line of the user's.

    Raises (from `install`):
        MayaError: this torch has no `_engine_run_backward`.
    """

    def __init__(
        self,
        native: ScriptNative,
        stop: StopController,
        *,
        on_accumulate: Callable[[], None] = lambda: None,
    ) -> None:
        self._native = native
        self._stop = stop
        self._on_accumulate = on_accumulate
        self.out_of_memory_line = ""
        self._depth = 0
        self._lock = threading.Lock()
        self._replaced: list[tuple[Any, Any]] = []

    def install(self) -> None:
        """Replace the engine's entry in every torch module that has bound it."""
        original = getattr(torch.autograd.graph, RUN_BACKWARD, None)
        if original is None or getattr(torch.autograd, RUN_BACKWARD, None) is not original:
            raise _missing(f"torch.autograd.{RUN_BACKWARD}")
        wrapped = self._wrap(original)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "torch" and vars(module).get(RUN_BACKWARD) is original:
                setattr(module, RUN_BACKWARD, wrapped)
                self._replaced.append((module, original))

    def remove(self) -> None:
        """Put the engine's entry back."""
        for module, original in self._replaced:
            setattr(module, RUN_BACKWARD, original)
        self._replaced = []

    def _wrap(self, original: Any) -> Any:
        @functools.wraps(original)
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            if self._stop.requested:
                self._stop.raise_again()
            with self._lock:
                outermost = self._depth == 0
                self._depth += 1
            if outermost:
                # torch.autograd.grad computes gradients without accumulating them: not a microbatch.
                accumulates = bool(kwargs.get("accumulate_grad", False))
                if accumulates:
                    self._on_accumulate()
                metadata = json.dumps({"args": {"accumulates": accumulates}, "out": []})
                self._native.mark(MARK_BACKWARD_BEGIN, metadata)
            try:
                return original(*args, **kwargs)
            except torch.OutOfMemoryError:
                if outermost:
                    self.out_of_memory_line = self._native.source_line()
                raise
            finally:
                with self._lock:
                    self._depth -= 1
                if outermost:
                    self._native.mark(MARK_BACKWARD_END, metadata)

        return run_backward


class LoaderMarkers:
    """Marks the waits for torch's DataLoader, until `remove`.

    Attributes:
        iterators: every loader iterator that was used and still lives.
        wait_ns: wall time spent in the waits, on this machine; it says nothing about the target.
    """

    def __init__(self, native: ScriptNative, stop: StopController) -> None:
        self.iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self.wait_ns = 0
        self._native = native
        self._stop = stop
        self._original: Any = None

    def install(self) -> None:
        """Wrap `_BaseDataLoaderIter.__next__`.

        Raises:
            MayaError: this torch has no such class.
        """
        iterator_class = getattr(dataloader, "_BaseDataLoaderIter", None)
        if iterator_class is None:
            raise _missing("torch.utils.data.dataloader._BaseDataLoaderIter")
        original = self._original = iterator_class.__next__
        loaders, native, stop, iterators = self, self._native, self._stop, self.iterators

        @functools.wraps(original)
        def __next__(self: Any) -> Any:
            if stop.requested:
                stop.raise_again()
            iterators.add(self)
            native.mark(MARK_DATA_WAIT_BEGIN, NO_METADATA)
            phase = native.set_phase(int(Phase.DATA))
            began_ns = time.monotonic_ns()
            try:
                return original(self)
            finally:
                loaders.wait_ns += time.monotonic_ns() - began_ns
                native.set_phase(phase)
                native.mark(MARK_DATA_WAIT_END, NO_METADATA)

        iterator_class.__next__ = __next__

    def remove(self) -> None:
        """Put torch's method back."""
        if self._original is not None:
            dataloader._BaseDataLoaderIter.__next__ = self._original
            self._original = None
