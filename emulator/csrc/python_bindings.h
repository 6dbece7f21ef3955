// What Python may ask of the device, by topic.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "registration.h"

PyObject* THPGenerator_Wrap(const at::Generator& generator);

namespace maya {

namespace py = pybind11;

inline at::Tensor tensor_from_python(const py::object& object) {
  TORCH_CHECK_TYPE(THPVariable_Check(object.ptr()), "expected a Tensor");
  return THPVariable_Unpack(object.ptr());
}

// A fork must not copy a lock that another thread holds: take them all around it, outer ones first
// (a workspace is allocated under its lock, an allocation is recorded under the allocator's). The
// child (a DataLoader worker) does not record.
inline void lock_all() {
  CublasWorkspaces::instance().mutex().lock();
  for (int device = 0; device < DeviceAllocators::instance().device_count(); ++device) DeviceAllocators::instance().of(device).lock();
  Recorder::instance().mutex().lock();
  Attribution::instance().mutex().lock();
  SourceLines::instance().mutex().lock();
  Attribution::instance().lock_logs();
  PinnedMemory::instance().mutex().lock();
  Statistics::instance().mutex().lock();
  other_kernels_mutex().lock();
  materialise_mutex().lock();
  for (int device = 0; device < machine().device_count; ++device) device_generator(default_generator(device))->mutex_.lock();
  cache_mutex().lock();
}
inline void unlock_all_but_cache() {
  for (int device = 0; device < machine().device_count; ++device) device_generator(default_generator(device))->mutex_.unlock();
  materialise_mutex().unlock();
  other_kernels_mutex().unlock();
  Statistics::instance().mutex().unlock();
  PinnedMemory::instance().mutex().unlock();
  Attribution::instance().unlock_logs();
  SourceLines::instance().mutex().unlock();
  Attribution::instance().mutex().unlock();
  Recorder::instance().mutex().unlock();
  for (int device = 0; device < DeviceAllocators::instance().device_count(); ++device) DeviceAllocators::instance().of(device).unlock();
  CublasWorkspaces::instance().mutex().unlock();
}
inline void unlock_all() {
  cache_mutex().unlock();
  unlock_all_but_cache();
}
inline void unlock_all_in_child() {
  Recorder::instance().forget_after_fork();
  // A read-write lock counts the threads that wait for it. They do not exist here: made anew.
  new (&cache_mutex()) std::shared_mutex;
  unlock_all_but_cache();
}

inline void bind_machine(py::module_& module) {
  module.def(
      "install",
      [](int device_count, int64_t total_memory_bytes, int64_t context_bytes, bool unlimited_memory, std::pair<int, int> capability, int64_t cudnn_version, int64_t cuda_runtime_version) {
        TORCH_CHECK_VALUE(device_count >= 1 && device_count <= kMaxDevices, "device_count must be between 1 and ", kMaxDevices);
        machine() = {device_count, total_memory_bytes, context_bytes, unlimited_memory, capability.first, capability.second, cudnn_version, cuda_runtime_version};
        install_device();
        pthread_atfork(&lock_all, &unlock_all, &unlock_all_in_child);
      },
      py::kw_only(), py::arg("device_count"), py::arg("total_memory_bytes"), py::arg("context_bytes"), py::arg("unlimited_memory"), py::arg("capability"), py::arg("cudnn_version"),
      py::arg("cuda_runtime_version"));
  module.def("direct_operators", &direct_operators);
  module.def("register_operators", &register_operators);
  module.def("refuse_operators", &refuse_operators, py::arg("dispatch_key"), py::arg("names"));
  module.def("share_kernels", &share_kernels, py::arg("from_key"), py::arg("to_key"), py::arg("names"));
  module.def("device_count", [] { return machine().device_count; });
  module.def("current_device", [] { return static_cast<int>(current_device_index); });
  module.def("set_device", [](int device) {
    check_ordinal(device);
    make_current(static_cast<c10::DeviceIndex>(device));
  });
  module.def("exchange_device", [](int device) {
    int previous = current_device_index;
    make_current(static_cast<c10::DeviceIndex>(device));
    return previous;
  });
  module.def("default_generator", [](int device) { return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(resolve(static_cast<c10::DeviceIndex>(device))))); });
  module.def("statistics", [] {
    auto& s = Statistics::instance();
    py::dict result;
    result["operations"] = s.operations.load();
    result["cache_hits"] = s.cache_hits.load();
    result["cache_misses"] = s.cache_misses.load();
    result["computed"] = s.computed.load();
    result["unknown_reads"] = ValuePolicy::instance().reads.load();
    result["host_failures"] = s.host_failures();
    result["missing_metas"] = s.missing_metas();
    return result;
  });
  module.def("set_tape", [](const std::string& mode) {
    TORCH_CHECK_VALUE(mode == "off" || mode == "record" || mode == "replay", "tape mode is off, record or replay");
    Tape::instance().set(mode == "off" ? Tape::Mode::Off : mode == "record" ? Tape::Mode::Recording : Tape::Mode::Replaying);
  });
}

