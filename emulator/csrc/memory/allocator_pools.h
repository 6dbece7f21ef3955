// CachingAllocator: private pools, limits, statistics and snapshots.
// Included by caching_allocator.h only.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace maya {

// The filter of torch.cuda.use_mem_pool: only this thread's allocations go to the pool.
inline PoolFilter this_thread_only() {
  return [thread = std::this_thread::get_id()](int64_t) { return std::this_thread::get_id() == thread; };
}

inline PrivatePool& CachingAllocator::private_pool(PoolId id) {
  auto found = pools_.find(id);
  if (found == pools_.end()) throw std::runtime_error("Could not find pool of id");
  return *found->second;
}

inline void CachingAllocator::create_or_retain_pool(PoolId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = pools_.find(id);
  if (found == pools_.end()) {
    pools_.emplace(id, std::make_unique<PrivatePool>(id));
  } else {
    // A pool given up but not yet emptied comes back to life.
    if (found->second->use_count++ == 0) releasable_pools_.erase(id);
  }
}

inline void CachingAllocator::begin_allocate_to_pool(PoolId id, PoolFilter filter) {
  create_or_retain_pool(id);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [routed, unused] : routes_) {
    if (routed == id) throw std::runtime_error("beginAllocateToPool: already recording to mempool_id");
  }
  routes_.emplace_back(id, std::move(filter));
}

inline void CachingAllocator::end_allocate_to_pool(PoolId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = std::find_if(routes_.begin(), routes_.end(), [id](auto& route) { return route.first == id; });
  if (found == routes_.end()) {
    throw std::runtime_error("endAllocatePool: not currently recording to mempool_id");
  }
  routes_.erase(found);
}

// The pool's memory goes back once nobody uses the pool and its blocks are free (empty_cache).
inline void CachingAllocator::release_pool(PoolId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  PrivatePool& pool = private_pool(id);
  if (pool.use_count <= 0) throw std::runtime_error("releasePool: the pool has no user left");
  if (--pool.use_count == 0) releasable_pools_.insert(id);
}

inline int CachingAllocator::pool_use_count(PoolId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = pools_.find(id);
  return found == pools_.end() ? 0 : found->second->use_count;
}

inline void CachingAllocator::set_pool_use_on_oom(PoolId id, bool use_on_oom) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (use_on_oom) {
    pools_of_last_resort_.insert(id);
  } else {
    pools_of_last_resort_.erase(id);
  }
}

inline void CachingAllocator::set_pool_no_split(PoolId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  private_pool(id).no_split = true;
}

inline void CachingAllocator::mark_capture_begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++active_captures_;
}

inline void CachingAllocator::mark_capture_end() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (active_captures_ == 0) throw std::runtime_error("markCaptureEnd called with no captures in progress");
  --active_captures_;
}

inline void CachingAllocator::empty_cache(PoolId pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  release_cached_blocks(pool);
}

inline int64_t CachingAllocator::largest_free_block(int64_t largest) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (largest == 0) largest = memory_.free_bytes();
  auto look = [&](const BlockPool& pool) {
    for (const FreeBlockKey& key : pool.free) largest = std::max(largest, key.size_bytes);
  };
  look(large_);
  look(small_);
  for (auto& [id, pool] : pools_) {
    look(pool->large);
    look(pool->small);
  }
  return largest;
}

inline void CachingAllocator::set_memory_fraction(double fraction) {
  std::lock_guard<std::mutex> lock(mutex_);
  allowed_bytes_ =
      fraction < 1.0 ? static_cast<int64_t>(fraction * static_cast<double>(memory_.total_bytes())) : -1;
}

inline double CachingAllocator::memory_fraction() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (allowed_bytes_ < 0) return 1.0;
  return static_cast<double>(allowed_bytes_) / static_cast<double>(memory_.total_bytes());
}

inline int64_t CachingAllocator::device_free_bytes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return memory_.free_bytes();
}

inline bool CachingAllocator::take_outside(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  return memory_.take_outside(bytes);
}

inline void CachingAllocator::give_back_outside(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  memory_.give_back_outside(bytes);
}

inline MemoryStatistics CachingAllocator::statistics() {
  std::lock_guard<std::mutex> lock(mutex_);
  return statistics_;
}

inline void CachingAllocator::reset_peak_statistics() {
  std::lock_guard<std::mutex> lock(mutex_);
  statistics_.reset_peak();
}

inline void CachingAllocator::reset_accumulated_statistics() {
  std::lock_guard<std::mutex> lock(mutex_);
  statistics_.reset_accumulated();
}

inline Block* CachingAllocator::find(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Block* block = active_.first(); block != nullptr; block = block->next_active) {
    if (block->allocated && block->address == address) return block;
  }
  return nullptr;
}

inline BlockView view_of(const Block* block) {
  BlockState state = BlockState::kInactive;
  if (block->allocated) {
    state = BlockState::kAllocated;
  } else if (block->awaits_streams()) {
    state = BlockState::kAwaitingFree;
  }
  return {block->address, block->size_bytes, block->requested_bytes, block->stream,
          state == BlockState::kInactive ? -1 : block->allocation_id, state, block->owner};
}

inline std::vector<BlockView> CachingAllocator::allocated_blocks() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<BlockView> blocks;
  for (Block* block = active_.first(); block != nullptr; block = block->next_active) {
    if (block->allocated) blocks.push_back(view_of(block));
  }
  std::sort(blocks.begin(), blocks.end(), [](auto& a, auto& b) { return a.address < b.address; });
  return blocks;
}

inline std::vector<SegmentView> CachingAllocator::snapshot(PoolId only) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const Block*> heads;
  auto consider = [&](const Block* block) {
    // An expandable segment counts once for every unbroken run of mapped memory.
    if (block->previous == nullptr || !block->previous->mapped) heads.push_back(block);
  };
  auto look = [&](const BlockPool& pool) {
    for (const FreeBlockKey& key : pool.free) consider(key.block);
  };
  look(small_);
  look(large_);
  for (auto& [id, pool] : pools_) {
    look(pool->small);
    look(pool->large);
  }
  for (const Block* block = active_.first(); block != nullptr; block = block->next_active) consider(block);
  std::sort(heads.begin(), heads.end(), [](auto* a, auto* b) { return a->address < b->address; });

  std::vector<SegmentView> segments;
  for (const Block* head : heads) {
    PoolId id = head->pool->owner != nullptr ? head->pool->owner->id : PoolId{0, 0};
    if (only != kEveryPool && id != only) continue;
    SegmentView& segment = segments.emplace_back();
    segment.device = device_;
    segment.address = head->address;
    segment.stream = head->stream;
    segment.is_large = !head->pool->is_small;
    segment.is_expandable = head->expandable != nullptr;
    segment.pool = id;
    for (const Block* block = head; block != nullptr && block->mapped; block = block->next) {
      const BlockView& view = segment.blocks.emplace_back(view_of(block));
      segment.total_bytes += view.size_bytes;
      if (view.state == BlockState::kAllocated) segment.allocated_bytes += view.size_bytes;
      if (view.state != BlockState::kInactive) {
        segment.active_bytes += view.size_bytes;
        segment.requested_bytes += view.requested_bytes;
      }
    }
  }
  return segments;
}

}  // namespace maya
