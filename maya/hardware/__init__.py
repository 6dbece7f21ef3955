"""GPU, host, cluster and price catalogues: data in TOML, read into frozen dataclasses.

Everything here is a leaf: it imports nothing of Maya but the error type. The TOML files are read at
the first look-up, not at import.
"""

from maya.hardware.cluster import ClusterSpec, all_clusters, find_cluster, load_clusters
from maya.hardware.default_cluster import cluster_for
from maya.hardware.gpu import FIGURE_GROUPS, GENERATIONS, PEAK_KEYS, GpuSpec
from maya.hardware.gpu_catalogue import all_gpus, find_gpu, load_gpus
from maya.hardware.host import HostSpec, all_hosts, default_host, find_host, load_hosts
from maya.hardware.price import Price, load_prices, price_of

__all__ = [
    "FIGURE_GROUPS",
    "GENERATIONS",
    "PEAK_KEYS",
    "ClusterSpec",
    "GpuSpec",
    "HostSpec",
    "Price",
    "all_clusters",
    "all_gpus",
    "all_hosts",
    "cluster_for",
    "default_host",
    "find_cluster",
    "find_gpu",
    "find_host",
    "load_clusters",
    "load_gpus",
    "load_hosts",
    "load_prices",
    "price_of",
]
