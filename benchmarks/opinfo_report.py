"""The text of `opinfo_agreement.md`."""

from __future__ import annotations

import platform
from typing import Any

import torch
from opinfo_causes import CAUSES
from opinfo_expected import EXPECTED, expected_difference

GOAL = 0.95
SHOWN = 220
METHOD = (
    "Each OpInfo runs all its sample inputs in float32 (or the first dtype CUDA has) and in a second",
    "dtype: plain, with backward, in place and with out= (empty, and with steps in memory), and its error",
    "inputs. Compared are structure, shapes, dtypes, strides of dimensions longer than 1, requires_grad,",
    "conjugate and negative bits, which inputs and results share memory and where, exception types, and",
    "values where the device knows them and nothing was drawn at random. One difference in one call is a",
    "disagreement of the OpInfo; so would be a skip, a crash or a time-out.",
    "",
    "What is not compared: values of results too large to be followed, wordings of errors, storage sizes,",
    "dtypes other than the two. The reference is the CPU, not a GPU: where both could be wrong together,",
    "nothing shows.",
)


def report(rows: list[dict[str, Any]]) -> str:
    """Markdown: how many agree, and each OpInfo that does not with its cause."""
    agree = [row for row in rows if not row["findings"]]
    as_cuda = [row for row in rows if row["findings"] and all(_expected(row, f) for f in row["findings"])]
    disagree = [row for row in rows if row["findings"] and row not in as_cuda]
    total, good = len(rows), len(agree) + len(as_cuda)
    calls = sum(row["calls"] for row in rows)
    lines = [
        "# OpInfos on the emulated GPU",
        "",
        "Written by `python benchmarks/opinfo_agreement.py --output benchmarks/opinfo_agreement.md`.",
        f"torch {torch.__version__}, Python {platform.python_version()}; "
        f"{sum(row['seconds'] for row in rows):.0f} s of CPU time.",
        "",
        f"**{good} of {total} OpInfos with a CUDA kernel agree ({good / total:.1%}; goal {GOAL:.0%})**: "
        f"{len(agree)} ({len(agree) / total:.1%}) in everything with the CPU, {len(as_cuda)} differ from "
        f"it only as CUDA does (listed below with the source). {len(disagree)} disagree. "
        f"{calls:,} calls were compared.",
        "",
        *METHOD,
        "",
        f"## Disagreements ({len(disagree)})",
        "",
        *_disagreements(disagree),
        "",
        f"## As CUDA, not as the CPU ({len(as_cuda)})",
        "",
        *_expected_table(rows),
    ]
    return "\n".join(lines) + "\n"


def agreeing_share(rows: list[dict[str, Any]]) -> float:
    """Share of OpInfos without a difference, or with those of CUDA only."""
    good = [row for row in rows if all(_expected(row, finding) for finding in row["findings"])]
    return len(good) / len(rows)


def _expected(row: dict[str, Any], finding: list[str]) -> bool:
    return expected_difference(row["name"], finding[1]) is not None


def _disagreements(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["None."]
    lines = [
        "| OpInfo | calls that differ | where | cause | first difference |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        findings = [f for f in row["findings"] if not _expected(row, f)]
        where = ", ".join(dict.fromkeys(f"{f[0]} {f[1]}" for f in findings))
        cause = CAUSES.get(row["name"], "not yet known")
        calls = f"{row.get('total', len(findings))} of {row['calls']}"
        lines.append(f"| {row['name']} | {calls} | {where} | {cause} | {_plain(findings[0][2])} |")
    return lines


def _expected_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| OpInfos | what differs | what CUDA does | source |", "| --- | --- | --- | --- |"]
    for entry in EXPECTED:
        seen = [r["name"] for r in rows if r["name"] in entry.names and r["findings"]]
        if seen:
            lines.append(
                f"| {', '.join(seen)} | {', '.join(entry.kinds)} | {entry.reason} | {entry.source} |"
            )
    return lines


def _plain(text: str) -> str:
    short = text.replace("\n", " ").replace("|", "/")
    return short if len(short) <= SHOWN else short[:SHOWN] + "…"
