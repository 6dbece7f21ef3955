// A model of PyTorch's CUDACachingAllocator for one device: which block answers a request, when
// segments are taken from and given back to the driver, and every counter on the way. It reproduces
// the decisions of c10/cuda/CUDACachingAllocator.cpp; it was read there and written anew, and where
// 2.14.1 differs from the source at hand, its machine code decided (order of the fallbacks, limits). Member functions are defined by theme in the headers included at the end.
//
// Known differences: backend:cudaMallocAsync is modelled as the native allocator;
// graph_capture_record_stream_reuse is parsed only; checkpoints of private pools (cudagraph trees)
// are not modelled.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator_interfaces.h"
#include "allocator_settings.h"
#include "allocator_snapshot.h"
#include "device_memory.h"
#include "expandable_segment.h"
#include "memory_block.h"
#include "memory_statistics.h"

namespace maya {

// Says whether an allocation on `stream` by the calling thread belongs to a pool.
using PoolFilter = std::function<bool(int64_t stream)>;

struct DeviceMemoryLayout {
  int64_t total_bytes = 0;    // as cudaGetDeviceProperties reports
  int64_t context_bytes = 0;  // held by CUDA itself
  bool unlimited = false;
  AddressRange addresses;       // of large segments, and of small ones unless they have their own range
  AddressRange small_addresses; // optional: lets the backend give requests <= 1 MiB readable memory
};

class CachingAllocator {
 public:
  // settings are shared by all devices and must outlive the allocator; clock and events may be null.
  CachingAllocator(int device, const DeviceMemoryLayout& layout, const AllocatorSettings& settings,
                   DeviceClock* clock = nullptr, AllocatorEvents* events = nullptr)
      : device_(device),
        settings_(settings),
        clock_(clock),
        events_(events),
        memory_(layout.total_bytes, layout.context_bytes, layout.unlimited),
        addresses_(layout.addresses) {
    if (settings.max_split_bytes != kNoLimit) statistics_.max_split_size = settings.max_split_bytes;
    if (layout.small_addresses.bytes > 0) small_addresses_.emplace(layout.small_addresses);
    set_memory_fraction(settings.per_process_memory_fraction);
  }
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // ---- blocks
  // Null for 0 bytes, as PyTorch allocates nothing then. Throws OutOfMemory.
  Block* allocate(int64_t requested_bytes, int64_t stream);
  void free(Block* block);
  // The block is also used on `stream`: once freed it is not reused before that stream gets there.
  void record_stream(Block* block, int64_t stream);
  // The handed-out block at this address, null if none. Linear: for raw_delete and the like.
  Block* find(uint64_t address);
  // Every allocation has an id, unique in the process; also for storages that have no block.
  static int64_t next_allocation_id() { return last_allocation_id().fetch_add(1, std::memory_order_relaxed); }

  // ---- cache
  void empty_cache(PoolId pool = kEveryPool);
  // Bytes of the largest free block, at least the driver's free memory if `largest` starts at 0.
  int64_t largest_free_block(int64_t largest = 0);

  // ---- limits
  // fraction of the device's total memory, within [0, 1] (Python checks it); 1 lifts the limit.
  void set_memory_fraction(double fraction);
  double memory_fraction();
  int64_t device_free_bytes();
  int64_t device_total_bytes() const { return memory_.total_bytes(); }
  // Memory of libraries past PyTorch (NCCL). False: it does not fit.
  bool take_outside(int64_t bytes);
  void give_back_outside(int64_t bytes);

  // ---- figures
  MemoryStatistics statistics();
  void reset_peak_statistics();
  void reset_accumulated_statistics();
  std::vector<SegmentView> snapshot(PoolId pool = kEveryPool);
  std::vector<BlockView> allocated_blocks();  // handed out now, by address

  // ---- private pools
  void create_or_retain_pool(PoolId pool);
  void begin_allocate_to_pool(PoolId pool, PoolFilter filter);
  void end_allocate_to_pool(PoolId pool);
  void release_pool(PoolId pool);
  int pool_use_count(PoolId pool);
  void set_pool_use_on_oom(PoolId pool, bool use_on_oom);
  void set_pool_no_split(PoolId pool);
  // A capture records work instead of running it: events cannot be waited for meanwhile.
  void mark_capture_begin();
  void mark_capture_end();

