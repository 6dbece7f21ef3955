"""What a script finds out about memory on an emulated H100 of 6 GiB, as JSON on stdout."""

from __future__ import annotations

import gc
import json
import sys

import torch

from maya.emulator.device import DeviceSettings, install_device
from maya.hardware import find_gpu

GIB, MIB = 2**30, 2**20
native = install_device(DeviceSettings(find_gpu("H100-SXM5-80GB"), memory_bytes=6 * GIB))
found = {}


def block(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def fails(size):
    try:
        block(size)
    except torch.OutOfMemoryError as error:
        return str(error)


def start(expandable=False):
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{expandable}")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()


def said_and_caught():
    start()
    held = [block(3 * GIB)]
    found["message"] = fails(4 * GIB)
    found["is a RuntimeError"] = issubclass(torch.OutOfMemoryError, RuntimeError)
    found["one class"] = torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    found["ooms"] = torch.cuda.memory_stats()["num_ooms"]
    found["after"] = block(GIB).numel()  # the device still works
    held.clear()


def halves_until_it_fits():
    start()
    net = torch.nn.Sequential(
        torch.nn.Linear(1024, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 1024)
    ).cuda()
    batch, tried = 1 << 19, []
    while True:
        tried.append(batch)
        try:
            net(torch.ones(batch, 1024, device="cuda")).sum().backward()
            break
        except torch.OutOfMemoryError:
            net.zero_grad()
            batch //= 2
    found["tried"], found["gradient"] = tried, net[0].weight.grad is not None


def fragments(expandable):
    # A block of 2 GiB serves four tensors. Without two of them, 1 GiB is free in it, in two places.
    start(expandable)
    large = block(2 * GIB)
    del large
    quarters = [block(512 * MIB) for _ in range(4)]
    rest = [block(2 * GIB + 512 * MIB)]
    del quarters[2], quarters[0]
    message = fails(GIB)
    half = fails(512 * MIB)
    rest.clear()
    return message, torch.cuda.memory_reserved(), half


def split_rules():
    start()
    a = block(300 * MIB)
    del a
    exact = block(299 * MIB)  # 1 MiB would be left over: too little to split off a large block
    found["unsplit"] = torch.cuda.memory_allocated()
    del exact
    split = block(298 * MIB)  # 2 MiB are left over and split off
    found["split"] = torch.cuda.memory_allocated()
    del split
    found["rounded"] = []
    for size in (1, 512, 513, MIB, MIB + 1, 10 * MIB, 10 * MIB + 1):
        start()
        tensor = block(size)
        found["rounded"].append((size, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
        del tensor


def figures_agree():
    start()
    kept = [block(size * MIB // 3) for size in range(1, 60, 7)]
    del kept[::2]
    stats, segments = torch.cuda.memory_stats(), torch.cuda.memory_snapshot()
    blocks = [one for segment in segments for one in segment["blocks"]]
    found["reserved"] = torch.cuda.memory_reserved(), sum(one["total_size"] for one in segments)
    found["allocated"] = (
        torch.cuda.memory_allocated(),
        sum(one["allocated_size"] for one in segments),
        sum(one["size"] for one in blocks if one["state"] == "active_allocated"),
    )
    found["blocks fill their segments"] = all(
        sum(one["size"] for one in segment["blocks"]) == segment["total_size"] for segment in segments
    )
    free, total = torch.cuda.mem_get_info()
    found["used"] = total - free - torch.cuda.memory_reserved()
    found["summary"] = torch.cuda.memory_summary()
    found["stats"] = {key: stats[key] for key in ("allocated_bytes.all.peak", "reserved_bytes.all.peak")}
    found["peaks"] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    before = torch.cuda.memory_reserved()
    del kept
    found["empty_cache"] = (
        before,
        torch.cuda.memory_reserved(),
        (torch.cuda.empty_cache(), torch.cuda.memory_reserved())[1],
    )


def reuse_waits_for_other_streams():
    start()
    native.set_oracle(lambda _operator, _metadata: 10_000_000)
    side = torch.cuda.Stream()
    tensor = block(64 * MIB)
    address = tensor.data_ptr()
    with torch.cuda.stream(side):
        tensor.add_(1)
    tensor.record_stream(side)
    del tensor
    other = block(64 * MIB)
    stats = torch.cuda.memory_stats()
    found["taken while in use"] = other.data_ptr() == address
    found["active, allocated"] = stats["active_bytes.all.current"], stats["allocated_bytes.all.current"]
    side.synchronize()
    found["taken afterwards"] = block(64 * MIB).data_ptr() == address
    native.set_oracle(None)


class Holder:
    def __init__(self, log, name, inner=None):
        self.log, self.name, self.inner, self.tensor = log, name, inner, block(64 * MIB)

    def __del__(self):
        self.log.append((self.name, torch.cuda.memory_allocated() // MIB))


def destructors_see_memory_go():
    start()
    log = []
    outer = Holder(log, "outer", Holder(log, "inner"))
    del outer
    cycle = Holder(log, "cycle")
    cycle.inner = cycle
    del cycle
    found["cycle waits"] = torch.cuda.memory_allocated() // MIB
    gc.collect()
    found["destroyed"], found["after all"] = log, torch.cuda.memory_allocated()


said_and_caught()
halves_until_it_fits()
found["fragmented"] = fragments(False)
found["expandable"] = fragments(True)
split_rules()
figures_agree()
reuse_waits_for_other_streams()
destructors_see_memory_go()
json.dump(found, sys.stdout)
