"""cuDNN recurrent layers of DeepBench (hidden equals input size, one layer)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.work import KernelWork, ceil_div

GATES = {"lstm": 4, "gru": 3, "rnn_vanilla": 1}


def load_recurrent(data: Path) -> list[Measurements]:
    """`recurrent`: forward and data gradient; the weight gradient is one GEMM of another family."""
    result = Measurements("recurrent")
    for row in pd.read_parquet(data / "kernels" / "rnn.parquet").itertuples(index=False):
        gpu, operator = resolve_gpu(str(row.gpu)), str(row.op)
        if gpu is None or operator.endswith("bwd_weight"):
            continue
        gates = next(value for key, value in GATES.items() if operator.startswith(key))
        hidden, batch, steps = int(row.hidden), int(row.batch), int(row.timesteps)
        weights = gates * hidden * 2 * hidden
        item = 4 if row.dtype == "fp32" else 2
        shape = tuple(map(float, (hidden, batch, steps, gates, 1, "bwd" in operator)))
        work = KernelWork(
            "recurrent",
            operator,
            str(row.dtype),
            2 * weights * batch * steps,
            item * (weights + 2 * batch * steps * hidden),
            max(1, ceil_div(gates * hidden, 64) * ceil_div(batch, 64)),
            shape,
        )
        result.add([work], gpu, row.time_us, (hidden, batch), str(row.source))
    return [result]
