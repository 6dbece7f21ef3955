"""Two training steps of a model; what lived when during them, as JSON on stdout.

    python memory_step.py cpu|cuda '[{"layers": 4, ...}, {"image_size": 64}, ...]'

The example's GPT, or ResNet-50 where an image size is given.

On "cpu" the steps really run and `StorageLifetimes` watches; on "cuda" they run on the emulated
device and its allocator's log is told in the same form.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils.checkpoint import checkpoint

SUPPORT = Path(__file__).resolve().parent
sys.path[:0] = [str(SUPPORT), str(SUPPORT.parents[2] / "examples")]
import train_gpt  # noqa: E402
from resnet50 import ResNet50  # noqa: E402
from storage_lifetimes import ROUND_TO_BYTES, STILL_ALIVE, StorageLifetimes  # noqa: E402

FIRST_OUTPUT = 256
"""Positions of outputs in the tensor table start here."""


class Step(Protocol):
    def run(self, device: str, before_the_second: Callable[[], None]) -> None:
        """Train two steps. The first is small: it only makes the optimizer's states."""


@dataclass(frozen=True)
class ResNetStep:
    """ResNet-50 with SGD and momentum in float32."""

    image_size: int
    batch: int = 8

    def run(self, device: str, before_the_second: Callable[[], None]) -> None:
        gc.collect()
        torch.manual_seed(0)
        model = ResNet50().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
        self._train(device, model, optimizer, 2)
        before_the_second()
        self._train(device, model, optimizer, self.batch)

    def _train(self, device: str, model: Any, optimizer: Any, batch: int) -> None:
        images = torch.randn(batch, 3, self.image_size, self.image_size, device=device)
        classes = torch.randint(0, 1000, (batch,), device=device)
        torch.nn.functional.cross_entropy(model(images), classes).backward()
        optimizer.step()
        optimizer.zero_grad()


@dataclass(frozen=True)
class GptStep:
    """The model, the batch and how it is trained."""

    layers: int = 4
    heads: int = 4
    width: int = 256
    vocabulary: int = 8192
    block_size: int = 256
    batch: int = 8
    length: int = 256
    bf16: bool = True
    optimizer: str = "fused"
    accumulation: int = 1
    checkpoint: bool = False

    def run(self, device: str, before_the_second: Callable[[], None]) -> None:
        gc.collect()  # an earlier run leaves nothing
        torch.manual_seed(0)
        model = train_gpt.GPT(self.vocabulary, self.block_size, self.layers, self.heads, self.width)
        model.to(device)
        if self.checkpoint:
            for block in model.blocks:
                block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        parameters = list(model.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, **{self.optimizer: True})
        self._train(device, model, parameters, optimizer, (1, min(self.length, 32)))
        before_the_second()
        self._train(device, model, parameters, optimizer, (self.batch, self.length))

    def _train(
        self, device: str, model: Any, parameters: Any, optimizer: Any, shape: tuple[int, int]
    ) -> None:
        total = torch.zeros((), device=device)
        for _ in range(self.accumulation):
            tokens = torch.randint(0, self.vocabulary, shape, device=device)
            targets = torch.randint(0, self.vocabulary, shape, device=device)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=self.bf16):
                _, loss = model(tokens, targets)
            loss = loss / self.accumulation
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def on_cpu(step: Step) -> dict[str, Any]:
    """`begin` (index of the second step's first operator), operators, and storages of both steps."""
    begin = 0
    lifetimes = StorageLifetimes()

    def remember() -> None:
        nonlocal begin
        begin = len(lifetimes.operators)

    with lifetimes:
        step.run("cpu", remember)
    storages = [asdict(storage) for storage in lifetimes.storages]
    return {"begin": begin, "operators": lifetimes.operators, "storages": storages}


class EmulatedDevice:
    """An emulated H100 in this process, and what its allocator logs."""

    def __init__(self) -> None:
        from maya.emulator.device import DeviceSettings, install_device
        from maya.hardware import find_gpu

        self._native = install_device(DeviceSettings(find_gpu("H100-SXM5-80GB")))
        self._storages: dict[int, dict[str, Any]] = {}
        self._operators: list[str] = []

    def run(self, step: Step) -> dict[str, Any]:
        """As `on_cpu`, with `max_memory_allocated` and each storage's `unsplit_bytes`.

        Storages of earlier runs that are still alive (workspaces) are told again.
        """
        begin = 0

        def remember() -> None:
            nonlocal begin
            torch.cuda.reset_peak_memory_stats()
            begin = self._native.next_operation_id()

        self._native.recording(True)
        step.run("cuda", remember)
        self._native.recording(False)
        self._read()
        return {
            "begin": begin,
            "operators": self._operators,
            "storages": list(self._storages.values()),
            "max_memory_allocated": torch.cuda.max_memory_allocated(),
        }

    def _read(self) -> None:
        import numpy as np

        from maya.traces import MEMORY_DTYPE, OPERATION_DTYPE, TENSOR_DTYPE, MemoryAction

        operations, tensors, _ = self._native.drain()
        rows, uses = np.frombuffer(operations, OPERATION_DTYPE), np.frombuffer(tensors, TENSOR_DTYPE)
        names = [name.split("::")[-1].split(".")[0] for name in self._native.interned("operators", 0)]
        self._operators = self._operators + [names[row] for row in rows["operator"]]
        makers: dict[int, str] = {}
        owners = np.repeat(rows["id"], rows["tensor_count"])
        made = uses["argument"] >= FIRST_OUTPUT
        for owner, storage in zip(owners[made], uses["storage"][made], strict=True):
            makers.setdefault(int(storage), self._operators[owner])
        for event in np.frombuffer(self._native.drain_memory(), MEMORY_DTYPE):
            allocation, operation = int(event["allocation"]), int(event["operation"])
            if event["action"] == MemoryAction.ALLOCATE:
                size = -(-int(event["requested_bytes"]) // ROUND_TO_BYTES) * ROUND_TO_BYTES
                self._storages[allocation] = {
                    "operator": makers.get(allocation, ""),
                    "rounded_bytes": size,
                    "unsplit_bytes": int(event["size_bytes"]) - size,
                    "born": operation,
                    "died": STILL_ALIVE,
                }
            elif event["action"] == MemoryAction.FREE and allocation in self._storages:
                self._storages[allocation]["died"] = operation


def main() -> None:
    where = sys.argv[1]
    steps: list[Step] = [
        ResNetStep(**settings) if "image_size" in settings else GptStep(**settings)
        for settings in json.loads(sys.argv[2])
    ]
    torch.set_num_threads(2)
    run = on_cpu if where == "cpu" else EmulatedDevice().run
    json.dump([run(step) for step in steps], sys.stdout)


if __name__ == "__main__":
    main()
