"""`torch.cuda` on the compiled backend. One process per test: the device belongs to the process."""

from __future__ import annotations

from collections.abc import Callable

RunScript = Callable[..., str]


def test_streams_and_events(run_on_device: RunScript) -> None:
    run_on_device(
        """
        default = torch.cuda.current_stream()
        assert default == torch.cuda.default_stream() and default.cuda_stream == 0
        side = torch.cuda.Stream()
        assert isinstance(side, torch.Stream) and side.cuda_stream != 0 and side != default
        assert len({side, torch.cuda.Stream(), side}) == 2
        x = torch.ones(4, device=D)
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() == side
            y = x * 2
            y.record_stream(side)
        assert torch.cuda.current_stream() == default
        default.wait_stream(side)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        z = y + 1
        end.record(side)
        end.synchronize()
        side.synchronize()
        assert start.elapsed_time(end) >= 0 and end.query() and side.query()
        assert z.tolist() == [3, 3, 3, 3]
        again = torch.cuda.ExternalStream(side.cuda_stream)
        assert again == side
        assert torch.cuda.get_stream_from_external(side.cuda_stream) == side
        assert torch.cuda.Stream.priority_range() == (0, -3)
        assert torch.cuda.Stream(priority=-1).priority == -1
        assert torch.cuda.Stream(priority=-99).priority == -3
        assert torch.cuda.Stream(device=1).device.index == 1 and torch.cuda.current_device() == 0
        for untimed in (torch.cuda.Event(), torch.cuda.Event(enable_timing=True)):
            try:
                untimed.elapsed_time(end)
            except ValueError as error:
                assert "Both events must be" in str(error)
            else:
                raise SystemExit("elapsed_time of an event that was not recorded")
        assert torch.accelerator.current_stream().stream_id == 0
        torch.cuda.synchronize()
        torch.accelerator.synchronize()
        """
    )


def test_devices(run_on_device: RunScript) -> None:
    run_on_device(
        """
        assert torch.cuda.device_count() == 2 and torch.accelerator.device_count() == 2
        assert torch.accelerator.current_accelerator() == torch.device(D)
        with torch.cuda.device(1):
            a = torch.ones(3, device=D)
        assert a.device.index == 1 and torch.cuda.current_device() == 0
        torch.cuda.set_device(1)
        assert torch.zeros(1, device=D).device.index == 1 and torch.accelerator.current_device_index() == 1
        torch.cuda.set_device(0)
        for broken in (lambda: torch.ones(3, device="cuda:5"), lambda: torch.cuda.set_device(5)):
            try:
                broken()
            except RuntimeError as error:
                assert "invalid device ordinal" in str(error), error
            else:
                raise SystemExit("device 5 does not exist")
        with torch.cuda.device_of(a):
            assert torch.cuda.current_device() == 1
        assert a.to("cuda:0").device.index == 0 and a.cpu().tolist() == [1, 1, 1]
        """
    )


def test_memory_figures(run_on_device: RunScript) -> None:
    run_on_device(
        """
        MIB = 1 << 20
        free, total = torch.cuda.mem_get_info()
        assert total == gpu.total_memory_bytes and total - free >= gpu.context_bytes
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        used_before = torch.cuda.device_memory_used()
        x = torch.empty(1024 * MIB, dtype=torch.uint8, device=D)
        assert torch.cuda.memory_allocated() - before == 1024 * MIB
        assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
        assert torch.cuda.memory_reserved() >= 1024 * MIB
        assert torch.cuda.device_memory_used() - used_before == 1024 * MIB
        assert any(segment["total_size"] >= 1024 * MIB for segment in torch.cuda.memory_snapshot())
        del x
        assert torch.cuda.memory_allocated() == before
        assert torch.cuda.max_memory_allocated() - before == 1024 * MIB
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() < 1024 * MIB
        assert "Allocated memory" in torch.cuda.memory_summary()
        assert torch.cuda.memory_stats()["num_ooms"] == 0
        torch.cuda.set_per_process_memory_fraction(0.01)
        try:
            torch.empty(2048 * MIB, dtype=torch.uint8, device=D)
        except torch.OutOfMemoryError as error:
            assert "CUDA out of memory. Tried to allocate 2.00 GiB" in str(error), error
        else:
            raise SystemExit("one per cent is less than 2 GiB")
        torch.cuda.set_per_process_memory_fraction(1.0)
        pointer = torch.cuda.caching_allocator_alloc(1 * MIB)
        assert pointer and torch.cuda.memory_allocated() - before == MIB
        torch.cuda.caching_allocator_delete(pointer)
        assert torch.cuda.memory_allocated() == before
        """
    )


