"""Robust least squares of log time over a form's positive parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from maya.kernel_models.columns import (
    DeviceColumns,
    Floats,
    WorkColumns,
    device_columns,
    peak_flops,
    work_columns,
)
from maya.kernel_models.fit.measurements import Measurements
from maya.kernel_models.forms import Form, default_parameters, form_of

PRIOR_WEIGHT = 0.3
"""Pull of each parameter towards its default in units of one row's residual: it decides only where the
data say nothing."""
SOFT_L1_SCALE = 0.15
"""Residuals beyond about 15% weigh linearly."""
EXTRA_BOUNDS_NS = (100.0, 60_000.0)


@dataclass(frozen=True)
class Problem:
    """The columns of some rows of one group, ready for a formula."""

    form: Form
    family: str
    work: WorkColumns
    device: DeviceColumns
    segment: NDArray[np.int64]
    time_ns: Floats
    extra: NDArray[np.int64]
    extra_names: tuple[str, ...]

    def predict(self, parameters: Mapping[str, float], extras: Floats) -> Floats:
        """[rows] nanoseconds, with the timing method's overhead if `extras` is given."""
        each = self.form.time_ns(parameters, self.work, self.device)
        total = np.bincount(self.segment, weights=each, minlength=len(self.time_ns))
        padded = np.append(extras, 0.0)
        result: Floats = total + padded[self.extra]
        return result


def make_problem(measurements: Measurements, rows: list[int]) -> Problem:
    """Gather rows of a group."""
    wanted = {row: position for position, row in enumerate(rows)}
    kernels = [i for i, row in enumerate(measurements.segment) if row in wanted]
    works = [measurements.works[i] for i in kernels]
    gpus = [measurements.gpus[i] for i in kernels]
    names = sorted({measurements.extra_names[e] for e in (measurements.extra[r] for r in rows) if e >= 0})
    index = {name: position for position, name in enumerate(names)}
    extra = [
        index[measurements.extra_names[measurements.extra[row]]]
        if measurements.extra[row] >= 0
        else len(names)
        for row in rows
    ]
    return Problem(
        form=form_of(measurements.family),
        family=measurements.family,
        work=work_columns(works, [peak_flops(g, w.math) for g, w in zip(gpus, works, strict=True)]),
        device=device_columns(gpus),
        segment=np.asarray([wanted[measurements.segment[i]] for i in kernels], dtype=np.int64),
        time_ns=np.asarray([measurements.time_ns[row] for row in rows], dtype=np.float64),
        extra=np.asarray(extra, dtype=np.int64),
        extra_names=tuple(names),
    )


def subset(problem: Problem, chosen: NDArray[np.bool_]) -> Problem:
    """Only some rows."""
    kernels = chosen[problem.segment]
    renumbered = np.cumsum(chosen) - 1
    work = WorkColumns(
        problem.work.flops[kernels],
        problem.work.moved_bytes[kernels],
        problem.work.blocks[kernels],
        problem.work.shape[kernels],
        problem.work.peak[kernels],
    )
    columns = {name: getattr(problem.device, name)[kernels] for name in problem.device.__dataclass_fields__}
    return replace(
        problem,
        work=work,
        device=DeviceColumns(**columns),
        segment=renumbered[problem.segment[kernels]],
        time_ns=problem.time_ns[chosen],
        extra=problem.extra[chosen],
    )


def solve(problem: Problem, fixed: Mapping[str, float]) -> tuple[dict[str, float], Floats]:
    """Parameters of the form and overheads of the timing methods.

    Args:
        problem: rows.
        fixed: parameters that are not fitted.
    """
    start = default_parameters(problem.family) | dict(fixed)
    free = [p for p in problem.form.parameters if p.name not in fixed]
    extras = len(problem.extra_names)
    low = np.log([p.low for p in free] + [EXTRA_BOUNDS_NS[0]] * extras)
    high = np.log([p.high for p in free] + [EXTRA_BOUNDS_NS[1]] * extras)
    initial = np.log([start[p.name] for p in free] + [4_000.0] * extras)
    initial = np.clip(initial, low + 1e-6, high - 1e-6)
    log_time = np.log(problem.time_ns)
    # Ratios between parameters are weakly determined; the prior keeps them from running off.
    prior = PRIOR_WEIGHT

    def unpack(theta: Floats) -> tuple[dict[str, float], Floats]:
        values = np.exp(theta)
        parameters = start | {p.name: float(v) for p, v in zip(free, values, strict=False)}
        return parameters, values[len(free) :]

    def residuals(theta: Floats) -> Floats:
        error = np.log(problem.predict(*unpack(theta))) - log_time
        robust = np.sign(error) * SOFT_L1_SCALE * np.sqrt(2 * (np.sqrt(1 + (error / SOFT_L1_SCALE) ** 2) - 1))
        return np.concatenate([robust, prior * SOFT_L1_SCALE * (theta - initial)])

    solution = least_squares(residuals, initial, bounds=(low, high), max_nfev=60, x_scale=1.0)
    parameters, overheads = unpack(solution.x)
    return {p.name: parameters[p.name] for p in free} | dict(fixed), overheads
