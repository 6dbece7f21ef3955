"""Finding a GPU by any of its names, and what a wrong name is told."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maya.errors import UsageError
from maya.hardware import GpuSpec, all_gpus, find_gpu

SPELLINGS = [(s, gpu) for gpu in all_gpus() for s in (gpu.name, *gpu.aliases, gpu.torch_name)]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("h100", "H100-SXM5-80GB"),
        ("H100", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("nvidia-h100-80gb-hbm3", "H100-SXM5-80GB"),
        ("a100", "A100-SXM4-80GB"),
        ("a100-80gb", "A100-SXM4-80GB"),
        ("A100 40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("v100", "V100-SXM2-16GB"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("rtx 3090", "RTX3090"),
        ("GeForce RTX 4090", "RTX4090"),
        ("2080ti", "RTX2080Ti"),
        ("RTX A6000", "A6000"),
        ("b200", "B200-SXM"),
        ("gh200", "GH200"),
        ("h200", "H200-SXM-141GB"),
    ],
)
def test_names_people_type(written: str, name: str) -> None:
    assert find_gpu(written).name == name


@given(st.sampled_from(SPELLINGS), st.randoms(use_true_random=False))
def test_case_and_punctuation_do_not_matter(entry: tuple[str, GpuSpec], random) -> None:
    spelling, gpu = entry
    mangled = "".join(random.choice((c.lower(), c.upper())) for c in spelling)
    mangled = mangled.replace("-", random.choice(("-", "_", " ", ""))) + random.choice(("", " "))
    assert find_gpu(mangled) is gpu


@given(st.text(max_size=30))
def test_any_text_is_a_gpu_or_a_usage_error(text: str) -> None:
    error = _error_of(text)
    if error is not None:
        assert error.exit_code == 2
        assert repr(text) in error.message
        assert "H100-SXM5-80GB" in error.hint or "Close names" in error.hint


def _error_of(name: str) -> UsageError | None:
    try:
        assert isinstance(find_gpu(name), GpuSpec)
    except UsageError as error:
        return error
    return None


def test_no_two_gpus_share_a_name() -> None:
    owners: dict[str, str] = {}
    for spelling, gpu in SPELLINGS:
        key = "".join(c for c in spelling.lower() if c.isalnum())
        for word in ("nvidia", "geforce", "tesla"):
            key = key.removeprefix(word)
        assert owners.setdefault(key, gpu.name) == gpu.name, spelling


@pytest.mark.parametrize(
    ("wrong", "suggested"),
    [
        ("h10", "H100-SXM5-80GB"),
        ("A100-SXM-81GB", "A100-SXM4-80GB"),
        ("rtx 4080", "RTX4090"),
        ("h200x", "H200-SXM-141GB"),
    ],
)
def test_a_wrong_name_lists_close_ones(wrong: str, suggested: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(wrong)
    assert wrong in caught.value.message
    assert suggested in caught.value.hint


def test_a_name_like_no_other_lists_all() -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu("???")
    assert all(gpu.name in caught.value.hint for gpu in all_gpus())


def test_importing_the_room_loads_nothing_heavy() -> None:
    """Under 20 ms on an idle machine; here what would make it slow is checked, and a generous bound."""
    program = (
        "import sys, time; start = time.perf_counter(); import maya.hardware; "
        "print(time.perf_counter() - start, *[m for m in ('torch', 'numpy', 'tomllib', 'rich', 'datetime') "
        "if m in sys.modules])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(3)
    ]
    assert all(len(run) == 1 for run in runs), f"imported as well: {runs[0][1:]}"
    assert min(float(run[0]) for run in runs) < 0.1
