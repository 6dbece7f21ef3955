// CachingAllocator: blocks used by other streams than their own (Tensor.record_stream).
// Included by caching_allocator.h only.
#pragma once

#include <algorithm>
#include <utility>

namespace maya {

inline void CachingAllocator::record_stream(Block* block, int64_t stream) {
  if (block == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (stream == block->stream) return;  // the own stream's order is protection enough
  auto add = [stream](std::vector<int64_t>& streams) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  };
  add(block->stream_uses);
  if (capturing()) add(uses_during_capture_[block]);
}

// An event on every stream that used the block; the last to finish frees it.
inline void CachingAllocator::free_after_streams(Block* block) {
  std::vector<int64_t> streams = std::move(block->stream_uses);
  block->stream_uses.clear();
  for (int64_t stream : streams) {
    int64_t ready = clock_ != nullptr ? clock_->stream_ready_ns(device_, stream) : 0;
    ++block->pending_events;
    pending_uses_[stream].push_back({ready, block});
  }
}

inline void CachingAllocator::register_deferred_blocks() {
  for (Block* block : std::exchange(deferred_, {})) {
    // What a capture recorded runs only at replay, so its uses need no waiting now.
    if (auto captured = uses_during_capture_.find(block); captured != uses_during_capture_.end()) {
      std::erase_if(block->stream_uses, [&](int64_t stream) {
        return std::find(captured->second.begin(), captured->second.end(), stream) != captured->second.end();
      });
      uses_during_capture_.erase(captured);
    }
    free_after_streams(block);
    if (block->pending_events == 0) {
      tell(MemoryAction::kReclaim, block, block->size_bytes, block->address);
      return_to_pool(block);
    }
  }
}

// Frees what other streams have finished with. A stream's uses finish in order, so the first
// unfinished one ends the look at that stream.
inline void CachingAllocator::process_finished_streams() {
  register_deferred_blocks();
  if (pending_uses_.empty()) return;
  int64_t now = clock_ != nullptr ? clock_->host_now_ns(device_) : 0;
  for (auto it = pending_uses_.begin(); it != pending_uses_.end();) {
    std::deque<StreamUse>& uses = it->second;
    while (!uses.empty() && uses.front().ready_ns <= now) {
      Block* block = uses.front().block;
      uses.pop_front();
      if (--block->pending_events > 0) continue;
      tell(MemoryAction::kReclaim, block, block->size_bytes, block->address);
      return_to_pool(block);
    }
    it = uses.empty() ? pending_uses_.erase(it) : std::next(it);
  }
}

// The host waits for every pending use (of one private pool's blocks, if given) and frees the blocks.
inline void CachingAllocator::wait_for_streams(const PrivatePool* only) {
  statistics_.num_sync_all_streams += 1;
  register_deferred_blocks();
  for (auto it = pending_uses_.begin(); it != pending_uses_.end();) {
    std::deque<StreamUse> left;
    for (StreamUse& use : it->second) {
      if (only != nullptr && use.block->pool->owner != only) {
        left.push_back(use);
        continue;
      }
      if (clock_ != nullptr) clock_->wait_host_until_ns(device_, use.ready_ns);
      if (--use.block->pending_events > 0) continue;
      tell(MemoryAction::kReclaim, use.block, use.block->size_bytes, use.block->address);
      return_to_pool(use.block);
    }
    it->second = std::move(left);
    it = it->second.empty() ? pending_uses_.erase(it) : std::next(it);
  }
}

}  // namespace maya
