// The counters behind torch.cuda.memory_stats(), kept as PyTorch keeps them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "allocator_settings.h"

namespace maya {

// A private pool's name: {0, n} for a MemPool the user made, {n, 0} for a CUDA graph's own.
using PoolId = std::pair<uint64_t, uint64_t>;
inline constexpr PoolId kEveryPool{0, 0};

struct Counter {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;  // sum of all increases
  int64_t freed = 0;      // sum of all decreases

  void increase(int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    allocated += amount;
  }
  void decrease(int64_t amount) {
    current -= amount;
    freed += amount;
  }
  void change(int64_t amount) { amount >= 0 ? increase(amount) : decrease(-amount); }
  void reset_accumulated() { allocated = freed = 0; }
  void reset_peak() { peak = current; }
};

// One counter over all pools and one per kind of pool.
struct PoolCounters {
  enum Kind : int { kAll = 0, kSmallPool = 1, kLargePool = 2 };
  std::array<Counter, 3> by_kind;

  void increase(Kind kind, int64_t amount) {
    by_kind[kAll].increase(amount);
    by_kind[kind].increase(amount);
  }
  void decrease(Kind kind, int64_t amount) {
    by_kind[kAll].decrease(amount);
    by_kind[kind].decrease(amount);
  }
  void change(Kind kind, int64_t amount) { amount >= 0 ? increase(kind, amount) : decrease(kind, -amount); }
  const Counter& all() const { return by_kind[kAll]; }
};

struct MemoryStatistics {
  PoolCounters allocation;      // requests
  PoolCounters segment;         // cudaMalloc'ed regions
  PoolCounters active;          // blocks in use, by the program or by another stream's pending work
  PoolCounters inactive_split;  // free pieces of a segment that is partly in use
  PoolCounters allocated_bytes;
  PoolCounters reserved_bytes;
  PoolCounters active_bytes;
  PoolCounters inactive_split_bytes;
  PoolCounters requested_bytes;
  std::map<PoolId, PoolCounters> reserved_bytes_by_private_pools;
  Counter oversize_allocations;
  Counter oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  int64_t num_oom_rejections = 0;
  int64_t max_split_size = -1;  // as set at start; -1: no limit, which is how PyTorch's size_t prints

  void reset_accumulated() {
    for_each([](Counter& counter) { counter.reset_accumulated(); });
    num_alloc_retries = num_ooms = num_sync_all_streams = 0;
    num_device_alloc = num_device_free = num_oom_rejections = 0;
  }
  void reset_peak() {
    for_each([](Counter& counter) { counter.reset_peak(); });
  }

 private:
  template <typename Function>
  void for_each(Function&& function) {
    for (PoolCounters* counters : {&allocation, &segment, &active, &inactive_split, &allocated_bytes,
                                   &reserved_bytes, &active_bytes, &inactive_split_bytes, &requested_bytes}) {
      for (Counter& counter : counters->by_kind) function(counter);
    }
    for (auto& [pool, counters] : reserved_bytes_by_private_pools) {
      for (Counter& counter : counters.by_kind) function(counter);
    }
    function(oversize_allocations);
    function(oversize_segments);
  }
};

}  // namespace maya
