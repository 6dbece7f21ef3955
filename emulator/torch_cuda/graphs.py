"""`torch.cuda.CUDAGraph`: a capture records its operations once, a replay repeats them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from maya.emulator.torch_cuda.device import EmulatedDevices
from maya.emulator.torch_cuda.pools import Pool, PoolUse

CAPTURE_ERROR_MODES = ("global", "thread_local", "relaxed")
_NO_CONDITIONALS = "Maya's emulated CUDA device does not capture conditional graph nodes"


@dataclass
class _GraphState:
    """Kept in one attribute, away from the names that `torch.cuda.CUDAGraph` gives its own."""

    keep_graph: bool
    device: int = -1
    pools: list[PoolUse] = field(default_factory=list)
    """The graph's own pool first, then those it keeps alive."""
    capture: int | None = None
    """The backend's id of the capture; operations recorded in it carry the same."""
    capturing: bool = False
    finalized: bool = False
    instantiated: bool = False

    def require_capture(self, asked: str) -> int:
        if self.capture is None or self.capturing:
            raise RuntimeError(f"Called CUDAGraph::{asked} without a preceding successful capture.")
        return self.capture


def cuda_graph_base(devices: EmulatedDevices) -> type:
    """The class `torch.cuda.CUDAGraph` derives from. Errors are worded as at::cuda::CUDAGraph's."""
    native = devices.native

    class _CUDAGraph:
        def __new__(cls, keep_graph: bool = False) -> Any:  # noqa: ARG004 - __init__ reads it
            return super().__new__(cls)

        def __init__(self, keep_graph: bool = False) -> None:
            self._maya_state = _GraphState(keep_graph)

        def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
            state = self._maya_state
            if capture_error_mode not in CAPTURE_ERROR_MODES:
                raise RuntimeError(
                    "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                    + capture_error_mode
                )
            if state.capture is not None:
                raise RuntimeError(
                    "This CUDAGraph instance already owns a captured graph. To capture a new graph, create "
                    "a new instance."
                )
            state.device = native.current_device()
            if native.current_stream(state.device) == 0:
                raise RuntimeError(
                    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok "
                    "to replay them on the default stream.)"
                )
            chosen = (pool[0], pool[1]) if pool is not None else native.pool_new()
            state.capture = native.capture_begin(chosen)  # also directs allocations into the pool
            state.pools.append(PoolUse(native, state.device, chosen))
            state.capturing = True

        def capture_end(self) -> None:
            self.capture_end_pre()
            self.capture_end_post()

        def capture_end_pre(self) -> None:
            state = self._maya_state
            if not state.capturing:
                raise RuntimeError("capture_end() called before capture_begin().")
            state.capturing = False
            native.capture_end()

        def capture_end_post(self) -> None:
            state = self._maya_state
            state.finalized = True
            state.instantiated = state.instantiated or not state.keep_graph

        def instantiate(self) -> None:
            state = self._maya_state
            state.require_capture("instantiate")
            if state.finalized and not state.keep_graph:
                raise RuntimeError(
                    "instantiate() is intended to be called by the user only when keep_graph=true"
                )
            state.instantiated = True

        @property
        def _has_graph_exec(self) -> bool:
            return self._maya_state.instantiated

        def replay(self) -> None:
            state = self._maya_state
            capture = state.require_capture("replay")
            state.instantiated = True
            native.replay(capture)

        def reset(self) -> None:
            """Gives the pools back; a capture under way is ended first, as after an error."""
            state = self._maya_state
            if state.capturing:
                self.capture_end_pre()
            for use in state.pools:
                use.release()
            self._maya_state = _GraphState(state.keep_graph)

        def pool(self) -> Pool:
            return _CUDAGraph.pools(self)[0]

        def pools(self) -> list[Pool]:
            if not self._maya_state.pools:
                raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
            return [use.pool for use in self._maya_state.pools]

        def _retain_pool(self, pool: Pool) -> None:
            state = self._maya_state
            native.pool_retain(state.device, (pool[0], pool[1]))
            state.pools.append(PoolUse(native, state.device, (pool[0], pool[1])))

        def register_generator_state(self, generator: Any) -> None:
            """Generators advance by themselves in a replay: their numbers are not on the device."""

        def enable_debug_mode(self) -> None:
            """Only `debug_dump` would need it."""

        def debug_dump(self, debug_path: str) -> None:
            raise RuntimeError(f"Maya's emulated CUDA device has no graph to dump to {debug_path}")

        def raw_cuda_graph(self) -> int:
            if not self._maya_state.keep_graph:
                raise RuntimeError(
                    "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with "
                    "keep_graph=true"
                )
            return self._maya_state.require_capture("raw_cuda_graph")

        def raw_cuda_graph_exec(self) -> int:
            if not self._maya_state.instantiated:
                raise RuntimeError(
                    "You cannot access the raw cudaGraphExec_t instance until instantiate() has been called"
                )
            return self._maya_state.require_capture("raw_cuda_graph_exec")

        @staticmethod
        def get_currently_capturing_graph() -> Any:
            raise RuntimeError(_NO_CONDITIONALS)

        def begin_capture_to_if_node(self, _predicate: Any) -> None:
            raise RuntimeError(_NO_CONDITIONALS)

        def begin_capture_to_while_node(self, _predicate: Any) -> None:
            raise RuntimeError(_NO_CONDITIONALS)

        def end_capture_to_conditional_node(self) -> None:
            raise RuntimeError(_NO_CONDITIONALS)

        def set_conditional_handle_for_current_node(self, _predicate: Any) -> None:
            raise RuntimeError(_NO_CONDITIONALS)

    _CUDAGraph.__module__ = "torch._C"
    return _CUDAGraph


def names(devices: EmulatedDevices) -> dict[str, Any]:
    """The `torch._C` attributes about CUDA graphs."""
    return {
        "_CUDAGraph": cuda_graph_base(devices),
        "_graph_pool_handle": devices.native.pool_new,
        "_cuda_isCurrentStreamCapturing": devices.native.is_capturing,
    }
