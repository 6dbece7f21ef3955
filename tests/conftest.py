"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maya.traces import (
    COMMUNICATION_DTYPE,
    MARK_BACKWARD_END,
    MARK_BATCH,
    MARK_ITERATION_END,
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Communicator,
    Kind,
    MemoryAction,
    Operations,
    Phase,
    RankWriter,
    Tables,
)

GIB = 2**30


@pytest.fixture(autouse=True, scope="session")
def signals_as_from_a_terminal() -> None:
    """A job started with `&` ignores Ctrl-C, and so would every process that the tests start."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


def _tensor(*shape: int, dtype: str = "bfloat16", device: str = "cuda") -> dict[str, Any]:
    strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    return {"dtype": dtype, "shape": list(shape), "stride": strides, "device": device}


def _addmm(m: int, k: int, n: int) -> str:
    args = {"self": _tensor(n), "mat1": _tensor(m, k), "mat2": _tensor(k, n), "beta": 1, "alpha": 1}
    return json.dumps({"args": args, "out": [_tensor(m, n)]})


def _pointwise(m: int, n: int) -> str:
    return json.dumps({"args": {"self": _tensor(m, n)}, "out": [_tensor(m, n)]})


def _item() -> str:
    one = _tensor(dtype="float32")
    memcpy = {"direction": "d2h", "bytes": 4, "pinned": False}
    return json.dumps({"args": {"self": one}, "out": [], "memcpy": memcpy})


def _gradients(size: int, seed: int) -> str:
    """A bucket's all-reduce; `seed` is a number that each rank has its own of."""
    return json.dumps({"args": {"tensors": [_tensor(size, size)], "seed": seed}, "out": []})


