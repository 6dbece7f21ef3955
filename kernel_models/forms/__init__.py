"""Parametric formulas for the time of a kernel, and which family uses which.

Every formula has the same skeleton,
`time = launch_floor + max(flops / peak, bytes / bandwidth) / efficiency`, where the efficiency
comes from a handful of positive parameters with a physical meaning. The parameters are fitted to
measurements (`python -m maya.kernel_models.fit`) for each family, arithmetic and GPU generation;
the defaults below are what is assumed where nothing was measured.
"""

from __future__ import annotations

from maya.kernel_models.forms.attention import ATTENTION
from maya.kernel_models.forms.convolution import CONVOLUTION
from maya.kernel_models.forms.form import Form, Parameter
from maya.kernel_models.forms.gemm import GEMM
from maya.kernel_models.forms.link import LINK, PEER
from maya.kernel_models.forms.memory import MEMORY
from maya.kernel_models.forms.recurrent import RECURRENT

FAMILY_FORMS: dict[str, Form] = {
    "gemm": GEMM,
    "grouped_gemm": GEMM,
    "attention_forward": ATTENTION,
    "attention_backward": ATTENTION,
    "convolution": CONVOLUTION,
    "recurrent": RECURRENT,
    "memcpy_pinned": LINK,
    "memcpy_pageable": LINK,
    "memcpy_p2p": PEER,
}
"""Families not listed use MEMORY."""

DEFAULTS: dict[str, dict[str, float]] = {
    "attention_backward": {"efficiency": 0.45},
    "grouped_gemm": {"efficiency": 0.65},
    "depthwise": {"hbm": 0.4, "compute": 0.3},
    "copy": {"hbm": 0.75},
    "gather": {"hbm": 0.6},
    "scatter": {"hbm": 0.35},
    "sort": {"hbm": 0.35, "floor_ns": 15_000.0},
    "scan": {"hbm": 0.5, "floor_ns": 3_500.0},
    "random": {"hbm": 0.65, "compute": 0.25},
    "embedding_backward": {"hbm": 0.35, "floor_ns": 4_000.0},
    "multi_tensor": {"hbm": 0.8, "floor_ns": 3_500.0},
    # One block of 512 threads fills most of an SM: it draws no more than that SM's share of the bandwidth.
    "batch_norm": {"hbm": 0.8, "floor_ns": 6_000.0, "per_block": 1.0},
    "batch_norm_backward": {"hbm": 0.75, "floor_ns": 6_000.0, "per_block": 1.0},
    "norm_backward": {"hbm": 0.6},
    "spatial": {"hbm": 0.6, "compute": 0.03},
    "pool": {"hbm": 0.7, "compute": 0.04},
    "memcpy": {"hbm": 0.85, "floor_ns": 1_500.0},
    "memset": {"hbm": 0.9, "floor_ns": 1_500.0},
    "solver": {"compute": 0.05, "floor_ns": 60_000.0, "per_block": 0.25},
    "fourier": {"hbm": 0.6, "compute": 0.3, "floor_ns": 4_000.0},
    "distance": {"compute": 0.3},
    "sparse": {"hbm": 0.3, "floor_ns": 15_000.0},
    "unknown": {"hbm": 0.4, "floor_ns": 3_000.0},
    "memcpy_pageable": {"efficiency": 0.3, "floor_ns": 2_000.0},
    "memcpy_p2p": {"efficiency": 0.8, "floor_ns": 4_000.0},
}
"""Departures from a form's own defaults for families without measurements (or before fitting)."""

ROOFLINE_INTERVAL: dict[str, tuple[float, float]] = {
    "memcpy_pageable": (0.3, 3.0),
    "solver": (0.2, 5.0),
    "unknown": (0.25, 6.0),
    "sparse": (0.25, 5.0),
}
"""Low and high as multiples of the estimate where nothing was fitted."""
DEFAULT_ROOFLINE_INTERVAL = (0.5, 2.5)


def form_of(family: str) -> Form:
    """The formula that prices a family."""
    return FAMILY_FORMS.get(family, MEMORY)


def default_parameters(family: str) -> dict[str, float]:
    """Assumed parameters of a family."""
    form = form_of(family)
    return form.defaults() | DEFAULTS.get(family, {})


__all__ = [
    "DEFAULT_ROOFLINE_INTERVAL",
    "ROOFLINE_INTERVAL",
    "Form",
    "Parameter",
    "default_parameters",
    "form_of",
]
