"""Importing this puts four emulated H100s into the process; a forked child becomes a rank of them."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from maya.emulator.device import DeviceSettings, install_device
from maya.emulator.torch_distributed import install
from maya.hardware import find_gpu
from maya.traces import COMMUNICATION_DTYPE, OPERATION_DTYPE, Kind

# What training imports on its way: once here, not in every rank of every test.
for name in ("_dynamo", "_decomp", "_refs", "_meta_registrations", "distributed.fsdp", "distributed.tensor"):
    importlib.import_module(f"torch.{name}")

native = install_device(DeviceSettings(find_gpu("H100-SXM5-80GB"), visible_gpus=4))


def be_rank(rank: int, world_size: int) -> None:
    """What a launched rank does after the fork."""
    install(native, rank=rank, world_size=world_size)


def linger(rank: int, world_size: int) -> None:
    """Leave together: a rank that is gone has `ended` for those that still wait for it."""
    del rank
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    store.add("tests/over", 1)
    while int(store.add("tests/over", 0)) < world_size:
        time.sleep(0.002)


class Recorded:
    """What a step recorded, as plain values."""

    def __init__(self, rows: Any, communications: Any, operators: list[str], metadata: list[str]) -> None:
        self.rows = rows
        self.communications = communications
        self.operators = operators
        self.metadata = metadata

    def names(self) -> list[str]:
        return [self.operators[row["operator"]] for row in self.rows]

    def transfers(self) -> list[tuple[Any, Any]]:
        """(operation, communication) of everything that goes to other ranks."""
        kinds = (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)
        return [(row, self.communications[row["communication"]]) for row in self.rows if row["kind"] in kinds]

    def arguments(self, row: Any) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.metadata[row["metadata"]])["args"]
        return parsed


def recorded(step: Callable[[], object]) -> Recorded:
    """Run `step` with recording on. Row indices count from the start of the process: once a test."""
    native.drain()
    native.recording(True)
    try:
        step()
    finally:
        native.recording(False)
    operations, _, communications = native.drain()
    return Recorded(
        np.frombuffer(operations, OPERATION_DTYPE),
        np.frombuffer(communications, COMMUNICATION_DTYPE),
        native.interned("operators", 0),
        native.interned("metadata", 0),
    )