  // ---- for pthread_atfork
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  int device() const { return device_; }

 private:
  struct Request {
    int64_t requested_bytes;
    int64_t size_bytes;     // rounded
    int64_t segment_bytes;  // what the driver is asked for
    int64_t stream;
    BlockPool* pool;
    Block* block = nullptr;
    bool rejected = false;  // by throw_on_cudamalloc_oom
  };
  struct StreamUse {
    int64_t ready_ns;
    Block* block;
  };

  // allocator_search.h
  BlockPool& pool_for(int64_t size_bytes, int64_t stream);
  bool find_free_block(Request& request);
  bool should_split(const Block* block, int64_t size_bytes) const;
  Block* hand_out(const Request& request, bool split);
  void return_to_pool(Block* block);
  int64_t merge(Block* into, Block* neighbour);
  bool try_pools_of_last_resort(Request& request);
  OutOfMemoryFigures out_of_memory(const Request& request);

  // allocator_segments.h
  bool grow(Request& request, bool retry);
  void adopt(Request& request, uint64_t address);
  bool release_oversize_blocks(const Request& request);
  bool release_cached_blocks(PoolId only);
  void release_free_blocks(BlockPool& pool);
  void release_segment(Block* block);
  void collect_garbage();
  AddressSpace& addresses_of(const BlockPool& pool) {
    return pool.is_small && small_addresses_ ? *small_addresses_ : addresses_;
  }
  void change_reserved(BlockPool& pool, int64_t bytes);

  // allocator_expandable.h
  Block* grow_expandable(Request& request);
  Block* find_expandable(Request& request);
  bool map_block(Block* block, int64_t bytes);
  void unmap_block(Block* block);
  void release_expandable(Block* block);

  // allocator_streams.h
  void free_after_streams(Block* block);
  void process_finished_streams();
  void wait_for_streams(const PrivatePool* only);
  void register_deferred_blocks();

  // allocator_pools.h
  PrivatePool& private_pool(PoolId pool);

  bool capturing() const { return active_captures_ > 0; }
  void tell(MemoryAction action, const Block* block, int64_t size_bytes, uint64_t address) {
    if (events_ == nullptr) return;
    bool of_segment = action == MemoryAction::kSegmentAllocate || action == MemoryAction::kSegmentFree;
    events_->on_event({action, block->pool->is_small, block->expandable != nullptr,
                       static_cast<int16_t>(device_), of_segment ? -1 : block->allocation_id, address, size_bytes,
                       of_segment ? size_bytes : block->requested_bytes, block->stream});
  }
  static std::atomic<int64_t>& last_allocation_id() {
    static std::atomic<int64_t> id{0};
    return id;
  }

  const int device_;
  const AllocatorSettings& settings_;
  DeviceClock* const clock_;
  AllocatorEvents* const events_;
  std::mutex mutex_;  // protects everything below; public functions take it and never call each other

  DeviceMemory memory_;
  AddressSpace addresses_;
  std::optional<AddressSpace> small_addresses_;
  BlockStore store_;
  BlockPool large_{false, nullptr};
  BlockPool small_{true, nullptr};
  ActiveBlocks active_;
  MemoryStatistics statistics_;
  int64_t reserved_bytes_ = 0;
  int64_t allowed_bytes_ = -1;  // -1: no fraction was set
  std::vector<std::unique_ptr<ExpandableSegment>> expandable_segments_;

  std::map<int64_t, std::deque<StreamUse>> pending_uses_;  // by the stream waited for
  std::vector<Block*> deferred_;                           // freed during a capture
  std::unordered_map<Block*, std::vector<int64_t>> uses_during_capture_;

  std::map<PoolId, std::unique_ptr<PrivatePool>> pools_;
  std::set<PoolId> releasable_pools_;
  std::set<PoolId> pools_of_last_resort_;
  std::vector<std::pair<PoolId, PoolFilter>> routes_;
  int active_captures_ = 0;
};

}  // namespace maya

#include "allocator_expandable.h"
#include "allocator_pools.h"
#include "allocator_search.h"
#include "allocator_segments.h"
#include "allocator_streams.h"
