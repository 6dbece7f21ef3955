// What one operator does for one key: its outputs, its metadata in the trace, its duration.
#pragma once
#include <ATen/EmptyTensor.h>

#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "../device/device_allocator.h"
#include "../values/value_state.h"
#include "key.h"
#include "metadata_json.h"

namespace maya {

struct OutputMeta {
  c10::SmallVector<int64_t, 5> sizes, strides;
  c10::ScalarType type = c10::kFloat;
  bool defined = false;

  int64_t extent_bytes() const {
    if (!defined) return 0;
    int64_t last = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 0) return 0;
      last += (sizes[d] - 1) * strides[d];
    }
    return last * static_cast<int64_t>(c10::elementSize(type));
  }
};

inline OutputMeta meta_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized(), "Maya does not emulate sparse, quantized or nested CUDA tensors yet");
  OutputMeta meta;
  meta.sizes.append(tensor.sizes().begin(), tensor.sizes().end());
  meta.strides.append(tensor.strides().begin(), tensor.strides().end());
  meta.type = tensor.scalar_type();
  meta.defined = true;
  return meta;
}

inline at::Tensor new_device_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType type) {
  return at::detail::empty_strided_generic(sizes, strides, &DeviceAllocator::instance(), c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
}

inline at::Tensor new_output(const OutputMeta& meta) {
  if (!meta.defined) return {};
  return new_device_tensor({meta.sizes.data(), meta.sizes.size()}, {meta.strides.data(), meta.strides.size()}, meta.type);
}

struct CachedCall {
  enum class Form : uint8_t { Tensor, List, Value, Alias };
  std::vector<Form> forms;                        // one a return
  std::vector<std::vector<OutputMeta>> outputs;   // one list a return
  std::vector<at::IValue> values;                 // Form::Value: a number the meta function gave
  std::vector<std::pair<int, OutputMeta>> resized;  // out= arguments
  bool integral_outputs = true;
  int64_t largest_output_bytes = 0;
  int32_t metadata = 0;
  int64_t duration_ns = 0;

  // May the real values of all outputs be kept?
  bool outputs_small(bool index_factory) const {
    return largest_output_bytes <= (!integral_outputs ? kKnownFloatBytes : index_factory ? kKnownIndexBytes : kKnownIntegralBytes);
  }

  void note_size(const OutputMeta& meta) {
    if (!meta.defined) return;
    largest_output_bytes = std::max(largest_output_bytes, meta.extent_bytes());
    if (!c10::isIntegralType(meta.type, true)) integral_outputs = false;
  }
};

// One lock for all operators' caches: held only around a look-up or an insertion, and one lock is
// what pthread_atfork can take.
inline std::shared_mutex& cache_mutex() {
  static auto* mutex = new std::shared_mutex;
  return *mutex;
}

using ShapeCache = std::unordered_map<Key, std::shared_ptr<const CachedCall>, KeyHash>;

}  // namespace maya
