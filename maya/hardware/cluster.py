"""How GPUs are put together: nodes, the links inside one, and the network between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from maya.errors import UsageError
from maya.hardware.names import close_names, normalise
from maya.hardware.reading import Row, read_toml, rows_of

SHIPPED = Path(__file__).with_name("clusters.toml")

INTRA_NODE = ("nvswitch", "nvlink-mesh", "pcie")
NETWORKS = ("infiniband", "ethernet", "efa", "none")


@dataclass(frozen=True)
class ClusterSpec:
    """One kind of cluster: identical nodes on one network."""

    name: str
    aliases: tuple[str, ...]
    gpu: str
    """Name in the GPU catalogue."""
    host: str
    """Name in the host catalogue."""
    gpus_per_node: int
    """GPUs one operating system sees: torchrun's `--nproc-per-node`."""
    nvlink_domain_gpus: int
    """GPUs that reach each other over NVLink at full bandwidth; 1 without, 72 in an NVL72 rack."""
    intra_node: str
    """`nvswitch` (any pair at full bandwidth), `nvlink-mesh` (some pairs direct) or `pcie`."""
    nics_per_node: int
    nic_gbps: float
    """One network card, one direction, 1e9 bytes/s (400 Gbit/s = 50)."""
    network: str
    """One of `NETWORKS`."""
    source: str


@cache
def all_clusters() -> tuple[ClusterSpec, ...]:
    """Every cluster of the shipped catalogue."""
    return _read(SHIPPED)


def load_clusters(path: str | Path) -> tuple[ClusterSpec, ...]:
    """Clusters of a user's file in the form of `clusters.toml`; UsageError names file, row and key."""
    return _read(Path(path))


def find_cluster(name: str, extra: Sequence[ClusterSpec] = ()) -> ClusterSpec:
    """The cluster called `name`; those of a user's file (`extra`) win over the shipped ones.

    Raises:
        UsageError: no such cluster; the hint lists close names.
    """
    key = normalise(name)
    clusters = (*extra, *all_clusters())
    for cluster in clusters:
        if key in (normalise(spelling) for spelling in (cluster.name, *cluster.aliases)):
            return cluster
    close = close_names(name, [c.name for c in clusters]) or [c.name for c in clusters]
    raise UsageError(f"unknown cluster {name!r}", hint=f"Known: {', '.join(close)}.")


def _read(path: Path) -> tuple[ClusterSpec, ...]:
    clusters = tuple(_cluster(row) for row in rows_of(read_toml(path), "cluster", path))
    if not clusters:
        raise UsageError(f"{path}: holds no cluster", hint="Each one is a table under a line `[[cluster]]`.")
    return clusters


def _cluster(row: Row) -> ClusterSpec:
    cluster = ClusterSpec(
        name=row.text("name"),
        aliases=row.texts("aliases") if "aliases" in row else (),
        gpu=row.text("gpu"),
        host=row.text("host"),
        gpus_per_node=row.integer("gpus_per_node"),
        nvlink_domain_gpus=row.integer("nvlink_domain_gpus"),
        intra_node=row.text("intra_node"),
        nics_per_node=row.integer("nics_per_node", least=0),
        nic_gbps=row.number("nic_gbps", positive=False),
        network=row.text("network"),
        source=row.text("source"),
    )
    row.finish()
    if cluster.intra_node not in INTRA_NODE:
        raise row.mistake("intra_node", cluster.intra_node, f"one of {', '.join(INTRA_NODE)}")
    if cluster.network not in NETWORKS:
        raise row.mistake("network", cluster.network, f"one of {', '.join(NETWORKS)}")
    if (cluster.network == "none") != (cluster.nics_per_node == 0 or cluster.nic_gbps == 0):
        raise row.mistake("network", cluster.network, "`none` exactly when there is no network card")
    return cluster
