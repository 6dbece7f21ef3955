"""Object collectives: pickled bytes in device tensors, whose values have to reach every rank."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d


def check_gathered_objects(native: Any) -> None:
    """Say clearly when objects were too large to travel, instead of failing to unpickle."""
    if not hasattr(_distributed_c10d, "_hash_tensors"):
        vars(_distributed_c10d)["_hash_tensors"] = hash_tensors
    if hasattr(distributed_c10d._tensor_to_object, "maya_checked"):
        return
    original = distributed_c10d._tensor_to_object

    def tensor_to_object(tensor: Any, *arguments: Any, **named: Any) -> Any:
        if tensor.is_cuda and not native.is_known(tensor):
            raise RuntimeError(
                f"Maya: the objects of this collective ({tensor.numel():,} bytes a rank) are too large to "
                f"travel between emulated ranks; at most {native.travel_limit_bytes():,} bytes of all ranks "
                "together do. Use a gloo group for them (new_group(backend='gloo')), or gather less."
            )
        return original(tensor, *arguments, **named)

    tensor_to_object.maya_checked = True  # type: ignore[attr-defined]
    distributed_c10d._tensor_to_object = tensor_to_object


def hash_tensors(tensors: Sequence[Any]) -> int:
    """What TORCH_DISTRIBUTED_DEBUG=DETAIL logs of an object's bytes; a build without NCCL lacks it."""
    digest = 0
    for tensor in tensors:
        digest = zlib.crc32(tensor.detach().cpu().numpy().tobytes(), digest)
    return digest
