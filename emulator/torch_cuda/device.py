"""What every part of the emulated `torch.cuda` knows: the backend, the GPU and its driver."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import torch

from maya.emulator.torch_cuda.native import Native
from maya.hardware import GpuSpec

DEVICE_TYPE_CUDA = 1
"""`c10::DeviceType::CUDA`, the third entry of every stream triple."""


DRIVER_OF_CUDA_13 = "580.95.05"
"""Linux driver of the CUDA 13.0 branch."""


@dataclass(frozen=True)
class DriverVersions:
    """The software a machine with the emulated GPU would run.

    A CUDA build of torch keeps its own CUDA, cuDNN and NCCL versions; these serve the CPU build.
    """

    cuda: tuple[int, int] = (12, 8)
    """CUDA runtime torch was built with; the toolkit of torch's default wheels when 2.7 came out."""
    driver: str = "570.172.08"
    """Linux driver of the CUDA 12.8 branch, as NVML prints it."""
    cudnn: tuple[int, int, int] = (9, 10, 2)
    """Pinned by torch's CUDA 12.8 wheels from 2.8 on."""
    nccl: tuple[int, int, int] = (2, 27, 5)
    """Pinned by torch 2.9's CUDA 12.8 wheels."""
    architectures: tuple[str, ...] = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    """What `torch.cuda.get_arch_list` of such a wheel answers (pytorch/.ci/manywheel/build_cuda.sh)."""

    @staticmethod
    def for_gpu(gpu: GpuSpec) -> DriverVersions:
        """The wheel a user of this GPU installs: CUDA 12.6 is the last one for GPUs before sm_75."""
        if gpu.compute_capability >= (7, 5):
            return DriverVersions()
        return DriverVersions(
            cuda=(12, 6),
            cudnn=(9, 5, 1),  # later versions refuse GPUs below 7.5 (torch.backends.cudnn)
            architectures=("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
        )

    def of_build(self, cuda: str) -> DriverVersions:
        """The same for a CUDA build of torch: its own CUDA version, and a driver that serves it."""
        major, minor = (int(part) for part in cuda.split(".")[:2])
        driver = self.driver if (major, minor) <= self.cuda else DRIVER_OF_CUDA_13
        return replace(self, cuda=(major, minor), driver=driver)

    @property
    def cuda_text(self) -> str:
        """`torch.version.cuda`, for example "12.8"."""
        return f"{self.cuda[0]}.{self.cuda[1]}"

    @property
    def cuda_number(self) -> int:
        """`CUDA_VERSION`, for example 12080."""
        return self.cuda[0] * 1000 + self.cuda[1] * 10

    @property
    def cudnn_number(self) -> int:
        """`torch.backends.cudnn.version()`, for example 91002 (cuDNN 9's numbering)."""
        return self.cudnn[0] * 10000 + self.cudnn[1] * 100 + self.cudnn[2]


@dataclass
class EmulatedDevices:
    """The GPUs of this process and whether CUDA counts as initialised in it."""

    native: Native
    gpu: GpuSpec
    visible_gpus: int
    driver: DriverVersions
    initialised_by: int | None = None
    """Process id that ran CUDA's lazy initialisation; another one is a fork of it."""
    initialised_count: int | None = None
    """`device_count` at that time: the driver reads CUDA_VISIBLE_DEVICES once."""

    def device_count(self) -> int:
        """GPUs the script sees: those of the node, fewer if it hides some in CUDA_VISIBLE_DEVICES.

        The ids themselves do not matter: all GPUs of a node are alike.
        """
        if self.initialised_count is not None:
            return self.initialised_count
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if hidden is None:
            return self.visible_gpus
        return min(self.visible_gpus, _count_listed(hidden))

    def index(self, device: int) -> int:
        """`device`, or the current one where torch passes a negative number."""
        return self.native.current_device() if device < 0 else device

    def in_bad_fork(self) -> bool:
        """Like CUDA, the device cannot be used in a fork of a process that has used it."""
        return self.initialised_by is not None and self.initialised_by != os.getpid()

    def initialise(self) -> None:
        """Stands for `torch._C._cuda_init`; like it, hands `torch.cuda` the default generators."""
        if self.in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
                "must use the 'spawn' start method"
            )
        count = self.device_count()
        if count == 0:
            raise RuntimeError("No CUDA GPUs are available")
        torch.cuda.default_generators = tuple(self.native.default_generator(i) for i in range(count))
        self.initialised_by = os.getpid()
        self.initialised_count = count

    def exchange_device(self, device: int) -> int:
        return self.native.exchange_device(device)

    def maybe_exchange_device(self, device: int) -> int:
        # A function of its own: Dynamo's rules must tell it from exchange_device.
        return self.native.exchange_device(device)

    def can_access_peer(self, device: int, peer: int) -> bool:
        """Every pair of GPUs of one node reaches each other, over NVLink or PCIe; a GPU not itself."""
        return device != peer

    def names(self, *, cuda_build: bool) -> dict[str, Any]:
        """The `torch._C` attributes about devices as a whole; a CUDA build knows how it was built."""
        built: dict[str, Any] = {
            "_cuda_getCompiledVersion": lambda: self.driver.cuda_number,
            "_cuda_getArchFlags": lambda: " ".join(self.driver.architectures),
        }
        return {
            **({} if cuda_build else built),
            "_cuda_init": self.initialise,
            "_cuda_isInBadFork": self.in_bad_fork,
            "_cuda_getDeviceCount": self.device_count,
            "_cuda_getDevice": self.native.current_device,
            "_cuda_setDevice": self.native.set_device,
            "_cuda_exchangeDevice": self.exchange_device,
            "_cuda_maybeExchangeDevice": self.maybe_exchange_device,
            "_cuda_hasPrimaryContext": self.has_primary_context,
            "_cuda_canDeviceAccessPeer": self.can_access_peer,
            "_cuda_synchronize": self.synchronize,
            "_cuda_sleep": self.sleep,
            "_cuda_ipc_collect": self.collect_ipc,
            "_cuda_getHipblasltVersion": lambda: 0,
            "_rocm_is_backward_pass": lambda: False,
        }

    def synchronize(self) -> None:
        self.native.device_synchronize(self.native.current_device())

    def has_primary_context(self, device: int) -> bool:
        return self.initialised_by is not None and 0 <= device < self.visible_gpus

    def sleep(self, cycles: int) -> None:
        """`torch.cuda._sleep` spins on the GPU; torch uses it in tests only, so it costs nothing here."""

    def collect_ipc(self) -> None:
        """There is no memory of dead processes to collect."""


def _count_listed(text: str) -> int:
    """How many devices a value of CUDA_VISIBLE_DEVICES names, by the driver's rules.

    The list ends at the first entry that is no device; one that occurs twice empties it.
    """
    entries: list[str] = []
    for part in text.split(","):
        entry = part.strip()
        if not (entry.isdigit() or entry.startswith(("GPU-", "MIG-"))):
            break
        if entry in entries:
            return 0
        entries.append(entry)
    return len(entries)
