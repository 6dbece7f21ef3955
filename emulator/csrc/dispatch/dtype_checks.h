// Mistakes in dtypes that a CUDA kernel refuses and a meta kernel lets pass. Asked on a cache miss
// only. Wordings are those of PyTorch's CUDA kernels.
#pragma once
#include <ATen/native/TypeProperties.h>

#include <unordered_map>

#include "call_arguments.h"

namespace maya {

// Arguments of an operator whose dtypes have to agree.
inline const std::vector<std::string_view>* agreeing_arguments(const std::string& base_name) {
  static const std::unordered_map<std::string_view, std::vector<std::string_view>> table{
      {"mm", {"self", "mat2"}}, {"addmm", {"self", "mat1", "mat2"}}, {"addmm_", {"self", "mat1", "mat2"}}, {"bmm", {"self", "mat2"}}, {"baddbmm", {"self", "batch1", "batch2"}},
      {"baddbmm_", {"self", "batch1", "batch2"}}, {"addmv", {"self", "mat", "vec"}}, {"dot", {"self", "tensor"}}, {"convolution", {"input", "weight", "bias"}},
      {"index_add", {"self", "source"}}, {"index_add_", {"self", "source"}}, {"index_put", {"self", "values"}}, {"index_put_", {"self", "values"}},
      {"_index_put_impl_", {"self", "values"}}};
  auto found = table.find(base_name);
  return found == table.end() ? nullptr : &found->second;
}

inline const char* cpp_name(c10::ScalarType type) { return c10::toString(type); }

[[noreturn]] inline void refuse_dtypes(const OperatorFacts& facts, std::string_view first, c10::ScalarType one, std::string_view second, c10::ScalarType other) {
  const auto& name = facts.base_name;
  auto lower = [](c10::ScalarType type) {
    std::string text = c10::toString(type);
    for (auto& c : text) c = static_cast<char>(std::tolower(c));
    return text;
  };
  if (name == "convolution")
    TORCH_CHECK(false, "Input type (torch.cuda.", cpp_name(one), "Tensor) and ", second, " type (torch.cuda.", cpp_name(other), "Tensor) should be the same");
  if (name.find("index_put") != std::string::npos)
    TORCH_CHECK(false, "Index put requires the source and destination dtypes match, got ", cpp_name(one), " for the destination and ", cpp_name(other), " for the source.");
  if (name.find("index_add") == 0)
    TORCH_CHECK(false, "index_add_(): self (", cpp_name(one), ") and source (", cpp_name(other), ") must have the same scalar type");
  if (first == "self" && second != "mat2") TORCH_CHECK(false, "self and ", second, " must have the same dtype, but got ", cpp_name(one), " and ", cpp_name(other));
  TORCH_CHECK(false, "expected mat1 and mat2 to have the same dtype, but got: ", lower(one), " != ", lower(other));
}

inline void check_index_dtypes(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  const auto& name = facts.base_name;
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (!arguments[a].isTensor() || !arguments[a].toTensor().defined()) continue;
    auto type = arguments[a].toTensor().scalar_type();
    const auto& argument = facts.argument_names[a];
    if (name == "index_select" && argument == "index")
      TORCH_CHECK(type == c10::kLong || type == c10::kInt, "index_select(): Expected dtype int32 or int64 for index");
    if (name.find("masked_fill") == 0 && argument == "mask")
      TORCH_CHECK(type == c10::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ", arguments[a].toTensor().dtype());
    if (name.find("nll_loss") == 0 && argument == "target")
      TORCH_CHECK(type == c10::kLong || type == c10::kByte, "expected target dtype to be Long or Byte, but got ", cpp_name(type));
  }
}

// In-place arithmetic cannot turn integers into fractions.
inline void check_result_fits(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  static const NameSet arithmetic{"mul_", "div_", "pow_", "remainder_", "fmod_", "floor_divide_", "addcmul_", "addcdiv_", "lerp_", "atan2_"};
  if (!arithmetic.count(facts.base_name)) return;
  at::native::ResultTypeState state;
  for (const auto& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) state = at::native::update_result_type_state(argument.toTensor(), state);
    else if (argument.isScalar()) state = at::native::update_result_type_state(argument.toScalar(), state);
  }
  auto result = at::native::result_type(state);
  bool rounds = arguments.back().isString();
  if (facts.base_name == "div_" && !rounds && c10::isIntegralType(result, true)) result = c10::typeMetaToScalarType(c10::get_default_dtype());
  auto target = arguments[0].toTensor().scalar_type();
  TORCH_CHECK(c10::canCast(result, target), "result type ", cpp_name(result), " can't be cast to the desired output type ", cpp_name(target));
}

inline void check_dtypes(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  check_index_dtypes(facts, arguments);
  check_result_fits(facts, arguments);
  const auto* agreeing = agreeing_arguments(facts.base_name);
  if (!agreeing || facts.has_out) return;
  std::string_view first;
  c10::ScalarType expected = c10::ScalarType::Undefined;
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (!arguments[a].isTensor() || !arguments[a].toTensor().defined()) continue;
    if (std::find(agreeing->begin(), agreeing->end(), facts.argument_names[a]) == agreeing->end()) continue;
    auto type = arguments[a].toTensor().scalar_type();
    if (first.empty()) {
      first = facts.argument_names[a];
      expected = type;
    } else if (type != expected) {
      refuse_dtypes(facts, first, expected, facts.argument_names[a], type);
    }
  }
}

}  // namespace maya
