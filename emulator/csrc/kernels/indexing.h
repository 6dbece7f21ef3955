// Boolean masks as indices: the GPU kernels expand them through nonzero first, so do we; with one
// mask and one value index_put_ is a masked_fill_.
#pragma once
#include <ATen/ops/index.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/nonzero.h>

#include "../dispatch/boxed_kernel.h"

namespace maya {

inline bool is_mask(const std::optional<at::Tensor>& index) {
  return index && index->defined() && (index->scalar_type() == c10::kBool || index->scalar_type() == c10::kByte);
}

struct IndexingKernel final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    const size_t begin = stack->size() - schema.arguments().size();
    auto indices = (*stack)[begin + 1].toOptionalTensorVector();
    bool masked = false;
    for (const auto& index : indices) masked = masked || is_mask(index);
    if (masked && !fill_instead(schema, *stack, begin, indices)) {
      auto self = (*stack)[begin].toTensor();
      c10::List<std::optional<at::Tensor>> expanded;
      for (const auto& index : indices) {
        if (!is_mask(index)) {
          expanded.push_back(index);
          continue;
        }
        check_mask(self, *index, static_cast<int64_t>(expanded.size()));
        auto positions = at::nonzero(index->is_cuda() ? *index : index->to(self.device()));
        for (int64_t dim = 0; dim < index->dim(); ++dim) expanded.push_back(positions.select(1, dim));
      }
      (*stack)[begin + 1] = expanded;
    } else if (masked) {
      return;
    }
    plain_(op, keys, stack);
  }

 private:
  static void check_mask(const at::Tensor& self, const at::Tensor& mask, int64_t dim) {
    for (int64_t d = 0; d < mask.dim(); ++d)
      TORCH_CHECK_INDEX(dim + d < self.dim() && mask.size(d) == self.size(dim + d), "The shape of the mask ", mask.sizes(), " at index ", d,
                        " does not match the shape of the indexed tensor ", self.sizes(), " at index ", dim + d);
  }

  static bool fill_instead(const c10::FunctionSchema& schema, torch::jit::Stack& stack, size_t begin, const std::vector<std::optional<at::Tensor>>& indices) {
    if (schema.name().find("index_put") == std::string::npos || indices.size() != 1 || !is_mask(indices[0]) || indices[0]->scalar_type() != c10::kBool) return false;
    const auto& value = stack[begin + 2].toTensor();
    bool accumulate = stack[begin + 3].toBool();
    if (accumulate || value.numel() != 1 || !value.is_cpu()) return false;
    auto self = stack[begin].toTensor();
    auto mask = *indices[0];
    check_mask(self, mask, 0);
    while (mask.dim() < self.dim()) mask = mask.unsqueeze(-1);
    at::Tensor result = schema.arguments()[0].alias_info() ? self.masked_fill_(mask, value.item()) : self.masked_fill(mask, value.item());
    stack.resize(begin);
    stack.emplace_back(result);
    return true;
  }

  BoxedKernel plain_;
};

}  // namespace maya
