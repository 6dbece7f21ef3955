// Reads of device values by the host: item(), equal().
#pragma once
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/equal.h>

#include "copies.h"

namespace maya {

inline c10::Scalar local_scalar_dense(const at::Tensor& self) {
  static const std::string name = "aten::_local_scalar_dense";
  static const int32_t name_id = Recorder::instance().intern_name(name);
  Statistics::instance().operations++;
  at::Tensor host = at::detail::empty_cpu({}, self.scalar_type());
  auto facts = CopyMetadata::instance().of(name, host, self, "d2h", false);
  TensorUse use = use_of(self, 0, Role::Read);
  Recorder::instance().record({.name = name_id, .metadata = facts.metadata, .kind = Kind::Memcpy, .device = self.get_device(),
                               .stream = current_streams[self.get_device()], .duration_ns = facts.duration_ns, .blocking = true}, &use, 1);
  at::AutoDispatchBelowADInplaceOrView below;
  if (is_known(self)) return host_alias(self).item();
  if (auto constant = constant_of(self)) return at::full({}, *constant, at::TensorOptions().dtype(self.scalar_type())).item();
  return ValuePolicy::instance().ask_scalar(block_of(self) ? block_of(self)->producer : -1, self.scalar_type());
}

inline bool equal(const at::Tensor& self, const at::Tensor& other) {
  static const std::string name = "aten::equal";
  static const int32_t name_id = Recorder::instance().intern_name(name);
  Statistics::instance().operations++;
  TORCH_CHECK(self.device() == other.device(), "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ", other.device(), "!");
  if (self.sizes() != other.sizes()) return false;
  auto facts = CopyMetadata::instance().of(name, self, other, nullptr, false);
  TensorUse uses[2] = {use_of(self, 0, Role::Read), use_of(other, 1, Role::Read)};
  Recorder::instance().record({.name = name_id, .metadata = facts.metadata, .kind = Kind::Kernel, .device = self.get_device(),
                               .stream = current_streams[self.get_device()], .duration_ns = facts.duration_ns, .blocking = true}, uses, 2);
  at::AutoDispatchBelowADInplaceOrView below;
  if (is_known(self) && is_known(other)) return host_alias(self).equal(host_alias(other));
  return ValuePolicy::instance().ask("bool", name_id, c10::kBool, 1) != 0;
}

}  // namespace maya
