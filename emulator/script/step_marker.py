"""`--step-marker module:function`: each return of that function ends an iteration.

For frameworks that never call `Optimizer.step`. A function of an imported module is wrapped as
soon as its module has been executed; one of the script itself (`__main__:train_step`) cannot be
reached that way, since the script's module body is the whole run, so its definition gets a
decorator in the parsed source instead.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from maya.errors import UsageError

DECORATOR_NAME = "__maya_step_marker__"
"""What the decorator is called in the script's globals."""


@dataclass(frozen=True)
class StepMarker:
    """Module and dotted name within it."""

    module: str
    function: str

    @classmethod
    def parse(cls, text: str) -> StepMarker:
        """Parse `package.module:function` or `package.module:Class.method`.

        Raises:
            UsageError: the text has another form.
        """
        module, colon, function = text.partition(":")
        names = [*module.split("."), *function.split(".")]
        if not colon or not all(name.isidentifier() for name in names):
            raise UsageError(
                f"--step-marker {text!r} is not of the form module:function",
                hint="Name the function whose every return ends a step: trainer.loop:train_step,"
                " or __main__:train_step for one in the script itself.",
            )
        return cls(module, function)


class StepMarkerHook:
    """Wraps the marked function wherever it appears.

    Attributes:
        found: whether the function has been wrapped so far.
    """

    def __init__(self, marker: StepMarker, on_return: Callable[[], None]) -> None:
        self.marker = marker
        self.found = False
        self._on_return = on_return
        self._finder: _PatchingFinder | None = None

    def install(self) -> None:
        """Wrap the function now if its module is there, else when it is imported."""
        if self.marker.module == "__main__":
            return
        module = sys.modules.get(self.marker.module)
        if module is not None:
            self.patch(module)
            return
        self._finder = _PatchingFinder(self.marker.module, self.patch)
        sys.meta_path.insert(0, self._finder)

    def remove(self) -> None:
        """Stop waiting for the module."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def decorate(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, announcing each of its returns (not its exceptions)."""
        self.found = True

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self._on_return()
            return result

        return marked

    def patch(self, module: ModuleType) -> None:
        """Replace the function in an executed module.

        Raises:
            UsageError: the module has no such function.
        """
        owner: Any = module
        *path, name = self.marker.function.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        function = getattr(owner, name, None)
        if not callable(function):
            raise UsageError(
                f"--step-marker {self.marker.module}:{self.marker.function}: no such function in"
                f" {getattr(module, '__file__', self.marker.module)}",
                hint="Give the name as it is defined there, Class.method for a method.",
            )
        raw = vars(owner).get(name)
        wrapped: Any = self.decorate(function)
        if isinstance(raw, staticmethod):
            wrapped = staticmethod(wrapped)
        setattr(owner, name, wrapped)

    def transform(self, tree: ast.Module) -> ast.Module:
        """Decorate the function's definition in the script's parsed source.

        Raises:
            UsageError: the script defines no such function.
        """
        body: Sequence[ast.stmt] = tree.body
        names = self.marker.function.split(".")
        for depth, name in enumerate(names):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef) if depth == len(names) - 1 else (ast.ClassDef,)
            found = [node for node in body if isinstance(node, kinds) and node.name == name]
            if not found:
                raise UsageError(
                    f"--step-marker __main__:{self.marker.function}: the script defines no {name!r}"
                    " at that level",
                    hint="Name a function or a Class.method that the script itself defines.",
                )
            node = found[-1]
            body = node.body
        decorator = ast.copy_location(ast.Name(DECORATOR_NAME, ast.Load()), node)
        node.decorator_list.insert(0, decorator)
        return tree


class _PatchingFinder(importlib.abc.MetaPathFinder):
    """Lets the other finders find one module and patches it after it was executed."""

    def __init__(self, name: str, patch: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._patch = patch

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._patch_after(spec.loader)
                return spec
        return None

    def _patch_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._patch(module)

        loader.exec_module = exec_module
