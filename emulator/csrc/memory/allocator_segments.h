// CachingAllocator: taking segments from the driver and giving them back.
// Included by caching_allocator.h only.
#pragma once

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

namespace maya {

inline void CachingAllocator::change_reserved(BlockPool& pool, int64_t bytes) {
  reserved_bytes_ += bytes;
  statistics_.reserved_bytes.change(pool.kind(), bytes);
  if (pool.owner != nullptr) {
    pool.owner->reserved_bytes += bytes;
    statistics_.reserved_bytes_by_private_pools[pool.owner->id].change(pool.kind(), bytes);
  }
}

// A new segment, or a longer expandable one. False where cudaMalloc would fail.
inline bool CachingAllocator::grow(Request& request, bool retry) {
  if (retry) statistics_.num_alloc_retries += 1;
  if (allowed_bytes_ >= 0 && reserved_bytes_ + request.segment_bytes > allowed_bytes_) return false;
  if (settings_.throw_on_cudamalloc_oom) {
    auto limit = static_cast<int64_t>(settings_.per_process_memory_fraction *
                                      static_cast<double>(memory_.total_bytes()));
    if (!memory_.unlimited() && reserved_bytes_ + request.segment_bytes > limit) {
      statistics_.num_oom_rejections += 1;
      request.rejected = true;
      return false;
    }
  }
  if (settings_.expandable_segments) {
    request.block = grow_expandable(request);
    return request.block != nullptr;
  }
  if (!memory_.take(request.segment_bytes)) return false;
  uint64_t address = addresses_of(*request.pool).reserve(static_cast<uint64_t>(request.segment_bytes));
  if (address == 0) {
    memory_.give_back(request.segment_bytes);
    if (!memory_.unlimited()) return false;
    throw std::runtime_error("emulator: the address space of cuda:" + std::to_string(device_) + " is full (" +
                             format_bytes(statistics_.reserved_bytes.all().current) + " reserved)");
  }
  adopt(request, address);
  return true;
}

inline void CachingAllocator::adopt(Request& request, uint64_t address) {
  BlockPool& pool = *request.pool;
  Block* block = store_.take();
  block->device = device_;
  block->stream = request.stream;
  block->size_bytes = request.segment_bytes;
  block->address = address;
  block->pool = &pool;
  statistics_.segment.increase(pool.kind(), 1);
  change_reserved(pool, block->size_bytes);
  if (block->size_bytes >= settings_.max_split_bytes) statistics_.oversize_segments.increase(1);
  statistics_.num_device_alloc += 1;
  tell(MemoryAction::kSegmentAllocate, block, block->size_bytes, address);
  request.block = block;
}

// Frees blocks that max_split_size_mb keeps whole, only as many as the request needs.
inline bool CachingAllocator::release_oversize_blocks(const Request& request) {
  if (settings_.max_split_bytes == kNoLimit) return false;
  BlockPool& pool = *request.pool;
  int64_t wanted = std::max(request.size_bytes, settings_.max_split_bytes);
  auto it = pool.free.lower_bound({request.stream, wanted, 0, nullptr});
  if (it != pool.free.end() && it->stream == request.stream) {
    Block* block = it->block;
    if (block->expandable != nullptr || block->is_split()) return false;
    release_segment(block);
    return true;
  }
  // No single block suffices: several, the largest first.
  int64_t released = 0;
  while (released < wanted && it != pool.free.begin()) {
    auto largest = std::prev(it);
    Block* block = largest->block;
    if (block->stream != request.stream || block->size_bytes < settings_.max_split_bytes) break;
    if (block->expandable != nullptr || block->is_split()) {
      it = largest;
      continue;
    }
    released += block->size_bytes;
    release_segment(block);  // `it` lies beyond and stays valid
  }
  return released >= wanted;
}

// Gives back everything cached that is not part of a segment in use.
inline bool CachingAllocator::release_cached_blocks(PoolId only) {
  if (only == kEveryPool && !capturing()) {
    wait_for_streams(nullptr);
    release_free_blocks(large_);
    release_free_blocks(small_);
  }
  for (auto it = releasable_pools_.begin(); it != releasable_pools_.end();) {
    PrivatePool& pool = private_pool(*it);
    if (only != kEveryPool) {
      if (*it != only) {
        ++it;
        continue;
      }
      if (!capturing()) wait_for_streams(&pool);
    }
    release_free_blocks(pool.small);
    release_free_blocks(pool.large);
    if (pool.reserved_bytes == 0) {
      // A segment whose first page could not be had is left without memory, hence unseen above.
      for (BlockPool* blocks : {&pool.small, &pool.large}) {
        while (!blocks->unmapped.empty()) release_expandable(blocks->unmapped.begin()->block);
      }
      pools_of_last_resort_.erase(*it);
      pools_.erase(*it);
      it = releasable_pools_.erase(it);
    } else {
      ++it;
    }
  }
  return true;
}

inline void CachingAllocator::release_free_blocks(BlockPool& pool) {
  std::vector<Block*> expandable;  // unmapping changes the set under the loop
  for (auto it = pool.free.begin(); it != pool.free.end();) {
    Block* block = (it++)->block;
    if (block->expandable != nullptr) {
      expandable.push_back(block);
    } else if (!block->is_split()) {
      release_segment(block);
    }
  }
  for (Block* block : expandable) {
    unmap_block(block);
    if (!block->is_split()) release_expandable(block);
  }
}

inline void CachingAllocator::release_segment(Block* block) {
  BlockPool& pool = *block->pool;
  pool.remove(block);
  if (clock_ != nullptr) clock_->synchronize_device(device_);
  memory_.give_back(block->size_bytes);
  addresses_of(pool).release(block->address, static_cast<uint64_t>(block->size_bytes));
  statistics_.num_device_free += 1;
  statistics_.segment.decrease(pool.kind(), 1);
  change_reserved(pool, -block->size_bytes);
  if (block->size_bytes >= settings_.max_split_bytes) statistics_.oversize_segments.decrease(1);
  tell(MemoryAction::kSegmentFree, block, block->size_bytes, block->address);
  store_.put_back(block);
}

// Past the threshold, segments that went unused for longer than average are given back.
inline void CachingAllocator::collect_garbage() {
  auto threshold =
      static_cast<int64_t>(settings_.garbage_collection_threshold * static_cast<double>(allowed_bytes_));
  if (reserved_bytes_ <= threshold) return;
  int64_t target = reserved_bytes_ - threshold;
  auto collectable = [](const Block* block) { return !block->is_split() && block->expandable == nullptr; };
  int64_t ages = 0, candidates = 0;
  for (const FreeBlockKey& key : large_.free) {
    if (!collectable(key.block)) continue;
    ages += large_.age(key.block);
    ++candidates;
  }
  int64_t released = 0;
  bool progress = true;
  while (released < target && progress && candidates > 0) {
    double average = static_cast<double>(ages) / static_cast<double>(candidates);
    progress = false;
    // All blocks past the average go, even beyond the target, so that collections stay rare.
    for (auto it = large_.free.begin(); it != large_.free.end();) {
      Block* block = (it++)->block;
      int64_t age = large_.age(block);
      if (!collectable(block) || static_cast<double>(age) < average) continue;
      progress = true;
      released += block->size_bytes;
      ages -= age;
      --candidates;
      release_segment(block);
    }
  }
}

}  // namespace maya
