// _grouped_mm (mixture-of-experts layers): one CUTLASS kernel for bfloat16 on Hopper and data-center
// Blackwell. Anything else takes torch's fallback: the group ends are read by the host, then one
// product a group is launched (pytorch aten/src/ATen/native/cuda/GroupedBlas.cpp and GroupedMMUtils.h,
// read at 2.10). Its meta kernel only knows the first case.
#pragma once
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mm.h>

#include "../dispatch/boxed_kernel.h"
#include "copies.h"

namespace maya {

struct GroupedProductKernel final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    // self, mat2, offs, bias, out_dtype
    const size_t begin = stack->size() - op.schema().arguments().size();
    const auto left = (*stack)[begin].toTensor();
    const auto right = (*stack)[begin + 1].toTensor();
    const auto out_type = (*stack)[begin + 4].isNone() ? left.scalar_type() : static_cast<c10::ScalarType>((*stack)[begin + 4].toInt());
    bool bfloat = left.scalar_type() == c10::kBFloat16 && right.scalar_type() == c10::kBFloat16 && out_type == c10::kBFloat16;
    if (bfloat && (machine().capability_major == 9 || machine().capability_major == 10)) return one_kernel_(op, keys, stack);
    TORCH_CHECK(left.scalar_type() == right.scalar_type(), "Expected mat_a and mat_b to have the same dtype, got ", left.scalar_type(), " and ", right.scalar_type());
    TORCH_CHECK_VALUE((left.dim() == 2 || left.dim() == 3) && (right.dim() == 2 || right.dim() == 3), "mat_a and mat_b have to be 2 or 3 dimensional tensors");
    auto offsets = (*stack)[begin + 2].isNone() ? at::Tensor() : (*stack)[begin + 2].toTensor();
    TORCH_CHECK(offsets.defined() == (left.dim() == 2 || right.dim() == 2), "Have to provide offsets if there is a 2d matrix, and no offset if both matrices are 3d");
    DeviceScope scope(left.get_device());
    auto result = one_product_a_group(left, right, offsets, out_type);
    stack->resize(begin);
    stack->emplace_back(std::move(result));
  }

 private:
  static at::Tensor one_product_a_group(const at::Tensor& left, const at::Tensor& right, const at::Tensor& offsets, c10::ScalarType type) {
    at::AutoDispatchBelowADInplaceOrView below;
    const bool flat_left = left.dim() == 2, flat_right = right.dim() == 2;
    if (!flat_left && !flat_right) {
      auto result = rows_of_sixteen_bytes(left.size(0), left.size(1), right.size(2), left, type);
      at::bmm_out(result, left, right);
      return result;
    }
    const int64_t groups = offsets.size(0);
    const bool flat_both = flat_left && flat_right;
    auto result = rows_of_sixteen_bytes(flat_both ? groups : 0, left.size(-2), right.size(-1), left, type);
    // What the groups divide: the dimension both are multiplied over, or the rows or columns of the flat side.
    const int64_t divided = flat_both ? left.size(1) : flat_left ? left.size(0) : right.size(1);
    const auto ends = group_ends(offsets, divided);
    int64_t start = 0;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t end = ends[static_cast<size_t>(group)];
      auto a = flat_both ? left.slice(1, start, end) : flat_left ? left.slice(0, start, end) : left.select(0, group);
      auto b = flat_both ? right.slice(0, start, end) : flat_right ? right.slice(1, start, end) : right.select(0, group);
      auto part = flat_both ? result.select(0, group) : flat_left ? result.slice(0, start, end) : result.slice(1, start, end);
      at::mm_out(part, a, b);
      start = end;
    }
    return result;
  }

  // Rows are padded to 16 bytes, as TMA wants them.
  static at::Tensor rows_of_sixteen_bytes(int64_t groups, int64_t rows, int64_t columns, const at::Tensor& like, c10::ScalarType type) {
    const int64_t alignment = 16 / static_cast<int64_t>(c10::elementSize(type));
    const int64_t row = (columns + alignment - 1) / alignment * alignment;
    auto options = like.options().dtype(type);
    if (groups) return at::empty_strided({groups, rows, columns}, {rows * row, row, 1}, options);
    return at::empty_strided({rows, columns}, {row, 1}, options);
  }

  // offs.cpu(): the values if they are real ones, else groups of equal size (balanced routing), which
  // the policy notes.
  static std::vector<int64_t> group_ends(const at::Tensor& offsets, int64_t divided) {
    const bool known = is_known(offsets);
    const int64_t groups = offsets.size(0);
    std::vector<int64_t> ends;
    at::Tensor host = at::detail::empty_cpu({groups}, offsets.scalar_type());
    record_copy(host, offsets, "d2h", true);
    if (known) host.copy_(host_alias(offsets));
    else ValuePolicy::instance().ask("equal groups", block_of(offsets) ? block_of(offsets)->producer : -1, offsets.scalar_type(), divided / groups);
    for (int64_t group = 0; group < groups; ++group) ends.push_back(known ? host[group].item<int64_t>() : divided * (group + 1) / groups);
    return ends;
  }

  BoxedKernel one_kernel_;
};

}  // namespace maya
