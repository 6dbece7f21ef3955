// Counters of the emulation itself, for tests, benchmarks and `maya run -vv`.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace maya {

struct Statistics {
  static Statistics& instance() {
    static auto* statistics = new Statistics;
    return *statistics;
  }
  std::atomic<int64_t> operations{0}, cache_hits{0}, cache_misses{0}, computed{0}, missing_meta{0};

  void note_host_failure(const std::string& name, const std::string& why) { note(host_failures_, name, why); }
  void note_missing_meta(const std::string& name, const std::string& why) {
    ++missing_meta;
    note(missing_, name, why);
  }
  std::map<std::string, std::string> host_failures() { return copy(host_failures_); }
  std::map<std::string, std::string> missing_metas() { return copy(missing_); }

  std::mutex& mutex() { return mutex_; }

 private:
  using Notes = std::map<std::string, std::string>;
  void note(Notes& notes, const std::string& name, const std::string& why) {
    std::lock_guard<std::mutex> lock(mutex_);
    notes.emplace(name, why.substr(0, 400));
  }
  Notes copy(const Notes& notes) {
    std::lock_guard<std::mutex> lock(mutex_);
    return notes;
  }
  std::mutex mutex_;
  Notes host_failures_, missing_;
};

}  // namespace maya