@dataclass
class SyntheticRun:
    """A small training run as the emulator would record it: a few layers, some iterations.

    Attributes:
        layers: matrix product and activation, forward and backward, for each.
        iterations: 0: it only runs forward, once.
        size: rows and columns of the matrices.
        samples, tokens: what the batch marker of each iteration announces.
        evaluates_in: an iteration that also runs forward 20 times, None for no such.
        marks_backward: a script that trains without an optimizer (iterations = 0).
        world_size: more than 1: after each layer's backward its gradients are all-reduced on a stream
            of their own, and the default stream waits for the last before the iteration ends.
        slow_rank: a rank with one more product in each iteration.
        communicates: whether they reduce anything.
        logging_rank: a rank that also reads its loss.
        groups: process groups of every rank, which the layers take turns with.
        pairs: the last group is not of all ranks but of two neighbours.
        swapped_rank: a rank that begins with the second of two groups.
        outcome: keys of `outcome-0.json` that replace the usual ones.
        outcomes: the same of one rank.
    """

    layers: int = 4
    iterations: int = 4
    size: int = 2048
    samples: int = 8
    tokens: int = 8192
    uses_gpu: bool = True
    evaluates_in: int | None = None
    marks_backward: bool = False
    world_size: int = 1
    slow_rank: int | None = None
    communicates: bool = True
    logging_rank: int | None = None
    groups: int = 1
    pairs: bool = False
    swapped_rank: int | None = None
    outcome: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def write(self, run_dir: Path) -> None:
        """Write every rank's files into an existing folder."""
        for rank in range(self.world_size):
            self._write_rank(run_dir, rank)

    def _write_rank(self, run_dir: Path, rank: int) -> None:
        operators = ("aten::addmm", "aten::gelu", "aten::view", MARK_BATCH, MARK_ITERATION_END, "aten::copy_")
        if self.marks_backward:
            operators += (MARK_BACKWARD_END,)
        batch = json.dumps({"args": {"samples": self.samples, "tokens": self.tokens}, "out": []})
        empty = json.dumps({"args": {}, "out": []})
        metadata = (
            _addmm(self.size, self.size, self.size),
            _pointwise(self.size, self.size),
            batch,
            empty,
            _item(),
        )
        if self.world_size > 1:
            operators += ("c10d::allreduce_", "cudaEventRecord", "cudaStreamWaitEvent")
            metadata += (_gradients(self.size, seed=rank),)
        modules = ("Net", *(f"Net.layers.{layer}" for layer in range(self.layers)))
        lines = ("train.py:10", "train.py:20")
        rows: list[tuple[int, int, Kind, Phase, int, int]] = []
        more: dict[int, dict[str, int]] = {}  # row → columns beside those
        transfers: list[dict[str, int]] = []
        ends: list[int] = []

        def on_stream(operator: str, kind: Kind, stream: int, **columns: int) -> None:
            more[len(rows)] = {"stream": stream, **columns}
            texts = 5 if kind == Kind.COLLECTIVE else 3
            rows.append((operators.index(operator), texts, kind, Phase.BACKWARD, -1, 0))

        def all_reduce() -> None:
            event = 10 * rank + 2 * len(transfers)
            on_stream("cudaEventRecord", Kind.EVENT_RECORD, 0, event=event)
            on_stream("cudaStreamWaitEvent", Kind.STREAM_WAIT, 20 + rank, event=event)
            on_stream("c10d::allreduce_", Kind.COLLECTIVE, 20 + rank, communication=len(transfers))
            on_stream("cudaEventRecord", Kind.EVENT_RECORD, 20 + rank, event=event + 1)
            size = 2 * self.size * self.size
            turn = (len(transfers) + (rank == self.swapped_rank)) % self.groups
            number = len(transfers) // self.groups
            details = {"communicator": turn, "sequence_in_communicator": number, "input_bytes": size}
            transfers.append(details)

        transfers_wanted = self.world_size > 1 and self.communicates
        for iteration in range(max(1, self.iterations)):
            rows.append((3, 2, Kind.MARKER, Phase.FORWARD, 0, 0))
            if self.marks_backward:
                rows.append((6, 3, Kind.MARKER, Phase.OTHER, -1, 0))
            if iteration == self.evaluates_in:
                rows.extend([(0, 0, Kind.KERNEL, Phase.FORWARD, 0, 0)] * 20 * self.layers)
            if rank == self.slow_rank:
                rows.append((0, 0, Kind.KERNEL, Phase.FORWARD, 0, 0))
            for phase in (Phase.FORWARD, Phase.BACKWARD) if self.iterations else (Phase.FORWARD,):
                for layer in range(self.layers):
                    kind = Kind.KERNEL if self.uses_gpu else Kind.HOST
                    rows.append((2, 1, Kind.HOST, phase, layer + 1, 0))
                    rows.append((0, 0, kind, phase, layer + 1, 0))
                    rows.append((1, 1, kind, phase, layer + 1, 0))
                    if transfers_wanted and phase == Phase.BACKWARD:
                        all_reduce()
            if self.iterations:
                if transfers_wanted:
                    last = 10 * rank + 2 * len(transfers) - 1
                    on_stream("cudaStreamWaitEvent", Kind.STREAM_WAIT, 0, event=last)
                if self.uses_gpu:
                    rows.append((5, 4, Kind.MEMCPY, Phase.OTHER, -1, 1))
                    if rank == self.logging_rank:
                        rows.append((5, 4, Kind.MEMCPY, Phase.OTHER, -1, 1))
                rows.append((4, 3, Kind.MARKER, Phase.OTHER, -1, 1))
                ends.append(len(rows) - 1)
        table = np.zeros(len(rows), dtype=OPERATION_DTYPE)
        table["id"] = np.arange(len(rows))
        table["device"] = rank
        for name in ("sequence", "event", "communication", "graph"):
            table[name] = -1
        for index, (operator, texts, kind, phase, module, line) in enumerate(rows):
            row = table[index]
            row["operator"], row["metadata"], row["kind"], row["phase"] = operator, texts, kind, phase
            row["module"], row["source_line"] = module, line
            row["blocking"] = kind == Kind.MEMCPY
            row["host_thread"] = phase == Phase.BACKWARD  # autograd's own thread
            for name, value in more.get(index, {}).items():
                row[name] = value
        communications = np.zeros(len(transfers), dtype=COMMUNICATION_DTYPE)
        for name in ("peer", "tag", "coalescing_group", "async_handle"):
            communications[name] = -1
        for index, details in enumerate(transfers):
            for name, value in details.items():
                communications[index][name] = value
        communications["output_bytes"] = communications["input_bytes"]
        everyone = tuple(range(self.world_size))
        groups = [Communicator(str(index), everyone) for index in range(self.groups)]
        if self.pairs:
            first = rank // 2 * 2
            groups[-1] = Communicator(f"pair {first}", (first, first + 1))
        tables = Tables(operators, metadata, modules, lines, tuple(ends), tuple(groups))
        writer = RankWriter(run_dir, rank)
        operations = Operations(table, np.zeros(0, dtype=TENSOR_DTYPE), communications)
        writer.append(operations, operators, metadata, modules, lines)
        writer.append_memory(self._memory(len(rows)))
        log = {
            "kind": "item",
            "producer": "aten::mean",
            "count": 4,
            "source_line": "train.py:20",
            "value": 1.0,
        }
        writer.finish(tables, [log])
        outcome = {**self._outcome(), **self.outcomes.get(rank, {})}
        (run_dir / f"outcome-{rank}.json").write_text(json.dumps(outcome))

    def _memory(self, operations: int) -> np.ndarray[Any, np.dtype[np.void]]:
        rows = np.zeros(3, dtype=MEMORY_DTYPE)
        rows["action"] = [MemoryAction.SEGMENT_ALLOCATE, MemoryAction.ALLOCATE, MemoryAction.FREE]
        rows["operation"] = [0, 1, operations - 1]
        rows["size_bytes"] = [2 * GIB, GIB, GIB]
        rows["allocation"] = [-1, 1, 1]
        rows["module"] = -1
        return rows

    def _outcome(self) -> dict[str, Any]:
        return {
            "ended": "stopped" if self.iterations else "never_stepped",
            "exit_code": 0,
            "cause": None,
            "iterations": self.iterations,
            "optimizer_steps": self.iterations,
            "oom": None,
            "torch_version": "2.13.0+cpu",
            "memory": {"allocated": GIB, "reserved": 2 * GIB, "capacity": 80 * GIB},
            "data_wait_ns": 0,
            "emulation_wall_ns": 1_000_000,
            **self.outcome,
        }


@pytest.fixture
def synthetic_run() -> Callable[..., SyntheticRun]:
    """Makes a `SyntheticRun` from its attributes."""
    return SyntheticRun
