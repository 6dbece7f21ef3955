"""The store through which ranks meet, hosted by their launcher as torchrun's agent hosts it.

`torch.distributed` reaches it by MASTER_ADDR and MASTER_PORT. Beside its own keys it holds
`maya/waiting/<rank>`, what a rank waits for inside an exchange of values, and
`maya/ended/<rank>`, set when a rank's process has ended, so that nobody waits for it.
"""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from maya.pipeline.launch import MASTER_ADDRESS

WAITING_KEY = "maya/waiting/{rank}"
ENDED_KEY = "maya/ended/{rank}"
ANSWER_WITHIN = timedelta(seconds=300)
BACKLOG = 1024
HANG_AFTER_S = 10.0
"""All ranks waiting for each other, none of them getting on, for this long: nothing will change any
more. Exchanges take milliseconds; a machine that runs 16 ranks on 2 cores may need seconds."""


def open_listener(port: int | None) -> socket.socket:
    """A socket on which ranks can knock before the store answers; `port` if it is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((MASTER_ADDRESS, port or 0))
    except OSError as error:
        if not port or error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        listener.bind((MASTER_ADDRESS, 0))  # somebody else's port: the emulated node has its own
    listener.listen(BACKLOG)
    return listener


class AgentStore:
    """The store's server, in this process's own threads: create it after the last fork.

    Args:
        listener: of `open_listener`; the store takes it over.
    """

    def __init__(self, listener: socket.socket) -> None:
        from torch.distributed import TCPStore

        port = listener.getsockname()[1]
        self._store = TCPStore(
            MASTER_ADDRESS,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=ANSWER_WITHIN,
            master_listen_fd=listener.detach(),
        )

    def waits(self, ranks: Iterable[int]) -> dict[int, str]:
        """What each of the ranks that wait says it waits for, the text as written."""
        found = {}
        for rank in ranks:
            key = WAITING_KEY.format(rank=rank)
            if self._store.check([key]):
                text = self._store.get(key).decode(errors="replace")
                if text:
                    found[rank] = text
        return found

    def tell_ended(self, rank: int, how: str) -> None:
        """Let the others know that a rank will take part in nothing any more."""
        self._store.set(ENDED_KEY.format(rank=rank), how)


class HangWatch:
    """Notices when all ranks that could get on wait, and go on waiting for the same."""

    def __init__(self, patience_s: float = HANG_AFTER_S) -> None:
        self._patience_s = patience_s
        self._last: dict[int, str] = {}
        self._since_s = 0.0

    def hangs(self, now_s: float, running: Iterable[int], waits: dict[int, str]) -> bool:
        """Whether the ranks that run have all waited for the same for the whole patience.

        Args:
            now_s: monotonic.
            running: ranks whose scripts have not ended.
            waits: of `AgentStore.waits`.
        """
        if not waits or set(running) - set(waits):
            self._last = {}
            return False
        if waits != self._last:
            self._last, self._since_s = dict(waits), now_s
        return now_s - self._since_s >= self._patience_s


def describe_wait(text: str) -> str:
    """`c10d::allreduce_ number 7 of communicator 0 with ranks 0, 1` from a rank's own words (JSON)."""
    try:
        words: Any = json.loads(text)
        operation, communicator = words["operation"], words["communicator"]
        sequence, ranks = words["sequence"], words["ranks"]
    except (ValueError, KeyError, TypeError):
        return text[:100]
    others = ", ".join(str(rank) for rank in ranks)
    return f"{operation} number {sequence} of communicator {communicator} with ranks {others}"
