"""How much the emulated device costs: a GPT-2-124M training step, side by side in one process.

    python benchmarks/emulation_overhead.py [--repeats 7] [--json]

Three times of the same step (batch 8, 1,024 tokens, bf16 autocast, flash attention, foreach AdamW):

- emulated: on the fake CUDA device, with and without recording;
- meta: on torch's meta device, which computes shapes only;
- bare: on the fake device with kernels that do nothing but return their cached outputs. What is
  left of the emulated time is the emulator's own, and is given for each operator.

Every figure is the minimum over the repeats, interleaved, because the machine is shared.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from maya.emulator.device import DeviceSettings, install_device
from maya.hardware import find_gpu

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT, BATCH = 12, 768, 12, 50304, 1024, 8


class Block(nn.Module):
    """Pre-norm transformer block of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, width] → the same."""
        batch, tokens, _ = x.shape
        q, k, v = (
            part.view(batch, tokens, HEADS, -1).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).split(WIDTH, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).contiguous().view(batch, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    """GPT-2-124M with the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Token ids [batch, tokens] → scalar loss."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def training_step(device: str) -> Callable[[], None]:
    """One forward, backward and optimizer step on a device."""
    with torch.device(device):
        model = Gpt()
        ids = torch.zeros(BATCH, CONTEXT, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        with torch.autocast("cuda" if device == "cuda" else "cpu", dtype=torch.bfloat16):
            loss = model(ids, ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed_ms(step: Callable[[], None]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    native = install_device(DeviceSettings(find_gpu("H100-SXM5-80GB")))
    steps = {"cuda": training_step("cuda"), "meta": training_step("meta")}
    for _ in range(3):
        for step in steps.values():
            step()
    before = native.statistics()["operations"]
    native.set_tape("record")
    steps["cuda"]()
    native.set_tape("off")
    operators = native.statistics()["operations"] - before
    times: dict[str, list[float]] = {"meta": [], "recording": [], "silent": [], "bare": []}
    for _ in range(args.repeats):
        times["meta"].append(timed_ms(steps["meta"]))
        native.recording(True)
        times["recording"].append(timed_ms(steps["cuda"]))
        native.recording(False)
        native.drain()
        native.drain_memory()
        times["silent"].append(timed_ms(steps["cuda"]))
        native.set_tape("replay")
        times["bare"].append(timed_ms(steps["cuda"]))
        native.set_tape("off")
    best = {name: min(values) for name, values in times.items()}
    result = {
        "torch": torch.__version__,
        "operators_a_step": operators,
        **{f"{name}_ms": round(value, 3) for name, value in best.items()},
        "meta_over_recording": round(best["meta"] / best["recording"], 2),
        "meta_over_silent": round(best["meta"] / best["silent"], 2),
        "own_us_an_operator": round((best["recording"] - best["bare"]) * 1e3 / operators, 2),
    }
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
