// The memory of one device below the caching allocator: how many bytes are left, and which
// addresses are taken. Bytes and addresses are apart because an expandable segment reserves far
// more addresses than it ever backs with memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>

namespace maya {

// What the driver could hand out. Not thread-safe; the allocator's mutex protects it.
class DeviceMemory {
 public:
  static constexpr int64_t kPageBytes = int64_t{2} << 20;  // granularity of cudaMalloc and cuMemCreate

  // total_bytes: as cudaGetDeviceProperties reports. context_bytes: what CUDA and its libraries hold
  // once the device is in use. unlimited: every request succeeds (total_bytes is still reported).
  DeviceMemory(int64_t total_bytes, int64_t context_bytes, bool unlimited)
      : total_bytes_(total_bytes), context_bytes_(context_bytes), unlimited_(unlimited) {
    if (total_bytes <= 0 || context_bytes < 0 || context_bytes > total_bytes) {
      throw std::invalid_argument("device memory: 0 <= context bytes <= total bytes must hold, got " +
                                  std::to_string(context_bytes) + " and " + std::to_string(total_bytes));
    }
  }

  // False: cudaErrorMemoryAllocation.
  bool take(int64_t bytes) {
    bytes = pages(bytes);
    if (!unlimited_ && bytes > free_bytes()) return false;
    used_bytes_ += bytes;
    return true;
  }
  void give_back(int64_t bytes) { used_bytes_ -= pages(bytes); }

  // Memory that libraries allocate past PyTorch (NCCL's buffers, say).
  bool take_outside(int64_t bytes) {
    if (!take(bytes)) return false;
    outside_bytes_ += pages(bytes);
    return true;
  }
  void give_back_outside(int64_t bytes) {
    give_back(bytes);
    outside_bytes_ -= pages(bytes);
  }

  int64_t total_bytes() const { return total_bytes_; }
  int64_t context_bytes() const { return context_bytes_; }
  int64_t outside_bytes() const { return outside_bytes_; }
  bool unlimited() const { return unlimited_; }
  int64_t free_bytes() const { return std::max<int64_t>(0, total_bytes_ - context_bytes_ - used_bytes_); }
  // What nvidia-smi would show for this process.
  int64_t process_bytes() const { return context_bytes_ + used_bytes_; }

 private:
  static int64_t pages(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

  int64_t total_bytes_;
  int64_t context_bytes_;
  int64_t used_bytes_ = 0;
  int64_t outside_bytes_ = 0;
  bool unlimited_;
};

struct AddressRange {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

// Hands out 2 MiB-aligned address ranges: the lowest released one that fits, else fresh addresses.
// Neighbouring released ranges become one, so that the space never fragments for good.
class AddressSpace {
 public:
  static constexpr uint64_t kAlignment = uint64_t{2} << 20;

  explicit AddressSpace(AddressRange range)
      : begin_(align(range.begin)), end_((range.begin + range.bytes) / kAlignment * kAlignment), top_(begin_) {
    if (range.begin == 0 || end_ <= begin_) {
      throw std::invalid_argument("address space: needs a base other than 0 and at least 2 MiB");
    }
  }

  // 0: no room.
  uint64_t reserve(uint64_t bytes) {
    bytes = align(bytes);
    for (auto it = released_.begin(); it != released_.end(); ++it) {
      if (it->second < bytes) continue;
      uint64_t address = it->first;
      uint64_t left = it->second - bytes;
      released_.erase(it);
      if (left > 0) released_.emplace(address + bytes, left);
      return address;
    }
    if (end_ - top_ < bytes) return 0;
    uint64_t address = top_;
    top_ += bytes;
    return address;
  }

  void release(uint64_t address, uint64_t bytes) {
    bytes = align(bytes);
    auto next = released_.lower_bound(address);
    if (next != released_.end() && address + bytes == next->first) {
      bytes += next->second;
      next = released_.erase(next);
    }
    if (next != released_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == address) {
        address = before->first;
        bytes += before->second;
        released_.erase(before);
      }
    }
    if (address + bytes == top_) {
      top_ = address;
    } else {
      released_.emplace(address, bytes);
    }
  }

  bool contains(uint64_t address) const { return address >= begin_ && address < end_; }

 private:
  static uint64_t align(uint64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

  uint64_t begin_;
  uint64_t end_;
  uint64_t top_;
  std::map<uint64_t, uint64_t> released_;  // address -> bytes
};

}  // namespace maya
