"""Host time before each operation: Python and dispatch, by class of operation.

A plain forward operator's cost and the ratios of views, copies, backward nodes and collectives to it are
fitted (`maya.kernel_models.fit`, card `artifacts/host.json`): the scale from NeuSight's event-timed H100
labels, the ratios from Kineto traces of six hosts. What no public data separates is assumed below.
Everything is multiplied by `HostSpec.dispatch_scale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from maya.errors import MayaError
from maya.hardware import HostSpec
from maya.kernel_models.card import read_card
from maya.traces.operations import Kind, Operations, Phase
from maya.traces.tables import Tables

HOST_CARD = "host.json"
CLASSES = ("backward", "copy", "view", "communication")
"""Keys of the card's `ratios`, each over a plain forward operator."""

AUTOGRAD_NODE_NS = 1_500
"""Assumed: building a node and its saved tensors in C++ (two allocations, edges to the inputs)."""
MODULE_CALL_NS = 2_500
"""Assumed: `nn.Module.__call__` with its attribute look-ups, when an operation's module differs from the
previous one's."""
PER_TENSOR_NS = 150
"""Assumed: each tensor of a multi-tensor call is checked, its pointer packed and, out of place, an output
made."""
MULTI_TENSOR_NS = 12_000
"""Assumed: Python's grouping of lists by device and dtype, shared by the calls of an optimizer step."""
SYNC_CALL_NS = 1_500
"""Assumed: an event record or wait, or entering a synchronisation; the wait itself is the simulator's."""
EVENTS_OF_A_COMMUNICATION = 3
"""Operations of their own in a trace, but inside c10d's operator where it was measured: the event record and
stream wait before, and the record after."""

SYNC_KINDS = (
    Kind.EVENT_RECORD,
    Kind.STREAM_WAIT,
    Kind.EVENT_SYNC,
    Kind.STREAM_SYNC,
    Kind.DEVICE_SYNC,
    Kind.WAIT,
)
COMMUNICATION_KINDS = (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)


@dataclass(frozen=True)
class HostCosts:
    """Nanoseconds on the reference host of a plain forward operator, a backward one and the others named.

    The last is c10d's bookkeeping and NCCL's enqueue without the events around it. With those it is 3.0 to
    3.1 plain operators in all three traces of several ranks (DDP and recommendations on A100 and V100).
    """

    plain_ns: float
    backward_ns: float
    copy_ns: float
    view_ns: float
    communication_ns: float


@cache
def reference_costs() -> HostCosts:
    """What the shipped card says.

    Raises:
        MayaError: the card is missing or damaged.
    """
    card = read_card(files("maya.kernel_models") / "artifacts" / HOST_CARD)
    try:
        plain, ratios = float(card["plain_ns"]), card["ratios"]
        backward, copy, view, whole = (plain * float(ratios[kind]) for kind in CLASSES)
        communication = max(0.0, whole - EVENTS_OF_A_COMMUNICATION * SYNC_CALL_NS)
        return HostCosts(plain, backward, copy, view, communication)
    except (KeyError, TypeError, ValueError) as error:
        raise MayaError(f"{HOST_CARD} is damaged: {error!r}", hint="reinstall Maya") from error


def host_gaps(operations: Operations, tables: Tables, host: HostSpec) -> NDArray[np.int64]:
    """[n] host nanoseconds (Python and dispatch) before each operation is issued; 0 for markers.

    Args:
        operations: n operations in issue order.
        tables: what they index into.
        host: the machine; `dispatch_scale` 1.0 is the reference.
    """
    rows = operations.rows
    costs = reference_costs()
    kind, phase = rows["kind"], rows["phase"]
    many = np.asarray([_takes_lists(name) for name in tables.operators] or [False])[rows["operator"]]
    gap = np.full(len(rows), costs.plain_ns)
    gap[(phase == Phase.BACKWARD)] = costs.backward_ns
    gap[(kind == Kind.MEMCPY) | (kind == Kind.MEMSET)] = costs.copy_ns
    gap[kind == Kind.HOST] = costs.view_ns
    gap[np.isin(kind, SYNC_KINDS)] = SYNC_CALL_NS
    gap[np.isin(kind, COMMUNICATION_KINDS)] = costs.communication_ns
    gap += np.where(many, MULTI_TENSOR_NS + PER_TENSOR_NS * rows["tensor_count"].astype(np.float64), 0.0)
    gap += AUTOGRAD_NODE_NS * (rows["wraps_autograd"] == 1)
    gap += MODULE_CALL_NS * _enters_module(operations)
    gap[kind == Kind.MARKER] = 0
    result: NDArray[np.int64] = np.rint(gap * host.dispatch_scale).astype(np.int64)
    return result


def _takes_lists(operator: str) -> bool:
    name = operator.removeprefix("aten::")
    return name.startswith(("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad", "_amp_foreach"))


def _enters_module(operations: Operations) -> NDArray[np.bool_]:
    """[n] whether Python called another module before this operation; never in backward."""
    rows = operations.rows
    outside = ~np.isin(rows["phase"], (Phase.FORWARD, Phase.RECOMPUTE)) | (rows["kind"] == Kind.MARKER)
    changed = np.zeros(len(rows), dtype=bool)
    if len(rows) > 1:
        changed[1:] = rows["module"][1:] != rows["module"][:-1]
    result: NDArray[np.bool_] = changed & ~outside & (rows["module"] >= 0)
    return result
