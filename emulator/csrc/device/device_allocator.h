// The c10::DeviceAllocator that PyTorch asks for CUDA memory: the caching-allocator model behind
// it decides addresses, statistics and out-of-memory.
#pragma once
#include <c10/core/Allocator.h>

#include "device_allocators.h"

namespace maya {

inline void delete_device_block(void* context) {
  auto* owned = static_cast<DeviceBlock*>(context);
  if (owned->block) DeviceAllocators::instance().of(owned->device).free(owned->block);
  delete owned;
}

// The user's line whose allocation failed last, -1 if none did.
inline std::atomic<int32_t>& out_of_memory_line() {
  static auto* line = new std::atomic<int32_t>(-1);
  return *line;
}

inline c10::DataPtr allocate_device_memory(size_t bytes, int device) {
  auto owned = std::make_unique<DeviceBlock>();
  owned->device = device;
  void* pointer = nullptr;
  if (bytes == 0) owned->allocation_id = CachingAllocator::next_allocation_id();
  if (bytes > 0) {
    try {
      owned->block = DeviceAllocators::instance().of(device).allocate(static_cast<int64_t>(bytes), current_streams[device]);
    } catch (const OutOfMemory& error) {
      out_of_memory_line() = SourceLines::instance().current();
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
    }
    owned->allocation_id = owned->block->allocation_id;
    owned->block->owner = owned.get();
    pointer = reinterpret_cast<void*>(owned->block->address);
  }
  return {pointer, owned.release(), &delete_device_block, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))};
}

struct DeviceAllocator final : c10::DeviceAllocator {
  static DeviceAllocator& instance() {
    static auto* allocator = new DeviceAllocator;
    return *allocator;
  }
  c10::DataPtr allocate(size_t bytes) override { return allocate_device_memory(bytes, current_device_index); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "Maya: device memory holds no bytes, so it cannot be copied below the operators");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (int device = 0; device < machine().device_count; ++device) DeviceAllocators::instance().of(device).empty_cache();
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { DeviceGuard::record_stream_use(data, stream.id()); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override { DeviceAllocators::instance().of(resolve(device)).reset_accumulated_statistics(); }
  void resetPeakStats(c10::DeviceIndex device) override { DeviceAllocators::instance().of(resolve(device)).reset_peak_statistics(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    auto& allocator = DeviceAllocators::instance().of(resolve(device));
    return {static_cast<size_t>(allocator.device_free_bytes()), static_cast<size_t>(allocator.device_total_bytes())};
  }
};

inline void DeviceGuard::record_stream_use(const c10::DataPtr& data, int64_t stream) {
  if (auto* block = block_of(data); block && block->block)
    DeviceAllocators::instance().of(block->device).record_stream(block->block, stream);
}

inline c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex device) {
  const auto from = DeviceAllocators::instance().of(resolve(device)).statistics();
  c10::CachingDeviceAllocator::DeviceStats to;
  auto copy = [](auto& target, const auto& source) {
    for (size_t pool = 0; pool < 3; ++pool) {
      const auto& counter = source.by_kind[pool];
      target[pool].current = counter.current;
      target[pool].peak = counter.peak;
      target[pool].allocated = counter.allocated;
      target[pool].freed = counter.freed;
    }
  };
  copy(to.allocation, from.allocation);
  copy(to.segment, from.segment);
  copy(to.active, from.active);
  copy(to.inactive_split, from.inactive_split);
  copy(to.allocated_bytes, from.allocated_bytes);
  copy(to.reserved_bytes, from.reserved_bytes);
  copy(to.active_bytes, from.active_bytes);
  copy(to.inactive_split_bytes, from.inactive_split_bytes);
  copy(to.requested_bytes, from.requested_bytes);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  return to;
}

}  // namespace maya
