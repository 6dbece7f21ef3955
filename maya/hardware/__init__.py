"""GPU, host, cluster and price catalogues: data in TOML, read into frozen dataclasses.

Everything here is a leaf: it imports nothing of Maya but the error type. The TOML files are read at
the first look-up, not at import.
"""

from maya.hardware.gpu import FIGURE_GROUPS, GENERATIONS, PEAK_KEYS, GpuSpec
from maya.hardware.gpu_catalogue import all_gpus, find_gpu, load_gpus
from maya.hardware.host import HostSpec, all_hosts, default_host, find_host, load_hosts

__all__ = [
    "FIGURE_GROUPS",
    "GENERATIONS",
    "PEAK_KEYS",
    "GpuSpec",
    "HostSpec",
    "all_gpus",
    "all_hosts",
    "default_host",
    "find_gpu",
    "find_host",
    "load_gpus",
    "load_hosts",
]
