"""Copies over a link: bytes over bandwidth, plus the engine's latency."""

from __future__ import annotations

from collections.abc import Mapping

from maya.kernel_models.columns import DeviceColumns, Floats, WorkColumns
from maya.kernel_models.forms.form import LOG_SIZES, Form, Parameter, log_sizes

_PARAMETERS = (
    Parameter("floor_ns", 2_000.0, 200.0, 40_000.0),
    Parameter("efficiency", 0.8, 0.02, 1.0),
)


def host_link_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each host-device copy, [k]."""
    result: Floats = p["floor_ns"] + 1e9 * work.moved_bytes / (device.link * p["efficiency"])
    return result


def peer_link_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each copy between GPUs, [k]."""
    result: Floats = p["floor_ns"] + 1e9 * work.moved_bytes / (device.peer * p["efficiency"])
    return result


LINK = Form("link", _PARAMETERS, host_link_ns, log_sizes, LOG_SIZES)
PEER = Form("peer", _PARAMETERS, peer_link_ns, log_sizes, LOG_SIZES)
