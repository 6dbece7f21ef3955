"""The smaller catalogues, and a user's price file."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from maya.errors import UsageError
from maya.hardware import (
    Price,
    all_clusters,
    all_gpus,
    all_hosts,
    default_host,
    find_cluster,
    find_gpu,
    find_host,
    load_clusters,
    load_gpus,
    load_hosts,
    load_prices,
    price_of,
)

PRICE = '[[price]]\ngpu = "h100"\nusd_per_gpu_hour = 2\nsource = "our contract"\ndate = 2026-11-01\n'


def test_the_reference_host_is_first() -> None:
    assert default_host() is all_hosts()[0]
    assert default_host().dispatch_scale == 1.0
    assert find_host("reference") is default_host()
    with pytest.raises(UsageError) as caught:
        find_host("dgx-h101")
    assert "DGX-H100" in caught.value.hint


@pytest.mark.parametrize("host", all_hosts(), ids=lambda host: host.name)
def test_hosts(host) -> None:
    assert 0.5 < host.dispatch_scale < 2
    assert 8 <= host.cores <= 256
    assert host.memory_bytes % (1 << 30) == 0
    assert "estimate" in host.source or host is default_host()


@pytest.mark.parametrize("cluster", all_clusters(), ids=lambda cluster: cluster.name)
def test_clusters_refer_to_the_other_catalogues(cluster) -> None:
    gpu = find_gpu(cluster.gpu)
    assert gpu.name == cluster.gpu
    assert find_host(cluster.host).name == cluster.host
    assert (cluster.nvlink_domain_gpus > 1) == (cluster.intra_node != "pcie") == (gpu.nvlink_gbps > 0)
    assert cluster.nvlink_domain_gpus in (1, cluster.gpus_per_node, 72)
    assert cluster.source


def test_cluster_lookup() -> None:
    assert find_cluster("p5.48xlarge").name == "AWS-p5"
    dgx = find_cluster("dgx h100")
    assert dgx.nics_per_node * dgx.nic_gbps * 8 == 3200  # Gbit/s
    with pytest.raises(UsageError) as caught:
        find_cluster("dgx-h300")
    assert "DGX-H200" in caught.value.hint


def test_prices_are_dated_and_sourced() -> None:
    priced = [price for gpu in all_gpus() if (price := price_of(gpu))]
    assert len(priced) > 15
    for price in priced:
        assert 0.1 < price.usd_per_gpu_hour < 20
        assert datetime.date(2025, 1, 1) < datetime.date.fromisoformat(price.date) < datetime.date(2027, 1, 1)
        assert len(price.source) > 20
    assert price_of("H100") == price_of(find_gpu("h100"))
    assert price_of("h20") is None
    with pytest.raises(UsageError):
        price_of("h10")


def test_own_prices_replace_the_shipped_ones(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICE)
    prices = load_prices(path)
    assert prices == {"H100-SXM5-80GB": Price(2.0, "our contract", "2026-11-01")}
    assert price_of("h100", prices) == prices["H100-SXM5-80GB"]
    assert price_of("a100", prices) is None


def test_own_prices_for_own_gpus(tmp_path: Path) -> None:
    (tmp_path / "gpus.toml").write_text('[[gpu]]\nname = "X1"\nlike = "B200-SXM"\n')
    (tmp_path / "prices.toml").write_text(PRICE.replace("h100", "x1").replace("2026-11-01", '"2026-11-01"'))
    gpus = load_gpus(tmp_path / "gpus.toml")
    prices = load_prices(tmp_path / "prices.toml", gpus)
    assert price_of(gpus[0], prices) == Price(2.0, "our contract", "2026-11-01")
    with pytest.raises(UsageError, match="price 1: unknown GPU 'x1'"):
        load_prices(tmp_path / "prices.toml")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["no price"]),
        (PRICE + PRICE.replace("h100", "H100-SXM5-80GB"), ["price 2", "H100-SXM5-80GB", "twice"]),
        (PRICE.replace("= 2\n", "= 0\n"), ["price 1", "usd_per_gpu_hour", "0"]),
        (PRICE.replace("= 2\n", '= "2"\n'), ["usd_per_gpu_hour"]),
        (PRICE.replace("h100", "h10"), ["price 1", "unknown GPU 'h10'"]),
        (PRICE.replace("2026-11-01", '"last week"'), ["price 1", "date", "last week"]),
        (PRICE.replace("2026-11-01", "5"), ["price 1", "date"]),
        (PRICE.replace("source", "sauce"), ["price 1", "source"]),
        (PRICE + 'currency = "EUR"\n', ["price 1", "currency"]),
        ("[prices]\nh100 = 2", ["unknown table 'prices'"]),
    ],
)
def test_mistakes_in_a_price_file_are_named(text: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_prices(path)
    assert all(name in caught.value.message for name in [str(path), *names]), caught.value.message
    assert caught.value.hint


def test_own_hosts_and_clusters(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[host]]\nname = "DGX-H100"\ncpu = "fast"\ndispatch_scale = 0.5\ncores = 8\nmemory_bytes = 1_000\n'
        'source = "mine"\n'
    )
    assert find_host("dgx-h100", load_hosts(path)).dispatch_scale == 0.5
    cluster = (
        '[[cluster]]\nname = "box"\ngpu = "RTX4090"\nhost = "desktop"\ngpus_per_node = 2\n'
        "nvlink_domain_gpus = 1\n"
        'intra_node = "pcie"\nnics_per_node = 0\nnic_gbps = 0\nnetwork = "none"\nsource = "mine"\n'
    )
    path.write_text(cluster)
    assert find_cluster("box", load_clusters(path)).gpus_per_node == 2
    for wrong, named in (("pcie", "intra_node"), ('"none"', "network"), ('"box"', "name")):
        path.write_text(cluster.replace(wrong, "3" if wrong.startswith('"') else "wires"))
        with pytest.raises(UsageError, match=named):
            load_clusters(path)
    path.write_text(cluster.replace('"none"', '"ethernet"'))
    with pytest.raises(UsageError, match="network"):
        load_clusters(path)
