// Plain copies of the allocator's state, for torch.cuda.memory_snapshot() and reports.
#pragma once

#include <cstdint>
#include <vector>

#include "memory_statistics.h"

namespace maya {

enum class BlockState : uint8_t { kAllocated, kAwaitingFree, kInactive };

struct BlockView {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;
  int64_t stream = 0;
  int64_t allocation_id = -1;
  BlockState state = BlockState::kInactive;
  void* owner = nullptr;
};

struct SegmentView {
  int device = 0;
  uint64_t address = 0;
  int64_t stream = 0;
  int64_t total_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t active_bytes = 0;
  int64_t requested_bytes = 0;
  bool is_large = false;
  bool is_expandable = false;
  PoolId pool{0, 0};
  std::vector<BlockView> blocks;
};

}  // namespace maya
