"""Makes modules that were imported before the device existed see the new names.

`import torch` imports `torch.cuda`, which binds classes and functions of `torch._C` when it is
imported, and derives classes from them. The modules that do are executed again, and every reference
to an old object that some module or class still holds is set to the new one.

A hook that sets the names between the import of `torch._C` and that of `torch.cuda` works as well in
both builds, but only where torch is not imported yet, and loading the compiled backend imports it.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping
from typing import Any

import torch

from maya.emulator.torch_cuda.registry import ABSENT, Registry
from maya.errors import MayaError

RELOADED_MODULES = (
    "torch.cuda.streams",
    "torch.cuda.graphs",
    "torch.cuda.memory",
    "torch.cuda.nvtx",
    "torch.backends.cusparselt",
)
"""Decide at import what `torch._C` offers. In the order in which they are imported."""
RELOADED_PROPERTY_MODULES = ("torch.backends.cudnn.rnn", "torch.backends.cudnn")
"""The same, but `sys.modules` holds a `PropModule` in their place (torch.backends)."""


def rebind(registry: Registry) -> None:
    """Reloads what has bound `torch._C` names and redirects references to all replaced objects."""
    renewed: dict[int, tuple[Any, Any]] = {}
    for owner, name, before in registry.changes:
        if isinstance(owner, types.ModuleType) and before is not ABSENT:
            _note(renewed, before, getattr(owner, name))
    for name in RELOADED_MODULES:
        module = _imported(name)
        before = dict(vars(module))
        importlib.reload(module)
        for key, value in before.items():
            if getattr(value, "__module__", None) == name:
                _note(renewed, value, vars(module).get(key))
    for name in RELOADED_PROPERTY_MODULES:
        _reload_property_module(name)
    _redirect(renewed)


def _imported(name: str) -> Any:
    module = sys.modules.get(name)
    if module is None:
        raise MayaError(
            f"torch {torch.__version__} does not import {name} by itself, which the emulated CUDA device "
            "builds on",
            hint="Use a version of torch that Maya supports (2.13 or 2.14), or a newer Maya.",
        )
    return module


def _note(renewed: dict[int, tuple[Any, Any]], old: Any, new: Any) -> None:
    """Remembers old -> new where identity means something: not for flags and numbers."""
    if old is not new and new is not None and (callable(old) or isinstance(old, types.ModuleType)):
        renewed[id(old)] = (old, new)


def _reload_property_module(name: str) -> None:
    """Executes the module behind a `PropModule` again and gives the wrapper its new properties."""
    wrapper = _imported(name)
    inner = wrapper.m
    sys.modules[name] = inner
    try:
        inner.__spec__.loader.exec_module(inner)
        wrapper.__class__ = type(sys.modules[name])
    finally:
        sys.modules[name] = wrapper
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, wrapper)


def _redirect(renewed: Mapping[int, tuple[Any, Any]]) -> None:
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict) or module is torch._C:
            continue
        for key, value in list(names.items()):
            if id(value) in renewed:
                names[key] = renewed[id(value)][1]
            elif issubclass(type(value), type) and value.__module__ == names.get("__name__"):
                # not isinstance: it asks for __class__, and some of torch's objects warn at any access
                _redirect_class(value, renewed)


def _redirect_class(owner: type, renewed: Mapping[int, tuple[Any, Any]]) -> None:
    """Class attributes such as `Stream = torch.cuda.Stream` in Dynamo's device interface."""
    for key, value in list(vars(owner).items()):
        if id(value) in renewed:
            setattr(owner, key, renewed[id(value)][1])
