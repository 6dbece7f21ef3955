"""Why two ranks are not of one class, for people."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.traces.cost_view import CostView, cost_view
from maya.traces.rank_reader import RankTrace


def first_difference(one: RankTrace, other: RankTrace) -> str:
    """Where the costs of two ranks begin to differ, as one sentence; "" if they do not."""
    mine, theirs = cost_view(one), cost_view(other)
    places: list[tuple[int, bool, str]] = []
    for name in mine.columns:
        table, _, field = name.partition(".")
        if table != "operation":
            continue
        left, right = (_readable(view, field) for view in (mine, theirs))
        shared = min(len(left), len(right))
        different = np.flatnonzero(left[:shared] != right[:shared])
        if len(different):
            place = int(different[0])
            places.append(
                (
                    place,
                    field != "operator",
                    f"{field} {str(left[place])[:60]!r} against {str(right[place])[:60]!r}",
                )
            )
        elif len(left) != len(right):
            places.append((shared, True, f"{len(left)} operations against {len(right)}"))
    if places:
        place, _, what = min(places)
        names = (_name(trace, place) for trace in (one, other))
        return f"from operation {place} on ({' against '.join(dict.fromkeys(names))}): {what}"
    for name, column in mine.columns.items():
        if not np.array_equal(column, theirs.columns[name]):
            return f"in {name.replace('.', ' ').replace('_', ' ')}"
    return ""


def _readable(view: CostView, field: str) -> NDArray[Any]:
    """A column of operations with its texts, where it counts texts."""
    column = view.columns[f"operation.{field}"]
    if field not in view.texts:
        return column
    texts = np.array([*view.texts[field], ""], dtype=object)
    readable: NDArray[Any] = texts[column]  # -1 picks the last
    return readable


def _name(trace: RankTrace, operation: int) -> str:
    rows, tables = trace.operations.rows, trace.tables
    if operation >= len(rows):
        return "the end"
    line = int(rows["source_line"][operation])
    where = f" at {tables.source_lines[line]}" if line >= 0 else ""
    return f"{tables.operators[int(rows['operator'][operation])]}{where}"
