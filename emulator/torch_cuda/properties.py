"""`torch.cuda.get_device_properties` of the emulated GPU."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from maya.emulator.torch_cuda.device import EmulatedDevices

WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
"""Both the same for every compute capability (CUDA C++ Programming Guide, technical specifications)."""
SHARED_MEMORY_PER_BLOCK_BYTES = 48 * 1024
"""Without opting in, for every compute capability (the same table)."""
FIRST_PCI_BUS = 0x1B
PCI_BUS_STEP = 0x10
"""Buses of the GPUs of a node; any distinct values do."""
UUID_NAMESPACE = uuid.UUID("6f6d1a0e-7d0f-5c5e-9a52-6d6179610001")
"""Maya's own; makes the same GPU get the same uuid in every run."""


class CudaUuid:
    """Stands for `torch._C._CUuuid`: prints without the `GPU-` that NVML puts before it."""

    def __init__(self, value: uuid.UUID) -> None:
        self._value = value

    @property
    def bytes(self) -> list[int]:
        return list(self._value.bytes)

    def __str__(self) -> str:
        return str(self._value)


def gpu_uuid(gpu_name: str, device: int) -> uuid.UUID:
    """A stable made-up uuid for GPU number `device`."""
    return uuid.uuid5(UUID_NAMESPACE, f"{gpu_name}/{device}")


def pci_bus_id(device: int) -> int:
    """A made-up PCI bus number for GPU number `device`, the same for torch and NVML."""
    return FIRST_PCI_BUS + PCI_BUS_STEP * device


@dataclass(frozen=True, eq=False, repr=False)
class CudaDeviceProperties:
    """Stands for `torch._C._CudaDeviceProperties`; field names are torch's. Sizes in bytes, clocks in kHz."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    warp_size: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    gcnArchName: str
    is_integrated: int
    is_multi_gpu_board: int
    uuid: CudaUuid
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


def device_properties(devices: EmulatedDevices, device: int) -> CudaDeviceProperties:
    """The properties of GPU number `device`; ValueError outside the visible ones."""
    gpu = devices.gpu
    if not 0 <= device < devices.visible_gpus:
        raise ValueError(f"device {device} does not exist: {devices.visible_gpus} GPUs are visible")
    return CudaDeviceProperties(
        name=gpu.torch_name,
        major=gpu.compute_capability[0],
        minor=gpu.compute_capability[1],
        total_memory=devices.native.memory_info(device)[1],  # less than the GPU's own if the user says so
        multi_processor_count=gpu.sm_count,
        max_threads_per_multi_processor=gpu.max_threads_per_sm,
        max_threads_per_block=MAX_THREADS_PER_BLOCK,
        warp_size=WARP_SIZE,
        regs_per_multiprocessor=gpu.registers_per_sm,
        shared_memory_per_block=SHARED_MEMORY_PER_BLOCK_BYTES,
        shared_memory_per_block_optin=gpu.shared_memory_per_block_optin_bytes,
        shared_memory_per_multiprocessor=gpu.shared_memory_per_sm_bytes,
        L2_cache_size=gpu.l2_bytes,
        clock_rate=gpu.boost_clock_mhz * 1000,
        memory_clock_rate=gpu.memory_clock_mhz * 1000,
        memory_bus_width=gpu.memory_bus_bits,
        gcnArchName=gpu.torch_name,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid=CudaUuid(gpu_uuid(gpu.name, device)),
        pci_bus_id=pci_bus_id(device),
        pci_device_id=0,
        pci_domain_id=0,
    )


def names() -> dict[str, Any]:
    """The `torch._C` attributes about device properties."""
    return {"_CudaDeviceProperties": CudaDeviceProperties, "_CUuuid": CudaUuid}
