"""How much host memory and time a model far larger than this machine takes on the emulated device.

    python benchmarks/large_model_host_memory.py [--json] [--output benchmarks/large_model_host_memory.md]

Runs `maya run --gpu-memory unlimited` on this file's `train()`: a Llama of 70 billion parameters
(80 layers, width 8192, 64 heads, 8 key-value heads, feed-forward 28672, vocabulary 128256, bf16),
built on the device and trained for one SGD step on 1 x 2048 tokens.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LIMIT_BYTES = 4_000_000_000


@dataclass(frozen=True)
class Llama:
    """Dimensions; the defaults are Llama 3 70B's."""

    layers: int = 80
    width: int = 8192
    heads: int = 64
    key_value_heads: int = 8
    feed_forward: int = 28672
    vocabulary: int = 128256


class Attention(nn.Module):
    def __init__(self, shape: Llama) -> None:
        super().__init__()
        self.head = shape.width // shape.heads
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.key_value_heads * self.head, bias=False)
        self.value = nn.Linear(shape.width, shape.key_value_heads * self.head, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(
            rotate(query, angles), rotate(key, angles), value, is_causal=True, enable_gqa=True
        )
        return self.out(y.transpose(1, 2).flatten(-2))


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = angles
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Block(nn.Module):
    def __init__(self, shape: Llama) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.norm = nn.RMSNorm(shape.width)
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.attention_norm(x), angles)
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, shape: Llama) -> None:
        super().__init__()
        self.head = shape.width // shape.heads
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        steps = torch.arange(0, self.head, 2, device=tokens.device, dtype=torch.float32)
        turns = torch.outer(positions, 500_000.0 ** (-steps / self.head))
        x = self.embedding(tokens)
        angles = turns.cos().to(x.dtype), turns.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, angles)
        return self.output(self.norm(x))


def train(layers: int, length: int) -> None:
    """What a user would write; knows nothing of Maya."""
    began = time.perf_counter()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Model(Llama(layers=layers))
    built_s = time.perf_counter() - began
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, Llama.vocabulary, (1, length + 1), device="cuda")
    began = time.perf_counter()
    logits = model(tokens[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    step_s = time.perf_counter() - began
    measured = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "built_s": built_s,
        "forward_and_backward_s": step_s,
        "device_peak_bytes": torch.cuda.max_memory_allocated(),
    }
    print(f"measured {json.dumps(measured)}", flush=True)
    optimizer.step()


def initialisation_us() -> dict[str, float]:
    """Host time of filling a parameter of 128256 x 8192, microseconds; runs on the device given."""
    weight = torch.empty(128256, 8192, device="cuda")
    found = {}
    for name in ("normal_", "uniform_", "kaiming_uniform_", "xavier_normal_", "zeros_", "trunc_normal_"):
        fill = getattr(nn.init, name)
        fill(weight)
        times = []
        for _ in range(20):
            began = time.perf_counter()
            fill(weight)
            times.append(time.perf_counter() - began)
        found[name] = sorted(times)[len(times) // 2] * 1e6
    return found


def run(layers: int, length: int) -> dict[str, float]:
    """One `maya run`: what it measured, wall time, peak resident memory of the largest process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "maya.cli", "run", "--gpu-memory", "unlimited"]
        command += ["--steps", "1", "--warmup", "0", "-o", f"{folder}/llama.maya"]
        command += [
            str(Path(__file__).resolve()),
            "--train",
            "--layers",
            str(layers),
            "--length",
            str(length),
        ]
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=folder)
        wall_s = time.perf_counter() - began
        if done.returncode != 0:
            raise SystemExit(f"maya run failed with exit code {done.returncode}:\n{done.stdout}")
        prediction = json.loads(Path(folder, "llama.maya", "prediction.json").read_text())
    told = re.search(r"^measured (.*)$", done.stdout, re.MULTILINE)
    fills = re.search(r"^fills (.*)$", done.stdout, re.MULTILINE)
    assert told is not None
    assert fills is not None
    return {
        **json.loads(told.group(1)),
        **{f"fill {name}": value for name, value in json.loads(fills.group(1)).items()},
        "wall_s": wall_s,
        "peak_host_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "iteration_time_ms": prediction["iteration_time_ms"],
    }


def table(layers: int, length: int, found: dict[str, float]) -> str:
    gib = 2**30
    rows = [
        ("parameters", f"{found['parameters'] / 1e9:.2f} billion"),
        ("peak host memory of the largest process", f"{found['peak_host_bytes'] / 1e9:.2f} GB"),
        ("peak device memory, emulated", f"{found['device_peak_bytes'] / gib:.1f} GiB"),
        ("wall time of `maya run`, everything", f"{found['wall_s']:.1f} s"),
        ("of it: building the model", f"{found['built_s']:.2f} s"),
        ("of it: forward and backward", f"{found['forward_and_backward_s']:.2f} s"),
        ("predicted for the step on one H100", f"{found['iteration_time_ms']:.0f} ms"),
        *(
            (f"`{name.split()[1]}` on a 128256 x 8192 tensor", f"{value:.0f} us")
            for name, value in found.items()
            if name.startswith("fill ")
        ),
    ]
    lines = [f"# A Llama of {layers} layers on the emulated device, 1 x {length} tokens, one SGD step", ""]
    lines += [f"Written by `{Path(__file__).name}`; torch {torch.__version__}, {platform.machine()}.", ""]
    lines += ["| what | measured |", "| --- | --- |", *(f"| {what} | {value} |" for what, value in rows), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--output", type=Path, help="write the table to this file as well")
    parser.add_argument("--json", action="store_true", help="print the figures only")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        print(f"fills {json.dumps(initialisation_us())}", flush=True)
        train(args.layers, args.length)
        return
    found = run(args.layers, args.length)
    text = table(args.layers, args.length, found)
    print(json.dumps(found) if args.json else text)
    if args.output is not None:
        partial = args.output.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(args.output)
    if found["peak_host_bytes"] >= LIMIT_BYTES:
        raise SystemExit(f"over the limit of {LIMIT_BYTES / 1e9:.0f} GB")


if __name__ == "__main__":
    main()
