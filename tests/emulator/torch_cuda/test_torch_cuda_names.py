"""`torch.cuda` on a recording backend: names, properties, versions. One process per test: installing
the device cannot be undone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

RunScript = Callable[..., str]


def test_what_a_script_asks_about_the_gpu(run_recorded: RunScript) -> None:
    run_recorded(
        """
        cuda = torch.cuda
        assert cuda.is_available() and cuda.device_count() == 4 and not cuda.is_initialized()
        assert cuda.get_device_name() == "NVIDIA H100 80GB HBM3" and cuda.is_initialized()
        assert cuda.default_generators == tuple(f"generator {i}" for i in range(4))
        assert cuda.get_device_capability(3) == (9, 0)
        properties = cuda.get_device_properties(1)
        assert properties is cuda.get_device_properties(1)
        assert isinstance(properties, cuda._CudaDeviceProperties)
        assert properties.total_memory == gpu.total_memory_bytes
        assert properties.multi_processor_count == 132 and properties.warp_size == 32
        assert str(properties.uuid) != str(cuda.get_device_properties(0).uuid)
        assert len(properties.uuid.bytes) == 16
        assert repr(properties).startswith("_CudaDeviceProperties(name='NVIDIA H100 80GB HBM3', major=9")
        try:
            cuda.get_device_properties(4)
        except AssertionError as error:
            assert "Invalid device id" in str(error)
        else:
            raise SystemExit("device 4 does not exist")
        assert cuda.is_bf16_supported() and cuda.is_tf32_supported()
        assert "sm_90" in cuda.get_arch_list() and "code=sm_90" in cuda.get_gencode_flags()
        assert cuda.can_device_access_peer(0, 1) and not cuda.can_device_access_peer(1, 1)
        assert cuda.mem_get_info() == (gpu.total_memory_bytes - (1 << 30), gpu.total_memory_bytes)
        assert "CUDA OOMs: 0" in cuda.memory_summary()
        assert cuda.get_per_process_memory_fraction() == 0.5
        assert cuda.has_magma and torch.backends.cuda.is_built()
        assert torch.backends.cuda.is_flash_attention_available()
        """
    )


def test_versions_of_a_cpu_build_and_of_a_cuda_build(run_recorded: RunScript) -> None:
    run_recorded(
        """
        import torch.backends.cusparselt
        assert cuda_build or torch.version.cuda == "12.8"
        assert cuda_build or torch._C._cuda_getCompiledVersion() == 12080
        assert torch.backends.cudnn.is_available()
        assert torch.backends.cudnn.version() == 91002 or cuda_build
        assert torch.backends.cudnn.benchmark_limit == 10
        torch.backends.cudnn.benchmark_limit = 3
        assert torch._C._cuda_get_cudnn_benchmark_limit() == 3
        torch.backends.cudnn.allow_tf32 = False
        assert not torch._C._get_cudnn_allow_tf32()
        assert torch.backends.cudnn.rnn.get_cudnn_mode("LSTM") == 2
        import torch.backends.cudnn as again
        assert again is torch.backends.cudnn and sys.modules["torch.backends.cudnn"] is again
        assert torch.cuda.nccl.version()[0] == 2
        assert torch.backends.cusparselt.is_available() and torch.backends.cusparselt.version() >= 701
        assert torch.backends.cuda.cublas_workspace_size() == 32 << 20
        assert torch.backends.cuda.cublas_workspace_size(1024) == 1024
        """
    )


def test_an_older_gpu_gets_the_last_build_that_supports_it(run_recorded: RunScript) -> None:
    run_recorded(
        """
        from dataclasses import replace
        from maya.emulator.torch_cuda import DriverVersions
        volta = DriverVersions.for_gpu(replace(gpu, compute_capability=(7, 0)))
        assert volta.cuda_text == "12.6" and "sm_70" in volta.architectures and volta.cudnn_number < 91100
        assert DriverVersions.for_gpu(gpu).cudnn_number == 91002
        built = DriverVersions.for_gpu(gpu).of_build("13.0")
        assert built.cuda == (13, 0) and built.driver.startswith("580.")
        assert DriverVersions.for_gpu(gpu).of_build("12.6").driver.startswith("570.")
        """
    )


def test_classes_bound_before_the_installation_are_replaced(run_recorded: RunScript) -> None:
    run_recorded(
        """
        import torch.cuda.graphs, torch.cuda.memory, torch.cuda.streams
        assert torch.cuda.Stream is torch.cuda.streams.Stream
        assert issubclass(torch.cuda.Stream, torch.Stream)
        assert issubclass(torch.cuda.Event, torch.Event)
        assert torch.cuda.CUDAGraph.__mro__[1] is torch._C._CUDAGraph
        assert torch.cuda.MemPool.__mro__[1] is torch._C._MemPool
        assert torch.cuda.memory_stats is torch.cuda.memory.memory_stats
        assert torch.cuda.graphs._graph_pool_handle is torch._C._graph_pool_handle
        holder = sys.modules["user_module"]
        assert holder.Stream is torch.cuda.Stream and holder.Box.kind is torch.cuda.CUDAGraph
        assert torch.cuda._exchange_device != torch.cuda._maybe_exchange_device
        assert ("_has_cuda", cuda_build) in [(n, b) for o, n, b in registry.changes if o is torch._C]
        """,
        before="""
        import sys, types
        import torch
        holder = types.ModuleType("user_module")
        class Box:
            kind = torch.cuda.CUDAGraph
        Box.__module__ = "user_module"
        holder.Box, holder.Stream = Box, torch.cuda.Stream
        sys.modules["user_module"] = holder
        """,
    )


def test_every_name_that_torchs_python_code_uses_exists(run_recorded: RunScript) -> None:
    """The sources of torch.cuda and torch.backends are the list of what must answer."""
    missing = run_recorded(
        """
        import pathlib, re
        root = pathlib.Path(torch.__file__).parent
        folders = ("cuda", "backends/cuda", "backends/cudnn", "accelerator", "nn/parallel")
        sources = [path for folder in folders for path in (root / folder).rglob("*.py")]
        named = set()
        for path in sources:
            named |= set(re.findall(r"torch\\._C\\.(_\\w+)", path.read_text()))
        optional = {"_CUDAGreenContext"}  # asked for with hasattr
        print(*sorted(name for name in named - optional if not hasattr(torch._C, name)))
        """
    )
    assert missing.split() == []


def test_a_name_this_torch_lacks_is_reported_with_its_version(run_recorded: RunScript) -> None:
    run_recorded(
        """
        from maya.errors import MayaError
        from maya.emulator.torch_cuda import Registry
        try:
            Registry().replace(torch.cuda, "no_such_name", 1)
        except MayaError as error:
            assert torch.__version__ in str(error) and "torch.cuda.no_such_name" in str(error), error
        else:
            raise SystemExit("no error")
        """
    )


def test_a_backend_without_a_function_and_a_second_installation_are_refused(run_recorded: RunScript) -> None:
    run_recorded(
        """
        from maya.errors import MayaError
        for broken, words in ((object(), "lacks"), (native, "already installed")):
            try:
                if broken is native:
                    install_torch_cuda(native, gpu, 1)
                else:
                    from maya.emulator.torch_cuda.native import check_native
                    check_native(broken)
            except MayaError as error:
                assert words in str(error), error
            else:
                raise SystemExit(words)
        """
    )


@pytest.mark.parametrize(
    ("visible", "count"),
    [("", 0), ("0", 1), ("2,3", 2), ("0,1,2,3,4,5,6,7", 4), ("-1", 0), ("1,-1,2", 1), ("0,0", 0)],
)
def test_cuda_visible_devices_hides_gpus(visible: str, count: int) -> None:
    from maya.emulator.torch_cuda.device import _count_listed

    assert min(4, _count_listed(visible)) == count


def test_a_fork_cannot_use_the_device(run_recorded: RunScript) -> None:
    run_recorded(
        """
        torch.cuda.init()
        child = os.fork()
        if child == 0:
            try:
                torch.cuda.current_device()
            except RuntimeError as error:
                os._exit(0 if "forked subprocess" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        torch.cuda.current_device()
        """
    )


def test_no_gpu_visible_is_no_gpu(run_recorded: RunScript) -> None:
    run_recorded(
        """
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
        try:
            torch.cuda.init()
        except RuntimeError as error:
            assert "No CUDA GPUs are available" in str(error)
        else:
            raise SystemExit("no error")
        """,
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )


def test_gpus_hidden_by_the_script_before_its_first_use_stay_hidden(run_recorded: RunScript) -> None:
    run_recorded(
        """
        assert torch.cuda.device_count() == 4
        os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"
        assert torch.cuda.device_count() == 2
        torch.cuda.init()
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
        assert torch.cuda.device_count() == torch._C._cuda_getDeviceCount() == 2
        assert len(torch.cuda.default_generators) == 2
        """
    )


def test_pools_and_graphs_drive_the_backend(run_recorded: RunScript) -> None:
    run_recorded(
        """
        base = torch._C._CUDAGraph(False)
        try:
            base.capture_begin()
        except RuntimeError as error:
            assert "non-default stream" in str(error)
        else:
            raise SystemExit("captured on the default stream")
        native.set_current_stream(0, 5)
        native.calls.clear()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        assert torch.cuda.is_current_stream_capturing()
        pool = graph.pool()
        graph.capture_end()
        assert not torch.cuda.is_current_stream_capturing()
        graph.replay()
        graph.reset()
        assert native.calls == [
            ("capture_begin", pool), ("capture_end",), ("replay", 7), ("pool_release", 0, pool),
        ], native.calls
        try:
            graph.replay()
        except RuntimeError as error:
            assert "without a preceding successful capture" in str(error)
        else:
            raise SystemExit("replayed a reset graph")
        kept = torch.cuda.CUDAGraph(keep_graph=True)
        handle = torch.cuda.graph_pool_handle()
        kept.capture_begin(pool=handle)
        kept.capture_end()
        assert kept.pool() == handle and kept.raw_cuda_graph() == 7
        kept.instantiate()
        native.calls.clear()
        torch.cuda.init()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            pass
        assert native.calls == [
            ("pool_retain", 0, pool.id),
            ("pool_begin", 0, pool.id, True), ("pool_end", 0, pool.id), ("pool_release", 0, pool.id),
        ], native.calls
        native.calls.clear()
        gone = pool.id
        del pool
        assert native.calls == [("pool_release", 0, gone), ("empty_cache", gone)], native.calls
        native.calls.clear()
        del kept
        assert native.calls == [("pool_release", 0, handle)], native.calls
        assert torch._C._cuda_checkPoolLiveAllocations(0, (0, 7), {4096})
        assert not torch._C._cuda_checkPoolLiveAllocations(0, (0, 7), set())
        """
    )


def test_memory_requests_reach_the_backend(run_recorded: RunScript) -> None:
    run_recorded(
        """
        torch.cuda.init()
        torch.cuda.set_device(2)
        native.calls.clear()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats(1)
        torch.cuda.set_per_process_memory_fraction(0.25)
        torch.cuda.empty_cache()
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        assert "expandable_segments:True" in torch._C._accelerator_getAllocatorSettings()
        torch.cuda.memory._record_memory_history()
        assert torch._C._cuda_isHistoryEnabled()
        torch.cuda.memory._record_memory_history(enabled=None)
        assert native.calls == [
            ("reset_peak_memory_stats", 2), ("reset_accumulated_memory_stats", 1),
            ("set_memory_fraction", 0.25, 2), ("empty_cache",),
            ("set_allocator_settings", "expandable_segments:True"),
            ("record_memory_history", True), ("record_memory_history", False),
        ], native.calls
        assert len(torch.cuda.memory_snapshot()) == 2
        assert len(torch.cuda.memory_snapshot((0, 7))) == 1
        assert torch.cuda.memory._snapshot()["device_traces"]
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
        assert torch.cuda.host_memory_stats()["num_host_alloc"] == 0
        assert torch.cuda.get_allocator_backend() == "native"
        """
    )


def test_small_services_answer(run_recorded: RunScript) -> None:
    run_recorded(
        """
        assert torch.cuda.nvtx.range_push("a") == 0 and torch.cuda.nvtx.range_push("b") == 1
        assert torch.cuda.nvtx.range_pop() == 1 and torch.cuda.nvtx.range_pop() == 0
        torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("c"))
        runtime = torch.cuda.cudart()
        torch.cuda.check_error(runtime.cudaProfilerStart())
        torch.cuda.check_error(runtime.cudaHostRegister(0, 0, 0))
        try:
            torch.cuda.check_error(2)
        except torch.cuda.CudaError as error:
            assert str(error) == "out of memory (2)"
        else:
            raise SystemExit("no error")
        assert not hasattr(runtime, "cudaMalloc")
        tunable = torch.cuda.tunable
        assert not tunable.is_enabled() and tunable.tuning_is_enabled()
        tunable.enable(True)
        tunable.set_max_tuning_iterations(5)
        assert tunable.is_enabled() and tunable.get_max_tuning_iterations() == 5
        torch.cuda.set_sync_debug_mode("warn")
        assert torch.cuda.get_sync_debug_mode() == 1
        assert isinstance(torch.cuda.current_blas_handle(), int)
        """
    )


def test_the_environment_report_can_be_collected(run_recorded: RunScript) -> None:
    report = run_recorded(
        """
        from torch.utils.collect_env import get_pretty_env_info
        print(get_pretty_env_info())
        """
    )
    assert "Is CUDA available: True" in report


def test_legacy_tensor_types_describe_themselves(run_recorded: RunScript) -> None:
    run_recorded(
        """
        assert not isinstance(torch.ones(1), torch.cuda.FloatTensor)
        assert torch.cuda.HalfTensor.dtype == torch.float16 and torch.cuda.HalfTensor.is_cuda
        try:
            torch.set_default_tensor_type(torch.cuda.LongTensor)
        except TypeError as error:
            assert "floating-point" in str(error)
        else:
            raise SystemExit("no error")
        """
    )
