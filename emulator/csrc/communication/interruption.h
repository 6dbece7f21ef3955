// Letting Python live while C++ waits for other ranks.
#pragma once
#include <Python.h>
#include <pybind11/pybind11.h>

#include <optional>

namespace maya {

// Gives the GIL up for a scope, if this thread holds it.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

// Ctrl-C reaches the main thread only, and only when Python gets to look.
inline void raise_if_interrupted() {
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return;
  pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace maya
