"""A small language for writing traces by hand: each call appends one operation."""

from __future__ import annotations

import json

import numpy as np
import pytest

from maya.simulator import KernelColumns, RankInput
from maya.traces.operations import (
    COMMUNICATION_DTYPE,
    MARK_DATA_WAIT_END,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Kind,
    Operations,
)
from maya.traces.tables import Communicator, Tables


class Script:
    """Builds a RankInput. Every method returns the id of the operation it appended."""

    def __init__(self, rank: int = 0, communicators: tuple[tuple[int, ...], ...] = ()) -> None:
        self.rank = rank
        self.communicators = tuple(Communicator(f"group{i}", ranks) for i, ranks in enumerate(communicators))
        self.rows: list[dict] = []
        self.gaps: list[int] = []
        self.kernels: list[list[tuple[int, float, float, float]]] = []
        self.communications: list[dict] = []
        self.operators = ["aten::kernel", MARK_DATA_WAIT_END]
        self.metadata: list[str] = [json.dumps({"args": {}, "out": []})]

    def add(self, kind: Kind, gap: int = 0, kernels=(), **columns) -> int:
        self.rows.append({"kind": int(kind), "event": -1, "communication": -1, **columns})
        self.gaps.append(gap)
        self.kernels.append(list(kernels))
        return len(self.rows) - 1

    def host(self, gap: int) -> int:
        return self.add(Kind.HOST, gap)

    def kernel(
        self, *work: int, gap: int = 0, stream: int = 0, shares=(1.0, 0.0, 0.0), blocking=0, **more
    ) -> int:
        return self.add(
            Kind.KERNEL, gap, [(ns, *shares) for ns in work], stream=stream, blocking=blocking, **more
        )

    def copy(self, work: int, direction: str = "h2d", *, gap: int = 0, stream: int = 0, blocking=0) -> int:
        self.metadata.append(
            json.dumps({"args": {}, "out": [], "memcpy": {"direction": direction, "bytes": 1}})
        )
        return self.add(
            Kind.MEMCPY,
            gap,
            [(work, 0.0, 0.0, 1.0)],
            stream=stream,
            blocking=blocking,
            metadata=len(self.metadata) - 1,
        )

    def record(self, event: int, stream: int = 0, gap: int = 0) -> int:
        return self.add(Kind.EVENT_RECORD, gap, event=event, stream=stream)

    def wait(self, event: int, stream: int = 0, gap: int = 0) -> int:
        return self.add(Kind.STREAM_WAIT, gap, event=event, stream=stream)

    def event_sync(self, event: int, gap: int = 0) -> int:
        return self.add(Kind.EVENT_SYNC, gap, event=event)

    def stream_sync(self, stream: int = 0, gap: int = 0) -> int:
        return self.add(Kind.STREAM_SYNC, gap, stream=stream)

    def device_sync(self, gap: int = 0, device: int = 0) -> int:
        return self.add(Kind.DEVICE_SYNC, gap, device=device)

    def data_wait_end(self) -> int:
        return self.add(Kind.MARKER, operator=1)

    def collective(
        self, sequence: int, communicator: int = 0, *, stream=0, gap=0, shares=None, **details
    ) -> int:
        kernels = [] if shares is None else [(1, *shares)]
        return self._communication(Kind.COLLECTIVE, stream, gap, kernels, communicator, sequence, details)

    def send(self, peer: int, *, stream=0, gap=0, communicator: int = 0, **details) -> int:
        return self._communication(Kind.SEND, stream, gap, [], communicator, 0, {"peer": peer, **details})

    def recv(self, peer: int, *, stream=0, gap=0, communicator: int = 0, **details) -> int:
        return self._communication(Kind.RECV, stream, gap, [], communicator, 0, {"peer": peer, **details})

    def handle_wait(self, handle: int, *, stream=0, blocking=0) -> int:
        return self._communication(Kind.WAIT, stream, 0, [], 0, 0, {"handle": handle}, blocking)

    def _communication(self, kind, stream, gap, kernels, communicator, sequence, details, blocking=0) -> int:
        self.communications.append(
            {
                "communicator": communicator,
                "sequence_in_communicator": sequence,
                "collective": details.get("collective", 0 if kind == Kind.COLLECTIVE else -1),
                "peer": details.get("peer", -1),
                "tag": details.get("tag", 0),
                "input_bytes": details.get("bytes", 0),
                "output_bytes": details.get("bytes", 0),
                "coalescing_group": details.get("group", -1),
                "async_handle": details.get("handle", -1),
            }
        )
        index = len(self.communications) - 1
        blocking = details.get("blocking", blocking)
        return self.add(kind, gap, kernels, stream=stream, communication=index, blocking=blocking)

    def columns(self) -> KernelColumns:
        flat = [kernel for kernels in self.kernels for kernel in kernels]
        shares = np.array([kernel[1:] for kernel in flat], dtype=np.float32).reshape(-1, 3)
        return KernelColumns(
            operation_offsets=np.concatenate([[0], np.cumsum([len(k) for k in self.kernels])]).astype(
                np.int64
            ),
            work_ns=np.array([kernel[0] for kernel in flat], dtype=np.int64),
            sm_share=shares[:, 0],
            hbm_share=shares[:, 1],
            link_share=shares[:, 2],
        )

    def operations(self) -> Operations:
        return Operations(
            _fill(OPERATION_DTYPE, [{"id": i, **row} for i, row in enumerate(self.rows)]),
            np.zeros(0, dtype=TENSOR_DTYPE),
            _fill(COMMUNICATION_DTYPE, self.communications),
        )

    def input(self) -> RankInput:
        return RankInput(
            rank=self.rank,
            operations=self.operations(),
            kernels=self.columns(),
            host_gap_ns=np.array(self.gaps, dtype=np.int64),
            tables=Tables(tuple(self.operators), tuple(self.metadata), communicators=self.communicators),
        )


def _fill(dtype: np.dtype, rows: list[dict]) -> np.ndarray:
    filled = np.zeros(len(rows), dtype=dtype)
    for i, row in enumerate(rows):
        for name, value in row.items():
            filled[i][name] = value
    return filled


@pytest.fixture(scope="session")
def script() -> type[Script]:
    """The builder class."""
    return Script
