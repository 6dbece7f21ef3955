// What the emulated machine is, and which device and stream each thread has made current.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace maya {

constexpr int kMaxDevices = 64;

struct MachineConfig {
  int device_count = 1;
  int64_t total_memory_bytes = 0;    // as cudaMemGetInfo's total
  int64_t context_bytes = 0;         // CUDA context and libraries, not PyTorch's
  bool unlimited_memory = false;     // allocations never fail
  int capability_major = 9;
  int capability_minor = 0;
  int64_t cudnn_version = 91002;
  int64_t cuda_runtime_version = 12080;
};

inline MachineConfig& machine() {
  static auto* config = new MachineConfig;
  return *config;
}

inline thread_local c10::DeviceIndex current_device_index = 0;
inline thread_local std::array<int64_t, kMaxDevices> current_streams{};

inline int resolve(c10::DeviceIndex index) { return index < 0 ? current_device_index : index; }

inline void check_ordinal(int index) {
  TORCH_CHECK(index >= 0 && index < machine().device_count,
              "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?");
}

inline void make_current(c10::DeviceIndex index) {
  if (index < 0) return;
  check_ordinal(index);
  current_device_index = index;
}

struct DeviceScope {  // makes a device current for a scope; a negative index changes nothing
  explicit DeviceScope(int index) : previous(current_device_index) {
    if (index >= 0) current_device_index = static_cast<c10::DeviceIndex>(index);
  }
  ~DeviceScope() { current_device_index = previous; }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  c10::DeviceIndex previous;
};

// Streams: like PyTorch's, handed out round-robin from one pool of 32 for each priority, so ids
// repeat after 32 requests. Id 0 is the default stream; ids from kExternalStream on wrap a
// foreign cudaStream_t.
constexpr int64_t kStreamsPerPool = 32;
constexpr int kPriorities = 6;  // 0 (normal) down to -5, CUDA's range on current GPUs
constexpr int64_t kExternalStream = 1 << 20;

inline int64_t next_pool_stream(int device, int priority) {
  static std::array<std::array<std::atomic<uint32_t>, kPriorities>, kMaxDevices> counters{};
  int level = std::min(std::max(-priority, 0), kPriorities - 1);
  uint32_t turn = counters[device][level]++ % kStreamsPerPool;
  return 1 + level * kStreamsPerPool + turn;
}

inline int stream_priority(int64_t stream) {
  if (stream <= 0 || stream >= kExternalStream) return 0;
  return -static_cast<int>((stream - 1) / kStreamsPerPool);
}

inline std::atomic<bool>& stream_capturing() {
  static auto* capturing = new std::atomic<bool>(false);
  return *capturing;
}

}  // namespace maya
