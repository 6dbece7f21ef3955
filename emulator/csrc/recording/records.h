// The records of traces/operations.py as C++ structs. The layouts must agree byte for byte;
// tests/emulator/test_records.py compares sizes and offsets.
#pragma once
#include <cstdint>

namespace maya {

enum class Kind : uint8_t {
  Kernel = 0, Memcpy = 1, Memset = 2, EventRecord = 3, StreamWait = 4, EventSync = 5, StreamSync = 6,
  DeviceSync = 7, Collective = 8, Send = 9, Recv = 10, Wait = 11, Host = 12, Marker = 13,
};

enum class Phase : uint8_t { Other = 0, Forward = 1, Backward = 2, Recompute = 3, Optimizer = 4, Data = 5 };

enum class Role : uint8_t { Read = 0, Write = 1, ReadWrite = 2 };

struct Operation {
  int64_t id = 0;
  int64_t sequence = -1;
  int64_t stream = 0;
  int64_t event = -1;
  int32_t name = 0;
  int32_t metadata = 0;
  int32_t module = -1;
  int32_t source_line = -1;
  int32_t communication = -1;
  int32_t graph = -1;
  int32_t host_thread = 0;
  int32_t tensor_count = 0;
  int16_t device = 0;
  uint8_t kind = 0;
  uint8_t phase = 0;
  uint8_t blocking = 0;
  uint8_t wraps_autograd = 0;
  int16_t padding = 0;
};
static_assert(sizeof(Operation) == 72);

struct TensorUse {
  int64_t storage = -1;
  int64_t offset_bytes = 0;
  int64_t extent_bytes = 0;
  int16_t argument = 0;
  uint8_t role = 0;
  uint8_t padding = 0;
  int32_t padding_2 = 0;
};
static_assert(sizeof(TensorUse) == 32);

// What a collective, send or receive adds to its operation.
struct Communication {
  int32_t communicator = 0;
  int32_t sequence = -1;    // in its communicator; the recorder gives collectives theirs
  int32_t collective = -1;  // Chakra's CollectiveCommType, -1 for a message
  int32_t reduce_op = -1;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int32_t peer = -1;  // global rank
  int32_t tag = 0;
  int32_t coalescing_group = -1;
  int32_t async_handle = -1;
};
static_assert(sizeof(Communication) == 48);

struct MemoryEvent {
  int64_t operation = 0;
  int64_t allocation = -1;
  int64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;
  int64_t stream = 0;
  int32_t module = -1;
  int16_t device = 0;
  uint8_t action = 0;
  uint8_t phase = 0;
};
static_assert(sizeof(MemoryEvent) == 56);

}  // namespace maya
