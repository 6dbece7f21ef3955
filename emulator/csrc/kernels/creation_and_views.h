// empty and the primitive views.
#pragma once
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "host_operation.h"

namespace maya {

// Fresh memory reads as zeros while it is small enough to be followed at all.
inline void start_values(const at::Tensor& tensor) {
  auto* block = block_of(tensor);
  if (block && small_enough(tensor)) become_constant(*block, 0, tensor.scalar_type());
}

inline void check_strided(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "Maya: empty on the device with layout ", c10::layout_or_default(layout));
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

inline at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                                      std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  static const HostOperation operation("aten::empty.memory_format");
  check_strided(layout, pin_memory);
  int index = device ? resolve(device->index()) : current_device_index;
  check_ordinal(index);
  DeviceScope scope(index);
  at::Tensor tensor = at::detail::empty_generic(sizes, &DeviceAllocator::instance(), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype), format);
  start_values(tensor);
  operation.record(tensor, kFirstOutput, Role::Write);
  return tensor;
}

inline at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                                std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  static const HostOperation operation("aten::empty_strided");
  check_strided(layout, pin_memory);
  int index = device ? resolve(device->index()) : current_device_index;
  check_ordinal(index);
  DeviceScope scope(index);
  auto tensor = new_device_tensor(sizes, strides, c10::dtype_or_default(dtype));
  start_values(tensor);
  operation.record(tensor, kFirstOutput, Role::Write);
  return tensor;
}

// Zeros that take no memory: what forward-mode differentiation uses for absent tangents.
struct NoMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, nullptr, c10::Device(c10::kCUDA, current_device_index)}; }
  void copy_data(void*, const void*, std::size_t) const override {}
};

inline at::Tensor efficient_zero_tensor(at::IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  static auto* nothing = new NoMemory;
  DeviceScope scope(device ? resolve(device->index()) : current_device_index);
  auto keys = c10::DispatchKeySet(c10::DispatchKey::CUDA).add(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(sizes, nothing, keys, c10::dtype_or_default(dtype), std::nullopt);
}

// "This mask cannot become a nested tensor": those are not emulated, and the padded way is open.
inline bool nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) { return false; }

inline at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<int64_t> offset) {
  static const HostOperation operation("aten::as_strided");
  operation.record(self, 0, Role::Read);
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

inline at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes) {
  static const HostOperation operation("aten::view");
  operation.record(self, 0, Role::Read);
  return at::native::view(self, sizes);
}

inline at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  static const HostOperation operation("aten::_reshape_alias");
  operation.record(self, 0, Role::Read);
  return at::native::_reshape_alias(self, sizes, strides);
}

inline at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  static const HostOperation operation("aten::unfold");
  operation.record(self, 0, Role::Read);
  return at::native::unfold(self, dimension, size, step);
}

}  // namespace maya
