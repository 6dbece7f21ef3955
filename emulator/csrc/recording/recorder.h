// Collects operation, tensor-use and memory records until Python drains them.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "attribution.h"
#include "clock.h"
#include "communicators.h"
#include "interning.h"
#include "records.h"
#include "source_line.h"

namespace maya {

struct Issue {  // what a kernel tells the recorder
  int32_t name = 0;
  int32_t metadata = 0;
  Kind kind = Kind::Kernel;
  int device = 0;
  int64_t stream = 0;
  int64_t event = -1;
  int64_t duration_ns = 0;
  bool blocking = false;
  bool wraps_autograd = false;
};

class Recorder {
 public:
  struct Drained {
    std::vector<Operation> operations;
    std::vector<TensorUse> uses;
    std::vector<Communication> communications;
  };

  static Recorder& instance() {
    static auto* recorder = new Recorder;
    return *recorder;
  }

  bool enabled() const { return enabled_; }
  void enable(bool on) { enabled_ = on; }
  void trace_source_lines(bool on) { source_lines_ = on; }

  int32_t intern_name(std::string_view name) {
    std::lock_guard<std::mutex> lock(mutex_);
    return names_.intern(name);
  }
  int32_t intern_metadata(std::string_view json) {
    std::lock_guard<std::mutex> lock(mutex_);
    return metadata_.intern(json);
  }
  int32_t intern_module(std::string_view path) {
    std::lock_guard<std::mutex> lock(mutex_);
    return modules_.intern(path);
  }

  int64_t record(const Issue& issue, const TensorUse* uses = nullptr, size_t use_count = 0, Communication* communication = nullptr) {
    Operation operation;
    Issuer issuer = Attribution::instance().now();
    operation.sequence = issuer.sequence;
    operation.module = issuer.module;
    operation.phase = static_cast<uint8_t>(issuer.phase);
    operation.host_thread = issuer.host_thread;
    if (source_lines_ && !issuer.in_backward && issue.kind != Kind::Marker)
      operation.source_line = SourceLines::instance().current();  // takes the GIL: before our lock
    operation.stream = issue.stream;
    operation.event = issue.event;
    operation.name = issue.name;
    operation.metadata = issue.metadata;
    operation.graph = graph_;
    operation.tensor_count = static_cast<int32_t>(use_count);
    operation.device = static_cast<int16_t>(issue.device);
    operation.kind = static_cast<uint8_t>(issue.kind);
    operation.blocking = issue.blocking;
    operation.wraps_autograd = issue.wraps_autograd;
    std::lock_guard<std::mutex> lock(mutex_);
    if (issue.kind != Kind::Marker) {
      clock_.issue(issue.device, issue.stream, issue.duration_ns);
      if (issue.blocking) clock_.host_waits(clock_.stream_ready_ns(issue.device, issue.stream));
    }
    // Members must count alike, whether or not one of them records.
    if (communication && issue.kind == Kind::Collective) communication->sequence = communicators_.next_sequence(communication->communicator);
    if (!enabled_) return -1;
    operation.id = next_id_++;
    if (communication) operation.communication = add_communication(*communication);
    operations_.push_back(operation);
    if (use_count) uses_.insert(uses_.end(), uses, uses + use_count);
    if (operation.graph >= 0) {
      auto& graph = graphs_[operation.graph];
      if (communication) {
        operation.communication = static_cast<int32_t>(graph.communications.size());
        graph.communications.push_back(*communication);
      }
      graph.operations.push_back(operation);
      graph.uses.insert(graph.uses.end(), uses, uses + use_count);
    }
    return operation.id;
  }

  int32_t begin_graph() {
    std::lock_guard<std::mutex> lock(mutex_);
    graph_ = next_graph_;
    return next_graph_++;
  }
  void end_graph() { graph_ = -1; }
  // A replayed CUDA graph issues what was captured, in the same order, from one launch.
  void replay_graph(int32_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = graphs_.find(id);
    if (found == graphs_.end()) return;
    const auto& graph = found->second;
    std::unordered_map<int32_t, int32_t> groups;  // of the capture → of this replay
    for (Operation operation : graph.operations) {
      Communication again;
      if (operation.communication >= 0) {
        again = graph.communications[operation.communication];
        if (again.collective >= 0) again.sequence = communicators_.next_sequence(again.communicator);
        if (again.coalescing_group >= 0) {
          auto [group, is_new] = groups.emplace(again.coalescing_group, 0);
          if (is_new) group->second = next_coalescing_group_++;
          again.coalescing_group = group->second;
        }
      }
      if (!enabled_) continue;
      operation.id = next_id_++;
      if (operation.communication >= 0) operation.communication = add_communication(again);
      operations_.push_back(operation);
    }
    if (!enabled_) return;
    uses_.insert(uses_.end(), found->second.uses.begin(), found->second.uses.end());
  }

