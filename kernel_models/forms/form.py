"""What a time formula is: named positive parameters and a function of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from maya.kernel_models.columns import DeviceColumns, Floats, WorkColumns


@dataclass(frozen=True)
class Parameter:
    """A positive parameter: its default and the bounds a fit may not leave."""

    name: str
    default: float
    low: float
    high: float


@dataclass(frozen=True)
class Form:
    """A formula.

    Attributes:
        name: for the artifact.
        parameters: in a fixed order.
        time_ns: (parameters by name, work, device) → [k] nanoseconds.
        drivers: work → [k, d] log sizes; inside their fitted range a prediction interpolates.
        driver_names: [d] what the columns of `drivers` are.
    """

    name: str
    parameters: tuple[Parameter, ...]
    time_ns: Callable[[Mapping[str, float], WorkColumns, DeviceColumns], Floats]
    drivers: Callable[[WorkColumns], Floats]
    driver_names: tuple[str, ...]

    def defaults(self) -> dict[str, float]:
        """Parameter name → default."""
        return {parameter.name: parameter.default for parameter in self.parameters}


def smooth_maximum(*terms: Floats) -> Floats:
    """A maximum without a kink: the 6-norm, never below the largest term.

    Two equal bounds cost 12% more than either alone, as overlap of memory and arithmetic is never perfect.
    """
    largest = np.maximum.reduce(np.broadcast_arrays(*terms))
    inverse = 1.0 / np.maximum(largest, 1e-30)
    total = np.zeros(largest.shape, dtype=np.float64)
    for term in terms:
        square = (term * inverse) ** 2
        total = total + square * square * square
    result: Floats = largest * np.sqrt(np.cbrt(total))
    return result


LOG_SIZES = ("bytes", "flops")


def log_sizes(work: WorkColumns) -> Floats:
    """[k, 2] log of bytes and of flops, the drivers of most families."""
    return np.stack([np.log(np.maximum(work.moved_bytes, 1)), np.log(np.maximum(work.flops, 1))], axis=1)
