// Operators that cost the host a dispatch and launch nothing: views and allocations.
#pragma once
#include "../dispatch/call_arguments.h"
#include "../recording/recorder.h"

namespace maya {

class HostOperation {
 public:
  explicit HostOperation(std::string_view name) : name_(Recorder::instance().intern_name(name)) {}
  void record(const at::Tensor& result, size_t argument, Role role) const {
    if (!Recorder::instance().enabled()) return;
    TensorUse use = use_of(result, argument, role);
    int device = result.is_cuda() ? result.get_device() : current_device_index;
    Recorder::instance().record({.name = name_, .kind = Kind::Host, .device = device, .stream = current_streams[device]}, &use, 1);
  }

 private:
  int32_t name_;
};

}  // namespace maya
