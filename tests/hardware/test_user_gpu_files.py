"""GPU files that users write: little to write, and every mistake named with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maya.errors import UsageError
from maya.hardware import GpuSpec, all_gpus, find_gpu, load_gpus

WHOLE = """
[[gpu]]
name = "X1"
aliases = ["x-one"]
torch_name = "NVIDIA X1"
generation = "blackwell"
compute_capability = "10.0"
sm_count = 200
memory_bytes = 274_877_906_944
total_memory_bytes = 270_000_000_000
context_bytes = 700_000_000
hbm_bandwidth_gbps = 10_000
l2_bytes = 200_000_000
boost_clock_mhz = 2000
memory_clock_mhz = 4000
memory_bus_bits = 10_240
peak_tflops = { fp32 = 100, bf16 = 3000.5 }
nvlink_gbps = 0
pcie_gbps = 63.0
tdp_watts = 1500
[gpu.sources]
identity = "me"
compute = "me"
memory = "me"
total_memory = "me"
context = "me"
l2 = "me"
links = "me"
power = "me"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_gpu_of_ones_own(tmp_path: Path) -> None:
    (gpu,) = load_gpus(write(tmp_path, WHOLE))
    assert gpu.name == "X1"
    assert gpu.peak_tflops == {"fp32": 100.0, "bf16": 3000.5}
    assert gpu.l2_bandwidth_gbps is None
    assert (
        gpu.shared_memory_per_sm_bytes == find_gpu("b200").shared_memory_per_sm_bytes
    )  # by compute capability
    assert find_gpu("X-ONE", [gpu]) is gpu
    with pytest.raises(UsageError):
        find_gpu("x-one")


def test_like_takes_over_what_is_not_written(tmp_path: Path) -> None:
    text = """
    [[gpu]]
    name = "H100-96GB"
    like = "H100-SXM5-80GB"
    memory_bytes = 103_079_215_104
    total_memory_bytes = 101_000_000_000
    hbm_bandwidth_gbps = 2400.0
    sources.memory = "torchtitan's machine"

    [[gpu]]
    name = "H100-96GB-500W"
    like = "H100-96GB"
    tdp_watts = 500
    """
    first, second = load_gpus(write(tmp_path, text))
    h100 = find_gpu("h100")
    assert (first.hbm_bandwidth_gbps, first.sm_count, first.peak_tflops) == (2400.0, 132, h100.peak_tflops)
    assert (first.aliases, first.torch_name) == ((), h100.torch_name)
    assert first.sources["memory"] == "torchtitan's machine"
    assert first.sources["compute"] == h100.sources["compute"]
    # A figure written over the model's without a source is not credited to the model's source.
    assert "mine.toml" in first.sources["total_memory"]
    assert (second.hbm_bandwidth_gbps, second.tdp_watts) == (2400.0, 500)
    # torch's name still means the shipped GPU, though both variants carry it.
    assert find_gpu("NVIDIA H100 80GB HBM3", [first, second]) is h100


def test_own_names_win_over_shipped_ones(tmp_path: Path) -> None:
    own = load_gpus(write(tmp_path, '[[gpu]]\nname = "h100"\nlike = "H100-SXM5-80GB"\ntdp_watts = 350\n'))
    assert find_gpu("H100", own).tdp_watts == 350
    assert find_gpu("H100").tdp_watts == 700


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_like_alone_is_the_same_gpu(gpu: GpuSpec, tmp_path: Path) -> None:
    (copy,) = load_gpus(write(tmp_path, f'[[gpu]]\nname = "copy"\nlike = "{gpu.name}"\n'))
    assert vars(copy) == {**vars(gpu), "name": "copy", "aliases": ()}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["no GPU", "mine.toml"]),
        ("x = ", ["not valid TOML", "Invalid value"]),
        ('[[gpus]]\nname = "a"', ["gpus", "unknown table"]),
        ("gpu = 3", ["gpu", "not a list"]),
        ("documents = 3", ["documents"]),
        ("compute_capability = 3", ["compute_capability"]),
        ('[compute_capability]\n"9.9" = 3', ["9.9"]),
        ("[[gpu]]\naliases = []", ["gpu 1", "name", "missing"]),
        ('[[gpu]]\nname = ""', ["name"]),
        ('[[gpu]]\nname = "a"\nlike = "h10O"', ["GPU a", "h10O"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\ntdp = 3', ["GPU a", "unknown key 'tdp'"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\ntdp_watts = -3', ["GPU a", "tdp_watts", "-3"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\ntdp_watts = true', ["tdp_watts"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\nsm_count = 1.5', ["sm_count"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\nhbm_bandwidth_gbps = nan', ["hbm_bandwidth_gbps"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\ngeneration = "rubin"', ["generation", "rubin"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\ncompute_capability = 7.5', ["compute_capability"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\ncompute_capability = "7.²"', ["compute_capability"]),
        (
            '[[gpu]]\nname = "a"\nlike = "T4"\ncompute_capability = "12.0"',
            ["shared_memory_per_sm_bytes", "missing"],
        ),
        ('[[gpu]]\nname = "a"\nlike = "T4"\npeak_tflops = { fp99 = 3 }', ["fp99"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\npeak_tflops = { fp32 = 0 }', ["peak_tflops.fp32"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\nsources = 3', ["sources"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\nsources.hbm = "x"', ["sources.hbm"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\nsources.l2 = []', ["sources.l2"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\ntotal_memory_bytes = 99_000_000_000', ["total_memory_bytes"]),
        ('[[gpu]]\nname = "a"\nlike = "T4"\n[[gpu]]\nname = "a"\nlike = "T4"', ["GPU a", "twice"]),
        (
            '[[gpu]]\nname = "a"\nlike = "T4"\n[[gpu]]\nname = "b"\naliases = ["A"]\nlike = "T4"',
            ["GPU b", "belongs to a"],
        ),
        (WHOLE.replace('identity = "me"', ""), ["X1", "no source for torch_name"]),
    ],
)
def test_mistakes_are_named(text: str, names: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_gpus(write(tmp_path, text))
    assert all(name in caught.value.message for name in names), caught.value.message
    assert caught.value.hint


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_gpus(tmp_path / "absent.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        load_gpus(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_gpus(tmp_path / "binary.toml")


_VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.text(alphabet="ab 9.", max_size=5),
    st.just([]),
    st.just({"fp32": 1.0}),
)
_FIELDS = sorted(set(vars(all_gpus()[0])) | {"like", "nonsense"})


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=4))
def test_any_row_loads_or_is_a_usage_error(tmp_path_factory: pytest.TempPathFactory, row: dict) -> None:
    table = {"name": "a", "like": "T4", **row}
    text = "[[gpu]]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in table.items())
    path = write(tmp_path_factory.getbasetemp(), text)
    outcome: tuple[GpuSpec, ...] | str
    try:
        outcome = load_gpus(path)
    except UsageError as error:
        outcome = error.message
    if isinstance(outcome, str):
        assert str(path) in outcome
    else:
        assert [type(gpu) for gpu in outcome] == [GpuSpec]


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, float):
        return str(value)
    return json.dumps(value)
