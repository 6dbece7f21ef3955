"""Which model prices a row of a table: by its operator, and by the columns where an operator's name recurs.

A format is one table of `../shared/data/kernels`; its rows may need one learned family or, where a row is
several kernels, a composition of them. Rows are independent: a prediction depends on its own row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.errors import UsageError
from maya.hardware import GpuSpec
from maya.kernel_models.learned.artifact import load_trained
from maya.kernel_models.learned.family import LearnedFamily, Table
from maya.kernel_models.learned.prediction import predict_calls
from maya.kernel_models.table_prediction import TablePrediction

Predict = Callable[[Table, Sequence[GpuSpec]], TablePrediction]


@dataclass(frozen=True)
class TableFormat:
    """One kind of table.

    Attributes:
        name: as its file is called.
        required: columns every row needs.
        operator: whether an `op` is this format's, given that the required columns are there.
        predict: columns of its rows and their GPUs → times.
    """

    name: str
    required: tuple[str, ...]
    operator: Callable[[str], bool]
    predict: Predict


def learned_predict(family: LearnedFamily) -> Predict:
    """Rows that are one call of a learned family each."""

    def predict(table: Table, gpus: Sequence[GpuSpec]) -> TablePrediction:
        trained = load_trained(family)
        assert trained is not None, f"the model {family.name} ships with Maya"
        return predict_calls(trained, family.of_table(table, gpus))

    return predict


def find_formats(
    operators: NDArray[np.str_], columns: Mapping[str, NDArray[np.generic]], formats: Sequence[TableFormat]
) -> NDArray[np.int64]:
    """[n] index of each row's format: the first whose required columns exist and that knows the operator.

    Raises:
        UsageError: no format takes a row; names the operator and the columns that would be needed.
    """
    distinct, inverse = np.unique(operators, return_inverse=True)
    chosen = np.empty(len(distinct), dtype=np.int64)
    for position, operator in enumerate(distinct):
        fitting = [index for index, each in enumerate(formats) if each.operator(str(operator))]
        complete = [index for index in fitting if all(name in columns for name in formats[index].required)]
        if complete:
            chosen[position] = complete[0]
            continue
        if fitting:
            wanted = formats[fitting[0]]
            missing = [name for name in wanted.required if name not in columns]
            raise UsageError(
                f"rows of {operator} lack the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
                hint=f"A table of the form of {wanted.name} has {', '.join(wanted.required)}.",
            )
        raise UsageError(
            f"unknown operator {str(operator)!r} in column op",
            hint="Tables are described in docs/kernel_models.md.",
        )
    return chosen[inverse]


def predict_formats(
    columns: Mapping[str, NDArray[np.generic]], gpus: Sequence[GpuSpec], formats: Sequence[TableFormat]
) -> TablePrediction:
    """Price every row with its format."""
    count = len(gpus)
    result = TablePrediction.empty(count)
    if not count:
        return result
    if "op" not in columns:
        raise UsageError("the table has no column op", hint="It names what each row times, such as gemm.")
    chosen = find_formats(np.asarray(columns["op"], dtype=str), columns, formats)
    for index in np.unique(chosen):
        rows = np.flatnonzero(chosen == index)
        part = {name: values[rows] for name, values in columns.items()}
        result.put(rows, formats[int(index)].predict(part, [gpus[int(row)] for row in rows]))
    return result
