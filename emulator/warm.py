"""What the first training step imports, imported before ranks are forked, so that they share it."""

from __future__ import annotations

import os
from importlib import import_module

FIRST_STEP = (
    "maya.emulator.torch_distributed",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch.profiler",  # `Optimizer.step` is wrapped in a `record_function`
    "torch.utils.data",
    "torch.utils.checkpoint",
)


def import_for_first_step() -> None:
    """Import what every rank needs. Neither the emulated device nor a random generator is used.

    The first meta function of an operator with a decomposition imports some 800 modules, a second
    of work: `native_layer_norm` is such a one.
    """
    import torch

    if torch.cuda.is_initialized():
        raise RuntimeError("ranks are to be forked, but this process has used the device already")
    before = dict(os.environ)
    for name in FIRST_STEP:
        import_module(name)
    rows = torch.empty(2, 8, device="meta")
    torch.native_layer_norm(rows, [8], None, None, 1e-5)
    for name in os.environ.keys() - before.keys():  # Inductor's cache folder: ranks start as torchrun's do
        del os.environ[name]
    if torch.cuda.is_initialized():
        raise RuntimeError("warming up has used the emulated device; a fork could not use it any more")
