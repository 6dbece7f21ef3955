"""Which module issued an operation: torch's global forward hooks, dotted paths as users know them.

A module that is called while no other one runs is a root. Its submodules are named by a walk of
`named_modules()`, once; a submodule that appears later makes the root be walked again. The fast
path of a hook pair is two dictionary look-ups and two native calls.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import (
    Module,
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from maya.emulator.script.batches import batch_metadata, infer_batch
from maya.emulator.script.native import ScriptNative
from maya.emulator.script.stop import StopController
from maya.traces.operations import MARK_BATCH

_ABSENT = object()


class _Entry:
    """What is known of one live module."""

    __slots__ = ("is_root", "module_id", "path", "reference", "trains", "unnamed_walk_at", "unnamed_walks")

    def __init__(self, module: Module, path: str, module_id: int) -> None:
        self.path = path
        self.module_id = module_id
        self.is_root = False
        self.trains = False
        # Roots only: unnamed submodules seen since, and at how many the next walk is worth it.
        self.unnamed_walks = 0
        self.unnamed_walk_at = 1
        self.reference: weakref.ref[Module] = weakref.ref(module)


class _Stack(threading.local):
    """The modules this thread is inside of, outermost first."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []


class ModuleHooks:
    """Tells the native recorder which module runs, until `remove`.

    Args:
        on_root_forward: called whenever a root module is about to run.
    """

    def __init__(
        self,
        native: ScriptNative,
        stop: StopController,
        *,
        on_root_forward: Callable[[], None] = lambda: None,
    ) -> None:
        self._native = native
        self._stop = stop
        self._on_root_forward = on_root_forward
        self._entries: dict[int, _Entry] = {}
        self._root_names: dict[str, set[int]] = {}
        self._stack = _Stack()
        self._handles: list[Any] = []
        self._batch: str | None = None

    def install(self) -> None:
        """Register the global hooks. Call once, before the script runs."""
        self._handles = [
            register_module_forward_pre_hook(self._make_before()),
            register_module_forward_hook(self._make_after(), with_kwargs=True, always_call=True),
        ]

    def remove(self) -> None:
        """Take the hooks out again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def announce_batch(self) -> None:
        """A backward pass begins: what the last root forward got was a batch.

        Forwards that no backward follows (metrics, a teacher, a generator whose output goes into the
        next root) are none, even with gradients enabled.
        """
        if self._batch is not None:
            self._native.mark(MARK_BATCH, self._batch)
            self._batch = None

    def path_of(self, module: Module) -> str:
        """The dotted path a module was last named by; empty if it never ran."""
        entry = self._entries.get(id(module))
        return entry.path if entry else ""

    def _make_before(self) -> Callable[[Module, Any], None]:
        entries, local, stop, enter = self._entries, self._stack, self._stop, self._native.enter_module

        def before_forward(module: Module, _args: Any) -> None:
            if stop.requested:
                stop.raise_again()
            stack = local.entries
            entry = entries.get(id(module))
            if entry is None:
                entry = self._name(module, stack)
            if entry.is_root:
                self._resynchronise(entry, stack)
                self._on_root_forward()
            stack.append(entry)
            enter(entry.module_id)

        return before_forward

    def _make_after(self) -> Callable[..., None]:
        entries, local, leave = self._entries, self._stack, self._native.leave_module

        # torch calls with (module, args, kwargs, output), after an exception with (module, args, None).
        def after_forward(module: Module, args: Any, kwargs: Any, output: Any = _ABSENT) -> None:
            stack = local.entries
            entry = entries.get(id(module))
            if not stack or entry is None:
                return
            if stack[-1] is entry:
                stack.pop()
                leave()
            elif entry in stack:
                self._unwind_to(entry, stack)
            else:
                return
            if entry.trains and not stack and output is not _ABSENT and torch.is_grad_enabled():
                self._batch = batch_metadata(*infer_batch(args, kwargs), entry.path)

        return after_forward

    def _resynchronise(self, entry: _Entry, stack: list[_Entry]) -> None:
        # After hooks do not run when a BaseException (Ctrl-C in a notebook-like script) leaves a
        # module. No root runs inside itself, so finding it on the stack shows that it happened.
        if entry in stack:
            self._unwind_to(entry, stack)

    def _unwind_to(self, entry: _Entry, stack: list[_Entry]) -> None:
        while True:
            self._native.leave_module()
            if stack.pop() is entry:
                return

    def _name(self, module: Module, stack: list[_Entry]) -> _Entry:
        if not stack:
            return self._walk_root(module)
        root_entry = stack[0]
        root = root_entry.reference()
        if root_entry.is_root and root is not None:
            root_entry.unnamed_walks += 1
            if root_entry.unnamed_walks >= root_entry.unnamed_walk_at:
                # Modules made in every forward never get a name; look for them ever more rarely.
                root_entry.unnamed_walk_at *= 2
                self._walk(root, root_entry.path)
                entry = self._entries.get(id(module))
                if entry is not None:
                    root_entry.unnamed_walks, root_entry.unnamed_walk_at = 0, 1
                    return entry
        return self._add(module, f"{stack[-1].path}.<{type(module).__name__}>")

    def _walk_root(self, root: Module) -> _Entry:
        name = type(root).__name__
        used = self._root_names.setdefault(name, set())
        number = 1
        while number in used:
            number += 1
        used.add(number)
        weakref.finalize(root, used.discard, number)
        path = name if number == 1 else f"{name}#{number}"
        self._walk(root, path)
        entry = self._entries[id(root)]
        entry.is_root = True
        entry.trains = any(parameter.requires_grad for parameter in root.parameters())
        return entry

    def _walk(self, root: Module, root_path: str) -> None:
        for name, module in root.named_modules():
            path = f"{root_path}.{name}" if name else root_path
            entry = self._entries.get(id(module))
            if entry is None:
                entry = self._add(module, path)
            elif entry.path != path:
                entry.path = path
                entry.module_id = self._native.module_id(path)
                entry.is_root = False
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._native.bind_parameter(parameter, entry.module_id)

    def _add(self, module: Module, path: str) -> _Entry:
        key = id(module)
        entry = _Entry(module, path, self._native.module_id(path))
        self._entries[key] = entry
        weakref.finalize(module, self._entries.pop, key, None).atexit = False
        return entry
