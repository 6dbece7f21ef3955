"""What is more than an operator: several GPUs in one process, CUDA graphs of modules, jagged tensors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"
TIMEOUT_S = 240
START = """
from maya.emulator.device import DeviceSettings, install_device
from maya.hardware import find_gpu
native = install_device(DeviceSettings(find_gpu("H100-SXM5-80GB"), visible_gpus=2))
import torch
from torch import nn
"""


def run(body: str) -> None:
    """Run a program in a fresh process that has two emulated GPUs."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(body)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_data_parallel_over_two_gpus_gives_the_gradients_of_one() -> None:
    run(
        """
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
        x = torch.randn(6, 4, device="cuda")
        plain(x).square().sum().backward()
        expected = [p.grad.cpu() for p in plain.parameters()]
        plain.zero_grad()
        seen = []
        class Where(nn.Module):
            def forward(self, x):
                seen.append((x.device.index, len(x)))
                return x
        parallel = nn.DataParallel(nn.Sequential(Where(), plain))
        out = parallel(x)
        assert sorted(seen) == [(0, 3), (1, 3)], seen
        assert out.device.index == 0 and out.shape == (6, 2)
        out.square().sum().backward()
        for parameter, grad in zip(plain.parameters(), expected, strict=True):
            assert parameter.grad.device.index == 0
            torch.testing.assert_close(parameter.grad.cpu(), grad)
        """
    )


def test_graphed_callables_train_as_the_module_does() -> None:
    run(
        """
        torch.manual_seed(0)
        layer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
        sample = torch.randn(3, 4, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(layer, (sample,))
        x = torch.randn(3, 4, device="cuda", requires_grad=True)
        out = graphed(x)
        out.sum().backward()
        assert out.shape == (3, 2) and x.grad.shape == (3, 4)
        assert all(p.grad.shape == p.shape for p in layer.parameters())
        """
    )


def test_jagged_tensors_are_python_and_work_and_strided_nested_ones_are_refused() -> None:
    run(
        """
        parts = [torch.randn(n, 4, device="cuda") for n in (2, 5, 3)]
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
        out = nn.Linear(4, 6).cuda()(jagged)
        assert out.is_nested and out.device.type == "cuda"
        assert [tuple(p.shape) for p in out.unbind()] == [(2, 6), (5, 6), (3, 6)]
        out.values().sum().backward()
        try:
            torch.nested.nested_tensor(parts) * 2
        except NotImplementedError as error:
            assert "nested" in str(error), error
        else:
            raise AssertionError("a strided nested tensor was not refused")
        """
    )
