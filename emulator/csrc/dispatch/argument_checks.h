// Mistakes in sizes and numbers that a CUDA kernel refuses and a meta kernel lets pass. Asked on a
// cache miss only. Wordings are those of PyTorch's kernels.
#pragma once
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include "call_arguments.h"

namespace maya {

class ArgumentChecks {
 public:
  ArgumentChecks(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) : facts_(facts), arguments_(arguments) {}

  void run() const {
    const auto& name = facts_.base_name;
    if (facts_.pointwise && facts_.written_arguments) fits_in_place();
    if (facts_.convolution) convolution();
    if (name == "multinomial") multinomial();
    if (name == "normal" && facts_.has_out && !tensor("std")) at::infer_size(tensor("mean")->sizes(), tensor("out")->sizes());
    if (name == "median" || name == "nanmedian") TORCH_CHECK(tensor("self")->dim() < kMaxDimensions, "CUDA Tensors cannot have more than ", kMaxDimensions, " dimensions");
    if (name == "cat" && facts_.has_out) apart_from_list("tensors");
    if (name == "addr" && facts_.has_out) matrix_in_place();
  }

 private:
  static constexpr int64_t kMaxDimensions = 25;         // MAX_DIMS of cuda/detail/TensorInfo.cuh
  static constexpr int64_t kMaxCategories = 1ll << 24;  // FLOAT32_MAX_CONSECUTIVE_INT of Distributions.cpp

  const at::IValue* argument(std::string_view name) const {
    for (size_t a = 0; a < arguments_.size(); ++a)
      if (facts_.argument_names[a] == name) return &arguments_[a];
    return nullptr;
  }
  const at::Tensor* tensor(std::string_view name) const {
    const auto* value = argument(name);
    return value && value->isTensor() && value->toTensor().defined() ? &value->toTensor() : nullptr;
  }

  // What is read cannot grow: the target of an in-place operation, or an out= that is an input too.
  void fits_in_place() const {
    for (size_t a = 0; a < arguments_.size(); ++a) {
      if (!facts_.writes(a) || !arguments_[a].isTensor() || !arguments_[a].toTensor().defined()) continue;
      const auto& target = arguments_[a].toTensor();
      bool read = !facts_.is_out(a);
      std::vector<int64_t> sizes;
      for (size_t b = 0; b < arguments_.size(); ++b) {
        if (facts_.is_out(b) || !arguments_[b].isTensor() || !arguments_[b].toTensor().defined()) continue;
        const auto& operand = arguments_[b].toTensor();
        read = read || operand.is_same(target);
        sizes = at::infer_size(sizes, operand.sizes());
      }
      TORCH_CHECK(!read || target.sizes() == at::IntArrayRef(sizes), "output with shape ", target.sizes(), " doesn't match the broadcast shape ", at::IntArrayRef(sizes));
    }
  }

  void convolution() const {
    auto each = [&](std::string_view name, int64_t least, const char* message) {
      const auto* value = argument(name);
      if (!value || !value->isIntList()) return;
      for (int64_t number : value->toIntList()) TORCH_CHECK(number >= least, message);
    };
    each("padding", 0, "negative padding is not supported");
    each("stride", 1, "non-positive stride is not supported");
    each("dilation", 1, "dilation should be greater than zero");
  }

  void multinomial() const {
    const auto& self = *tensor("self");
    const int64_t samples = argument("num_samples")->toInt();
    TORCH_CHECK(self.is_floating_point(), "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
    TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
    TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
    TORCH_CHECK(argument("replacement")->toBool() || samples <= self.size(-1), "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    TORCH_CHECK(self.size(-1) <= kMaxCategories, "number of categories cannot exceed 2^24");
  }

  void apart_from_list(std::string_view name) const {
    const auto* list = argument(name);
    const auto* out = tensor("out");
    if (!list || !out) return;
    for (const at::Tensor& item : list->toTensorList()) at::assert_no_overlap(*out, item);
  }

  void matrix_in_place() const {
    const auto *self = tensor("self"), *out = tensor("out");
    if (self && out && self->is_same(*out)) TORCH_CHECK(self->dim() == 2, "2D tensor expected, got ", self->dim(), "D tensor for input");
  }

  const OperatorFacts& facts_;
  c10::ArrayRef<at::IValue> arguments_;
};

}  // namespace maya
