// cuBLAS workspaces: the first product on a (thread's handle, stream) takes one from the caching
// allocator and keeps it.
#pragma once
#include <map>
#include <mutex>

#include "../device/device_allocator.h"
#include "../memory/workspaces.h"

namespace maya {

class CublasWorkspaces {
 public:
  static CublasWorkspaces& instance() {
    static auto* workspaces = new CublasWorkspaces;
    return *workspaces;
  }
  void ensure(int device, int64_t stream) {
    thread_local int last_device = -1;
    thread_local int64_t last_stream = -1;
    thread_local uint64_t last_generation = 0;
    if (device == last_device && stream == last_stream && generation_ == last_generation) return;
    last_device = device, last_stream = stream, last_generation = generation_;
    int32_t thread = Attribution::instance().thread().host_thread;
    std::lock_guard<std::mutex> lock(mutex_);
    auto& held = held_[{thread, device, stream}];
    if (held.get()) return;
    static const auto bytes = cublas_workspace_bytes(machine().capability_major, machine().capability_minor);
    if (bytes > 0) held = allocate_device_memory(static_cast<size_t>(bytes), device);
  }
  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    held_.clear();
    ++generation_;
  }

  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
  std::atomic<uint64_t> generation_{1};
  std::map<std::tuple<int32_t, int, int64_t>, c10::DataPtr> held_;
};

}  // namespace maya
