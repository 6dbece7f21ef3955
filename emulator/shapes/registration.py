"""Teaching torch's meta device the operators it lacks."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from maya.emulator.shapes import (
    attention,
    convolution,
    linear_algebra,
    losses,
    normalization,
    optimizers,
    pointwise,
    pooling,
    recurrent,
    sampling,
)

_TOPICS = (
    attention,
    convolution,
    linear_algebra,
    losses,
    normalization,
    optimizers,
    pointwise,
    pooling,
    recurrent,
    sampling,
)
_COMPOSITES = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
_libraries: list[Any] = []  # a registration lasts as long as its library object


def register_missing_shapes() -> list[str]:
    """Register a meta kernel for every operator below that has none in this torch.

    What torch itself has, or gets in a later version, is replaced only where it is known to be wrong
    (the topics' REPLACED). Idempotent.

    Returns:
        the operators registered, as `name.overload`.
    """
    if _libraries:
        return []
    library = torch.library.Library("aten", "IMPL", "Meta")
    _libraries.append(library)
    registered = []
    for topic in _TOPICS:
        for name, kernel in topic.SHAPES.items():
            if _is_missing(f"aten::{name}"):
                library.impl(name, kernel)
                registered.append(name)
        for name, kernel in getattr(topic, "REPLACED", {}).items():
            with warnings.catch_warnings():  # that it overrides a kernel
                warnings.simplefilter("ignore")
                library.impl(name, kernel)
            registered.append(name)
    return registered


def _is_missing(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    try:
        return not has(name, "Meta") and not any(has(name, key) for key in _COMPOSITES)
    except RuntimeError:  # an operator of another version
        return False
