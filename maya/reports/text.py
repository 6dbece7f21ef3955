"""The summary of a run: at most 20 lines, aligned, coloured only on a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from maya.reports.amounts import (
    format_bytes,
    format_count,
    format_ms,
    format_percent,
    format_rate,
    format_usd,
)
from maya.reports.prediction import FAILED, OK, OOM, Assumption, Communication, Prediction, TimeParts
from maya.reports.report import Report
from maya.traces import compress_ranks

MAX_LINES = 20
TOP_KERNELS = 5
OWN_ASSUMPTIONS = 3
LABEL_WIDTH = 15
KERNEL_NAME_WIDTH = 54
CLASSES_SHOWN = 8
KINDS_SHOWN = 2
"""Kinds of communication; a DDP step has one, FSDP two."""
WIDTH = 110
"""Longer lines are cut, except on the sentence that names a cause."""

_BOLD, _DIM, _RED, _GREEN, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
_MODEL = "model"
"""`Assumption.kind` of Maya's own assumptions."""


_READS = frozenset({"item", "copy", "bool", "count"})
"""`Assumption.kind` of a value that the script read from a tensor without real values."""


@dataclass(frozen=True)
class TextRenderer:
    """The summary as text.

    Attributes:
        colour: use ANSI styles.
    """

    colour: bool = False

    def render(self, report: Report, out: BinaryIO) -> None:
        """Write the summary, UTF-8."""
        out.write("".join(f"{line}\n" for line in self.lines(report)).encode())

    def lines(self, report: Report) -> list[str]:
        """The summary's lines, at most `MAX_LINES`."""
        prediction = report.prediction
        lines = [self._title(prediction)]
        if prediction.cause:
            lines.append(self._row("cause", _nearer(prediction.cause)))
        if prediction.breakdown is not None:
            lines.extend(self._times(prediction))
        if prediction.world_size > 1:
            lines.append(self._row("ranks", _ranks(prediction)))
        if prediction.communication is not None:
            lines.append(self._row("communication", _communication(prediction.communication)))
        lines.extend(self._memory(prediction))
        if prediction.cost is not None:
            lines.extend(self._cost(prediction))
        if prediction.top_kernels:
            lines.extend(self._kernels(prediction))
        lines.extend(self._grounds(prediction))
        if report.run_dir is not None:
            lines.append(self._row("run", str(report.run_dir)))
        assert len(lines) <= MAX_LINES, lines
        return lines

    def _title(self, prediction: Prediction) -> str:
        colours = {OK: _GREEN, OOM: _RED, FAILED: _RED}
        word = self._style(prediction.verdict, _BOLD + colours[prediction.verdict])
        command = " ".join(prediction.command) or "run"
        count = f"{prediction.world_size} x " if prediction.world_size > 1 else ""
        return f"{self._style(_cut(command, WIDTH - 40), _BOLD)} on {count}{prediction.gpu}: {word}"

    def _times(self, prediction: Prediction) -> Iterable[str]:
        assert prediction.iteration_time_ms is not None
        assert prediction.breakdown is not None
        what = "iteration" if prediction.scope == "iteration" else "whole run"
        text = self._style(format_ms(prediction.iteration_time_ms), _BOLD)
        if prediction.low_ms is not None and prediction.high_ms is not None:
            text += f"   80% interval {format_ms(prediction.low_ms)} to {format_ms(prediction.high_ms)}"
        if prediction.scope == "iteration":
            text += f"   mean of {prediction.iterations}"
        yield self._row(what, text)
        yield self._row("goes to", _parts(prediction.breakdown, prediction.iteration_time_ms))
        rates = []
        if prediction.tokens_per_s:
            rates.append(f"{format_rate(prediction.tokens_per_s)} tokens/s")
        if prediction.samples_per_s:
            rates.append(f"{format_rate(prediction.samples_per_s)} samples/s")
        if prediction.mfu is not None:
            rates.append(f"MFU {format_percent(prediction.mfu)} of {prediction.mfu_peak} peak")
        if prediction.model_flops_per_step:
            rates.append(f"{format_count(prediction.model_flops_per_step)}FLOP/step")
        if rates:
            yield self._row("throughput", "   ".join(rates))

    def _memory(self, prediction: Prediction) -> Iterable[str]:
        memory = prediction.largest_memory()
        if memory is None:
            return
        peaks = prediction.peak_memory_bytes or {}
        fullest = next(rank for rank, peak in peaks.items() if peak == memory)
        of_rank = f"   rank {fullest}" if len(set(peaks.values())) > 1 else ""
        yield self._row(
            "peak memory",
            f"{format_bytes(memory.allocated)} allocated   {format_bytes(memory.reserved)} reserved   "
            f"of {format_bytes(memory.capacity)} "
            f"({format_percent(memory.reserved / memory.capacity if memory.capacity else 0)}){of_rank}",
        )

    def _cost(self, prediction: Prediction) -> Iterable[str]:
        cost = prediction.cost
        assert cost is not None
        unit = "step" if prediction.scope == "iteration" else "run"
        seller = re.split(r"[,;(]", cost.price_source, maxsplit=1)[0].strip()
        yield self._row(
            "cost",
            f"{format_usd(cost.usd_per_step)} a {unit}   {format_usd(cost.usd_per_1000_steps)} per 1,000   "
            f"at ${cost.usd_per_gpu_hour:.2f}/GPU-hour ({_cut(seller, 24)}, {cost.price_date})",
        )

    def _kernels(self, prediction: Prediction) -> Iterable[str]:
        shown = prediction.top_kernels[:TOP_KERNELS]
        for index, kernel in enumerate(shown):
            name = _cut(kernel.name, KERNEL_NAME_WIDTH)
            calls = f"{kernel.calls:g}" if kernel.calls == int(kernel.calls) else f"{kernel.calls:.1f}"
            yield self._row(
                "top kernels" if index == 0 else "",
                f"{name:<{KERNEL_NAME_WIDTH}} {format_percent(kernel.share):>6} "
                f"{format_ms(kernel.time_ms):>8} {calls:>6}x {self._style(kernel.source, _DIM)}",
            )

    def _grounds(self, prediction: Prediction) -> Iterable[str]:
        coverage = prediction.coverage
        if coverage is not None:
            shares = {
                "measured": coverage.measured,
                "learned": coverage.learned,
                "extrapolated": coverage.extrapolated,
                "roofline": coverage.roofline,
            }
            text = "   ".join(
                f"{format_percent(share)} {name}" for name, share in shares.items() if share > 0
            )
            yield self._row("times rest on", text)
        own = [str(entry.value) for entry in prediction.assumptions if entry.kind == _MODEL]
        read = [entry for entry in prediction.assumptions if entry.kind != _MODEL]
        shown = own[:OWN_ASSUMPTIONS]
        more = f" (and {len(own) - len(shown)} more)" if len(own) > len(shown) else ""
        room = WIDTH - LABEL_WIDTH - 2
        for index, line in enumerate(shown):
            is_last = index == len(shown) - 1
            text = _cut(line, room - len(more)) + more if is_last else _cut(line, room)
            yield self._row("assuming" if index == 0 else "", text)
        if read:
            yield self._row("made-up values", _assumed(read))

    def _row(self, label: str, text: str) -> str:
        return f"  {self._style(f'{label:<{LABEL_WIDTH}}', _DIM)}{text}"

    def _style(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self.colour and text.strip() else text


def wants_colour(stream: object) -> bool:
    """Whether a stream is a terminal that shows colours (https://no-color.org)."""
    is_terminal = bool(getattr(stream, "isatty", lambda: False)())
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_summary(report: Report) -> None:
    """Write the summary to stdout."""
    sys.stdout.flush()
    TextRenderer(colour=wants_colour(sys.stdout)).render(report, sys.stdout.buffer)
    sys.stdout.flush()


def _parts(parts: TimeParts, total_ms: float) -> str:
    named = (
        ("compute", parts.compute),
        ("exposed communication", parts.exposed_communication),
        ("host", parts.host),
        ("idle", parts.idle),
    )
    return "   ".join(
        f"{name} {format_percent(part / total_ms if total_ms else 0)}"
        for name, part in named
        if part or name != "exposed communication"
    )


def _ranks(prediction: Prediction) -> str:
    """`8, all alike`, or `8 in 2 classes: 0; 1-7   rank 0 is the slowest`."""
    count, classes = prediction.world_size, prediction.rank_classes
    if len(classes) == 1:
        return f"{count}, all alike: priced once"
    shown = [
        ", ".join(
            f"{each[0]}-{each[1]}" if isinstance(each, list) else str(each)
            for each in compress_ranks(group.ranks)
        )
        for group in classes[:CLASSES_SHOWN]
    ]
    more = f" and {len(classes) - len(shown)} more" if len(classes) > len(shown) else ""
    of_class = [group for group in classes if prediction.slowest_rank in group.ranks]
    slowest = f"   slowest: rank {prediction.slowest_rank}" if of_class else ""
    text = f"{count} in {len(classes)} classes: {'; '.join(shown)}{more}"
    return _cut(text, WIDTH - LABEL_WIDTH - 2 - len(slowest)) + slowest


def _communication(communication: Communication) -> str:
    """`123 MB all-reduce a step   87% overlapped   busiest ...`, kinds by bytes."""
    sizes = sorted(communication.bytes_per_step.items(), key=lambda item: (-item[1], item[0]))
    kinds = [f"{format_bytes(size)} {kind.replace('_', '-')}" for kind, size in sizes[:KINDS_SHOWN]]
    more = f" (and {len(sizes) - len(kinds)} kinds more)" if len(sizes) > len(kinds) else ""
    busiest = communication.busiest
    return (
        f"{', '.join(kinds)}{more}   {format_ms(communication.total_ms)}, "
        f"{format_percent(communication.overlapped_share)} overlapped   "
        f"most: {busiest.calls:.3g} x {busiest.name}"
    )


def _assumed(made_up: list[Assumption]) -> str:
    """`mean = 2.0 (train.py:7), checkpoint of torch.save (train.py:9)`, as many as fit."""
    most_read = sorted(made_up, key=lambda entry: (entry.kind not in _READS, -entry.count))
    text = _one_assumed(most_read[0])
    for index, entry in enumerate(most_read[1:], start=1):
        left = len(most_read) - index
        longer = f"{text}, {_one_assumed(entry)}"
        room = WIDTH - LABEL_WIDTH - 2 - (len(" and 99 more") if left > 1 else 0)
        if len(longer) > room:
            return f"{text} and {left} more"
        text = longer
    return text


def _one_assumed(entry: Assumption) -> str:
    producer = entry.producer.removeprefix("aten::").partition(".")[0]
    what = f"{producer} = {entry.value}" if entry.kind in _READS else f"{entry.kind} of {entry.producer}"
    place = f" ({os.path.basename(entry.source_line)})" if entry.source_line else ""
    return f"{what}{place}"


def _nearer(text: str) -> str:
    """Paths below the working directory without it."""
    return text.replace(f"{os.getcwd()}{os.sep}", "")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
