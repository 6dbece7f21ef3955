"""What a learned family is: from features to a time, an interval and its provenance.

`time = base x exp(trees(features))`, never below `bound / most_efficiency`. The base is a physical formula
with a handful of parameters fitted over all GPUs together; the trees learn what the formula leaves over. As
`efficiency = bound / time`, this is a learned efficiency whose extrapolation is the formula's: beyond the
training range trees are constant while the base goes on with size and hardware
(docs/decisions/0009-learned-efficiency.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models.columns import Floats
from maya.kernel_models.forms.form import Parameter
from maya.kernel_models.learned.calls import Calls
from maya.kernel_models.work import KernelWork

Table = Mapping[str, NDArray[np.generic]]
"""Columns of a table by name, all of one length."""


@dataclass(frozen=True)
class Training:
    """Settings of the trees; every seed is fixed.

    Attributes:
        rounds, leaves, learning_rate, least_rows: LightGBM's num_iterations, num_leaves, learning_rate and
            min_data_in_leaf.
        objective: LightGBM's; the target is the logarithm of measured time over base.
        most_rows: a deterministic sample of at most so many rows is learned from.
        extra: other LightGBM parameters.
    """

    rounds: int = 400
    leaves: int = 63
    learning_rate: float = 0.06
    least_rows: int = 20
    objective: str = "regression"
    most_rows: int = 300_000
    extra: Mapping[str, float | int | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LearnedFamily:
    """One family. A file of `kernel_models.learned` each, which ends in such an object; hashed by identity.

    Attributes:
        name: of its artifacts.
        families: families of `KernelWork` that it prices.
        variants: implementations and ways of timing, first what stock PyTorch launches, timed as the device
            alone takes it.
        parameters: of the base, with bounds.
        base_ns: (parameters by name, calls) → [k] nanoseconds.
        bound_ns: calls → [k] nanoseconds that the hardware cannot beat.
        most_efficiency: how far a time may go below the bound (1; above where an algorithm does with fewer
            operations than counted, or data come from the L2).
        feature_names, features: calls → [k, f].
        driver_names, drivers: calls → [k, d] log sizes; the training range is kept of these.
        size_family: calls → [k] integers, equal for calls that are held out together.
        of_works: kernels of operators → calls; None where no operator launches such kernels.
        of_table: columns of a table and the GPU of each row → calls; times are never among the columns.
        monotone: feature → +1 or -1.
        categorical: features whose values are names.
        training: settings.
    """

    name: str
    families: tuple[str, ...]
    variants: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    base_ns: Callable[[Mapping[str, float], Calls], Floats]
    bound_ns: Callable[[Calls], Floats]
    most_efficiency: float
    feature_names: tuple[str, ...]
    features: Callable[[Calls], Floats]
    driver_names: tuple[str, ...]
    drivers: Callable[[Calls], Floats]
    size_family: Callable[[Calls], NDArray[np.int64]]
    of_works: Callable[[Sequence[KernelWork], GpuSpec], Calls] | None
    of_table: Callable[[Table, Sequence[GpuSpec]], Calls]
    monotone: Mapping[str, int] = field(default_factory=dict)
    categorical: tuple[str, ...] = ()
    training: Training = Training()

    def defaults(self) -> dict[str, float]:
        """Parameter → default."""
        return {parameter.name: parameter.default for parameter in self.parameters}
