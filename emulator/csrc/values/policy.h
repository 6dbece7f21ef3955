// Reading a value nobody computed: the Python policy decides a finite, plausible one and notes the
// assumption. Without a policy the neutral answers below hold.
#pragma once
#include <c10/core/Scalar.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <string>

#include "../recording/recorder.h"

namespace maya {

class ValuePolicy {
 public:
  static ValuePolicy& instance() {
    static auto* policy = new ValuePolicy;
    return *policy;
  }
  void set(pybind11::object policy) {
    // Never destroyed: the interpreter may be gone when statics die.
    policy_ = policy.is_none() ? nullptr : policy.inc_ref().ptr();
  }

  // kind: "item", "bool", "copy" (every element of a device → host copy), "count" (how many of
  // numel elements a data-dependent selection keeps).
  double ask(const char* kind, int32_t producer, c10::ScalarType type, int64_t numel) {
    ++reads;
    if (policy_) {
      auto name = Recorder::instance().name_of(producer);
      pybind11::gil_scoped_acquire gil;
      auto answer = pybind11::handle(policy_)(kind, name, c10::toString(type), numel, static_cast<int64_t>(reads));
      return answer.cast<double>();
    }
    if (std::string_view(kind) == "count") return static_cast<double>(std::max<int64_t>(numel / 2, std::min<int64_t>(numel, 1)));
    if (std::string_view(kind) == "copy" && c10::isIntegralType(type, true)) return 0;
    return 1;
  }

  c10::Scalar ask_scalar(int32_t producer, c10::ScalarType type) {
    if (type == c10::kBool) return c10::Scalar(ask("bool", producer, type, 1) != 0);
    double value = ask("item", producer, type, 1);
    if (c10::isIntegralType(type, false)) return c10::Scalar(static_cast<int64_t>(value));
    if (c10::isComplexType(type)) return c10::Scalar(c10::complex<double>(value, 0));
    return c10::Scalar(value);
  }

  std::atomic<int64_t> reads{0};

 private:
  PyObject* policy_ = nullptr;
};

}  // namespace maya
