// What ProcessGroupNCCL refuses, in its words.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <vector>

namespace maya {

constexpr const char* kOneTensorOnly =
    "Expecting one tensor only but got multiple. You are probably using multiple devices under one thread. The support for such usage has been deprecated. For details, please refer to "
    "https://pytorch.org/docs/stable/distributed.html#multi-gpu-collective-functions. ProcessGroupNCCL continues supporting multi-process and multi-thread modes.";

inline void check_dtype_for_nccl(c10::ScalarType type) {
  switch (type) {
    case c10::kChar: case c10::kByte: case c10::kFloat: case c10::kDouble: case c10::kInt: case c10::kLong: case c10::kHalf: case c10::kBool: case c10::kBFloat16:
    case c10::kFloat8_e5m2: case c10::kFloat8_e4m3fn: case c10::kFloat8_e5m2fnuz: case c10::kFloat8_e4m3fnuz: return;
    default: C10_THROW_ERROR(TypeError, c10::str("Input tensor data type is not supported for NCCL process group: ", type));
  }
}

inline void check_device_tensor(const at::Tensor& tensor, bool message = false) {
  if (!tensor.is_cuda() || tensor.is_sparse()) C10_THROW_ERROR(ValueError, "Tensors must be CUDA and dense");
  if (tensor.is_contiguous(tensor.suggest_memory_format())) return;
  if (!message) C10_THROW_ERROR(ValueError, "Tensors must be contiguous");
  TORCH_WARN_ONCE("Detected non-contiguous tensor in P2P operations. It is user responsibility to guarantee that source and destination tensors have the same contiguity format.");
}

inline at::Tensor only_tensor(const std::vector<at::Tensor>& tensors, bool message = false) {
  TORCH_CHECK(tensors.size() == 1, kOneTensorOnly);
  check_device_tensor(tensors.front(), message);
  return tensors.front();
}

// Several tensors of one call: one GPU, one dtype. Returns their bytes.
inline int64_t check_same_device(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_WITH(ValueError, !tensors.empty(), "Tensor list must be nonempty");
  int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (!tensor.is_cuda() || tensor.is_sparse()) C10_THROW_ERROR(ValueError, "Tensors must be CUDA and dense");
    if (tensor.scalar_type() != tensors.front().scalar_type()) C10_THROW_ERROR(TypeError, "Tensors must have identical type");
    if (!tensor.is_non_overlapping_and_dense()) C10_THROW_ERROR(ValueError, "Tensors must be non-overlapping and dense");
    TORCH_CHECK_WITH(ValueError, tensor.get_device() == tensors.front().get_device(), "Expected list of tensors on the same device");
    bytes += tensor.numel() * static_cast<int64_t>(tensor.itemsize());
  }
  return bytes;
}

// NCCL reduces no complex numbers; where the operation works on both parts alike they are seen as pairs.
inline at::Tensor as_real_pairs(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* name) {
  if (!tensor.is_complex()) return tensor;
  TORCH_CHECK(c10d::isComplexViewAsRealAllowed(op), name, " does not support", static_cast<int>(static_cast<c10d::ReduceOp::RedOpType>(op)), "on complex tensors");
  return at::view_as_real(tensor);
}

inline at::Tensor as_real_pairs(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor) : tensor; }

inline int64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * static_cast<int64_t>(tensor.itemsize()); }
inline int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

}  // namespace maya
