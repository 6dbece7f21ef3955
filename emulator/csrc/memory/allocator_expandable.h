// CachingAllocator: growing and shrinking expandable segments.
// Included by caching_allocator.h only.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

namespace maya {

// A mapped block of at least the requested size, out of its pool's set; null if memory ran out.
inline Block* CachingAllocator::grow_expandable(Request& request) {
  Block* block = find_expandable(request);
  // `block` starts a run of free and unmapped blocks that is long enough.
  if (!block->mapped && !map_block(block, std::min(block->size_bytes, request.size_bytes))) return nullptr;
  while (block->size_bytes < request.size_bytes) {
    Block* next = block->next;
    // Mapping joins the two; the joined block keeps the identity of `next`.
    if (!map_block(next, std::min(request.size_bytes - block->size_bytes, next->size_bytes))) return nullptr;
    block = next;
  }
  request.pool->remove(block);
  return block;
}

// The lowest place in the stream's segments with enough addresses, else a new segment.
inline Block* CachingAllocator::find_expandable(Request& request) {
  BlockPool& pool = *request.pool;
  auto usable = [](const Block* b) { return b != nullptr && !b->allocated && !b->awaits_streams(); };
  for (auto it = pool.unmapped.lower_bound({request.stream, 0, 0, nullptr});
       it != pool.unmapped.end() && it->stream == request.stream; ++it) {
    Block* start = it->block;
    if (usable(start->previous)) start = start->previous;
    int64_t bytes = 0;
    for (Block* b = start; bytes < request.size_bytes && usable(b); b = b->next) bytes += b->size_bytes;
    if (bytes >= request.size_bytes) return start;
  }
  int64_t page = pool.is_small ? kSmallSegmentBytes : settings_.large_segment_bytes;
  auto pages_of = [page](int64_t bytes) { return (bytes + page - 1) / page * page; };
  // An eighth more than the device's memory leaves room to move pages from one end to the other.
  int64_t needed = pages_of(request.size_bytes);
  int64_t span = std::max(needed, pages_of(memory_.total_bytes() + memory_.total_bytes() / 8));
  uint64_t address = 0;
  // Where the reserved range cannot hold another such span, a shorter segment does as well.
  while ((address = addresses_of(pool).reserve(static_cast<uint64_t>(span))) == 0 && span > needed) {
    span = std::max(needed, pages_of(span / 2));
  }
  if (address == 0) {
    throw std::runtime_error("emulator: the address space of cuda:" + std::to_string(device_) + " is full (" +
                             format_bytes(statistics_.reserved_bytes.all().current) + " reserved)");
  }
  expandable_segments_.push_back(std::make_unique<ExpandableSegment>(memory_, address, span, page));
  Block* block = store_.take();
  block->device = device_;
  block->stream = request.stream;
  block->size_bytes = span;
  block->address = address;
  block->pool = &pool;
  block->mapped = false;
  block->expandable = expandable_segments_.back().get();
  pool.insert_unmapped(block);
  return block;
}

// Backs the first `bytes` (in whole pages) of an unmapped block and joins it to free neighbours.
inline bool CachingAllocator::map_block(Block* block, int64_t bytes) {
  BlockPool& pool = *block->pool;
  MappedRange mapped = block->expandable->map(block->address, bytes);
  if (mapped.bytes == 0) return false;
  pool.remove_unmapped(block);
  block->mapped = true;
  if (mapped.bytes < block->size_bytes) {
    Block* rest = store_.take();
    rest->device = device_;
    rest->stream = block->stream;
    rest->size_bytes = block->size_bytes - mapped.bytes;
    rest->address = block->address + static_cast<uint64_t>(mapped.bytes);
    rest->pool = &pool;
    rest->mapped = false;
    rest->expandable = block->expandable;
    rest->link_between(block, block->next);
    pool.insert_unmapped(rest);
    block->size_bytes = mapped.bytes;
  }
  merge(block, block->previous);
  merge(block, block->next);
  pool.insert(block);
  change_reserved(pool, mapped.bytes);
  statistics_.num_device_alloc += 1;
  tell(MemoryAction::kSegmentAllocate, block, mapped.bytes, mapped.address);
  return true;
}

// Gives back the whole pages inside a free block; what is left of it stays free.
inline void CachingAllocator::unmap_block(Block* block) {
  BlockPool& pool = *block->pool;
  MappedRange unmapped = block->expandable->unmap(block->address, block->size_bytes);
  if (unmapped.bytes == 0) return;
  if (clock_ != nullptr) clock_->synchronize_device(device_);
  pool.remove(block);
  auto keep = [&](uint64_t address, int64_t bytes, Block* before, Block* after) {
    Block* piece = store_.take();
    piece->device = device_;
    piece->stream = block->stream;
    piece->size_bytes = bytes;
    piece->address = address;
    piece->pool = &pool;
    piece->expandable = block->expandable;
    piece->link_between(before, after);
    pool.insert(piece);
  };
  int64_t before = static_cast<int64_t>(unmapped.address - block->address);
  int64_t after = block->size_bytes - before - unmapped.bytes;
  if (before > 0) keep(block->address, before, block->previous, block);
  if (after > 0) keep(unmapped.address + static_cast<uint64_t>(unmapped.bytes), after, block, block->next);
  block->address = unmapped.address;
  block->size_bytes = unmapped.bytes;
  block->mapped = false;
  merge(block, block->previous);
  merge(block, block->next);
  pool.insert_unmapped(block);
  change_reserved(pool, -unmapped.bytes);
  statistics_.num_device_free += 1;
  tell(MemoryAction::kSegmentFree, block, unmapped.bytes, unmapped.address);
}

// A segment without any page left gives its addresses back.
inline void CachingAllocator::release_expandable(Block* block) {
  ExpandableSegment* segment = block->expandable;
  if (block->mapped || block->size_bytes != segment->span_bytes()) {
    throw std::logic_error("release_expandable: the segment still holds memory");
  }
  BlockPool& pool = *block->pool;
  pool.remove_unmapped(block);
  addresses_of(pool).release(segment->address(), static_cast<uint64_t>(segment->span_bytes()));
  std::erase_if(expandable_segments_, [&](const auto& owned) { return owned.get() == segment; });
  store_.put_back(block);
}

}  // namespace maya
