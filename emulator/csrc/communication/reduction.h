// Reduce operations on known values, in the order of ranks, by CPU operators.
#pragma once
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

#include "../values/constants.h"

namespace maya {

using ReduceKind = c10d::ReduceOp::RedOpType;

inline const char* reduce_name(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::SUM: return "sum";
    case ReduceKind::AVG: return "avg";
    case ReduceKind::PRODUCT: return "product";
    case ReduceKind::MIN: return "min";
    case ReduceKind::MAX: return "max";
    case ReduceKind::PREMUL_SUM: return "premul_sum";
    default: return "none";
  }
}

// As ProcessGroupNCCL refuses them.
inline void check_reduce_op(const c10d::ReduceOp& op, c10::ScalarType type) {
  switch (static_cast<ReduceKind>(op)) {
    case ReduceKind::BAND: C10_THROW_ERROR(ValueError, "Cannot use ReduceOp.BAND with NCCL");
    case ReduceKind::BOR: C10_THROW_ERROR(ValueError, "Cannot use ReduceOp.BOR with NCCL");
    case ReduceKind::BXOR: C10_THROW_ERROR(ValueError, "Cannot use ReduceOp.BXOR with NCCL");
    case ReduceKind::UNUSED: C10_THROW_ERROR(ValueError, "Unhandled ReduceOp");
    case ReduceKind::AVG:
      if (type == c10::kBool) C10_THROW_ERROR(TypeError, "Cannot use ReduceOp.AVG with boolean inputs");
      return;
    case ReduceKind::PREMUL_SUM:
      if (type != c10::kHalf && type != c10::kFloat && type != c10::kDouble && type != c10::kBFloat16)
        C10_THROW_ERROR(TypeError, "PreMulSum Data type must be half, float, bfloat16 or double");
      return;
    default: return;
  }
}

// The factor of PREMUL_SUM, each rank's own; undefined if it is a device tensor of unknown value.
inline at::Tensor premultiplied(const at::Tensor& values, const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  if (!values.defined() || !supplement) return values;
  if (!supplement->tensor_factor.defined()) return values * supplement->double_factor;
  auto factor = constant_of(supplement->tensor_factor);
  return factor ? values * *factor : at::Tensor();
}

// All of `parts`, which agree in dtype and size; undefined if one of them is.
inline at::Tensor reduced(const std::vector<at::Tensor>& parts, ReduceKind kind) {
  for (const auto& part : parts)
    if (!part.defined()) return {};
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor total = parts.front().clone();
  for (size_t i = 1; i < parts.size(); ++i) {
    switch (kind) {
      case ReduceKind::PRODUCT: total.mul_(parts[i]); break;
      case ReduceKind::MIN: total = at::minimum(total, parts[i]); break;
      case ReduceKind::MAX: total = at::maximum(total, parts[i]); break;
      default: total.scalar_type() == c10::kBool ? total.logical_or_(parts[i]) : total.add_(parts[i]);
    }
  }
  if (kind == ReduceKind::AVG) {
    if (total.is_floating_point() || total.is_complex()) total.div_(static_cast<int64_t>(parts.size()));
    else total.div_(static_cast<int64_t>(parts.size()), "trunc");
  }
  return total;
}

}  // namespace maya
