// Who issued an operation: thread, module, phase, autograd node.
//
// Forward operations belong to the innermost module whose hooks are open on this thread. Backward
// operations run on another thread; the node being evaluated carries the sequence number that its
// forward operation had, so each thread keeps a log of "from sequence number s on, module m" and
// a backward operation is looked up there.
#pragma once
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "records.h"

namespace maya {

class SequenceLog {
 public:
  void note(uint64_t sequence, int32_t module) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!entries_.empty() && entries_.back().first == sequence) {
      entries_.back().second = module;
      return;
    }
    // Graphs of a step long gone are not walked again; keep the log bounded.
    if (entries_.size() >= kMaxEntries) entries_.erase(entries_.begin(), entries_.begin() + kMaxEntries / 2);
    entries_.emplace_back(sequence, module);
  }
  int32_t module_of(uint64_t sequence) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = std::upper_bound(entries_.begin(), entries_.end(), sequence,
                                  [](uint64_t s, const auto& entry) { return s < entry.first; });
    return after == entries_.begin() ? -1 : std::prev(after)->second;
  }

  std::mutex& mutex() { return mutex_; }

 private:
  static constexpr size_t kMaxEntries = 1 << 21;
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, int32_t>> entries_;
};

struct ThreadContext {
  int32_t host_thread = 0;
  int phase_override = -1;
  std::vector<int32_t> modules;
  std::shared_ptr<SequenceLog> log;
};

struct Issuer {
  int32_t host_thread = 0;
  int32_t module = -1;
  Phase phase = Phase::Other;
  int64_t sequence = -1;
  bool in_backward = false;
};

class Attribution {
 public:
  static Attribution& instance() {
    static auto* attribution = new Attribution;
    return *attribution;
  }

  ThreadContext& thread() {
    thread_local ThreadContext context = register_thread();
    return context;
  }

  void enter_module(int32_t module) {
    auto& context = thread();
    context.modules.push_back(module);
    context.log->note(at::sequence_number::peek(), module);
  }

  void leave_module() {
    auto& context = thread();
    if (context.modules.empty()) return;
    context.modules.pop_back();
    context.log->note(at::sequence_number::peek(), context.modules.empty() ? -1 : context.modules.back());
  }

  int set_phase(int phase) { return std::exchange(thread().phase_override, phase); }

  void bind_parameter(const at::Tensor& parameter, int32_t module) {
    std::lock_guard<std::mutex> lock(mutex_);
    parameters_[parameter.unsafeGetTensorImpl()] = module;
  }

  Issuer now() {
    auto& context = thread();
    Issuer issuer;
    issuer.host_thread = context.host_thread;
    auto node = torch::autograd::get_current_node();
    if (!node) {
      issuer.module = context.modules.empty() ? -1 : context.modules.back();
      issuer.phase = context.phase_override >= 0 ? static_cast<Phase>(context.phase_override)
          : context.modules.empty()              ? Phase::Other
                                                 : Phase::Forward;
      // The wrapper above us has already taken the number for this operator's node.
      if (at::GradMode::is_enabled()) issuer.sequence = static_cast<int64_t>(at::sequence_number::peek()) - 1;
      return issuer;
    }
    issuer.in_backward = true;
    if (!context.modules.empty()) {
      issuer.module = context.modules.back();
      issuer.phase = Phase::Recompute;
      return issuer;
    }
    // An optimizer that steps from a gradient hook says so itself.
    issuer.phase = context.phase_override >= 0 ? static_cast<Phase>(context.phase_override) : Phase::Backward;
    if (node->sequence_nr() == UINT64_MAX) {
      issuer.module = module_of_parameter(*node);
    } else {
      issuer.sequence = static_cast<int64_t>(node->sequence_nr());
      issuer.module = module_of(node->thread_id(), node->sequence_nr());
    }
    return issuer;
  }

  std::mutex& mutex() { return mutex_; }
  // Around a fork, with mutex() held: no thread may be inside its log, nor hold another's.
  void lock_logs() {
    for (auto& [thread, log] : logs_) log->mutex().lock();
  }
  void unlock_logs() {
    for (auto& [thread, log] : logs_) log->mutex().unlock();
  }

 private:
  ThreadContext register_thread() {
    ThreadContext context;
    context.log = std::make_shared<SequenceLog>();
    std::lock_guard<std::mutex> lock(mutex_);
    context.host_thread = next_thread_++;
    logs_[at::RecordFunction::currentThreadId()] = context.log;
    return context;
  }

  int32_t module_of(uint64_t thread_id, uint64_t sequence) {
    // Backward asks for one thread's log almost always: remember it.
    thread_local uint64_t last_thread = UINT64_MAX;
    thread_local std::shared_ptr<SequenceLog> last_log;
    if (last_thread != thread_id) {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = logs_.find(thread_id);
      last_log = found == logs_.end() ? nullptr : found->second;
      last_thread = last_log ? thread_id : UINT64_MAX;
    }
    return last_log ? last_log->module_of(sequence) : -1;
  }

  int32_t module_of_parameter(const torch::autograd::Node& node) {
    const auto* accumulate = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
    if (!accumulate) return -1;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = parameters_.find(accumulate->variable.unsafeGetTensorImpl());
    return found == parameters_.end() ? -1 : found->second;
  }

  std::mutex mutex_;
  int32_t next_thread_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<SequenceLog>> logs_;
  std::unordered_map<const void*, int32_t> parameters_;
};

}  // namespace maya
