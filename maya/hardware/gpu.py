"""What Maya knows of one GPU model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GENERATIONS = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
"""In order of age."""

PEAK_KEYS = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
"""Keys of `GpuSpec.peak_tflops`."""

FIGURE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "identity": ("torch_name", "generation", "compute_capability"),
    "compute": ("sm_count", "boost_clock_mhz", "tensor_clock_mhz", "peak_tflops"),
    "memory": ("memory_bytes", "hbm_bandwidth_gbps", "memory_clock_mhz", "memory_bus_bits"),
    "total_memory": ("total_memory_bytes",),
    "context": ("context_bytes",),
    "l2": ("l2_bytes", "l2_bandwidth_gbps"),
    "links": ("nvlink_gbps", "pcie_gbps"),
    "power": ("tdp_watts",),
    "sm_limits": (
        "shared_memory_per_sm_bytes",
        "shared_memory_per_block_optin_bytes",
        "max_threads_per_sm",
        "registers_per_sm",
    ),
}
"""Which figures one source vouches for: keys of `GpuSpec.sources` -> field names."""


@dataclass(frozen=True)
class GpuSpec:
    """One GPU model as the catalogue describes it.

    Peaks are dense (never the vendor's "with sparsity" figures) and of a whole GPU: for a product
    with several dies, of what `torch.cuda` shows as one device. `fp16` and `bf16` are tensor-core
    peaks with fp32 accumulation where the GPU has such cores, because that is what PyTorch asks for.
    """

    name: str
    """The catalogue's name, such as `H100-SXM5-80GB`."""
    aliases: tuple[str, ...]
    """Other names `find_gpu` accepts; matched without case, spaces and punctuation."""
    torch_name: str
    """What `torch.cuda.get_device_name` returns."""
    generation: str
    """One of `GENERATIONS`."""
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    """The size on the nameplate (80 GB = 80 GiB for HBM and GDDR stacks, as vendors count)."""
    total_memory_bytes: int
    """What `torch.cuda.get_device_properties(0).total_memory` reports: nameplate less ECC and firmware."""
    context_bytes: int
    """What a CUDA context and its loaded kernels hold before the first tensor (driver, cuBLAS modules)."""
    hbm_bandwidth_gbps: float
    """Peak bandwidth of device memory (HBM or GDDR), 1e9 bytes/s."""
    l2_bytes: int
    l2_bandwidth_gbps: float | None
    """Measured read bandwidth of the L2 cache, 1e9 bytes/s; None where no measurement was found."""
    boost_clock_mhz: int
    """The highest SM clock, that of fp32 and fp64 peaks."""
    memory_clock_mhz: int
    """As the driver reports it: data moves at twice this rate on each pin."""
    memory_bus_bits: int
    peak_tflops: Mapping[str, float] = field(hash=False)
    """Dense peaks in 1e12 operations/s by `PEAK_KEYS`; an absent key is unsupported by the hardware."""
    nvlink_gbps: float
    """All NVLinks of one GPU together, one direction, 1e9 bytes/s; 0 without NVLink."""
    pcie_gbps: float
    """Link to the host's memory, one direction, 1e9 bytes/s: PCIe, or NVLink-C2C on Grace systems."""
    tdp_watts: int
    shared_memory_per_sm_bytes: int
    shared_memory_per_block_optin_bytes: int
    """The most one thread block can have after `cudaFuncSetAttribute`."""
    max_threads_per_sm: int
    registers_per_sm: int
    """32-bit registers."""
    sources: Mapping[str, str] = field(hash=False)
    """Where the figures come from, one text for each key of `FIGURE_GROUPS`."""
    tensor_clock_mhz: int | None = None
    """The SM clock at which the vendor states tensor-core peaks (below the boost clock on Hopper); None: the
    boost clock."""
