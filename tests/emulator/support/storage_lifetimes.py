"""Which storages live when, in a step that really runs on the CPU.

Knows nothing of Maya: a dispatch mode sees every operator below autograd (backward included, which a
CPU graph runs in the calling thread), and weak references to the storages tell when each dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

ROUND_TO_BYTES = 512
STILL_ALIVE = 1 << 60


@dataclass
class Storage:
    """A storage and its life, counted in operators.

    Attributes:
        operator: what made it, without overload.
        dtype, shape: of the tensor through which it was first seen.
        rounded_bytes: its size, rounded up to 512 bytes.
        born, died: index of the operator that made it, and of the first one that ran without it.
    """

    operator: str
    dtype: str
    shape: tuple[int, ...]
    rounded_bytes: int
    born: int
    died: int = STILL_ALIVE


class StorageLifetimes(TorchDispatchMode):
    """Follows the storages that operators make while this mode is on.

    Attributes:
        operators: names of the operators that ran, in order, without overload.
        storages: what they made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []
        self.storages: list[Storage] = []
        self._live: dict[int, tuple[StorageWeakRef, Storage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._bury()  # what died since the last operator made room before this one allocates
        result = func(*args, **(kwargs or {}))
        self.operators.append(func.overloadpacket.__name__)
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self._meet(tensor)
        return result

    def _meet(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        now = len(self.operators) - 1
        size = -(-storage.nbytes() // ROUND_TO_BYTES) * ROUND_TO_BYTES
        known = self._live.get(storage._cdata)
        if known is not None:
            if known[1].rounded_bytes == size:
                return
            known[1].died = now  # resized in place: another storage from here on
        dtype = str(tensor.dtype).removeprefix("torch.")
        met = Storage(self.operators[-1], dtype, tuple(tensor.shape), size, now)
        self.storages.append(met)
        # The weak reference keeps the address of a dead storage from being used again.
        self._live[storage._cdata] = StorageWeakRef(storage), met

    def _bury(self) -> None:
        dead = [key for key, (reference, _) in self._live.items() if reference.expired()]
        for key in dead:
            self._live.pop(key)[1].died = len(self.operators)
