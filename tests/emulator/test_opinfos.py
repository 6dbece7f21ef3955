"""PyTorch's own OpInfos on the device: shapes, strides, aliases, errors and gradients as on the CPU.

`benchmarks/opinfo_agreement.py` writes the whole list with the causes of what disagrees.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
from on_device import on_device

SPREAD = 60
SAMPLES = 24
"""Of each dtype, in the spread."""
PARTS = 4
GOAL = 0.95


def differences(names: list[str], samples: int | None) -> dict[str, list[str]]:
    """OpInfo → what differs and is not what CUDA does anyway."""
    import opinfo_checks
    from opinfo_expected import expected_difference

    found = {}
    for op in opinfo_checks.OPINFOS:
        if op.formatted_name not in names:
            continue
        agreement = opinfo_checks.check_opinfo(op, samples)
        assert agreement.calls > 0, agreement.name
        unexpected = [
            str(finding)
            for finding in agreement.findings
            if expected_difference(agreement.name, finding.difference.kind) is None
        ]
        if unexpected:
            found[agreement.name] = unexpected[:3]
    return found


@on_device
def test_a_spread_of_opinfos_agrees_with_the_cpu() -> None:
    import opinfo_checks
    from opinfo_causes import CAUSES

    names = sorted(op.formatted_name for op in opinfo_checks.OPINFOS)
    chosen = random.Random(20261201).sample(names, SPREAD)
    found = differences(chosen, SAMPLES)
    assert {name: told for name, told in found.items() if name not in CAUSES} == {}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@on_device
def test_nearly_all_opinfos_agree_with_the_cpu(part: int) -> None:
    import opinfo_checks

    names = sorted(op.formatted_name for op in opinfo_checks.OPINFOS)[part::PARTS]
    assert len(names) > 100  # torch still has them
    found = differences(names, None)
    assert len(found) <= (1 - GOAL) * len(names), found


@on_device
def test_a_wrong_stride_a_lost_alias_and_another_error_are_told() -> None:
    import torch
    from outcome_comparison import Outcome, compare, run

    x = torch.arange(6.0).reshape(2, 3)
    y = x.cuda()

    def kinds(cpu: Outcome, device: Outcome) -> list[str]:
        return [difference.kind for difference in compare(cpu, device)]

    assert kinds(run(lambda: x.t(), x), run(lambda: y.t(), y)) == []
    assert kinds(run(lambda: x.t(), x), run(lambda: y.t().contiguous(), y)) == ["stride"]
    assert kinds(run(lambda: x[0], x), run(lambda: y[0].clone(), y)) == ["alias"]
    assert kinds(run(lambda: x[0], x), run(lambda: y[1], y)) == ["value"]
    assert kinds(run(lambda: x + 1, x), run(lambda: y + 2, y)) == ["value"]
    assert kinds(run(lambda: x[5], x), run(lambda: y @ y, y)) == ["exception"]
    assert kinds(run(lambda: x.sum(0), x), run(lambda: y.sum(1), y)) == ["shape"]
    assert kinds(run(lambda: x > 0, x), run(lambda: y.clone(), y)) == ["dtype"]
