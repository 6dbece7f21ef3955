"""torch.compile: until compiled code is modelled, what a script compiles runs operator by operator.

Inductor would generate Triton kernels for a GPU that is not there. Running eagerly keeps the script
going and its matrix products, attention, collectives and memory order of magnitude right; fusion is
missing, so a compiled run on the GPU is faster. That is said on stderr and among the assumptions.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

MODELLED_BACKEND = "inductor"
"""The default of torch.compile; other backends ("eager", "aot_eager") run in Python and are left alone."""
ASSUMED = "torch.compile is not modelled yet: compiled code runs operator by operator, without fusion"
ABOUT_GLOBAL_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks"
"""Torch's warning; the hooks are Maya's."""


class EagerCompile:
    """Replaces `torch.compile` between `install` and `remove`.

    Args:
        assume: notes an assumption: `assume(kind, producer, value)`; kind "model" is one of Maya's own.
    """

    def __init__(self, assume: Callable[[str, str, str], object]) -> None:
        self._assume = assume
        self._original: Callable[..., Any] | None = None
        self._told = False

    def install(self) -> None:
        """From now on `torch.compile` with Inductor returns what it was given, wrapped as torch would."""
        if self._original is not None:
            return
        original = self._original = torch.compile
        warnings.filterwarnings("ignore", message=ABOUT_GLOBAL_HOOKS)

        @functools.wraps(original)
        def compile(model: Any = None, **options: Any) -> Any:
            if options.get("backend", MODELLED_BACKEND) != MODELLED_BACKEND or options.get("disable"):
                return original(model, **options)
            if model is None:
                return functools.partial(compile, **options)
            self._tell()
            return _uncompiled(model)

        torch.compile = compile

    def remove(self) -> None:
        """Give `torch.compile` back."""
        if self._original is not None:
            torch.compile = self._original
            self._original = None

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        print(f"maya: {ASSUMED}", file=sys.stderr, flush=True)
        self._assume("model", "torch.compile", ASSUMED)


def _uncompiled(model: Any) -> Any:
    """A module in the wrapper that torch.compile returns (`_orig_mod`); anything else as it is."""
    if not isinstance(model, torch.nn.Module):
        return model
    # Imported late: a second that only scripts pay that compile, and pay anyway.
    from torch._dynamo.eval_frame import DisableContext, OptimizedModule

    return OptimizedModule(model, DisableContext())
