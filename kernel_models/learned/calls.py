"""k calls of one family as columns, whether they come from operators of a trace or from rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GENERATIONS, GpuSpec
from maya.kernel_models.columns import DeviceColumns, Floats, device_columns, peak_flops


@dataclass(frozen=True)
class Devices:
    """The GPU of every call.

    Attributes:
        gpus: distinct GPUs.
        index: [k] into `gpus`.
    """

    gpus: tuple[GpuSpec, ...]
    index: NDArray[np.int64]

    @classmethod
    def of_rows(cls, gpus: Sequence[GpuSpec]) -> Devices:
        """From one GPU a row."""
        table: dict[str, int] = {}
        distinct: list[GpuSpec] = []
        index = np.empty(len(gpus), dtype=np.int64)
        for row, gpu in enumerate(gpus):
            found = table.get(gpu.name)
            if found is None:
                found = table[gpu.name] = len(distinct)
                distinct.append(gpu)
            index[row] = found
        return cls(tuple(distinct), index)

    @classmethod
    def all_the_same(cls, gpu: GpuSpec, count: int) -> Devices:
        """`count` calls on one GPU."""
        return cls((gpu,), np.zeros(count, dtype=np.int64))

    def figure(self, read: Callable[[GpuSpec], float]) -> Floats:
        """[k] of any figure of the GPUs."""
        each = np.asarray([read(gpu) for gpu in self.gpus], dtype=np.float64)
        result: Floats = each[self.index] if len(each) else np.zeros(0)
        return result

    @cached_property
    def columns(self) -> DeviceColumns:
        """[k] columns as the parametric forms take them."""
        each = device_columns(self.gpus)
        return DeviceColumns(
            **{name: getattr(each, name)[self.index] for name in DeviceColumns.__dataclass_fields__}
        )

    @cached_property
    def generation(self) -> Floats:
        """[k] position in `GENERATIONS`."""
        return self.figure(lambda gpu: float(GENERATIONS.index(gpu.generation)))

    @cached_property
    def clock_hz(self) -> Floats:
        """[k] boost clock."""
        return self.figure(lambda gpu: gpu.boost_clock_mhz * 1e6)

    def peak(self, math: NDArray[np.str_]) -> Floats:
        """[k] operations per second of each call's arithmetic on its GPU."""
        kinds, kind = np.unique(math, return_inverse=True)
        table = np.asarray([[peak_flops(gpu, str(each)) for each in kinds] for gpu in self.gpus])
        result: Floats = table.reshape(len(self.gpus), len(kinds))[self.index, kind]
        return result

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Devices:
        """Some calls."""
        return Devices(self.gpus, self.index[chosen])


@dataclass(frozen=True)
class Calls:
    """k calls of one learned family.

    Attributes:
        columns: the family's own names → [k] float64.
        math: [k] keys of `GpuSpec.peak_tflops`.
        variant: [k] index into the family's `variants` (implementation and way of timing).
        devices: of every call.
    """

    columns: Mapping[str, Floats]
    math: NDArray[np.str_]
    variant: NDArray[np.int64]
    devices: Devices

    def __len__(self) -> int:
        """How many calls."""
        return len(self.math)

    def __getitem__(self, name: str) -> Floats:
        """A column."""
        return self.columns[name]

    @cached_property
    def peak(self) -> Floats:
        """[k] operations per second."""
        return self.devices.peak(self.math)

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Calls:
        """Some calls."""
        return Calls(
            {name: values[chosen] for name, values in self.columns.items()},
            self.math[chosen],
            self.variant[chosen],
            self.devices.take(chosen),
        )


def codes_of(
    values: NDArray[np.str_] | Sequence[str] | None, known: Sequence[str], count: int
) -> NDArray[np.int64]:
    """[count] position of each text in `known`; 0, what stock PyTorch does, where it is absent or unknown."""
    if values is None:
        return np.zeros(count, dtype=np.int64)
    table = {name: position for position, name in enumerate(known)}
    distinct, index = np.unique(np.asarray(values, dtype=str), return_inverse=True)
    positions = np.asarray([table.get(str(each), 0) for each in distinct], dtype=np.int64)
    return positions[index]
