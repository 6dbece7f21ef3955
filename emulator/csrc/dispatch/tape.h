// A tape of cached results, for one benchmark only: replaying it gives the time of a step whose
// kernels do nothing but return their outputs, which the emulator's own time is measured against.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "shape_cache.h"

namespace maya {

class Tape {
 public:
  enum class Mode { Off, Recording, Replaying };
  static Tape& instance() {
    static auto* tape = new Tape;
    return *tape;
  }
  bool replaying() const { return mode_.load(std::memory_order_relaxed) == Mode::Replaying; }
  void set(Mode mode) {
    if (mode == Mode::Recording) calls_.clear();
    position_ = 0;
    mode_ = mode;
  }
  void note(const std::shared_ptr<const CachedCall>& call) {
    if (mode_.load(std::memory_order_relaxed) != Mode::Recording) return;
    calls_.push_back(call);
  }
  const CachedCall* next() {
    if (position_ >= calls_.size()) throw std::runtime_error("the replayed step issues more operators than the recorded one");
    return calls_[position_++].get();
  }

 private:
  std::atomic<Mode> mode_{Mode::Off};
  size_t position_ = 0;
  std::vector<std::shared_ptr<const CachedCall>> calls_;
};

}  // namespace maya
