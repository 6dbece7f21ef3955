"""cuDNN recurrent layers: one small GEMM a time step, in sequence.

`work.shape` is (hidden, batch, steps, gates, layers, direction).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maya.kernel_models.columns import DeviceColumns, Floats, WorkColumns
from maya.kernel_models.forms.form import Form, Parameter, smooth_maximum


def time_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each recurrent pass, [k]."""
    hidden, batch, steps, gates, layers = (np.maximum(work.shape[:, column], 1.0) for column in range(5))
    chain = steps * layers
    step_flops = work.flops / chain
    rate = p["efficiency"] * batch / (batch + p["batch_half"]) * hidden / (hidden + p["hidden_half"])
    weights = gates * hidden * hidden * 4.0
    reread = weights / (device.l2_bandwidth * p["l2"])
    step = smooth_maximum(step_flops / (work.peak * rate), reread) * 1e9 + p["step_ns"]
    backward = np.where(work.shape[:, 5] > 0, p["backward"], 1.0)
    result: Floats = p["floor_ns"] + chain * step * backward
    return result


def drivers(work: WorkColumns) -> Floats:
    """[k, 3]: logs of hidden size, batch, steps."""
    result: Floats = np.log(np.maximum(work.shape[:, :3], 1.0))
    return result


RECURRENT = Form(
    "recurrent",
    (
        Parameter("floor_ns", 10_000.0, 500.0, 200_000.0),
        Parameter("efficiency", 0.5, 0.02, 1.0),
        Parameter("batch_half", 16.0, 0.1, 1_000.0),
        Parameter("hidden_half", 256.0, 1.0, 10_000.0),
        Parameter("l2", 0.5, 0.02, 20.0),
        Parameter("step_ns", 4_000.0, 100.0, 60_000.0),
        Parameter("backward", 1.0, 0.5, 3.0),
    ),
    time_ns,
    drivers,
    ("hidden", "batch", "steps"),
)
