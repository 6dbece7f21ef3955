"""`maya gpus`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from maya.cli import gpus
from maya.errors import UsageError
from maya.hardware import all_gpus


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    gpus.configure(parser)
    return gpus.run(parser.parse_args(words))


def test_table_lists_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    for gpu in all_gpus():
        assert any(line.split()[:2] == [gpu.name, gpu.generation] for line in lines)
    h100 = next(line for line in lines if line.startswith("H100-SXM5-80GB"))
    assert {"132", "80", "3352", "989.4", "450", "700"} <= set(h100.split())
    assert max(map(len, lines)) <= 100
    assert printed.err == ""


def test_details_show_figures_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("h200") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("H200-SXM-141GB")
    assert "bf16 989.4" in printed
    assert printed.count("source: ") == 10  # nine groups and the price
    assert "no price known" not in printed
    run("h20")
    assert "no price known" in capsys.readouterr().out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    run("--json")
    everything = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in everything["gpus"]] == [gpu.name for gpu in all_gpus()]
    run("h100", "--json")
    (row,) = json.loads(capsys.readouterr().out)["gpus"]
    assert row in everything["gpus"]
    assert row["peak_tflops"]["bf16"] == 989.4
    assert set(row["price"]) == {"usd_per_gpu_hour", "source", "date"}


def test_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, prices = tmp_path / "gpus.toml", tmp_path / "prices.toml"
    own.write_text('[[gpu]]\nname = "X1"\nlike = "B200-SXM"\n')
    prices.write_text('[[price]]\ngpu = "X1"\nusd_per_gpu_hour = 9.5\nsource = "us"\ndate = 2026-11-01\n')
    run("x1", "--gpu-file", str(own), "--prices", str(prices))
    assert "9.5" in capsys.readouterr().out
    run("--gpu-file", str(own), "--prices", str(prices))
    assert capsys.readouterr().out.count("9.50") == 1


def test_unknown_gpu() -> None:
    with pytest.raises(UsageError, match="h10"):
        run("h10")