// Where the capture under way allocates. CUDA allows one capture at a time per thread; PyTorch one a process.
inline std::pair<int, std::pair<uint64_t, uint64_t>>& capture_pool() {
  static auto* pool = new std::pair<int, std::pair<uint64_t, uint64_t>>;
  return *pool;
}

inline void bind_streams(py::module_& module) {
  auto index = [](int device) { return resolve(static_cast<c10::DeviceIndex>(device)); };
  module.def("current_stream", [index](int device) { return current_streams[index(device)]; });
  module.def("set_current_stream", [index](int device, int64_t stream) {
    int resolved = index(device);
    check_ordinal(resolved);
    make_current(static_cast<c10::DeviceIndex>(resolved));
    current_streams[resolved] = stream;
  });
  module.def("stream_query", [index](int device, int64_t stream) { return stream_is_idle(index(device), stream); });
  module.def("stream_synchronize", [index](int device, int64_t stream) { synchronize_stream(index(device), stream); });
  module.def("device_synchronize", [index](int device) { synchronize_device(index(device)); });
  module.def("stream_priority", [](int, int64_t stream) { return stream_priority(stream); });
  module.def("event_elapsed_ms", [](uintptr_t start, uintptr_t end) { return elapsed_ms(reinterpret_cast<DeviceEvent*>(start), reinterpret_cast<DeviceEvent*>(end)); });
  module.def("is_capturing", [] { return stream_capturing().load(); });
  module.def("capture_begin", [](std::pair<uint64_t, uint64_t> pool) {
    auto& allocator = DeviceAllocators::instance().of(current_device_index);
    allocator.begin_allocate_to_pool(pool, [](int64_t) { return true; });
    allocator.mark_capture_begin();
    stream_capturing() = true;
    capture_pool() = {current_device_index, pool};
    return Recorder::instance().begin_graph();
  });
  module.def("capture_end", [] {
    stream_capturing() = false;
    Recorder::instance().end_graph();
    auto& allocator = DeviceAllocators::instance().of(capture_pool().first);
    allocator.end_allocate_to_pool(capture_pool().second);
    allocator.mark_capture_end();
  });
  module.def("replay", [](int32_t graph) { Recorder::instance().replay_graph(graph); });
}

