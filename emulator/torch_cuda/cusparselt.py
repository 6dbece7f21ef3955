"""The stand-in for cuSPARSELt, which 2:4 sparse matrices ask for its version."""

from __future__ import annotations

import types
from typing import Any

CUSPARSELT_VERSION = 701
"""0.7.1, pinned by torch's CUDA 12.8 wheels."""


def cusparselt_module() -> types.ModuleType:
    """Stands for `torch._C._cusparselt` in a CPU build."""
    module = types.ModuleType("torch._C._cusparselt")

    def mm_search(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Maya's emulated CUDA device does not search for cuSPARSELt algorithms")

    module.getVersionInt = lambda: CUSPARSELT_VERSION  # type: ignore[attr-defined]
    module.mm_search = mm_search  # type: ignore[attr-defined]
    return module
