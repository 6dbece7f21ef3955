// Blocks, the pools of free blocks, and where blocks are kept.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "memory_statistics.h"

namespace maya {

struct Block;
struct BlockPool;
struct PrivatePool;
class ExpandableSegment;

// A set entry carries its sort key so that a search does not touch the blocks it passes.
struct FreeBlockKey {
  int64_t stream;
  int64_t size_bytes;
  uint64_t address;
  Block* block;
};

struct BestFitOrder {  // the smallest sufficient block of a stream is a lower bound
  bool operator()(const FreeBlockKey& a, const FreeBlockKey& b) const {
    if (a.stream != b.stream) return a.stream < b.stream;
    if (a.size_bytes != b.size_bytes) return a.size_bytes < b.size_bytes;
    return a.address < b.address;
  }
};

struct AddressOrder {
  bool operator()(const FreeBlockKey& a, const FreeBlockKey& b) const {
    if (a.stream != b.stream) return a.stream < b.stream;
    return a.address < b.address;
  }
};

using FreeBlocks = std::set<FreeBlockKey, BestFitOrder>;
using UnmappedBlocks = std::set<FreeBlockKey, AddressOrder>;

// A piece of a segment. A handed-out block stays at its place in memory until freed.
struct Block {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;
  int64_t stream = 0;
  int64_t allocation_id = -1;
  int device = 0;
  bool allocated = false;
  bool mapped = true;      // false: addresses of an expandable segment without memory behind them
  int pending_events = 0;  // other streams' work that was unfinished when the block was freed
  BlockPool* pool = nullptr;
  Block* previous = nullptr;  // neighbours within the segment, by address
  Block* next = nullptr;
  Block* previous_active = nullptr;
  Block* next_active = nullptr;
  ExpandableSegment* expandable = nullptr;
  std::vector<int64_t> stream_uses;  // record_stream; almost always empty
  int64_t age_base = 0;              // for garbage_collection_threshold
  void* owner = nullptr;             // the backend's own record of an allocation

  // Where the block is while free; else the detached set node, kept to be put back without malloc.
  FreeBlocks::iterator place;
  FreeBlocks::node_type spare_node;

  FreeBlockKey key() { return {stream, size_bytes, address, this}; }
  bool is_split() const { return previous != nullptr || next != nullptr; }
  bool awaits_streams() const { return pending_events > 0 || !stream_uses.empty(); }

  // Back to a new block's state, but for the spare node and the vector's capacity.
  void forget() {
    address = 0;
    size_bytes = requested_bytes = stream = age_base = 0;
    allocation_id = -1;
    device = pending_events = 0;
    allocated = false;
    mapped = true;
    pool = nullptr;
    previous = next = previous_active = next_active = nullptr;
    expandable = nullptr;
    owner = nullptr;
    stream_uses.clear();
  }

  void link_between(Block* before, Block* after) {
    previous = before;
    next = after;
    if (before != nullptr) before->next = this;
    if (after != nullptr) after->previous = this;
  }
};

// The free blocks of one kind. Blocks of all streams share it; the order keeps streams apart.
struct BlockPool {
  BlockPool(bool small, PrivatePool* owner) : is_small(small), owner(owner) {}

  const bool is_small;
  PrivatePool* const owner;  // null: the default pool
  FreeBlocks free;
  UnmappedBlocks unmapped;
  int64_t searches = 0;      // counted while garbage collection is on

  PoolCounters::Kind kind() const { return is_small ? PoolCounters::kSmallPool : PoolCounters::kLargePool; }

  void insert(Block* block) {
    block->age_base = searches;
    if (block->spare_node.empty()) {
      block->place = free.insert(block->key()).first;
    } else {
      block->spare_node.value() = block->key();
      block->place = free.insert(std::move(block->spare_node)).position;
    }
  }
  void remove(Block* block) { block->spare_node = free.extract(block->place); }
  void insert_unmapped(Block* block) { unmapped.insert(block->key()); }
  void remove_unmapped(Block* block) { unmapped.erase(block->key()); }
  int64_t age(const Block* block) const { return searches - block->age_base; }
};

// A set of pools of its own: a CUDA graph's, or a torch.cuda.MemPool.
struct PrivatePool {
  explicit PrivatePool(PoolId id) : id(id), large(false, this), small(true, this) {}
  const PoolId id;
  BlockPool large;
  BlockPool small;
  int use_count = 1;
  int64_t reserved_bytes = 0;  // at 0 and unused, the pool can go
  bool no_split = false;
};

// Owns every Block. Recycled blocks keep their spare node, so that the steady state never mallocs.
class BlockStore {
 public:
  Block* take() {
    if (idle_.empty()) return &blocks_.emplace_back();
    Block* block = idle_.back();
    idle_.pop_back();
    return block;
  }
  void put_back(Block* block) {
    block->forget();
    idle_.push_back(block);
  }

 private:
  std::deque<Block> blocks_;
  std::vector<Block*> idle_;
};

// Blocks in use, or freed and waiting for other streams; a list through the blocks themselves.
class ActiveBlocks {
 public:
  void add(Block* block) {
    block->previous_active = nullptr;
    block->next_active = first_;
    if (first_ != nullptr) first_->previous_active = block;
    first_ = block;
  }
  void remove(Block* block) {
    (block->previous_active != nullptr ? block->previous_active->next_active : first_) = block->next_active;
    if (block->next_active != nullptr) block->next_active->previous_active = block->previous_active;
  }
  Block* first() const { return first_; }

 private:
  Block* first_ = nullptr;
};

}  // namespace maya
