// The emulated device's clock: what Event.elapsed_time, queries and record_stream reuse see while
// the script runs. A small model, not the prediction: the host advances by a fixed gap an
// operation, a kernel starts when its stream and the host have got there, and takes as long as
// the DurationOracle says (nothing without one). The recorder's mutex guards it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace maya {

class Clock {
 public:
  int64_t host_now_ns = 0;
  int64_t host_gap_ns = 5000;  // about one eager dispatch from Python

  int64_t stream_ready_ns(int device, int64_t stream) const {
    auto found = ready_.find(key(device, stream));
    return found == ready_.end() ? 0 : found->second;
  }
  void issue(int device, int64_t stream, int64_t duration_ns) {
    host_now_ns += host_gap_ns;
    auto& ready = ready_[key(device, stream)];
    ready = std::max(ready, host_now_ns) + duration_ns;
  }
  int64_t record_event(int device, int64_t stream) {
    auto& ready = ready_[key(device, stream)];
    ready = std::max(ready, host_now_ns);
    return ready;
  }
  void stream_waits(int device, int64_t stream, int64_t until_ns) {
    auto& ready = ready_[key(device, stream)];
    ready = std::max(ready, until_ns);
  }
  void host_waits(int64_t until_ns) { host_now_ns = std::max(host_now_ns, until_ns); }
  int64_t device_ready_ns(int device) const {
    int64_t latest = 0;
    for (const auto& [stream, ready] : ready_)
      if ((stream >> 48) == device) latest = std::max(latest, ready);
    return latest;
  }

 private:
  static int64_t key(int device, int64_t stream) { return (static_cast<int64_t>(device) << 48) ^ (stream & 0xffffffffffffLL); }
  std::unordered_map<int64_t, int64_t> ready_;
};

}  // namespace maya
