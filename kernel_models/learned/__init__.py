"""Learned efficiencies: one file a family, and the tables their measurements come in.

A family is registered here and its loader in `maya.kernel_models.fit.learned_families`.
"""

from __future__ import annotations

from collections.abc import Sequence

from maya.hardware import GpuSpec
from maya.kernel_models.learned.artifact import load_trained
from maya.kernel_models.learned.attention import ATTENTION
from maya.kernel_models.learned.family import LearnedFamily, Table
from maya.kernel_models.learned.gemm import GEMM
from maya.kernel_models.learned.prediction import predict_calls
from maya.kernel_models.learned.tables import TableFormat, learned_predict, predict_formats
from maya.kernel_models.table_prediction import TablePrediction

FAMILIES: tuple[LearnedFamily, ...] = (GEMM, ATTENTION)

LEARNED: dict[str, LearnedFamily] = {
    name: family for family in FAMILIES if family.of_works is not None for name in family.families
}
"""Family of a kernel → its learned model."""

FORMATS: tuple[TableFormat, ...] = (
    TableFormat(
        "gemm.parquet",
        ("dtype", "batch", "m", "n", "k", "layout"),
        lambda operator: operator in ("gemm", "bmm"),
        learned_predict(GEMM),
    ),
    TableFormat(
        "attention.parquet",
        ("dtype", "b", "h", "s_q", "s_kv", "d"),
        lambda operator: operator == "attention_fwd",
        learned_predict(ATTENTION),
    ),
)
"""Formats of tables, the more particular first where they share an operator's name."""


def predict_table(columns: Table, gpus: Sequence[GpuSpec]) -> TablePrediction:
    """Price every row of a table of calls (not of collectives).

    Args:
        columns: by name, all of one length; `op` among them.
        gpus: of every row.

    Raises:
        UsageError: an operator or a dtype that no model knows, or a column that its format lacks.
    """
    return predict_formats(columns, gpus, FORMATS)


__all__ = [
    "FAMILIES",
    "FORMATS",
    "LEARNED",
    "LearnedFamily",
    "load_trained",
    "predict_calls",
    "predict_table",
]
