// The DurationOracle: asked once for each distinct (operator, metadata).
#pragma once
#include <pybind11/pybind11.h>

#include <string>

namespace maya {

class Oracle {
 public:
  static Oracle& instance() {
    static auto* oracle = new Oracle;
    return *oracle;
  }
  void set(pybind11::object oracle) { oracle_ = oracle.is_none() ? nullptr : oracle.inc_ref().ptr(); }
  int64_t duration_ns(const std::string& name, const std::string& metadata) {
    if (!oracle_) return 0;
    pybind11::gil_scoped_acquire gil;
    return pybind11::handle(oracle_)(name, metadata).cast<int64_t>();
  }

 private:
  PyObject* oracle_ = nullptr;  // never destroyed: the interpreter may be gone first
};

}  // namespace maya
