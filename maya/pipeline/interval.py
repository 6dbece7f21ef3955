"""The 80% interval of an iteration time, from the intervals of its parts.

Errors of one family of kernels come from one fitted model and are taken as fully correlated: if
one GEMM is slower than predicted, all are. Families are independent of each other, and of the host.
So the device times' error is the root of the sum of squares of the families' sums; with w_f the sum
of the half-widths of family f in the window, that is a fraction

    rho = sqrt(sum w_f^2) / sum w_f    (1 with one family, 1/sqrt(n) with n equal ones)

of what it would be if every kernel erred in the same direction. That extreme is simulated, low and
high, so that kernels hidden behind the host or beside others count only as far as they show in the
iteration; its distance from the central estimate times rho is the device's half-width. The host's
is simulated the same way, and the two add as squares. Communication is one more family of the device.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maya.pipeline.priced_run import PricedRank, PricedRun
from maya.simulator import RankInput, with_work

HOST_GAP_LOW = 0.70
HOST_GAP_HIGH = 1.45
"""80% interval of the host's time per launch as a factor. An assumption, not yet fitted: about the spread
of dispatch speed between the server CPUs of `maya/hardware/hosts.toml`, whichever the GPU sits in."""


def iteration_interval(run: PricedRun) -> tuple[int, int]:
    """(low_ns, high_ns) of the mean iteration; low <= central <= high."""
    central_ns = run.window.iteration_ns
    times = run.slowest.times
    kernels = run.slowest.kernels_in_window()
    work = times.work_ns[kernels]
    families = times.family[kernels]
    below = _correlated_fraction(work - times.low_ns[kernels], families)
    above = _correlated_fraction(times.high_ns[kernels] - work, families)
    device_low = below * max(0, central_ns - _with_device(run, "low"))
    device_high = above * max(0, _with_device(run, "high") - central_ns)
    host_low = max(0, central_ns - _with_host(run, HOST_GAP_LOW))
    host_high = max(0, _with_host(run, HOST_GAP_HIGH) - central_ns)
    low_ns = central_ns - _root_sum_square(device_low, host_low)
    high_ns = central_ns + _root_sum_square(device_high, host_high)
    return max(0, low_ns), high_ns


def _correlated_fraction(half_widths: NDArray[np.int64], families: NDArray[np.int32]) -> float:
    """rho of the module's docstring, in 0..1; 0 without kernels."""
    if not len(half_widths):
        return 0.0
    sums = np.bincount(families, weights=np.maximum(half_widths, 0))
    total = float(sums.sum())
    return float(np.sqrt(np.square(sums).sum()) / total) if total > 0 else 0.0


def _with_device(run: PricedRun, quantile: Literal["low", "high"]) -> int:
    """The iteration if every kernel and every communication took that end of its interval."""

    def changed(rank: PricedRank) -> RankInput:
        ends = rank.times.low_ns if quantile == "low" else rank.times.high_ns
        return replace(rank.input(), kernels=with_work(rank.times, ends))

    return run.iteration_ns_with(changed, None if run.prices is None else run.prices.at(quantile))


def _with_host(run: PricedRun, factor: float) -> int:
    def changed(rank: PricedRank) -> RankInput:
        return replace(rank.input(), host_gap_ns=np.rint(rank.host_gap_ns * factor).astype(np.int64))

    return run.iteration_ns_with(changed, run.prices)


def _root_sum_square(device_ns: float, host_ns: int) -> int:
    return isqrt(round(device_ns) ** 2 + host_ns**2)
