"""The NVML functions that have an answer for an emulated GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from maya.emulator.nvml.errors import NVMLError

NOT_SUPPORTED = 3
INVALID_ARGUMENT = 2
UNINITIALIZED = 1
NOT_FOUND = 6

ARCHITECTURES = {
    "pascal": 4,
    "volta": 5,
    "turing": 6,
    "ampere": 7,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
}
"""NVML_DEVICE_ARCH_* of nvml.h by `GpuSpec.generation`."""
CLOCK_SM, CLOCK_MEMORY = 1, 2
"""NVML_CLOCK_SM, NVML_CLOCK_MEM; graphics (0) and video (3) run with the SMs here."""
BUSY_GPU_PERCENT, BUSY_MEMORY_PERCENT = 100, 50
"""A GPU in training: some kernel always runs, the memory is busy half of the time."""
BUSY_TEMPERATURE_C = 60
BUSY_POWER_SHARE = 0.8
"""Share of the power limit drawn. These figures are for display; no prediction reads them."""
BAR1_BYTES = 128 << 30
NVLINKS = 18
"""Links of a Hopper or newer data-centre GPU; older ones have fewer, nobody counts on it."""


@dataclass(frozen=True)
class NvmlGpu:
    """One emulated GPU as NVML describes it."""

    name: str
    uuid: str
    """With the leading `GPU-`."""
    compute_capability: tuple[int, int]
    reserved_bytes: int
    """What firmware and ECC take of the memory on the nameplate; NVML counts it, CUDA does not."""
    pci_bus: int
    power_limit_watts: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    memory_bus_bits: int
    generation: str
    has_nvlink: bool


@dataclass(frozen=True)
class Handle:
    """Stands for `nvmlDevice_t`."""

    index: int


@dataclass
class MemoryInfo:
    total: int
    free: int
    used: int
    version: int = 0
    reserved: int = 0


@dataclass
class Utilization:
    gpu: int
    memory: int


@dataclass
class ProcessInfo:
    pid: int
    usedGpuMemory: int
    gpuInstanceId: int = 0xFFFFFFFF
    computeInstanceId: int = 0xFFFFFFFF


@dataclass
class PciInfo:
    busId: str
    bus: int
    domain: int = 0
    device: int = 0
    pciDeviceId: int = 0
    pciSubSystemId: int = 0

    @property
    def busIdLegacy(self) -> str:
        return self.busId[4:]


@dataclass
class NvmlLibrary:
    """State and answers. Method and field names are NVML's, methods without the leading `nvml`.

    `memory_info(device)` gives (free, total) bytes of the emulated allocator.
    """

    gpus: Sequence[NvmlGpu]
    driver: str
    cuda: tuple[int, int]
    memory_info: Callable[[int], tuple[int, int]]
    users: int = field(default=0)
    """How many more times NVML was initialised than shut down."""

    def _gpu(self, handle: Handle) -> NvmlGpu:
        self._check()
        if not isinstance(handle, Handle):
            raise NVMLError(INVALID_ARGUMENT)
        return self.gpus[handle.index]

    def _check(self) -> None:
        if self.users == 0:
            raise NVMLError(UNINITIALIZED)

    def Init(self) -> None:
        self.users += 1

    def InitWithFlags(self, flags: int) -> None:  # noqa: ARG002
        self.users += 1

    def Shutdown(self) -> None:
        self._check()
        self.users -= 1

    def SystemGetDriverVersion(self) -> str:
        self._check()
        return self.driver

    def SystemGetNVMLVersion(self) -> str:
        self._check()
        return f"{self.cuda[0]}.{self.driver}"

    def SystemGetCudaDriverVersion(self) -> int:
        self._check()
        return self.cuda[0] * 1000 + self.cuda[1] * 10

    def DeviceGetCount(self) -> int:
        self._check()
        return len(self.gpus)

    def DeviceGetHandleByIndex(self, index: int) -> Handle:
        self._check()
        if not 0 <= int(index) < len(self.gpus):
            raise NVMLError(INVALID_ARGUMENT)
        return Handle(int(index))

    def _find(self, matches: Callable[[NvmlGpu], bool]) -> Handle:
        self._check()
        for index, gpu in enumerate(self.gpus):
            if matches(gpu):
                return Handle(index)
        raise NVMLError(NOT_FOUND)

    def DeviceGetHandleByUUID(self, uuid: str | bytes) -> Handle:
        text = uuid.decode() if isinstance(uuid, bytes) else uuid
        return self._find(lambda gpu: gpu.uuid == text)

    def DeviceGetHandleByPciBusId(self, bus_id: str | bytes) -> Handle:
        text = (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
        return self._find(lambda gpu: _pci_text(gpu.pci_bus).lower().endswith(text))

    def DeviceGetIndex(self, handle: Handle) -> int:
        self._gpu(handle)
        return handle.index

    def DeviceGetMinorNumber(self, handle: Handle) -> int:
        self._gpu(handle)
        return handle.index

    def DeviceGetName(self, handle: Handle) -> str:
        return self._gpu(handle).name

    def DeviceGetUUID(self, handle: Handle) -> str:
        return self._gpu(handle).uuid

    def DeviceGetPciInfo(self, handle: Handle) -> PciInfo:
        gpu = self._gpu(handle)
        return PciInfo(busId=_pci_text(gpu.pci_bus), bus=gpu.pci_bus)

    def DeviceGetCudaComputeCapability(self, handle: Handle) -> list[int]:
        return list(self._gpu(handle).compute_capability)

    def DeviceGetArchitecture(self, handle: Handle) -> int:
        return ARCHITECTURES[self._gpu(handle).generation]

    def DeviceGetMemoryInfo(self, handle: Handle, version: int | None = None) -> MemoryInfo:
        """Used counts the context and everything the process reserved, as nvidia-smi shows it."""
        gpu = self._gpu(handle)
        free, total = self.memory_info(handle.index)
        nameplate = total + gpu.reserved_bytes
        if version is None:
            return MemoryInfo(total=nameplate, free=free, used=nameplate - free)
        return MemoryInfo(nameplate, free, total - free, version=version, reserved=gpu.reserved_bytes)

    def DeviceGetBAR1MemoryInfo(self, handle: Handle) -> MemoryInfo:
        self._gpu(handle)
        return MemoryInfo(total=BAR1_BYTES, free=BAR1_BYTES, used=0)

    def DeviceGetMemoryBusWidth(self, handle: Handle) -> int:
        return self._gpu(handle).memory_bus_bits

    def DeviceGetUtilizationRates(self, handle: Handle) -> Utilization:
        self._gpu(handle)
        return Utilization(gpu=BUSY_GPU_PERCENT, memory=BUSY_MEMORY_PERCENT)

    def DeviceGetTemperature(self, handle: Handle, sensor: int = 0) -> int:  # noqa: ARG002
        self._gpu(handle)
        return BUSY_TEMPERATURE_C

    def DeviceGetPowerUsage(self, handle: Handle) -> int:
        """Milliwatts, like every power here."""
        return int(self.DeviceGetPowerManagementLimit(handle) * BUSY_POWER_SHARE)

    def DeviceGetPowerManagementLimit(self, handle: Handle) -> int:
        return self._gpu(handle).power_limit_watts * 1000

    def DeviceGetPowerManagementDefaultLimit(self, handle: Handle) -> int:
        return self.DeviceGetPowerManagementLimit(handle)

    def DeviceGetEnforcedPowerLimit(self, handle: Handle) -> int:
        return self.DeviceGetPowerManagementLimit(handle)

    def DeviceGetPowerManagementLimitConstraints(self, handle: Handle) -> list[int]:
        limit = self.DeviceGetPowerManagementLimit(handle)
        return [limit // 2, limit]

    def DeviceGetClockInfo(self, handle: Handle, clock: int) -> int:
        gpu = self._gpu(handle)
        return gpu.memory_clock_mhz if clock == CLOCK_MEMORY else gpu.sm_clock_mhz

    def DeviceGetMaxClockInfo(self, handle: Handle, clock: int) -> int:
        return self.DeviceGetClockInfo(handle, clock)

    def DeviceGetApplicationsClock(self, handle: Handle, clock: int) -> int:
        return self.DeviceGetClockInfo(handle, clock)

    def DeviceGetComputeRunningProcesses(self, handle: Handle) -> list[ProcessInfo]:
        self._gpu(handle)
        free, total = self.memory_info(handle.index)
        return [ProcessInfo(pid=os.getpid(), usedGpuMemory=total - free)] if free < total else []

    def DeviceGetGraphicsRunningProcesses(self, handle: Handle) -> list[ProcessInfo]:
        self._gpu(handle)
        return []

    def DeviceGetPerformanceState(self, handle: Handle) -> int:
        self._gpu(handle)
        return 0

    def DeviceGetPersistenceMode(self, handle: Handle) -> int:
        self._gpu(handle)
        return 1

    def DeviceGetComputeMode(self, handle: Handle) -> int:
        self._gpu(handle)
        return 0

    def DeviceGetMigMode(self, handle: Handle) -> list[int]:
        """(current, pending): off, where the GPU could be partitioned at all."""
        if self._gpu(handle).compute_capability not in ((8, 0), (9, 0), (10, 0), (10, 3)):
            raise NVMLError(NOT_SUPPORTED)
        return [0, 0]

    def DeviceGetNvLinkState(self, handle: Handle, link: int) -> int:
        gpu = self._gpu(handle)
        if not gpu.has_nvlink:
            raise NVMLError(NOT_SUPPORTED)
        if not 0 <= link < NVLINKS:
            raise NVMLError(INVALID_ARGUMENT)
        return 1

    def DeviceGetP2PStatus(self, first: Handle, second: Handle, capability: int) -> int:  # noqa: ARG002
        """NVML_P2P_STATUS_OK between any two GPUs of the node."""
        self._gpu(first)
        self._gpu(second)
        return 0


def _pci_text(bus: int) -> str:
    return f"00000000:{bus:02X}:00.0"
