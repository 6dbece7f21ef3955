"""The machine around the GPUs: how fast its CPU issues work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from maya.errors import UsageError
from maya.hardware.names import close_names, normalise
from maya.hardware.reading import Row, read_toml, rows_of

SHIPPED = Path(__file__).with_name("hosts.toml")


@dataclass(frozen=True)
class HostSpec:
    """One kind of host."""

    name: str
    cpu: str
    """Processor model and number of sockets."""
    dispatch_scale: float
    """One thread's time for Python and dispatch over the reference host's (1.0); above 1 is slower."""
    cores: int
    """Physical cores of all sockets."""
    memory_bytes: int
    source: str
    """Where the figures come from; says which are estimates."""
    aliases: tuple[str, ...] = ()


@cache
def all_hosts() -> tuple[HostSpec, ...]:
    """Every host of the shipped catalogue."""
    return _read(SHIPPED)


def default_host() -> HostSpec:
    """The reference host, to which `dispatch_scale` refers: the first row of the catalogue."""
    return all_hosts()[0]


def load_hosts(path: str | Path) -> tuple[HostSpec, ...]:
    """Hosts of a user's file in the form of `hosts.toml`. Raises UsageError naming file, row and key."""
    return _read(Path(path))


def find_host(name: str, extra: Sequence[HostSpec] = ()) -> HostSpec:
    """The host called `name`; those of a user's file (`extra`) win over the shipped ones.

    Raises:
        UsageError: no such host; the hint lists close names.
    """
    key = normalise(name)
    hosts = (*extra, *all_hosts())
    for host in hosts:
        if key in (normalise(spelling) for spelling in (host.name, *host.aliases)):
            return host
    close = close_names(name, [host.name for host in hosts]) or [host.name for host in hosts]
    raise UsageError(f"unknown host {name!r}", hint=f"Known: {', '.join(close)}.")


def _read(path: Path) -> tuple[HostSpec, ...]:
    hosts = tuple(_host(row) for row in rows_of(read_toml(path), "host", path))
    if not hosts:
        raise UsageError(f"{path}: holds no host", hint="Each host is a table under a line `[[host]]`.")
    return hosts


def _host(row: Row) -> HostSpec:
    host = HostSpec(
        name=row.text("name"),
        cpu=row.text("cpu"),
        dispatch_scale=row.number("dispatch_scale"),
        cores=row.integer("cores"),
        memory_bytes=row.integer("memory_bytes"),
        source=row.text("source"),
        aliases=row.texts("aliases") if "aliases" in row else (),
    )
    row.finish()
    return host
