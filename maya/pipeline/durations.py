"""`durations-N.npz`: how long each kernel of a rank takes. Derived: `maya report` writes it anew."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from maya.kernel_models import KernelTimes


def write_durations(out: BinaryIO, times: KernelTimes) -> None:
    """Write kernel times as an npz archive.

    Arrays: `operation_offsets` int64[n + 1]; `work_ns`, `low_ns`, `high_ns` int64[k]; `source` uint8[k]
    (`maya.kernel_models.Source`); `name`, `family` int32[k], indices into `names`, `families`.
    """
    np.savez(
        out,
        operation_offsets=times.operation_offsets,
        work_ns=times.work_ns,
        low_ns=times.low_ns,
        high_ns=times.high_ns,
        source=times.source,
        name=times.name,
        names=np.array(times.names, dtype=np.str_),
        family=times.family,
        families=np.array(times.families, dtype=np.str_),
    )
