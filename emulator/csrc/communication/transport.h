// The store through which ranks exchange values: the group's own, below its prefixes, over
// a connection of our own, so that a script's wait on the store never holds up what we post.
#pragma once
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "interruption.h"

namespace maya {

using Bytes = std::vector<uint8_t>;

class Transport {
 public:
  static std::shared_ptr<Transport> of(const c10::intrusive_ptr<c10d::Store>& store) {
    auto raw = store;
    if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) raw = prefixed->getUnderlyingNonPrefixStore();
    static auto* mutex = new std::mutex;
    static auto* known = new std::unordered_map<c10d::Store*, std::shared_ptr<Transport>>;
    std::lock_guard<std::mutex> lock(*mutex);
    auto& transport = (*known)[raw.get()];
    if (!transport) transport = std::shared_ptr<Transport>(new Transport(raw));
    return transport;
  }

  // Does it lead to other processes at all? A store within one process does not.
  bool reaches_others() const { return reaches_others_; }
  const std::string& unusable_because() const { return unusable_because_; }

  void post(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (keys.size() > 1 && store_->hasExtendedApi()) return store_->multiSet(keys, values);
    for (size_t i = 0; i < keys.size(); ++i) store_->set(keys[i], values[i]);
  }
  void post_text(const std::string& key, const std::string& text) { post({key}, {Bytes(text.begin(), text.end())}); }
  void remove(const std::vector<std::string>& keys) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& key : keys) store_->deleteKey(key);
  }
  int64_t count_one(const std::string& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    return store_->add(key, 1);
  }
  bool has(const std::vector<std::string>& keys) {
    std::lock_guard<std::mutex> lock(mutex_);
    return store_->check(keys);
  }
  std::string text(const std::string& key) {  // of a key that is there
    std::lock_guard<std::mutex> lock(mutex_);
    auto value = store_->get(key);
    return {value.begin(), value.end()};
  }
  // The values of all keys, or nothing if one is still missing when the time is over. Asks again and
  // again: a store's own wait would hold up other threads, and TCPStore's prints a warning when it ends.
  std::vector<Bytes> wait_for(const std::vector<std::string>& keys, std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    auto pause = kShortestPause;
    while (!has(keys)) {
      if (std::chrono::steady_clock::now() >= until) return {};
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return store_->multiGet(keys);
  }

 private:
  static constexpr std::chrono::microseconds kShortestPause{20}, kLongestPause{4000};

  explicit Transport(c10::intrusive_ptr<c10d::Store> raw) : raw_(std::move(raw)) {
    const std::string type = typeid(*raw_).name();
    if (dynamic_cast<c10d::HashStore*>(raw_.get()) || type.find("FakeStore") != std::string::npos) {
      unusable_because_ = "it lives within one process";
      return;
    }
    try {
      store_ = raw_->clone();
      reaches_others_ = true;
    } catch (const std::exception& error) {
      unusable_because_ = std::string("it cannot be opened a second time (") + std::string(error.what()).substr(0, 120) + ")";
    }
  }

  c10::intrusive_ptr<c10d::Store> raw_, store_;
  std::mutex mutex_;
  bool reaches_others_ = false;
  std::string unusable_because_;
};

}  // namespace maya