def test_random_state(run_on_device: RunScript) -> None:
    run_on_device(
        """
        torch.cuda.manual_seed(5)
        a = torch.randn(4, device=D)
        torch.cuda.manual_seed_all(5)
        assert torch.equal(a, torch.randn(4, device=D))
        state = torch.cuda.get_rng_state()
        assert state.shape == (16,) and state.dtype == torch.uint8 and state.device.type == "cpu"
        b = torch.rand(2, device=D)
        torch.cuda.set_rng_state(state)
        assert torch.equal(b, torch.rand(2, device=D))
        assert len(torch.cuda.get_rng_state_all()) == 2 and torch.cuda.initial_seed() == 5
        cpu_state = torch.get_rng_state()
        with torch.random.fork_rng(devices=[0]):
            torch.randn(2, device=D)
        torch.randn(64, device=D)
        assert torch.equal(cpu_state, torch.get_rng_state())
        generator = torch.Generator(device=D).manual_seed(1)
        assert torch.randint(0, 10, (5,), device=D, generator=generator).device.type == D
        """
    )


def test_storages(run_on_device: RunScript) -> None:
    run_on_device(
        """
        x = torch.arange(8, dtype=torch.float32, device=D)
        storage = x.untyped_storage()
        pointer = storage.data_ptr()
        storage.resize_(0)
        assert storage.nbytes() == 0
        before = torch.cuda.memory_allocated()
        storage.resize_(1 << 22)
        assert storage.nbytes() == 1 << 22 and torch.cuda.memory_allocated() - before == 1 << 22
        made = torch.UntypedStorage(1 << 21, device=D)
        assert made.device.type == D and made.nbytes() == 1 << 21
        assert torch.UntypedStorage([1, 2, 3], device=D).tolist() == [1, 2, 3]
        assert torch.UntypedStorage(4).nbytes() == 4
        plain = torch.UntypedStorage([7, 8])
        assert plain.resize_(1).nbytes() == 1 and plain.tolist() == [7]
        y = torch.tensor([1.0, 2.0], device=D)
        assert y.untyped_storage().clone().cpu().tolist() == y.cpu().untyped_storage().tolist()
        """
    )


def test_graphs(run_on_device: RunScript) -> None:
    run_on_device(
        """
        x = torch.ones(4, device=D)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            y = x * 3
        assert not torch.cuda.is_current_stream_capturing()
        graph.replay()
        assert y.shape == (4,) and len(graph.pool()) == 2
        second = torch.cuda.CUDAGraph()
        with torch.cuda.graph(second, pool=graph.pool()):
            z = y + 1
        second.replay()
        assert second.pool() == graph.pool()
        module = torch.nn.Linear(8, 8).to(D)
        graphed = torch.cuda.make_graphed_callables(
            module, (torch.ones(2, 8, device=D, requires_grad=True),)
        )
        graphed(torch.ones(2, 8, device=D)).sum().backward()
        assert module.weight.grad.shape == (8, 8)
        graph.reset()
        """
    )


def test_pools(run_on_device: RunScript) -> None:
    run_on_device(
        """
        pool = torch.cuda.MemPool()
        assert pool.use_count() == 1
        with torch.cuda.use_mem_pool(pool):
            assert pool.use_count() == 2
            x = torch.empty(1 << 22, dtype=torch.uint8, device=D)
        assert pool.use_count() == 1
        mine = pool.snapshot()
        assert mine and all(tuple(segment["segment_pool_id"]) == pool.id for segment in mine)
        reserved = torch.cuda.memory_reserved()
        del x, pool
        assert torch.cuda.memory_reserved() < reserved
        """
    )


def test_attention_answers_and_switches(run_on_device: RunScript) -> None:
    run_on_device(
        """
        from torch.backends.cuda import SDPAParams, can_use_efficient_attention, can_use_flash_attention
        q = torch.empty(2, 4, 64, 64, dtype=torch.bfloat16, device=D)
        assert can_use_flash_attention(SDPAParams(q, q, q, None, 0.0, False, False))
        f = q.float()
        assert not can_use_flash_attention(SDPAParams(f, f, f, None, 0.0, False, False))
        assert can_use_efficient_attention(SDPAParams(f, f, f, None, 0.0, False, False))
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
        assert torch.backends.cuda.preferred_linalg_library() is not None
        assert torch.backends.cuda.cufft_plan_cache.size >= 0
        assert torch.backends.cudnn.is_acceptable(torch.empty(1, device=D))
        """
    )