  int32_t communicator(const std::string& name, const std::vector<int64_t>& ranks) {
    std::lock_guard<std::mutex> lock(mutex_);
    return communicators_.index_of(name, ranks);
  }
  std::vector<Communicators::Members> communicators() {
    std::lock_guard<std::mutex> lock(mutex_);
    return communicators_.all();
  }
  int32_t new_coalescing_group() {
    std::lock_guard<std::mutex> lock(mutex_);
    return next_coalescing_group_++;
  }

  void record_memory(MemoryEvent event) {
    if (!enabled_) return;
    Issuer issuer = Attribution::instance().now();
    event.module = issuer.module;
    event.phase = static_cast<uint8_t>(issuer.phase);
    std::lock_guard<std::mutex> lock(mutex_);
    event.operation = next_id_;
    memory_.push_back(event);
  }

  // Runs `use(clock)` under the lock.
  template <class Use>
  auto with_clock(Use use) {
    std::lock_guard<std::mutex> lock(mutex_);
    return use(clock_);
  }

  Drained drain() {
    Drained drained;
    std::lock_guard<std::mutex> lock(mutex_);
    drained.operations.swap(operations_);
    drained.uses.swap(uses_);
    drained.communications.swap(communications_);
    return drained;
  }
  std::vector<MemoryEvent> drain_memory() {
    std::vector<MemoryEvent> drained;
    std::lock_guard<std::mutex> lock(mutex_);
    drained.swap(memory_);
    return drained;
  }
  int64_t pending() {
    std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int64_t>(operations_.size() + memory_.size());
  }
  int64_t next_id() {
    std::lock_guard<std::mutex> lock(mutex_);
    return next_id_;
  }
  std::vector<std::string> interned(const std::string& table, size_t start) {
    std::vector<std::string> texts;
    if (table == "source_lines") {
      auto& lines = SourceLines::instance();
      for (size_t i = start; i < lines.size(); ++i) texts.push_back(lines.text(static_cast<int32_t>(i)));
      return texts;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const InternTable* source = table == "operators" ? &names_ : table == "metadata" ? &metadata_ : table == "modules" ? &modules_ : nullptr;
    if (!source) throw std::invalid_argument("no interned table named " + table);
    for (size_t i = start; i < source->size(); ++i) texts.push_back(source->at(static_cast<int32_t>(i)));
    return texts;
  }
  std::string name_of(int32_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    return id < 0 ? std::string() : names_.at(id);
  }
  // A forked child (a DataLoader worker) must neither record nor hand on its parent's records.
  void forget_after_fork() {
    enabled_ = false;
    operations_.clear();
    uses_.clear();
    communications_.clear();
    next_communication_ = 0;
    memory_.clear();
  }
  std::mutex& mutex() { return mutex_; }

 private:
  int32_t add_communication(const Communication& communication) {
    communications_.push_back(communication);
    return next_communication_++;
  }

  Recorder() { metadata_.intern("{\"args\":{},\"out\":[]}"); }  // id 0: host operations and markers

  std::mutex mutex_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> source_lines_{true};
  std::atomic<int32_t> graph_{-1};
  int32_t next_graph_ = 0;
  std::unordered_map<int32_t, Drained> graphs_;
  int64_t next_id_ = 0;
  Clock clock_;
  InternTable names_, metadata_, modules_;
  std::vector<Operation> operations_;
  std::vector<TensorUse> uses_;
  std::vector<Communication> communications_;
  int32_t next_communication_ = 0;  // row of the whole recording, not of what waits
  int32_t next_coalescing_group_ = 0;
  Communicators communicators_;
  std::vector<MemoryEvent> memory_;
};

}  // namespace maya
