// Device memory: address space only. Nothing at these addresses can be read or written; the values
// of small tensors live beside the block (values/value_state.h).
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>
#include <sys/mman.h>

#include <memory>
#include <mutex>
#include <vector>

#include "../memory/caching_allocator.h"
#include "../recording/recorder.h"
#include "devices.h"
#include "guard.h"

namespace maya {

enum class ValueState : uint8_t {
  Unknown,   // some plausible numbers; reading them asks the value policy
  Constant,  // every element is `constant`
  Known,     // the bytes are in `values`
};

// The context of every device DataPtr.
struct DeviceBlock {
  Block* block = nullptr;  // null for a storage of no bytes
  int device = 0;
  int64_t allocation_id = -1;
  std::atomic<ValueState> state = ValueState::Unknown;
  c10::ScalarType constant_type = c10::ScalarType::Byte;
  double constant = 0;
  int32_t producer = -1;  // operator that wrote the unknown value
  c10::intrusive_ptr<c10::StorageImpl> values;
};

inline void delete_device_block(void* context);

inline DeviceBlock* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &delete_device_block ? static_cast<DeviceBlock*>(data.get_context()) : nullptr;
}

// The block that begins where `data` points though another owner holds the pointer: from_blob and
// DLPack, by which PyTorch pickles storages and libraries exchange tensors. Null for host memory.
inline DeviceBlock* block_at(const c10::DataPtr& data);

// Hands the caching allocator's events to the recorder.
struct RecordingObserver final : AllocatorEvents {
  void on_event(const AllocatorEvent& event) override {
    MemoryEvent row;
    row.allocation = event.allocation_id;
    row.address = static_cast<int64_t>(event.address);
    row.size_bytes = event.size_bytes;
    row.requested_bytes = event.requested_bytes;
    row.stream = event.stream;
    row.device = event.device;
    row.action = static_cast<uint8_t>(event.action);
    Recorder::instance().record_memory(row);
  }
};

struct RecordingClock final : DeviceClock {
  int64_t host_now_ns(int) override {
    return Recorder::instance().with_clock([](Clock& clock) { return clock.host_now_ns; });
  }
  int64_t stream_ready_ns(int device, int64_t stream) override {
    return Recorder::instance().with_clock([&](Clock& clock) { return clock.stream_ready_ns(device, stream); });
  }
  void wait_host_until_ns(int, int64_t time_ns) override {
    Recorder::instance().with_clock([&](Clock& clock) { clock.host_waits(time_ns); });
  }
  void synchronize_device(int device) override {
    Recorder::instance().with_clock([&](Clock& clock) { clock.host_waits(clock.device_ready_ns(device)); });
  }
};

class DeviceAllocators {
 public:
  static DeviceAllocators& instance() {
    static auto* memory = new DeviceAllocators;
    return *memory;
  }

  // Reserves the address space and makes one caching allocator a device.
  void configure() {
    int count = machine().device_count;
    // 8 TiB a device keeps terabyte models apart; more devices share what x86-64 user space gives.
    slice_bytes_ = std::min<uint64_t>(8ull << 40, (64ull << 40) / static_cast<uint64_t>(count));
    // The same addresses in every run, where they are free: scripts can sort by data_ptr(), and logs compare.
    void* const wish = reinterpret_cast<void*>(16ull << 40);
    void* base = mmap(wish, slice_bytes_ * count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(base != MAP_FAILED, "Maya could not reserve ", (slice_bytes_ * count) >> 40,
                " TiB of address space for device memory; is an address-space limit (ulimit -v) set?");
    base_ = reinterpret_cast<uint64_t>(base);
    settings_.parse(AllocatorSettings::environment());
    for (int device = 0; device < count; ++device) {
      DeviceMemoryLayout layout;
      layout.total_bytes = machine().total_memory_bytes;
      layout.context_bytes = std::min(machine().context_bytes, layout.total_bytes);
      layout.unlimited = machine().unlimited_memory;
      layout.addresses = {base_ + slice_bytes_ * device, slice_bytes_};
      allocators_.push_back(std::make_unique<CachingAllocator>(device, layout, settings_, &clock_, &observer_));
    }
  }

  CachingAllocator& of(int device) {
    check_ordinal(device);
    return *allocators_.at(device);
  }
  AllocatorSettings& settings() { return settings_; }
  int device_count() const { return static_cast<int>(allocators_.size()); }
  int device_at(const void* pointer) const {
    auto address = reinterpret_cast<uint64_t>(pointer);
    if (address < base_ || address >= base_ + slice_bytes_ * allocators_.size()) return -1;
    return static_cast<int>((address - base_) / slice_bytes_);
  }

 private:
  uint64_t base_ = 0;
  uint64_t slice_bytes_ = 0;
  AllocatorSettings settings_;
  RecordingObserver observer_;
  RecordingClock clock_;
  std::vector<std::unique_ptr<CachingAllocator>> allocators_;
};

inline DeviceBlock* block_at(const c10::DataPtr& data) {
  if (!data.get() || !data.device().is_cuda()) return nullptr;
  int device = DeviceAllocators::instance().device_at(data.get());
  if (device < 0) return nullptr;
  auto* block = DeviceAllocators::instance().of(device).find(reinterpret_cast<uint64_t>(data.get()));
  return block ? static_cast<DeviceBlock*>(block->owner) : nullptr;
}

}  // namespace maya