def test_data_parallel_and_legacy_types(run_on_device: RunScript) -> None:
    run_on_device(
        """
        model = torch.nn.DataParallel(torch.nn.Linear(8, 8).to(D), device_ids=[0, 1])
        out = model(torch.ones(5, 8, device=D))
        assert out.shape == (5, 8) and out.device.index == 0
        out.sum().backward()
        assert model.module.weight.grad.device.index == 0
        import warnings
        warnings.simplefilter("ignore")
        x = torch.cuda.FloatTensor([1, 2])
        assert x.dtype == torch.float32 and x.is_cuda and isinstance(x, torch.cuda.FloatTensor)
        assert torch.cuda.LongTensor(2, 3).shape == (2, 3)
        assert not isinstance(x, torch.cuda.HalfTensor) and x.type() == "torch.cuda.FloatTensor"
        assert torch.ones(1).type("torch.cuda.HalfTensor").dtype == torch.float16
        assert torch.ones(1).type(torch.cuda.DoubleTensor).is_cuda
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        assert torch.ones(1).is_cuda and torch.ones(1).dtype == torch.float64
        """
    )


def test_collectives_of_one_process(run_on_device: RunScript) -> None:
    run_on_device(
        """
        from torch.cuda import nccl
        def pair(*values):
            return [torch.tensor(v, device=f"cuda:{i}") for i, v in enumerate(values)]
        a = pair([1.0, 2.0], [3.0, 4.0])
        assert nccl.is_available(a)
        nccl.all_reduce(a)
        assert [t.tolist() for t in a] == [[4, 6], [4, 6]] and a[1].device.index == 1
        b = pair([1.0, 5.0], [3.0, 4.0])
        out = torch.empty(2, device="cuda:1")
        nccl.reduce(b, out, root=1, op=2)
        assert out.tolist() == [3, 5] and b[0].tolist() == [1, 5]
        nccl.broadcast(b, root=1)
        assert b[0].tolist() == [3, 4]
        gathered = [torch.empty(4, device=f"cuda:{i}") for i in range(2)]
        nccl.all_gather(pair([1.0, 2.0], [3.0, 4.0]), gathered)
        assert gathered[1].tolist() == [1, 2, 3, 4]
        parts = [torch.empty(1, device=f"cuda:{i}") for i in range(2)]
        nccl.reduce_scatter(pair([1.0, 2.0], [3.0, 4.0]), parts)
        assert [p.tolist() for p in parts] == [[4], [6]]
        """
    )


def test_copies_pickles_and_pinned_loading(run_on_device: RunScript) -> None:
    run_on_device(
        """
        import copy, io, pickle
        model = torch.nn.Linear(4, 4).to(D)
        assert copy.deepcopy(model).weight.is_cuda
        assert pickle.loads(pickle.dumps(model.weight)).is_cuda
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        assert torch.load(buffer)["weight"].is_cuda
        buffer.seek(0)
        assert torch.equal(torch.load(buffer, map_location="cpu")["weight"], model.weight.cpu())
        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                torch.manual_seed(index)
                return torch.full((3,), index)
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, pin_memory=True)
        torch.cuda.init()
        for batch in loader:
            assert batch.is_pinned() and batch.to(D, non_blocking=True).is_cuda
        """
    )


def test_profilers_see_the_host_only(run_on_device: RunScript) -> None:
    printed = run_on_device(
        """
        from torch.profiler import ProfilerActivity, profile, record_function, supported_activities
        assert ProfilerActivity.CUDA in supported_activities()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            with record_function("mine"):
                torch.ones(4, device=D) + 1
        assert "mine" in {event.key for event in profiled.key_averages()}
        with torch.autograd.profiler.emit_nvtx():
            torch.ones(4, device=D) + 1
        """
    )
    assert "Failed to record CUDA event" not in printed


def test_what_cannot_be_emulated_says_so(run_on_device: RunScript) -> None:
    run_on_device(
        """
        import torch.multiprocessing
        x = torch.ones(3, device=D)
        attempts = [
            x.untyped_storage()._share_cuda_,
            torch.cuda.Event(interprocess=True).ipc_handle,
            lambda: torch.cuda._compile_kernel("__global__ void k() {}", "k"),
            lambda: torch.cuda.memory.change_current_allocator(torch.cuda.memory._CUDAAllocator(None)),
        ]
        for attempt in attempts:
            try:
                attempt()
            except Exception as error:
                assert "emulated CUDA device" in str(error), error
            else:
                raise SystemExit(attempt)
        """
    )


def test_the_script_sees_the_memory_the_user_allows(run_on_device: RunScript) -> None:
    run_on_device(
        """
        import pynvml
        total = torch.cuda.get_device_properties(0).total_memory
        assert total == torch.cuda.mem_get_info()[1] == gpu.total_memory_bytes
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        assert info.total == gpu.memory_bytes and info.free == torch.cuda.mem_get_info()[0]
        assert pynvml.nvmlDeviceGetUUID(handle) == f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        assert torch.cuda.utilization() == 100 and torch.cuda.power_draw() <= 700_000
        assert torch.cuda.clock_rate() == 1980 and "uses" in torch.cuda.list_gpu_processes()
        """
    )
