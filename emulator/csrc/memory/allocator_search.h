// CachingAllocator: finding a block for a request, splitting it, taking it back.
// Included by caching_allocator.h only.
#pragma once

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

namespace maya {

inline Block* CachingAllocator::allocate(int64_t requested_bytes, int64_t stream) {
  constexpr int64_t one_exabyte = int64_t{1} << 60;
  if (requested_bytes == 0) return nullptr;
  if (requested_bytes < 0) throw std::invalid_argument("allocate: negative size");
  std::unique_lock<std::mutex> lock(mutex_);
  if (requested_bytes > one_exabyte) {
    OutOfMemoryFigures figures;
    figures.device = device_;
    figures.requested_bytes = requested_bytes;
    throw OutOfMemory(figures, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  }
  if (!capturing() && (!pending_uses_.empty() || !deferred_.empty())) process_finished_streams();

  Request request{};
  request.requested_bytes = requested_bytes;
  request.size_bytes = settings_.round_size(requested_bytes);
  request.segment_bytes = settings_.segment_size(request.size_bytes);
  request.stream = stream;
  request.pool = &pool_for(request.size_bytes, stream);

  bool found = find_free_block(request);
  if (!found) {
    if (allowed_bytes_ >= 0 && settings_.garbage_collection_threshold > 0) collect_garbage();
    // Each step gives up more of the cache than the one before. A rejection ends the search at once.
    found = grow(request, false) ||
            (!request.rejected && (try_pools_of_last_resort(request) ||
                                   (release_oversize_blocks(request) && grow(request, false)) ||
                                   (!capturing() && release_cached_blocks(kEveryPool) && grow(request, true))));
  }
  if (!found) throw OutOfMemory(out_of_memory(request));
  return hand_out(request, should_split(request.block, request.size_bytes));
}

inline void CachingAllocator::free(Block* block) {
  if (block == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!block->allocated) throw std::logic_error("free: block is not allocated (freed twice?)");
  block->allocated = false;
  PoolCounters::Kind kind = block->pool->kind();
  statistics_.allocation.decrease(kind, 1);
  statistics_.allocated_bytes.decrease(kind, block->size_bytes);
  if (block->size_bytes >= settings_.max_split_bytes) statistics_.oversize_allocations.decrease(1);
  tell(MemoryAction::kFree, block, block->size_bytes, block->address);
  block->owner = nullptr;
  if (block->stream_uses.empty()) {
    return_to_pool(block);
  } else if (capturing()) {
    deferred_.push_back(block);  // events of a capture cannot be queried before it has ended
  } else {
    free_after_streams(block);
  }
}

inline BlockPool& CachingAllocator::pool_for(int64_t size_bytes, int64_t stream) {
  bool small = size_bytes <= kSmallRequestBytes;
  for (auto& [id, filter] : routes_) {
    if (!filter(stream)) continue;
    PrivatePool& pool = private_pool(id);
    return small ? pool.small : pool.large;
  }
  return small ? small_ : large_;
}

// Best fit among the stream's free blocks.
inline bool CachingAllocator::find_free_block(Request& request) {
  BlockPool& pool = *request.pool;
  if (allowed_bytes_ >= 0 && settings_.garbage_collection_threshold > 0) ++pool.searches;
  auto it = pool.free.lower_bound({request.stream, request.size_bytes, 0, nullptr});
  auto of_stream = [&](auto at) { return at != pool.free.end() && at->stream == request.stream; };
  if (!of_stream(it)) return false;
  if (it->block->expandable != nullptr) {
    if (settings_.expandable_segments) {
      // A block at the growing end of a segment counts as large as it could become: prefer a block
      // that would use up less, so that the end stays free to grow.
      auto reach = [](const Block* b) {
        return b->size_bytes + (b->next != nullptr && !b->next->mapped ? b->next->size_bytes : 0);
      };
      for (auto next = std::next(it);
           it->block->expandable != nullptr && of_stream(next) && reach(next->block) < reach(it->block);) {
        it = next++;
      }
    } else {
      // Expandable segments were switched off later (to share tensors between processes, say).
      do {
        ++it;
      } while (of_stream(it) && it->block->expandable != nullptr);
      if (!of_stream(it)) return false;
    }
  }
  // Blocks from max_split_size_mb on are never split: they serve large requests only, and only if
  // not too much is wasted.
  int64_t limit = settings_.max_split_bytes;
  if (request.size_bytes < limit && it->size_bytes >= limit) return false;
  if (request.size_bytes >= limit &&
      it->size_bytes >= request.size_bytes + settings_.max_non_split_rounding_bytes) {
    return false;
  }
  request.block = it->block;
  pool.remove(request.block);
  return true;
}

inline bool CachingAllocator::should_split(const Block* block, int64_t size_bytes) const {
  const BlockPool& pool = *block->pool;
  if (pool.owner != nullptr && pool.owner->no_split) return false;
  int64_t left = block->size_bytes - size_bytes;
  if (pool.is_small || settings_.expandable_segments) return left >= kSmallestBlockBytes;
  return size_bytes < settings_.max_split_bytes && left > kSmallRequestBytes;
}

inline Block* CachingAllocator::hand_out(const Request& request, bool split) {
  Block* block = request.block;
  BlockPool& pool = *request.pool;
  PoolCounters::Kind kind = pool.kind();
  bool was_split = block->is_split();
  bool counts_as_split = block->expandable == nullptr;  // pages of expandable segments can always go back
  if (split) {
    Block* rest = block;
    block = store_.take();
    block->device = device_;
    block->stream = request.stream;
    block->size_bytes = request.size_bytes;
    block->pool = &pool;
    block->address = rest->address;
    block->expandable = rest->expandable;
    block->link_between(rest->previous, rest);
    rest->address += static_cast<uint64_t>(request.size_bytes);
    rest->size_bytes -= request.size_bytes;
    pool.insert(rest);
    if (counts_as_split && was_split) {
      statistics_.inactive_split_bytes.decrease(kind, block->size_bytes);
    } else if (counts_as_split) {
      statistics_.inactive_split_bytes.increase(kind, rest->size_bytes);
      statistics_.inactive_split.increase(kind, 1);
    }
  } else if (counts_as_split && was_split) {
    statistics_.inactive_split_bytes.decrease(kind, block->size_bytes);
    statistics_.inactive_split.decrease(kind, 1);
  }
  block->allocated = true;
  block->requested_bytes = request.requested_bytes;
  block->allocation_id = next_allocation_id();
  active_.add(block);
  statistics_.allocation.increase(kind, 1);
  statistics_.allocated_bytes.increase(kind, block->size_bytes);
  statistics_.active.increase(kind, 1);
  statistics_.active_bytes.increase(kind, block->size_bytes);
  statistics_.requested_bytes.increase(kind, block->requested_bytes);
  if (block->size_bytes >= settings_.max_split_bytes) statistics_.oversize_allocations.increase(1);
  tell(MemoryAction::kAllocate, block, block->size_bytes, block->address);
  return block;
}

// The block is free for reuse: joins its free neighbours and goes back to its pool.
inline void CachingAllocator::return_to_pool(Block* block) {
  BlockPool& pool = *block->pool;
  PoolCounters::Kind kind = pool.kind();
  int64_t size_bytes = block->size_bytes;
  int64_t split_blocks = 0, split_bytes = 0;
  for (Block* neighbour : {block->previous, block->next}) {
    if (int64_t joined = merge(block, neighbour); joined > 0) {
      split_blocks -= 1;
      split_bytes -= joined;
    }
  }
  active_.remove(block);
  pool.insert(block);
  if (block->is_split()) {
    split_blocks += 1;
    split_bytes += block->size_bytes;
  }
  if (block->expandable == nullptr) {
    statistics_.inactive_split.change(kind, split_blocks);
    statistics_.inactive_split_bytes.change(kind, split_bytes);
  }
  statistics_.active.decrease(kind, 1);
  statistics_.active_bytes.decrease(kind, size_bytes);
  statistics_.requested_bytes.decrease(kind, block->requested_bytes);
}

// Joins a free neighbour into the block; the joined bytes, 0 if it cannot be joined.
inline int64_t CachingAllocator::merge(Block* into, Block* neighbour) {
  if (neighbour == nullptr || neighbour->allocated || neighbour->awaits_streams() ||
      into->mapped != neighbour->mapped) {
    return 0;
  }
  BlockPool& pool = *into->pool;
  // Out of its set before the sizes change: the sets are sorted by them.
  neighbour->mapped ? pool.remove(neighbour) : pool.remove_unmapped(neighbour);
  if (into->previous == neighbour) {
    into->address = neighbour->address;
    into->previous = neighbour->previous;
    if (into->previous != nullptr) into->previous->next = into;
  } else {
    into->next = neighbour->next;
    if (into->next != nullptr) into->next->previous = into;
  }
  int64_t joined = neighbour->size_bytes;
  into->size_bytes += joined;
  store_.put_back(neighbour);
  return joined;
}

// When the driver has nothing left: free blocks of the pools that allow it (MemPool(use_on_oom=True)).
inline bool CachingAllocator::try_pools_of_last_resort(Request& request) {
  if (request.pool->owner != nullptr) return false;
  for (PoolId id : pools_of_last_resort_) {
    auto found = pools_.find(id);
    if (found == pools_.end()) continue;
    Request attempt = request;
    PrivatePool& pool = *found->second;
    attempt.pool = request.size_bytes <= kSmallRequestBytes ? &pool.small : &pool.large;
    if (find_free_block(attempt)) {
      request = attempt;
      return true;
    }
  }
  return false;
}

inline OutOfMemoryFigures CachingAllocator::out_of_memory(const Request& request) {
  OutOfMemoryFigures figures;
  figures.device = device_;
  figures.stream = request.stream;
  figures.requested_bytes = request.requested_bytes;
  figures.segment_bytes = request.segment_bytes;
  figures.total_bytes = memory_.total_bytes();
  figures.free_bytes = memory_.free_bytes();
  figures.process_bytes = memory_.process_bytes();
  figures.allowed_bytes = allowed_bytes_;
  figures.allocated_bytes = statistics_.allocated_bytes.all().current;
  figures.reserved_bytes = statistics_.reserved_bytes.all().current;
  for (auto& [id, pool] : pools_) {
    for (const BlockPool* blocks : {&pool->large, &pool->small}) {
      for (const FreeBlockKey& key : blocks->free) figures.private_pool_bytes += key.size_bytes;
    }
  }
  figures.rejected = request.rejected;
  if (!request.rejected) statistics_.num_ooms += 1;
  if (events_ != nullptr) {
    events_->on_event({MemoryAction::kOutOfMemory, request.pool->is_small, false, static_cast<int16_t>(device_), -1,
                       0, request.size_bytes, request.requested_bytes, request.stream});
  }
  return figures;
}

}  // namespace maya
