// DDP's reducer times its phases on the device; here on the device's clock, by events.
#pragma once
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "work.h"

namespace maya {

class ReducerTimer final : public c10d::Timer {
 public:
  explicit ReducerTimer(c10::Device device) : device_(device) {}
  void record(Event event) override {
    Timer::record(event);
    slot(event).record(current_stream_of(device_.index()));
  }
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto &from = slot(start), &to = slot(end);
    if (!from.was_marked_for_recording() || !to.was_marked_for_recording()) return std::nullopt;
    from.synchronize();
    to.synchronize();
    double ms = from.elapsedTime(to);
    return ms < 0 ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(ms * 1e6));
  }

 private:
  c10::Event& slot(Event event) { return events_[static_cast<size_t>(event)]; }
  c10::Device device_;
  c10::Event events_[5] = {timed(), timed(), timed(), timed(), timed()};
  static c10::Event timed() { return {c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT}; }
};

inline void register_reducer_timer() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10d::TimerRegistry()->Register(c10::kCUDA, [](c10::Device device) { return std::unique_ptr<c10d::Timer>(new ReducerTimer(device)); }, c10::REGISTRY_PREFERRED);
  });
}

}  // namespace maya
