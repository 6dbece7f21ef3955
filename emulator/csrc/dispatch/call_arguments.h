// One pass over a call's arguments: device, known values, autograd; and walks over its tensors.
#pragma once
#include <ATen/MemoryOverlap.h>
#include <ATen/core/ivalue.h>

#include "../recording/records.h"
#include "../values/value_state.h"
#include "operator_facts.h"

namespace maya {

constexpr int kFirstOutput = 256;  // position of outputs in TensorUse::argument

template <class Visit>
void for_each_tensor(const at::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList())
      if (tensor.defined()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      if (tensor && tensor->defined()) visit(*tensor);
  }
}

// The argument with every tensor replaced, devices replaced by `device`; generators become CPU
// generators seeded from the device's (dropped on meta, where nothing is random).
template <class Map>
at::IValue map_tensors(const at::IValue& value, c10::Device device, const Map& map) {
  if (value.isTensor()) return value.toTensor().defined() ? at::IValue(map(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorList()) mapped.push_back(tensor.defined() ? map(tensor) : tensor);
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      mapped.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(map(*tensor)) : tensor);
    return mapped;
  }
  if (value.isDevice()) return device;
  if (value.isGenerator()) {
    if (device.is_meta()) return {};
    const auto& generator = value.toGenerator();
    return generator.device().is_cuda() ? device_generator(generator)->next_cpu_generator() : generator;
  }
  return value;
}

inline TensorUse use_of(const at::Tensor& tensor, size_t argument, Role role) {
  TensorUse use;
  auto* block = tensor.is_cuda() ? block_of(tensor) : nullptr;
  use.storage = block ? block->allocation_id : -1;
  int64_t item = static_cast<int64_t>(tensor.itemsize());
  use.offset_bytes = tensor.storage_offset() * item;
  int64_t last = tensor.numel() > 0 ? 1 : 0;
  for (int64_t d = 0; d < tensor.dim() && last; ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  use.extent_bytes = last * item;
  use.argument = static_cast<int16_t>(argument);
  use.role = static_cast<uint8_t>(role);
  return use;
}

struct CallArguments {
  int device = -1;           // of the tensors or of a device argument; -1: the current one
  bool all_known = true;     // every value the operator reads is known
  bool inputs_small = true;  // all tensors are small enough for their values to be followed
  bool requires_grad = false;
  uint64_t written = 0;      // bit a: argument a is written by this call

  CallArguments(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
    written = facts.written_arguments;
    if (facts.training_argument < 0 || arguments[facts.training_argument].toBool()) written |= facts.unannounced_writes;
    if (facts.checks_overlap) check_overlap(facts, arguments);
    const at::Tensor* host_tensor = nullptr;
    size_t host_argument = 0;
    for (size_t a = 0; a < arguments.size(); ++a) {
      const auto& argument = arguments[a];
      if (argument.isDevice() && device < 0) device = resolve(argument.toDevice().index());
      bool read = !facts.overwrites(a);
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        if (tensor.is_cuda()) {
          same_device(facts, a, tensor.get_device());
          if (all_known && read && !is_known(tensor)) all_known = false;
          if (!small_enough(tensor)) inputs_small = false;
          requires_grad = requires_grad || tensor.requires_grad();
        } else if (tensor.is_cpu() && tensor.dim() > 0) {
          host_tensor = &tensor;
          host_argument = a;
        }
      });
    }
    if (host_tensor && device >= 0 && !facts.allows_host_tensors) mixed_devices(facts, host_argument, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), host_tensor->device());
  }

  bool writes(size_t argument) const { return (written >> argument) & 1; }

 private:
  // As TensorIterator does on a device; meta kernels leave these checks out.
  static void check_overlap(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
    for (size_t a = 0; a < arguments.size(); ++a) {
      if (!facts.writes(a) || !arguments[a].isTensor()) continue;
      const auto& target = arguments[a].toTensor();
      if (!target.defined()) continue;
      at::assert_no_internal_overlap(target);
      bool apart = facts.base_name == "masked_select";
      if (!facts.pointwise && !apart) continue;
      for (size_t b = 0; b < arguments.size(); ++b) {
        if (b == a || !arguments[b].isTensor() || !arguments[b].toTensor().defined()) continue;
        apart ? at::assert_no_overlap(target, arguments[b].toTensor()) : at::assert_no_partial_overlap(target, arguments[b].toTensor());
      }
    }
  }
  void same_device(const OperatorFacts& facts, size_t argument, int other) {
    if (device < 0) device = other;
    if (other != device)
      mixed_devices(facts, argument, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(other)));
  }
  // The wording of the wrappers that PyTorch generates.
  [[noreturn]] static void mixed_devices(const OperatorFacts& facts, size_t argument, c10::Device one, c10::Device other) {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ", other,
                "! (when checking argument for argument ", facts.argument_names[argument], " in method wrapper_CUDA_", facts.base_name, ")");
  }
};

}  // namespace maya
