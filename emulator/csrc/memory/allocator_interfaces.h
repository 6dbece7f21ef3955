// What the caching allocator needs from, and tells, the rest of the backend.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "memory_statistics.h"

namespace maya {

// Same numbers as maya.traces.operations.MemoryAction.
enum class MemoryAction : uint8_t {
  kAllocate = 0,
  kFree = 1,
  kReclaim = 2,
  kSegmentAllocate = 3,
  kSegmentFree = 4,
  kOutOfMemory = 5,
};

struct AllocatorEvent {
  MemoryAction action;
  bool small_pool;
  bool expandable;       // of a segment event: mapping or unmapping of a part
  int16_t device;
  int64_t allocation_id; // -1 for segments and failures
  uint64_t address;      // 0 for a failure
  int64_t size_bytes;    // after rounding
  int64_t requested_bytes;
  int64_t stream;
};

// Called with the allocator's mutex held: must not call the allocator, nor take the GIL.
class AllocatorEvents {
 public:
  virtual ~AllocatorEvents() = default;
  virtual void on_event(const AllocatorEvent& event) = 0;
};

// The time the script sees. Without one, work on other streams counts as finished at once.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual int64_t host_now_ns(int device) = 0;
  // When everything issued to the stream so far will have finished.
  virtual int64_t stream_ready_ns(int device, int64_t stream) = 0;
  // The host sleeps until then (cudaEventSynchronize).
  virtual void wait_host_until_ns(int device, int64_t time_ns) = 0;
  // cudaFree and cuMemUnmap wait for the device.
  virtual void synchronize_device(int device) = 0;
};

inline std::string format_bytes(int64_t bytes) {
  std::ostringstream text;
  text.precision(2);
  text << std::fixed;
  double size = static_cast<double>(bytes);
  if (bytes <= 1024) {
    text << bytes << " bytes";
  } else if (bytes <= kMebibyte) {
    text << size / 1024.0 << " KiB";
  } else if (bytes <= 1024 * kMebibyte) {
    text << size / 1048576.0 << " MiB";
  } else {
    text << size / 1073741824.0 << " GiB";
  }
  return text.str();
}

struct OutOfMemoryFigures {
  int device = 0;
  int64_t stream = 0;
  int64_t requested_bytes = 0;  // by the caller
  int64_t segment_bytes = 0;    // what the driver was asked for: the size in the message
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  int64_t process_bytes = 0;    // including the CUDA context
  int64_t allowed_bytes = -1;   // limit of set_per_process_memory_fraction, -1: none
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t private_pool_bytes = 0;
  bool rejected = false;        // throw_on_cudamalloc_oom
};

// To be rethrown as c10::OutOfMemoryError with what() as its message.
class OutOfMemory : public std::runtime_error {
 public:
  explicit OutOfMemory(const OutOfMemoryFigures& figures)
      : std::runtime_error(describe(figures)), figures(figures) {}
  OutOfMemory(const OutOfMemoryFigures& figures, const std::string& message)
      : std::runtime_error(message), figures(figures) {}

  OutOfMemoryFigures figures;

 private:
  // PyTorch's sentence, so that scripts and people that look for its parts find them
  // (torch 2.14.1, strings of libc10_cuda.so; unchanged in the sources around 2.13).
  static std::string describe(const OutOfMemoryFigures& f) {
    if (f.rejected) {
      return "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
             "per_process_memory_fraction limit. Requested size: " +
             format_bytes(f.requested_bytes);
    }
    std::string text = "CUDA out of memory. Tried to allocate " + format_bytes(f.segment_bytes) + ". GPU " +
                       std::to_string(f.device) + " has a total capacity of " + format_bytes(f.total_bytes) +
                       " of which " + format_bytes(f.free_bytes) + " is free. " +
                       "Including non-PyTorch memory, this process has " + format_bytes(f.process_bytes) +
                       " memory in use. ";
    if (f.allowed_bytes >= 0) text += format_bytes(f.allowed_bytes) + " allowed; ";
    int64_t in_use = f.allocated_bytes + f.private_pool_bytes;
    text += "Of the allocated memory " + format_bytes(in_use) + " is allocated by PyTorch, ";
    if (f.private_pool_bytes > 0) {
      text += "with " + format_bytes(f.private_pool_bytes) + " allocated in private pools (e.g., CUDA Graphs), ";
    }
    text += "and " + format_bytes(f.reserved_bytes - in_use) + " is reserved by PyTorch but unallocated.";
    text += " If reserved but unallocated memory is large try setting"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
            "  See documentation for Memory Management "
            " (https://docs.pytorch.org/docs/stable/notes/cuda.html"
            "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
    return text;
  }
};

}  // namespace maya
