"""Measured communications, sorted by what they are good for.

`TARGET` rows say how long NCCL's kernels take on the device: nccl-tests replayed as CUDA graphs, and for
links that those lack, nccl-tests in a loop (vTrain's V100, DeepBench's P100) or kernel times of a profiler
(Vidur's bridged cards, from 4 MiB on: smaller ones contain the wait for the other rank's launch, up to
50 us). `OTHER` rows are NCCL in other environments; they are not fitted but widen the interval. Custom
all-reduces (vLLM, SGLang, TensorRT-LLM) and backends with host time are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models.fit.measurements import resolve_gpu

MIB = 1 << 20
SKEWED_BYTES = 4 * MIB
TABLE = "collectives.parquet"
FAMILY_OF_TABLE = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "send_recv": "message",
}
TARGET, OTHER = "target", "other"

NETWORK_GBPS = {
    "IB NDR400 x8": 400.0,
    "IB 400G x8": 400.0,
    "IB": 400.0,
    "RoCE 400G x8 (BlueField-3)": 400.0,
    "GCP A3-mega FastRak 8x200G": 200.0,
    "OCI RoCE 16x100G": 200.0,
}
"""The table's network names → all cards of a node together, one direction, 1e9 bytes/s ("IB" stands in rows
of H100 and H200 nodes whose bus bandwidth needs 8 cards of 400 Gbit/s)."""
USUAL_NETWORKS = ("IB NDR400 x8", "IB 400G x8", "IB", "RoCE 400G x8 (BlueField-3)")


@dataclass(frozen=True)
class CollectiveRows:
    """Rows of one link group, family and role.

    Attributes:
        group: link kind and GPU generation, such as `nvswitch-hopper`.
        family: one of `algorithms.FAMILIES`.
        gpu: [k] indices into `gpus`.
        ranks: [k].
        size: [k] whole bytes.
        time_ns: [k] measured.
        source: [k] indices into `sources`.
        nodes: [k].
        network_gbps: [k] of one node; 0 where all ranks are on one.
    """

    group: str
    family: str
    gpus: tuple[GpuSpec, ...]
    gpu: NDArray[np.int64]
    ranks: NDArray[np.int64]
    size: NDArray[np.float64]
    time_ns: NDArray[np.float64]
    sources: tuple[str, ...]
    source: NDArray[np.int64]
    nodes: NDArray[np.int64]
    network_gbps: NDArray[np.float64]

    def chosen(self, mask: NDArray[np.bool_]) -> CollectiveRows:
        """Some of the rows."""
        return CollectiveRows(
            self.group,
            self.family,
            self.gpus,
            self.gpu[mask],
            self.ranks[mask],
            self.size[mask],
            self.time_ns[mask],
            self.sources,
            self.source[mask],
            self.nodes[mask],
            self.network_gbps[mask],
        )


def read_table(data: Path) -> pd.DataFrame:
    """The table's NCCL rows with columns `group`, `family`, `role`, one row for each distinct measurement."""
    table = pd.read_parquet(data / "kernels" / TABLE)
    for column in ("gpu", "collective", "dtype", "link", "backend", "source"):
        table[column] = table[column].astype(str)
    table = table[table["collective"].isin(FAMILY_OF_TABLE)].copy()
    table["family"] = table["collective"].map(FAMILY_OF_TABLE)
    table["gpu"] = table["gpu"].where(~table["gpu"].str.startswith("A100-SXM4 ("), "A100-SXM4-80GB")
    specs = {name: resolve_gpu(name) for name in set(table["gpu"])}
    table["generation"] = [spec.generation if (spec := specs[name]) else "" for name in table["gpu"]]
    labels = [_classify(row) for row in table.itertuples(index=False)]
    table["group"] = [group for group, _ in labels]
    table["role"] = [role for _, role in labels]
    table = table[table["group"] != ""]
    keys = ["group", "role", "family", "gpu", "ranks", "nodes", "bytes", "link", "source", "backend"]
    # dtypes differ by noise only: NCCL moves bytes (an all-reduce of int8 adds as fast as it moves).
    merged = table.groupby(keys, as_index=False, sort=True)["time_us"].median()
    return merged[merged["time_us"] > 0]


def _classify(row: object) -> tuple[str, str]:
    """(link group, role) of a table row; ("", "") for one that says nothing about a known link."""
    get = row.__getattribute__
    generation, backend, source, link = get("generation"), get("backend"), get("source"), get("link")
    if not generation:
        return "", ""
    if int(get("nodes")) > 1:
        if link not in NETWORK_GBPS:  # Vidur's: a network without a name, slower than any card it could be
            return "", ""
        usual = generation == "hopper" and link in USUAL_NETWORKS and "NCCL_ALGO" not in backend
        return "network", TARGET if usual and get("family") == "all_reduce" else OTHER
    if backend.startswith("nccl-tests NCCL") and source.startswith("aiconfigurator"):
        return f"{'pcie' if link.startswith('PCIe') else 'nvswitch'}-{generation}", TARGET
    if source.startswith("vTrain"):
        return ("mesh-volta", TARGET) if generation == "volta" else (f"nvswitch-{generation}", OTHER)
    if source.startswith("vidur") and "pairwise" in source:
        if get("family") == "message" or int(get("bytes")) < SKEWED_BYTES:
            return "", ""  # messages: A40s that reach each other through host memory, without a bridge
        return f"{'bridge' if int(get('ranks')) == 2 else 'pcie'}-{generation}", TARGET
    if source.startswith("vidur"):
        if get("family") == "message":
            return f"nvswitch-{generation}", TARGET
        return (f"nvswitch-{generation}", OTHER) if int(get("bytes")) >= MIB else ("", "")
    if generation == "pascal" and backend == "NCCL 2.0 MPI":
        return ("pcie-pascal", TARGET) if int(get("bytes")) >= MIB else ("", "")
    if source.startswith("Galvatron"):
        return f"nvswitch-{generation}", OTHER
    return "", ""


def collective_rows(table: pd.DataFrame, group: str, family: str, role: str) -> CollectiveRows:
    """The rows of one group, family and role."""
    part = table[(table["group"] == group) & (table["family"] == family) & (table["role"] == role)]
    names = sorted(set(part["gpu"]))
    gpus = tuple(spec for name in names if (spec := resolve_gpu(name)) is not None)
    labels = part["source"] + " | " + part["backend"]
    sources = tuple(sorted(set(labels)))
    return CollectiveRows(
        group,
        family,
        gpus,
        np.asarray([names.index(name) for name in part["gpu"]], dtype=np.int64),
        part["ranks"].to_numpy(np.int64),
        part["bytes"].to_numpy(np.float64),
        part["time_us"].to_numpy(np.float64) * 1e3,
        sources,
        np.asarray([sources.index(label) for label in labels], dtype=np.int64),
        part["nodes"].to_numpy(np.int64),
        np.asarray([NETWORK_GBPS.get(link, 0.0) for link in part["link"]]),
    )
