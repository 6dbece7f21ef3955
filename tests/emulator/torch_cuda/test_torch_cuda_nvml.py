"""The `pynvml` stand-in, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from maya.emulator.nvml import NvmlGpu, nvml_module

TOTAL_BYTES = 79 << 30
USED_BYTES = 3 << 30


def gpu(index: int) -> NvmlGpu:
    return NvmlGpu(
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-00000000-0000-0000-0000-00000000000{index}",
        compute_capability=(9, 0),
        reserved_bytes=(80 << 30) - TOTAL_BYTES,
        pci_bus=0x1B + 16 * index,
        power_limit_watts=700,
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        memory_bus_bits=5120,
        generation="hopper",
        has_nvlink=True,
    )


@pytest.fixture
def pynvml() -> Iterator[Any]:
    module = nvml_module(
        [gpu(0), gpu(1)], "570.172.08", (12, 8), lambda _device: (TOTAL_BYTES - USED_BYTES, TOTAL_BYTES)
    )
    module.nvmlInit()
    yield module
    module.nvmlShutdown()


def test_describes_the_gpus(pynvml: Any) -> None:
    assert pynvml.nvmlDeviceGetCount() == 2
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert pynvml.nvmlDeviceGetIndex(handle) == 1
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetUUID(handle).endswith("1")
    assert pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(handle)) == handle
    bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
    assert bus == "00000000:2B:00.0"
    assert pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode()) == handle
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == [9, 0]
    assert pynvml.nvmlDeviceGetArchitecture(handle) == pynvml.NVML_DEVICE_ARCH_HOPPER
    assert pynvml.nvmlSystemGetDriverVersion() == "570.172.08"
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 12080
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 700_000
    assert 0 < pynvml.nvmlDeviceGetPowerUsage(handle) <= 700_000
    assert 0 <= pynvml.nvmlDeviceGetUtilizationRates(handle).gpu <= 100
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM) == 2619


def test_memory_is_the_allocators(pynvml: Any) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    first = pynvml.nvmlDeviceGetMemoryInfo(handle)
    assert first.free == TOTAL_BYTES - USED_BYTES
    assert first.used + first.free == first.total == 80 << 30
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert second.used == USED_BYTES
    assert second.reserved == 1 << 30
    assert second.used + second.free + second.reserved == second.total
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert process.usedGpuMemory == USED_BYTES


def test_what_it_does_not_know_is_not_supported(pynvml: Any) -> None:
    with pytest.raises(pynvml.NVMLError_NotSupported) as raised:
        pynvml.nvmlDeviceGetFanSpeed(pynvml.nvmlDeviceGetHandleByIndex(0))
    assert raised.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert str(raised.value) == "Not Supported"
    with pytest.raises(AttributeError):
        _ = pynvml.something_else


def test_errors_are_pynvmls(pynvml: Any) -> None:
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(2)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-nothing")
    assert isinstance(pynvml.NVMLError(9), pynvml.NVMLError_DriverNotLoaded)
    assert str(pynvml.NVMLError(12345)) == "NVML Error with code 12345"


def test_must_be_initialised() -> None:
    module: Any = nvml_module([gpu(0)], "570.172.08", (12, 8), lambda _device: (0, 0))
    with pytest.raises(module.NVMLError_Uninitialized):
        module.nvmlDeviceGetCount()
