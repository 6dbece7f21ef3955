// A plain C interface to the caching allocator, for tests/emulator/test_caching_allocator.py and
// benchmarks/allocator_speed.py only: they compile it on their own, in seconds, without torch.
#include <time.h>

#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include "caching_allocator.h"
#include "workspaces.h"

namespace {

struct TestClock : maya::DeviceClock {
  int64_t now_ns = 0;
  std::map<int64_t, int64_t> ready_ns;
  int synchronizations = 0;
  int64_t host_now_ns(int) override { return now_ns; }
  int64_t stream_ready_ns(int, int64_t stream) override { return ready_ns[stream]; }
  void wait_host_until_ns(int, int64_t time_ns) override { now_ns = std::max(now_ns, time_ns); }
  void synchronize_device(int) override { ++synchronizations; }
};

struct TestEvents : maya::AllocatorEvents {
  std::vector<maya::AllocatorEvent> rows;
  void on_event(const maya::AllocatorEvent& event) override { rows.push_back(event); }
};

struct Harness {
  maya::AllocatorSettings settings;
  TestClock clock;
  TestEvents events;
  std::unique_ptr<maya::CachingAllocator> allocator;
  std::string error;
  std::string kind;  // of the error: "ValueError", "IndexError", "OutOfMemory", "RuntimeError"
};

template <typename Function>
int guarded(Harness* h, Function&& function) {
  h->error.clear();
  h->kind.clear();
  try {
    function();
    return 0;
  } catch (const maya::OutOfMemory& e) {
    h->kind = "OutOfMemory", h->error = e.what();
  } catch (const std::invalid_argument& e) {
    h->kind = "ValueError", h->error = e.what();
  } catch (const std::out_of_range& e) {
    h->kind = "IndexError", h->error = e.what();
  } catch (const std::exception& e) {
    h->kind = "RuntimeError", h->error = e.what();
  }
  return 1;
}

const char* keep(std::string text) {
  static thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

void add(std::string& json, const char* name, const maya::Counter& c) {
  char text[200];
  std::snprintf(text, sizeof text, "\"%s\":[%lld,%lld,%lld,%lld],", name, static_cast<long long>(c.current),
                static_cast<long long>(c.peak), static_cast<long long>(c.allocated), static_cast<long long>(c.freed));
  json += text;
}

void add(std::string& json, const std::string& name, const maya::PoolCounters& counters) {
  const char* kinds[] = {".all", ".small_pool", ".large_pool"};
  for (int kind = 0; kind < 3; ++kind) add(json, (name + kinds[kind]).c_str(), counters.by_kind[kind]);
}

}  // namespace

extern "C" {

Harness* harness_new() { return new Harness; }
void harness_delete(Harness* h) { delete h; }
const char* harness_error(Harness* h) { return h->error.c_str(); }
const char* harness_error_kind(Harness* h) { return h->kind.c_str(); }
int harness_settings(Harness* h, const char* text) {
  return guarded(h, [&] { h->settings.parse(text); });
}
int harness_common_settings(Harness* h, const char* text) {
  return guarded(h, [&] { h->settings.parse_common(text, false); });
}
int64_t harness_round(Harness* h, int64_t bytes) { return h->settings.round_size(bytes); }
int harness_start(Harness* h, int64_t total, int64_t context, int unlimited, uint64_t address_bytes,
                  uint64_t small_bytes) {
  return guarded(h, [&] {
    maya::DeviceMemoryLayout layout;
    layout.total_bytes = total;
    layout.context_bytes = context;
    layout.unlimited = unlimited != 0;
    layout.addresses = {uint64_t{1} << 44, address_bytes};
    if (small_bytes > 0) layout.small_addresses = {uint64_t{1} << 40, small_bytes};
    h->allocator =
        std::make_unique<maya::CachingAllocator>(0, layout, h->settings, &h->clock, &h->events);
  });
}
maya::Block* allocator_allocate(Harness* h, int64_t bytes, int64_t stream) {
  maya::Block* block = nullptr;
  guarded(h, [&] { block = h->allocator->allocate(bytes, stream); });
  return block;
}
int allocator_free(Harness* h, maya::Block* block) {
  return guarded(h, [&] { h->allocator->free(block); });
}
void allocator_record_stream(Harness* h, maya::Block* block, int64_t stream) {
  h->allocator->record_stream(block, stream);
}
void allocator_empty_cache(Harness* h, uint64_t first, uint64_t second) {
  h->allocator->empty_cache({first, second});
}
void allocator_set_fraction(Harness* h, double fraction) { h->allocator->set_memory_fraction(fraction); }
double allocator_fraction(Harness* h) { return h->allocator->memory_fraction(); }
int64_t allocator_free_bytes(Harness* h) { return h->allocator->device_free_bytes(); }
int allocator_take_outside(Harness* h, int64_t bytes) { return h->allocator->take_outside(bytes) ? 1 : 0; }
void allocator_reset_peak(Harness* h) { h->allocator->reset_peak_statistics(); }
void allocator_reset_accumulated(Harness* h) { h->allocator->reset_accumulated_statistics(); }
int64_t allocator_largest(Harness* h, int64_t start) { return h->allocator->largest_free_block(start); }
maya::Block* allocator_find(Harness* h, uint64_t address) { return h->allocator->find(address); }

// stream < 0: every stream, this thread only.
int pool_begin(Harness* h, uint64_t first, uint64_t second, int64_t stream) {
  return guarded(h, [&] {
    maya::PoolFilter filter = maya::this_thread_only();
    if (stream >= 0) filter = [stream](int64_t s) { return s == stream; };
    h->allocator->begin_allocate_to_pool({first, second}, filter);
  });
}
int pool_end(Harness* h, uint64_t first, uint64_t second) {
  return guarded(h, [&] { h->allocator->end_allocate_to_pool({first, second}); });
}
int pool_retain(Harness* h, uint64_t first, uint64_t second) {
  return guarded(h, [&] { h->allocator->create_or_retain_pool({first, second}); });
}
int pool_release(Harness* h, uint64_t first, uint64_t second) {
  return guarded(h, [&] { h->allocator->release_pool({first, second}); });
}
int pool_use_count(Harness* h, uint64_t first, uint64_t second) {
  return h->allocator->pool_use_count({first, second});
}
void pool_options(Harness* h, uint64_t first, uint64_t second, int use_on_oom, int no_split) {
  h->allocator->set_pool_use_on_oom({first, second}, use_on_oom != 0);
  if (no_split != 0) h->allocator->set_pool_no_split({first, second});
}
void capture_mark(Harness* h, int begin) {
  begin != 0 ? h->allocator->mark_capture_begin() : h->allocator->mark_capture_end();
}

uint64_t block_address(maya::Block* block) { return block->address; }
int64_t block_size(maya::Block* block) { return block->size_bytes; }
int64_t block_id(maya::Block* block) { return block->allocation_id; }

void clock_set(Harness* h, int64_t now_ns) { h->clock.now_ns = now_ns; }
int64_t clock_now(Harness* h) { return h->clock.now_ns; }
void clock_set_ready(Harness* h, int64_t stream, int64_t ready_ns) { h->clock.ready_ns[stream] = ready_ns; }
int clock_synchronizations(Harness* h) { return h->clock.synchronizations; }

const char* statistics_json(Harness* h) {
  maya::MemoryStatistics s = h->allocator->statistics();
  std::string json = "{";
  add(json, "allocation", s.allocation);
  add(json, "segment", s.segment);
  add(json, "active", s.active);
  add(json, "inactive_split", s.inactive_split);
  add(json, "allocated_bytes", s.allocated_bytes);
  add(json, "reserved_bytes", s.reserved_bytes);
  add(json, "active_bytes", s.active_bytes);
  add(json, "inactive_split_bytes", s.inactive_split_bytes);
  add(json, "requested_bytes", s.requested_bytes);
  add(json, "oversize_allocations", s.oversize_allocations);
  add(json, "oversize_segments", s.oversize_segments);
  for (auto& [id, counters] : s.reserved_bytes_by_private_pools) {
    add(json, "private_" + std::to_string(id.first) + "_" + std::to_string(id.second), counters);
  }
  auto number = [&](const char* name, int64_t value) {
    json += std::string("\"") + name + "\":" + std::to_string(value) + ",";
  };
  number("num_alloc_retries", s.num_alloc_retries);
  number("num_ooms", s.num_ooms);
  number("num_sync_all_streams", s.num_sync_all_streams);
  number("num_device_alloc", s.num_device_alloc);
  number("num_device_free", s.num_device_free);
  number("num_oom_rejections", s.num_oom_rejections);
  number("max_split_size", s.max_split_size);
  json.back() = '}';
  return keep(std::move(json));
}

const char* snapshot_json(Harness* h, uint64_t first, uint64_t second) {
  std::string json = "[";
  for (const maya::SegmentView& s : h->allocator->snapshot({first, second})) {
    if (json.size() > 1) json += ",";
    json += "{\"address\":" + std::to_string(s.address) + ",\"stream\":" + std::to_string(s.stream) +
            ",\"total\":" + std::to_string(s.total_bytes) + ",\"allocated\":" + std::to_string(s.allocated_bytes) +
            ",\"active\":" + std::to_string(s.active_bytes) + ",\"requested\":" + std::to_string(s.requested_bytes) +
            ",\"large\":" + (s.is_large ? "true" : "false") + ",\"expandable\":" +
            (s.is_expandable ? "true" : "false") + ",\"pool\":[" + std::to_string(s.pool.first) + "," +
            std::to_string(s.pool.second) + "],\"blocks\":[";
    for (size_t i = 0; i < s.blocks.size(); ++i) {
      const maya::BlockView& b = s.blocks[i];
      json += std::string(i > 0 ? "," : "") + "[" + std::to_string(b.address) + "," + std::to_string(b.size_bytes) +
              "," + std::to_string(b.requested_bytes) + "," + std::to_string(static_cast<int>(b.state)) + "]";
    }
    json += "]}";
  }
  return keep(json + "]");
}

// Rows of [action, small, expandable, id, address, size, requested, stream]; forgets them.
const char* events_json(Harness* h) {
  std::string json = "[";
  for (const maya::AllocatorEvent& e : h->events.rows) {
    if (json.size() > 1) json += ",";
    json += "[" + std::to_string(static_cast<int>(e.action)) + "," + std::to_string(e.small_pool) + "," +
            std::to_string(e.expandable) + "," + std::to_string(e.allocation_id) + "," + std::to_string(e.address) +
            "," + std::to_string(e.size_bytes) + "," + std::to_string(e.requested_bytes) + "," +
            std::to_string(e.stream) + "]";
  }
  h->events.rows.clear();
  return keep(json + "]");
}

int64_t workspace_bytes(int major, const char* config) { return maya::cublas_workspace_bytes(major, 0, config); }
int64_t lt_workspace_bytes(const char* config) { return maya::cublaslt_workspace_bytes(config); }

// Threads that allocate and free at once, each on its own stream; everything is freed at the end.
void stress_threads(Harness* h, int threads, int64_t pairs) {
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([=] {
      std::vector<maya::Block*> window(16, nullptr);
      for (int64_t i = 0; i < pairs; ++i) {
        maya::Block*& slot = window[static_cast<size_t>(i) % window.size()];
        h->allocator->free(slot);
        slot = h->allocator->allocate(512 + (i * 7919 * (thread + 1)) % (4 << 20), thread);
        h->allocator->record_stream(slot, (thread + i) % threads);
      }
      for (maya::Block* block : window) h->allocator->free(block);
    });
  }
  for (std::thread& thread : running) thread.join();
}

// ns of one allocate and free in the steady state: a window of `live` blocks of mixed sizes.
double nanoseconds_per_pair(int64_t pairs, int live) {
  maya::AllocatorSettings settings;
  maya::DeviceMemoryLayout layout;
  layout.total_bytes = int64_t{80} << 30;
  layout.addresses = {uint64_t{1} << 44, uint64_t{1} << 40};
  maya::CachingAllocator allocator(0, layout, settings);
  const int64_t sizes[] = {512, 4096, 3145728, 786432, 25165824, 2048, 12582912, 98304};
  std::vector<maya::Block*> window(static_cast<size_t>(live), nullptr);
  auto run = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      maya::Block*& slot = window[static_cast<size_t>(i % live)];
      allocator.free(slot);
      slot = allocator.allocate(sizes[i % 8], 0);
    }
  };
  run(live * 4);
  auto cpu_ns = [] {  // of this thread: other processes on the machine do not count
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  };
  double start = cpu_ns();
  run(pairs);
  return (cpu_ns() - start) / static_cast<double>(pairs);
}

}  // extern "C"
