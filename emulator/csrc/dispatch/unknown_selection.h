// nonzero, masked_select, unique, bincount, repeat_interleave on values nobody computed: the value
// policy says how many elements are selected.
#pragma once
#include <ATen/ExpandUtils.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sum.h>

#include "meta_call.h"

namespace maya {

inline void add_selection_output(CachedCall& call, at::IntArrayRef sizes, c10::ScalarType type) {
  OutputMeta meta;
  meta.sizes.append(sizes.begin(), sizes.end());
  meta.strides.resize(sizes.size());
  int64_t stride = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    meta.strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  meta.type = type;
  meta.defined = true;
  call.forms.push_back(CachedCall::Form::Tensor);
  call.outputs.push_back({meta});
  call.values.emplace_back();
}

inline std::shared_ptr<CachedCall> select_unknown(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  auto call = std::make_shared<CachedCall>();
  const auto& self = arguments[0].toTensor();
  auto* block = self.is_cuda() ? block_of(self) : nullptr;
  auto host = [](const at::Tensor& tensor) { return tensor.is_cpu() ? tensor : host_alias(tensor); };
  at::AutoDispatchBelowADInplaceOrView below;
  auto count = [&](int64_t numel) {
    auto answer = ValuePolicy::instance().ask("count", block ? block->producer : -1, self.scalar_type(), numel);
    return std::min(numel, static_cast<int64_t>(answer));
  };
  const auto& name = facts.base_name;
  if (facts.has_out) TORCH_CHECK_NOT_IMPLEMENTED(false, "Maya: ", facts.name, " with out= on values it does not know");
  if (name == "nonzero") {
    // The GPU's result is the transpose of a [dim, n] buffer.
    int64_t n = count(self.numel());
    add_selection_output(*call, {n, self.dim()}, c10::kLong);
    call->outputs[0][0].strides = {1, n};
  } else if (name == "masked_select") {
    const auto& mask = arguments[1].toTensor();
    block = block_of(mask);
    auto sizes = at::infer_size(self.sizes(), mask.sizes());
    int64_t numel = c10::multiply_integers(sizes);
    int64_t kept = is_known(mask) ? host(mask).expand(sizes).sum().item<int64_t>() : count(numel);
    add_selection_output(*call, {kept}, self.scalar_type());
  } else if (name == "bincount") {
    int64_t at_least = arguments.size() > 2 && arguments[2].isInt() ? arguments[2].toInt() : 0;
    bool weighted = arguments.size() > 1 && arguments[1].isTensor() && arguments[1].toTensor().defined();
    if (is_known(self) && self.numel() > 0) at_least = std::max(at_least, host(self).max().item<int64_t>() + 1);
    add_selection_output(*call, {std::max<int64_t>(at_least, 1)}, !weighted ? c10::kLong : arguments[1].toTensor().scalar_type() == c10::kFloat ? c10::kFloat : c10::kDouble);
  } else if (name == "repeat_interleave") {
    int64_t total = arguments.size() > 1 && arguments[1].isInt() ? arguments[1].toInt() : self.numel();
    add_selection_output(*call, {total}, self.scalar_type());
  } else if (name == "unique_dim" || name == "unique_dim_consecutive") {
    int64_t dim = arguments[1].toInt();
    dim = dim < 0 ? dim + self.dim() : dim;
    auto sizes = self.sizes().vec();
    int64_t n = sizes[dim];
    sizes[dim] = count(n);
    int64_t kept = sizes[dim];
    add_selection_output(*call, sizes, self.scalar_type());
    add_selection_output(*call, {n}, c10::kLong);
    add_selection_output(*call, {kept}, c10::kLong);
  } else {  // _unique, _unique2, unique_consecutive: values, inverse, counts
    int64_t kept = count(self.numel());
    add_selection_output(*call, {kept}, self.scalar_type());
    if (facts.return_count > 1) add_selection_output(*call, self.sizes(), c10::kLong);
    if (facts.return_count > 2) add_selection_output(*call, {kept}, c10::kLong);
  }
  return call;
}

}  // namespace maya
