// The native module of the emulated device: one translation unit, because parsing ATen's headers is
// most of its build time (docs/decisions/0001). Python's view of it is emulator/backend.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pthread.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include "memory/allocator_python.h"
#include "registration.h"
#include "python_bindings.h"
#include "communication/python_class.h"

TORCH_LIBRARY_IMPL(aten, CUDA, library) { maya::register_direct_kernels(library); }
TORCH_LIBRARY_IMPL(aten, SparseCUDA, library) { maya::register_sparse_kernels(library); }
TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&maya::any_operator>()); }
TORCH_LIBRARY_IMPL(_, SparseCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&maya::no_kernel>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&maya::no_kernel>()); }
TORCH_LIBRARY_IMPL(_, QuantizedCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&maya::no_kernel>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&maya::no_kernel>()); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  maya::bind_machine(module);
  maya::bind_streams(module);
  maya::bind_memory(module);
  maya::bind_values(module);
  maya::bind_recording(module);
  maya::bind_attention(module);
  maya::bind_communication(module);
}