inline void bind_memory(py::module_& module) {
  auto of = [](int device) -> CachingAllocator& { return DeviceAllocators::instance().of(resolve(static_cast<c10::DeviceIndex>(device))); };
  using Pool = std::pair<uint64_t, uint64_t>;
  module.def("memory_stats", [of](int device) { return statistics_to_python(of(device).statistics()); });
  module.def("memory_snapshot", [](Pool pool) {
    std::vector<CachingAllocator*> devices;
    for (int device = 0; device < machine().device_count; ++device) devices.push_back(&DeviceAllocators::instance().of(device));
    return snapshot_to_python(devices, DeviceAllocators::instance().settings(), pool);
  }, py::arg("pool") = kEveryPool);
  module.def("empty_cache", [](Pool pool) {
    for (int device = 0; device < machine().device_count; ++device) DeviceAllocators::instance().of(device).empty_cache(pool);
  }, py::arg("pool") = kEveryPool);
  module.def("reset_peak_memory_stats", [of](int device) { of(device).reset_peak_statistics(); });
  module.def("reset_accumulated_memory_stats", [of](int device) { of(device).reset_accumulated_statistics(); });
  module.def("set_memory_fraction", [of](double fraction, int device) { of(device).set_memory_fraction(fraction); });
  module.def("get_memory_fraction", [of](int device) { return of(device).memory_fraction(); });
  module.def("memory_info", [of](int device) { return std::pair(of(device).device_free_bytes(), of(device).device_total_bytes()); });
  module.def("set_allocator_settings", [](const std::string& text) { DeviceAllocators::instance().settings().parse(text); });
  module.def("allocator_backend", [] { return "native"; });
  module.def("largest_free_block", [of](int device) { return of(device).largest_free_block(); });
  module.def("raw_alloc", [of](size_t bytes, int64_t stream) {
    auto* block = of(-1).allocate(static_cast<int64_t>(bytes), stream);
    return block ? block->address : 0;
  });
  module.def("raw_delete", [](uint64_t address) {
    if (address == 0) return;
    int device = DeviceAllocators::instance().device_at(reinterpret_cast<void*>(address));
    TORCH_CHECK(device >= 0, "invalid device pointer: ", address);
    auto& allocator = DeviceAllocators::instance().of(device);
    auto* block = allocator.find(address);
    TORCH_CHECK(block, "invalid device pointer: ", address);
    allocator.free(block);
  });
  module.def("pool_new", [] {
    static std::atomic<uint64_t> next{1};
    return Pool(0, next++);
  });
  module.def("record_memory_history", [](bool) {});  // Maya keeps its own record of every event, always
  module.def("pool_retain", [of](int device, Pool pool) { of(device).create_or_retain_pool(pool); });
  module.def("pool_begin", [of](int device, Pool pool, bool this_thread) {
    of(device).begin_allocate_to_pool(pool, this_thread ? this_thread_only() : PoolFilter([](int64_t) { return true; }));
  }, py::arg("device"), py::arg("pool"), py::arg("this_thread") = true);
  module.def("pool_end", [of](int device, Pool pool) { of(device).end_allocate_to_pool(pool); });
  module.def("pool_release", [of](int device, Pool pool) { of(device).release_pool(pool); });
  module.def("pool_use_count", [of](int device, Pool pool) { return of(device).pool_use_count(pool); });
  module.def("pool_set_use_on_oom", [of](int device, Pool pool, bool use) { of(device).set_pool_use_on_oom(pool, use); });
  module.def("pool_set_no_split", [of](int device, Pool pool) { of(device).set_pool_no_split(pool); });
  module.def("out_of_memory_line", [] { return SourceLines::instance().text(out_of_memory_line()); });
  module.def("clear_cublas_workspaces", [] { CublasWorkspaces::instance().clear(); });
  module.def("resize_storage", [](uintptr_t storage, size_t bytes) { resize_storage(reinterpret_cast<c10::StorageImpl*>(storage), bytes); });
  module.def("memory_held", [of](int device) {  // (allocation id, bytes) of what is handed out
    std::vector<std::pair<int64_t, int64_t>> held;
    for (const auto& block : of(device).allocated_blocks()) held.emplace_back(block.allocation_id, block.size_bytes);
    return held;
  });
}

inline void bind_values(py::module_& module) {
  module.def("is_known", [](const py::object& tensor) { return is_known(tensor_from_python(tensor)); });
  module.def("value_state", [](const py::object& object) {
    auto tensor = tensor_from_python(object);
    auto* block = tensor.is_cuda() ? block_of(tensor) : nullptr;
    if (!block) return "known";
    return block->state == ValueState::Known ? "known" : block->state == ValueState::Constant ? "constant" : "unknown";
  });
  // For tests: as if an operator without values had written the tensor.
  module.def("forget_values", [](const py::object& tensor, const std::string& producer) { wrote(tensor_from_python(tensor), false, Recorder::instance().intern_name(producer)); },
             py::arg("tensor"), py::arg("producer") = "maya::forgotten");
  module.def("allocation_id", [](const py::object& object) {  // storage id of the trace, -1 for host tensors
    auto tensor = tensor_from_python(object);
    auto* block = tensor.is_cuda() ? block_of(tensor) : nullptr;
    return block ? block->allocation_id : int64_t{-1};
  });
  // A copy to the host of a storage whose bytes nobody made: recorded, not performed.
  module.def("record_storage_to_host", [](uintptr_t address) {
    auto* storage = reinterpret_cast<c10::StorageImpl*>(address);
    if (storage->nbytes() == 0) return;
    auto count = static_cast<int64_t>(storage->nbytes());
    auto bytes_of = [count](c10::Storage owner, c10::DispatchKey key) {
      at::Tensor whole = at::detail::make_tensor<c10::TensorImpl>(std::move(owner), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<uint8_t>());
      whole.unsafeGetTensorImpl()->set_sizes_contiguous({count});
      return whole;
    };
    c10::Storage nowhere(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::kCPU), nullptr, false);
    record_copy(bytes_of(std::move(nowhere), c10::DispatchKey::CPU),
                bytes_of(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)), c10::DispatchKey::CUDA), "d2h", true);
  });
  module.def("storage_is_known", [](uintptr_t storage) {
    auto* block = block_of(reinterpret_cast<c10::StorageImpl*>(storage)->data_ptr());
    return !block || block->state != ValueState::Unknown;
  });
  module.def("set_value_policy", [](py::object policy) { ValuePolicy::instance().set(std::move(policy)); });
  module.def("set_oracle", [](py::object oracle) { Oracle::instance().set(std::move(oracle)); });
  module.def("set_host_gap_ns", [](int64_t gap) { Recorder::instance().with_clock([gap](Clock& clock) { clock.host_gap_ns = gap; }); });
}

