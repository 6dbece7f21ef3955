"""`--step-marker module:function`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maya.emulator.script.step_marker import StepMarker
from maya.errors import UsageError

TRAINER = """
class Engine:
    def train_batch(self):
        return 7
    @staticmethod
    def static(): return 1
def step(x, y=2):
    return x + y
"""


@pytest.mark.parametrize("text", ["step", "a.b.c", ":step", "mod:", "a b:c", "mod:f:g", ""])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="module:function"):
        StepMarker.parse(text)


@pytest.mark.parametrize(
    ("marker", "source"),
    [
        ("my.trainer:step", "from my.trainer import step\nwhile True: print(step(1))"),
        ("my.trainer:step", "import my.trainer as t\nwhile True: print(t.step(x=1))"),
        (
            "my.trainer:Engine.train_batch",
            "import my.trainer as t\ne = t.Engine()\nwhile True: print(e.train_batch())",
        ),
        ("my.trainer:Engine.static", "from my.trainer import Engine\nwhile True: print(Engine.static())"),
        ("__main__:go", "def go():\n    print('go')\nwhile True: go()"),
        ("__main__:T.go", "class T:\n    def go(self):\n        print('go')\nt = T()\nwhile True: t.go()"),
    ],
)
def test_its_returns_end_iterations(follow: Any, tmp_path: Path, marker: str, source: str) -> None:
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "trainer.py").write_text(TRAINER)
    ours = follow(source, step_marker=marker, warmup=1, steps=2)
    assert (ours.exit_code, ours.stderr) == (0, "")
    assert len(ours.stdout.splitlines()) == (3 if "go" in source else 2)
    assert len(ours.summary["iteration_ends"]) == 3
    assert ours.summary["ending"] == "stopped"


def test_optimizer_steps_do_not_count_then(follow: Any) -> None:
    source = """
import torch
p = torch.nn.Parameter(torch.ones(1))
o = torch.optim.SGD([p], lr=0.1)
def both():
    p.grad = torch.ones(1); o.step(); o.step()
while True: both()
"""
    ours = follow(source, step_marker="__main__:both", warmup=0, steps=2)
    assert len(ours.summary["iteration_ends"]) == 2
    assert ours.summary["marks"].count("maya::optimizer_end") == 4


def test_tracebacks_show_the_script_alone(follow: Any) -> None:
    ours = follow("def go():\n    raise ValueError('x')\n\ngo()\n", step_marker="__main__:go")
    places = [line.split(", ", 1)[1] for line in ours.stderr.splitlines() if line.startswith("  File")]
    assert places == ["line 4, in <module>", "line 2, in go"]
    assert ours.summary["cause"] == "ValueError: x"


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("__main__:missing", "defines no 'missing'"),
        ("no_such_module:step", "never imported"),
        ("json:no_such", "no such function"),
        ("json:load", "never called"),
    ],
)
def test_what_never_happens_is_said(follow: Any, marker: str, says: str) -> None:
    ours = follow("import json", step_marker=marker)
    assert ours.exit_code == 2
    assert says in ours.stderr
