// One communication as the trace shows it.
#pragma once
#include "../dispatch/call_arguments.h"
#include "../dispatch/metadata_json.h"
#include "../dispatch/oracle.h"
#include "../recording/recorder.h"

#include <map>

namespace maya {

// Chakra's CollectiveCommType.
enum class Collective : int32_t { Message = -1, AllReduce = 0, Reduce = 1, AllGather = 2, Gather = 3, Scatter = 4, Broadcast = 5, AllToAll = 6, ReduceScatter = 7, Barrier = 9 };

// The arguments of a c10d operator, gathered in the order of its schema.
class CallRecord {
 public:
  CallRecord(std::string name, Collective collective) : name_(std::move(name)), kind_(Kind::Collective) { communication.collective = static_cast<int32_t>(collective); }
  CallRecord(std::string name, Kind message) : name_(std::move(name)), kind_(message) {}

  CallRecord& tensor(const char* argument, const at::Tensor& tensor, Role role) {
    open(argument);
    append_json_tensor(json_, tensor);
    use(tensor, role);
    return *this;
  }
  CallRecord& tensors(const char* argument, const std::vector<at::Tensor>& tensors, Role role) {
    open(argument);
    json_ += '[';
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i) json_ += ',';
      append_json_tensor(json_, tensors[i]);
      use(tensors[i], role);
    }
    json_ += ']';
    return *this;
  }
  // Listed in the metadata, while the kernel works on `used`, a flat copy.
  CallRecord& tensors_through(const char* argument, const std::vector<at::Tensor>& tensors, const at::Tensor& used, Role role) {
    open(argument);
    json_ += '[';
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i) json_ += ',';
      append_json_tensor(json_, tensors[i]);
    }
    json_ += ']';
    use(used, role);
    return *this;
  }
  CallRecord& text(const char* argument, const char* value) {
    open(argument);
    append_json_string(json_, value);
    return *this;
  }
  CallRecord& numbers(const char* argument, const std::vector<int64_t>& values) {
    open(argument);
    append_json_ints(json_, values);
    return *this;
  }
  CallRecord& bytes(int64_t input, int64_t output) {
    communication.input_bytes = input;
    communication.output_bytes = output;
    return *this;
  }

  const std::string& name() const { return name_; }
  int32_t name_id() const { return Recorder::instance().intern_name(name_); }

  void record(int device, int64_t stream) {
    std::string json = "{\"args\":{" + json_ + "},\"out\":[]}";
    Statistics::instance().operations++;
    int32_t metadata = Recorder::instance().intern_metadata(json);
    Recorder::instance().record({.name = name_id(), .metadata = metadata, .kind = kind_, .device = device, .stream = stream, .duration_ns = duration_ns(metadata, json)},
                                uses_.data(), uses_.size(), &communication);
  }

  Communication communication;

 private:
  // Asked once for each distinct call.
  int64_t duration_ns(int32_t metadata, const std::string& json) const {
    static auto* mutex = new std::mutex;
    static auto* known = new std::map<std::pair<std::string, int32_t>, int64_t>;
    {
      std::lock_guard<std::mutex> lock(*mutex);
      auto found = known->find({name_, metadata});
      if (found != known->end()) return found->second;
    }
    int64_t duration = Oracle::instance().duration_ns(name_, json);  // takes the GIL: without our lock
    std::lock_guard<std::mutex> lock(*mutex);
    return known->emplace(std::pair(name_, metadata), duration).first->second;
  }
  void open(const char* argument) {
    if (!json_.empty()) json_ += ',';
    append_json_string(json_, argument);
    json_ += ':';
    ++arguments_;
  }
  void use(const at::Tensor& tensor, Role role) {
    if (tensor.defined() && tensor.is_cuda()) uses_.push_back(use_of(tensor, static_cast<size_t>(arguments_ - 1), role));
  }

  std::string name_, json_;
  Kind kind_;
  int arguments_ = 0;
  std::vector<TensorUse> uses_;
};

}  // namespace maya