template <class Row>
py::bytes rows_to_bytes(const std::vector<Row>& rows) {
  return py::bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row));
}

inline void bind_recording(py::module_& module) {
  module.def("recording", [](bool enabled) { Recorder::instance().enable(enabled); });
  module.def("is_recording", [] { return Recorder::instance().enabled(); });
  module.def("trace_source_lines", [](bool enabled) { Recorder::instance().trace_source_lines(enabled); });
  module.def("drain", [] {
    auto drained = Recorder::instance().drain();
    return py::make_tuple(rows_to_bytes(drained.operations), rows_to_bytes(drained.uses), rows_to_bytes(drained.communications));
  });
  module.def("communicators", [] {  // (name, members' global ranks in group order)
    std::vector<std::pair<std::string, std::vector<int64_t>>> all;
    for (const auto& members : Recorder::instance().communicators()) all.emplace_back(members.name, members.ranks);
    return all;
  });
  module.def("drain_memory", [] { return rows_to_bytes(Recorder::instance().drain_memory()); });
  module.def("pending", [] { return Recorder::instance().pending(); });
  module.def("interned", [](const std::string& table, size_t start) { return Recorder::instance().interned(table, start); });
  module.def("mark", [](const std::string& operator_name, const std::string& metadata) {
    auto& recorder = Recorder::instance();
    return recorder.record({.name = recorder.intern_name(operator_name), .metadata = recorder.intern_metadata(metadata), .kind = Kind::Marker,
                            .device = current_device_index, .stream = current_streams[current_device_index]});
  });
  module.def("module_id", [](const std::string& path) { return Recorder::instance().intern_module(path); });
  module.def("enter_module", [](int32_t id) { Attribution::instance().enter_module(id); });
  module.def("leave_module", [] { Attribution::instance().leave_module(); });
  module.def("set_phase", [](int phase) { return Attribution::instance().set_phase(phase); });
  module.def("next_operation_id", [] { return Recorder::instance().next_id(); });
  module.def("bind_parameter", [](const py::object& tensor, int32_t id) { Attribution::instance().bind_parameter(tensor_from_python(tensor), id); });
  module.def("source_line", [] { return SourceLines::instance().text(SourceLines::instance().current()); });
  module.def("is_user_file", [](const std::string& file) { return SourceLines::instance().is_user_file(file); });
  module.def("add_non_user_prefix", [](const std::string& prefix) { SourceLines::instance().add_non_user_prefix(prefix); });
}

inline sdp::sdp_params attention_params(const py::object& params) {
  auto mask = params.attr("attn_mask");
  return {tensor_from_python(params.attr("query")), tensor_from_python(params.attr("key")), tensor_from_python(params.attr("value")),
          mask.is_none() ? std::nullopt : std::optional<at::Tensor>(tensor_from_python(mask)), params.attr("dropout").cast<double>(),
          params.attr("is_causal").cast<bool>(), params.attr("enable_gqa").cast<bool>()};
}

inline void bind_attention(py::module_& module) {
  module.def("can_use_flash", [](const py::object& params, bool debug) { return can_use_flash(attention_params(params), debug); });
  module.def("can_use_efficient", [](const py::object& params, bool debug) { return can_use_efficient(attention_params(params), debug); });
  module.def("can_use_cudnn", [](const py::object& params, bool debug) { return can_use_cudnn(attention_params(params), debug); });
}

}  // namespace maya
