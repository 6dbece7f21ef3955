"""Where device time goes: by kernel name, and by what the times rest on."""

from __future__ import annotations

import numpy as np

from maya.kernel_models import Source
from maya.pipeline.priced_run import PricedRank
from maya.reports.prediction import NS_PER_MS, Coverage, KernelShare

TOP_KERNELS = 10
"""How many names `prediction.json` lists; the summary shows fewer."""


def top_kernels(run: PricedRank, limit: int = TOP_KERNELS) -> tuple[KernelShare, ...]:
    """Kernel names of the window by device time, longest first, ties by name."""
    part = run.kernels_in_window()
    work, names = run.times.work_ns[part], run.times.name[part]
    total_ns = int(work.sum())
    if total_ns == 0:
        return ()
    count = len(run.times.names)
    time_of = np.zeros(count, dtype=np.int64)
    np.add.at(time_of, names, work)
    calls_of = np.bincount(names, minlength=count)
    order = sorted(np.flatnonzero(calls_of).tolist(), key=lambda i: (-int(time_of[i]), run.times.names[i]))
    shares = []
    for index in order[:limit]:
        chosen = names == index
        by_source = np.bincount(run.times.source[part][chosen], weights=work[chosen], minlength=len(Source))
        family = int(run.times.family[part][chosen][0])
        shares.append(
            KernelShare(
                name=run.times.names[index],
                family=run.times.families[family],
                calls=int(calls_of[index]) / run.window.iterations,
                time_ms=int(time_of[index]) / run.window.iterations / NS_PER_MS,
                share=int(time_of[index]) / total_ns,
                source=Source(int(by_source.argmax())).name.lower(),
            )
        )
    return tuple(shares)


def coverage(run: PricedRank) -> Coverage | None:
    """Shares of the window's device time by source; None if no kernel ran."""
    part = run.kernels_in_window()
    by_source = np.zeros(len(Source), dtype=np.int64)
    np.add.at(by_source, run.times.source[part], run.times.work_ns[part])
    total_ns = int(by_source.sum())
    if total_ns == 0:
        return None
    return Coverage(**{source.name.lower(): int(by_source[source]) / total_ns for source in Source})
