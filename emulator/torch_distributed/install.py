"""Putting the emulated `nccl` backend where PyTorch looks for ProcessGroupNCCL."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import torch

from maya.emulator.torch_distributed.objects import check_gathered_objects
from maya.errors import MayaError

NCCL_TIMEOUT = datetime.timedelta(minutes=10)
"""kProcessGroupNCCLDefaultTimeout of ProcessGroupNCCL.hpp."""


def install(native: Any, *, rank: int, world_size: int) -> None:
    """Make `nccl` process groups emulated ones. Once per process, after `install_device`.

    Args:
        native: the compiled backend.
        rank: this process's global rank, for what it says of itself to the launcher.
        world_size: how many ranks there are; only checked.

    Raises:
        ValueError: the rank is not one of the world's.
        MayaError: this torch is built without `torch.distributed`.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of a world of {world_size}")
    if not torch.distributed.is_available():
        raise MayaError(
            "this torch has no torch.distributed", hint="Install a torch built with USE_DISTRIBUTED=1."
        )
    from torch._C import _distributed_c10d as extension
    from torch.distributed import constants, distributed_c10d

    group = native.define_process_group(rank)
    group.__module__ = "torch.distributed.distributed_c10d"
    group.__qualname__ = "ProcessGroupNCCL"
    for module in (distributed_c10d, torch.distributed, extension):
        vars(module)["ProcessGroupNCCL"] = group
    distributed_c10d._NCCL_AVAILABLE = True
    if "ProcessGroupNCCL" not in distributed_c10d.__all__:
        distributed_c10d.__all__.append("ProcessGroupNCCL")
    if constants.default_pg_nccl_timeout is None:
        for name in ("torch.distributed.constants", "torch.distributed.distributed_c10d"):
            sys.modules[name].default_pg_nccl_timeout = NCCL_TIMEOUT  # type: ignore[attr-defined]
        extension._DEFAULT_PG_NCCL_TIMEOUT = NCCL_TIMEOUT
    register = getattr(distributed_c10d, "_register_builtin_nccl_backend", None)
    if register is not None and "NCCL" not in distributed_c10d.Backend._plugins:
        register()  # since 2.14 a plugin, which a CPU build leaves out
    check_gathered_objects(native)
