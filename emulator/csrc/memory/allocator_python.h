// The allocator's figures as the dictionaries that torch/cuda/memory.py expects from torch._C
// (_cuda_memoryStats and _cuda_memorySnapshot; keys and state names as in torch 2.13/2.14).
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "caching_allocator.h"

namespace maya {

inline pybind11::dict counter_to_python(const Counter& counter) {
  pybind11::dict result;
  result["current"] = counter.current;
  result["peak"] = counter.peak;
  result["allocated"] = counter.allocated;
  result["freed"] = counter.freed;
  return result;
}

inline pybind11::dict pool_counters_to_python(const PoolCounters& counters) {
  pybind11::dict result;
  result["all"] = counter_to_python(counters.by_kind[PoolCounters::kAll]);
  result["small_pool"] = counter_to_python(counters.by_kind[PoolCounters::kSmallPool]);
  result["large_pool"] = counter_to_python(counters.by_kind[PoolCounters::kLargePool]);
  return result;
}

// torch._C._cuda_memoryStats(device)
inline pybind11::dict statistics_to_python(const MemoryStatistics& s) {
  pybind11::dict result;
  result["num_alloc_retries"] = s.num_alloc_retries;
  result["num_ooms"] = s.num_ooms;
  result["max_split_size"] = s.max_split_size;
  result["num_sync_all_streams"] = s.num_sync_all_streams;
  result["num_device_alloc"] = s.num_device_alloc;
  result["num_device_free"] = s.num_device_free;
  result["num_oom_rejections"] = s.num_oom_rejections;
  result["allocated_bytes"] = pool_counters_to_python(s.allocated_bytes);
  result["reserved_bytes"] = pool_counters_to_python(s.reserved_bytes);
  result["active_bytes"] = pool_counters_to_python(s.active_bytes);
  result["requested_bytes"] = pool_counters_to_python(s.requested_bytes);
  result["allocation"] = pool_counters_to_python(s.allocation);
  result["segment"] = pool_counters_to_python(s.segment);
  result["active"] = pool_counters_to_python(s.active);
  result["inactive_split"] = pool_counters_to_python(s.inactive_split);
  result["inactive_split_bytes"] = pool_counters_to_python(s.inactive_split_bytes);
  result["oversize_allocations"] = counter_to_python(s.oversize_allocations);
  result["oversize_segments"] = counter_to_python(s.oversize_segments);
  pybind11::dict by_pool;
  for (const auto& [id, counters] : s.reserved_bytes_by_private_pools) {
    by_pool[pybind11::make_tuple(id.first, id.second)] = pool_counters_to_python(counters);
  }
  result["reserved_bytes_by_private_pools"] = by_pool;
  return result;
}

inline pybind11::dict segment_to_python(const SegmentView& segment) {
  pybind11::dict result;
  result["device"] = segment.device;
  result["address"] = segment.address;
  result["total_size"] = segment.total_bytes;
  result["allocated_size"] = segment.allocated_bytes;
  result["active_size"] = segment.active_bytes;
  result["requested_size"] = segment.requested_bytes;
  result["stream"] = segment.stream;
  result["segment_type"] = segment.is_large ? "large" : "small";
  result["segment_pool_id"] = pybind11::make_tuple(segment.pool.first, segment.pool.second);
  result["is_expandable"] = segment.is_expandable;
  result["frames"] = pybind11::list();
  pybind11::list blocks;
  for (const BlockView& block : segment.blocks) {
    pybind11::dict entry;
    entry["address"] = block.address;
    entry["size"] = block.size_bytes;
    entry["requested_size"] = block.requested_bytes;
    // torch's documentation says active_awaiting_free; its code says active_pending_free.
    entry["state"] = block.state == BlockState::kAllocated      ? "active_allocated"
                     : block.state == BlockState::kAwaitingFree ? "active_pending_free"
                                                                : "inactive";
    entry["frames"] = pybind11::list();
    blocks.append(entry);
  }
  result["blocks"] = blocks;
  return result;
}

inline pybind11::dict settings_to_python(const AllocatorSettings& settings) {
  auto or_minus_one = [](int64_t bytes) { return bytes == kNoLimit ? int64_t{-1} : bytes; };
  pybind11::dict result;
  result["PYTORCH_CUDA_ALLOC_CONF"] = settings.text;
  result["max_split_size"] = or_minus_one(settings.max_split_bytes);
  result["garbage_collection_threshold"] = settings.garbage_collection_threshold;
  result["expandable_segments"] = settings.expandable_segments;
  result["pinned_num_register_threads"] = settings.pinned_num_register_threads;
  result["release_lock_on_cudamalloc"] = settings.release_lock_on_cudamalloc;
  result["pinned_use_cuda_host_register"] = settings.pinned_use_cuda_host_register;
  result["graph_capture_record_stream_reuse"] = settings.graph_capture_record_stream_reuse;
  result["max_round_threshold"] = or_minus_one(settings.pinned_max_round_threshold_bytes);
  result["max_cached_size"] = or_minus_one(settings.pinned_max_cached_bytes);
  pybind11::dict roundup;
  for (size_t i = 0; i < AllocatorSettings::kRoundupIntervals; ++i) {
    roundup[pybind11::str(std::to_string(int64_t{1} << i))] = settings.roundup_power2_divisions[i];
  }
  result["roundup_power2_divisions"] = roundup;
  return result;
}

// torch._C._cuda_memorySnapshot(...). Traces are empty: Maya keeps its own record of every event.
inline pybind11::dict snapshot_to_python(const std::vector<CachingAllocator*>& devices,
                                         const AllocatorSettings& settings, PoolId pool = kEveryPool) {
  pybind11::list segments, traces;
  for (CachingAllocator* device : devices) {
    if (device == nullptr) continue;
    for (const SegmentView& segment : device->snapshot(pool)) segments.append(segment_to_python(segment));
    traces.append(pybind11::list());
  }
  pybind11::dict result;
  result["segments"] = segments;
  result["device_traces"] = traces;
  result["allocator_settings"] = settings_to_python(settings);
  result["external_annotations"] = pybind11::list();
  return result;
}

}  // namespace maya
