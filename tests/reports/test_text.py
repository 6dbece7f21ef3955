"""The summary: short, aligned, honest, and plain where nobody sees colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maya.reports.amounts import (
    format_bytes,
    format_count,
    format_ms,
    format_percent,
    format_rate,
    format_usd,
)
from maya.reports.prediction import (
    Assumption,
    Cost,
    Coverage,
    KernelShare,
    Prediction,
    RankMemory,
    TimeParts,
)
from maya.reports.report import Report
from maya.reports.text import MAX_LINES, TextRenderer, wants_colour


def full() -> Prediction:
    """A prediction with more of everything than a summary shows."""
    return Prediction(
        gpu="H100-SXM5-80GB",
        world_size=1,
        ranks_run=(0,),
        verdict="ok",
        cause="caught by the script: out of memory: an allocation of 3 GiB",
        iterations=3,
        iteration_time_ms=123.456789,
        low_ms=100.0,
        high_ms=150.0,
        breakdown=TimeParts(100.0, 10.0, 10.0, 3.456789),
        tokens_per_s=123456.7,
        samples_per_s=12.34,
        model_flops_per_step=10**14,
        mfu=0.412,
        mfu_peak="bf16",
        peak_memory_bytes={0: RankMemory(2**35, 2**36, 80 * 2**30)},
        cost=Cost(0.000137, 0.137, 3.99, "Lambda on demand, gpu_8x_h100_sxm5", "2026-08-01"),
        top_kernels=tuple(
            KernelShare(f"kernel {index} " + "x" * 60, "gemm", 12, 5.0, 0.1, "learned") for index in range(10)
        ),
        coverage=Coverage(0.0, 0.9, 0.06, 0.04),
        assumptions=tuple(Assumption("model", "maya", 1, "", f"something {index}" * 20) for index in range(9))
        + tuple(Assumption("item", "aten::mean", 2, "train.py:7", 1.0) for _ in range(30)),
        command=("train.py", *["--flag"] * 40),
    )


def lines_of(prediction: Prediction, colour: bool = False) -> list[str]:
    return TextRenderer(colour).lines(Report(prediction, None, Path("train.maya")))


def test_even_the_fullest_summary_has_at_most_20_lines() -> None:
    lines = lines_of(full())
    assert len(lines) <= MAX_LINES == 20
    assert max(map(len, lines)) <= 110


def test_it_says_what_a_user_asks() -> None:
    text = "\n".join(lines_of(full()))
    for part in (
        "123 ms   80% interval 100 ms to 150 ms",
        "compute 81.0%   exposed communication 8.1%   host 8.1%   idle 2.8%",
        "123,457 tokens/s",
        "MFU 41.2% of bf16 peak",
        "32.0 GiB allocated   64.0 GiB reserved   of 80.0 GiB (80.0%)",
        "$0.000137 a step   $0.137 per 1,000   at $3.99/GPU-hour (Lambda on demand, 2026-08-01)",
        "90.0% learned   6.0% extrapolated   4.0% roofline",
        "made-up values mean = 1.0 (train.py:7), mean = 1.0 (train.py:7)",
        " and 27 more",
        "and 6 more",
    ):
        assert part in text


def test_labels_are_aligned() -> None:
    for line in lines_of(full())[1:]:
        assert re.match(r"  [a-z -]{15}\S", line), line


def test_colours_change_nothing_but_the_look() -> None:
    plain = lines_of(full())
    coloured = lines_of(full(), colour=True)
    assert plain != coloured
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in coloured] == plain


def test_oom_shows_its_cause_whole_and_no_times() -> None:
    cause = "out of memory: " + "an allocation of 3 GiB " * 9
    lines = lines_of(Prediction("H100-SXM5-80GB", 1, (0,), "oom", cause, command=("train.py",)))
    assert lines[0].endswith(": oom")
    assert any(cause in line for line in lines)
    assert not any("iteration" in line for line in lines)


class _Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(_Terminal(True))
    assert not wants_colour(_Terminal(False))
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(_Terminal(True))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(_Terminal(True))


def test_amounts() -> None:
    assert [format_bytes(count) for count in (0, 512, 1023, 1024, 85899345920)] == [
        "0 B",
        "512 B",
        "1023 B",
        "1.00 KiB",
        "80.0 GiB",
    ]
    assert [format_ms(ms) for ms in (0.0123, 0.9996, 12.34, 999.9, 1500, 125_000)] == [
        "12.3 us",
        "1.00 ms",
        "12.3 ms",
        "1.00 s",
        "1.50 s",
        "2 min 5 s",
    ]
    assert [format_usd(usd) for usd in (0, 12.3, 0.137, 0.0000123)] == [
        "$0.00",
        "$12.30",
        "$0.137",
        "$0.0000123",
    ]
    assert [format_count(count) for count in (0, 12, 999.6, 1.5e12)] == ["0", "12.0", "1.00 k", "1.50 T"]
    assert [format_rate(rate) for rate in (5.678, 123456)] == ["5.68", "123,456"]
    assert [format_percent(share) for share in (0, 0.0001, 0.4567)] == ["0.0%", "<0.1%", "45.7%"]
