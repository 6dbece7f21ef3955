"""`torch.cuda.CUDAGraph`: a capture records its operations once, a replay repeats them."""

from __future__ import annotations

from typing import Any

from maya.emulator.torch_cuda.device import EmulatedDevices

Pool = tuple[int, int]


def cuda_graph_base(devices: EmulatedDevices) -> type:
    """The class `torch.cuda.CUDAGraph` derives from."""
    native = devices.native

    class _CUDAGraph:
        def __new__(cls, keep_graph: bool = False) -> Any:  # noqa: ARG004 - __init__ reads it
            return super().__new__(cls)

        def __init__(self, keep_graph: bool = False) -> None:
            self._keep_graph = keep_graph
            self._pool: Pool | None = None
            self._retained: list[Pool] = []
            self._device = -1
            self._capture: int | None = None
            self._capturing = False
            self._instantiated = False

        def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
            if capture_error_mode not in ("global", "thread_local", "relaxed"):
                raise RuntimeError(
                    "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                    + capture_error_mode
                )
            if self._capture is not None:
                raise RuntimeError(
                    "This CUDAGraph instance already owns a captured graph. To capture a new graph, create "
                    "a new instance."
                )
            self._device = native.current_device()
            if native.current_stream(self._device) == 0:
                raise RuntimeError(
                    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok "
                    "to replay them on the default stream.)"
                )
            # torch.cuda._POOL_HANDLE is a NewType over the pair, so it arrives as a plain tuple.
            self._pool = (pool[0], pool[1]) if pool is not None else native.pool_new()
            native.pool_begin(self._device, self._pool)
            self._capture = native.capture_begin(self._pool)
            self._capturing = True

        def capture_end(self) -> None:
            self.capture_end_pre()
            self.capture_end_post()

        def capture_end_pre(self) -> None:
            if not self._capturing or self._pool is None:
                raise RuntimeError("capture_end() called before capture_begin().")
            native.capture_end()
            native.pool_end(self._device, self._pool)
            self._capturing = False

        def capture_end_post(self) -> None:
            if not self._keep_graph:
                self._instantiated = True

        def _require_capture(self, asked: str) -> int:
            if self._capture is None or self._capturing:
                raise RuntimeError(f"Called CUDAGraph::{asked} without a preceding successful capture.")
            return self._capture

        def instantiate(self) -> None:
            self._require_capture("instantiate")
            if not self._keep_graph:
                raise RuntimeError(
                    "instantiate() is intended to be called by the user only when keep_graph=true"
                )
            self._instantiated = True

        def _has_graph_exec(self) -> bool:
            return self._instantiated

        def replay(self) -> None:
            capture = self._require_capture("replay")
            self._instantiated = True
            native.replay(capture)

        def reset(self) -> None:
            """Gives the pools back; a capture under way is ended first, as after an error."""
            if self._capturing:
                self.capture_end_pre()
            if self._pool is not None:
                for pool in (self._pool, *self._retained):
                    native.pool_release(self._device, pool)
            self._pool = None
            self._retained = []
            self._capture = None
            self._instantiated = False

        def pool(self) -> Pool:
            if self._pool is None:
                raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
            return self._pool

        def pools(self) -> list[Pool]:
            return [self.pool(), *self._retained]

        def _retain_pool(self, pool: Pool) -> None:
            self._retained.append((pool[0], pool[1]))

        def register_generator_state(self, generator: Any) -> None:
            """Generators advance by themselves in a replay: their numbers are not on the device."""

        def enable_debug_mode(self) -> None:
            """Only `debug_dump` would need it."""

        def debug_dump(self, debug_path: str) -> None:
            raise RuntimeError(f"Maya's emulated CUDA device has no graph to dump to {debug_path}")

        def raw_cuda_graph(self) -> int:
            if not self._keep_graph:
                raise RuntimeError(
                    "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with "
                    "keep_graph=true"
                )
            return self._require_capture("raw_cuda_graph")

        def raw_cuda_graph_exec(self) -> int:
            if not self._instantiated:
                raise RuntimeError(
                    "You cannot access the raw cudaGraphExec_t instance until instantiate() has been called"
                )
            return self._require_capture("raw_cuda_graph_exec")

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


_NO_CONDITIONALS = "Maya's emulated CUDA device does not capture conditional graph nodes"


def names(devices: EmulatedDevices) -> dict[str, Any]:
    """The `torch._C` attributes about CUDA graphs."""
    return {
        "_CUDAGraph": cuda_graph_base(devices),
        "_graph_pool_handle": devices.native.pool_new,
        "_cuda_isCurrentStreamCapturing": devices.native.is_capturing,
    }
