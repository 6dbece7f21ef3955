// DDP's reducer times its phases, on a GPU by events: in the first ten iterations and then in each
// hundredth, where it also waits for them. A prediction is about all the others, so that the
// times come from the device's clock and leave no trace.
#pragma once
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "work.h"

namespace maya {

class ReducerTimer final : public c10d::Timer {
 public:
  explicit ReducerTimer(c10::Device device) : device_(resolve(device.index())) {}
  void record(Event event) override {
    Timer::record(event);
    times_ns_[static_cast<size_t>(event)] = Recorder::instance().with_clock([&](Clock& clock) { return clock.record_event(device_, current_streams[device_]); });
  }
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    int64_t from = times_ns_[static_cast<size_t>(start)], to = times_ns_[static_cast<size_t>(end)];
    return from < 0 || to < from ? std::nullopt : std::optional<int64_t>(to - from);
  }

 private:
  int device_;
  int64_t times_ns_[5] = {-1, -1, -1, -1, -1};
};

inline void register_reducer_timer() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10d::TimerRegistry()->Register(c10::kCUDA, [](c10::Device device) { return std::unique_ptr<c10d::Timer>(new ReducerTimer(device)); }, c10::REGISTRY_PREFERRED);
  });
}

}  // namespace maya
