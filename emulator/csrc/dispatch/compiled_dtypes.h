// Dtypes that a CUDA kernel was not compiled for, and sizes that only a kernel or its caller checks.
// Asked on a cache miss only. Wordings are PyTorch's.
#pragma once
#include <ATen/ExpandUtils.h>

#include "call_arguments.h"

namespace maya {

inline const at::IValue* argument_named(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, std::string_view name) {
  for (size_t a = 0; a < arguments.size(); ++a)
    if (facts.argument_names[a] == name) return &arguments[a];
  return nullptr;
}

[[noreturn]] inline void refuse_kernel(const OperatorFacts& facts, c10::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "\"", facts.base_name, "_cuda\" not implemented for '", c10::toString(type), "'");
}

// AT_DISPATCH_* of the CUDA kernels named (aten/src/ATen/native/cuda).
inline void check_integral_and_real(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  static const NameSet integral{"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_and_", "bitwise_or_", "bitwise_xor_", "bitwise_not", "bitwise_not_", "__and__", "__or__", "__xor__",
                                "__lshift__", "__rshift__", "__ilshift__", "__irshift__", "bitwise_left_shift", "bitwise_right_shift", "gcd", "gcd_", "lcm", "lcm_"};
  static const NameSet real{"lt", "le", "gt", "ge", "lt_", "le_", "gt_", "ge_", "remainder", "remainder_", "fmod", "fmod_"};
  const auto& name = facts.base_name;
  bool integers = integral.count(name), reals = real.count(name);
  if (!integers && !reals) return;
  for (const auto& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    auto type = argument.toTensor().scalar_type();
    if ((integers && !c10::isIntegralType(type, true)) || (reals && c10::isComplexType(type))) refuse_kernel(facts, type);
  }
}

// Factorizations. After the shape function: some of them say it first, in other words.
inline void check_full_precision(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  static const NameSet full_precision{"linalg_ldl_factor_ex", "linalg_lu_factor_ex", "linalg_lu", "_linalg_eigh", "linalg_eig", "_linalg_eigvals", "linalg_cholesky_ex", "linalg_inv_ex",
                                      "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd", "linalg_qr", "geqrf", "linalg_householder_product", "ormqr", "cholesky_solve",
                                      "cholesky_inverse", "linalg_solve_triangular", "triangular_solve", "linalg_ldl_solve", "linalg_lu_solve", "cholesky"};
  if (!full_precision.count(facts.base_name)) return;
  for (const auto& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const auto& tensor = argument.toTensor();
    if (tensor.numel() == 0) return;  // the kernel would not be asked
    if (c10::isReducedFloatingType(tensor.scalar_type())) refuse_kernel(facts, tensor.scalar_type());
  }
}

inline void check_random_dtype(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  if (facts.base_name != "random_") return;
  TORCH_CHECK(!c10::isComplexType(arguments[0].toTensor().scalar_type()), "check_random_bounds handles only integral, floating-point and boolean types");
}

// Part of ConvParams' checks (aten/src/ATen/native/Convolution.cpp), which every backend shares.
inline void check_bias(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  if (facts.name != "aten::convolution") return;
  const auto* given = argument_named(facts, arguments, "bias");
  if (!given->isTensor() || !given->toTensor().defined()) return;
  const auto& bias = given->toTensor();
  const auto& weight = argument_named(facts, arguments, "weight")->toTensor();
  bool transposed = argument_named(facts, arguments, "transposed")->toBool();
  int64_t channels = transposed ? weight.size(1) * argument_named(facts, arguments, "groups")->toInt() : weight.size(0);
  TORCH_CHECK(bias.dim() == 1 && bias.size(0) == channels, "Given transposed=", transposed, ", weight of size ", weight.sizes(), ", expected bias to be 1-dimensional with ", channels,
              " elements, but got bias of size ", bias.sizes(), " instead");
}

// What a product is added to has to have its sizes, or grow to them.
inline void check_added(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  if (facts.base_name != "addmm" && facts.base_name != "_addmm_activation") return;
  const auto& self = arguments[0].toTensor();
  const auto& left = arguments[1].toTensor();
  const auto& right = arguments[2].toTensor();
  if (left.dim() != 2 || right.dim() != 2) return;  // the shape function's to say
  int64_t sizes[] = {left.size(0), right.size(1)};
  TORCH_CHECK(at::is_expandable_to(self.sizes(), sizes), "The expanded size of the tensor must match the existing size.  Target sizes: ", at::IntArrayRef(sizes),
              ".  Tensor sizes: ", self.sizes());
}

inline void check_adaptive_pooling(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  if (facts.base_name != "_adaptive_avg_pool3d" && facts.base_name != "_adaptive_avg_pool2d") return;
  const auto& input = arguments[0].toTensor();
  bool batched = input.dim() == (facts.base_name == "_adaptive_avg_pool3d" ? 5 : 4);
  for (int64_t d = batched ? 1 : 0; d < input.dim(); ++d)
    TORCH_CHECK(input.size(d) > 0, facts.base_name.substr(1), "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ", input.sizes(), " with dimension ", d,
                " being empty");
}

// Before the shape function is asked.
inline void check_kernel_arguments(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  check_integral_and_real(facts, arguments);
  check_random_dtype(facts, arguments);
  check_added(facts, arguments);
  check_bias(facts, arguments);
  check_adaptive_pooling(facts, arguments);
}

}  // namespace maya
