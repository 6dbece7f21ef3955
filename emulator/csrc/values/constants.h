// Constants of any size, and the finite lattice: `isnan` of a value nobody computed is false,
// because a healthy run is what is being predicted.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <optional>

#include "../dispatch/operator_facts.h"
#include "value_state.h"

namespace maya {

// The one value of all elements, if there is one.
inline std::optional<double> constant_of(const at::Tensor& tensor) {
  if (c10::isComplexType(tensor.scalar_type())) return std::nullopt;
  if (tensor.is_cpu()) return tensor.numel() == 1 ? std::optional<double>(tensor.item().toDouble()) : std::nullopt;
  auto* block = block_of(tensor);
  if (!block) return std::nullopt;
  if (block->state == ValueState::Constant) {
    // Another view of the bytes has other numbers, unless they are all zero.
    if (block->constant != 0 && block->constant_type != tensor.scalar_type()) return std::nullopt;
    return block->constant;
  }
  if (block->state == ValueState::Known && tensor.numel() == 1) return host_alias(tensor).item().toDouble();
  return std::nullopt;
}

// Evaluates the operator on one element of each argument; the answer holds for all elements.
inline std::optional<double> evaluate_on_constants(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  torch::jit::Stack stack;
  int64_t input_count = 1;
  auto single = [&](const at::Tensor& tensor, double value) {
    input_count = std::max(input_count, tensor.numel());
    std::vector<int64_t> ones(tensor.dim(), 1);
    return at::full(ones, value, at::TensorOptions().dtype(tensor.scalar_type()));
  };
  at::AutoDispatchBelowADInplaceOrView below;
  for (size_t a = 0; a < arguments.size(); ++a) {
    const auto& argument = arguments[a];
    if (facts.is_out(a) && argument.isTensor()) {
      stack.emplace_back(at::detail::empty_cpu({0}, argument.toTensor().scalar_type()));
    } else if (argument.isTensor() && argument.toTensor().defined()) {
      auto value = constant_of(argument.toTensor());
      if (!value) return std::nullopt;
      stack.emplace_back(single(argument.toTensor(), *value));
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> list;
      std::optional<double> common;
      for (const at::Tensor& item : argument.toTensorList()) {
        auto value = constant_of(item);
        if (!value || (common && *common != *value)) return std::nullopt;
        common = value;
        list.push_back(single(item, *value));
      }
      stack.emplace_back(std::move(list));
    } else {
      stack.push_back(argument);
    }
  }
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::Error&) {
    return std::nullopt;  // a dtype the CPU lacks: not worth a second way
  }
  if (stack.empty() || !stack.back().isTensor() || facts.return_count != 1) return std::nullopt;
  const auto& result = stack.back().toTensor();
  if (result.numel() < 1 || c10::isComplexType(result.scalar_type())) return std::nullopt;
  return result.flatten()[0].item().toDouble();
}

constexpr int64_t kLooksThroughElements = 1 << 16;  // some 20 us

// Whether every real value of a small tensor is nonzero (or zero).
inline bool all_known_are(const at::Tensor& tensor, bool nonzero) {
  if (tensor.numel() > kLooksThroughElements || tensor.numel() == 0 || !is_known(tensor)) return false;
  at::AutoDispatchBelowADInplaceOrView below;
  auto host = host_alias(tensor);
  return nonzero ? host.all().item<bool>() : !host.any().item<bool>();
}

// What one operand decides whatever the other one is: 0 times a finite number, False and, True or.
inline std::optional<double> absorbed(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  using Absorbs = OperatorFacts::Absorbs;
  if (facts.absorbs == Absorbs::None || !arguments[0].isTensor() || !arguments[1].isTensor()) return std::nullopt;
  const auto &left = arguments[0].toTensor(), &right = arguments[1].toTensor();
  if (facts.absorbs == Absorbs::True && facts.base_name[0] == 'b' && (left.scalar_type() != c10::kBool || right.scalar_type() != c10::kBool)) return std::nullopt;
  for (const auto* operand : {&left, &right}) {
    const bool wants = facts.absorbs == Absorbs::True;
    auto value = constant_of(*operand);
    if (value ? (*value != 0) == wants : operand->is_cuda() && all_known_are(*operand, wants)) return wants ? 1 : 0;
  }
  return std::nullopt;
}

// What fill_ and zero_ write everywhere.
inline std::optional<double> filled_with(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  if (!facts.fills) return std::nullopt;
  if (arguments.size() < 2) return 0;
  const auto& self = arguments[0].toTensor();
  if (c10::isComplexType(self.scalar_type())) return std::nullopt;
  std::optional<double> value = arguments[1].isTensor() ? constant_of(arguments[1].toTensor()) : std::nullopt;
  if (arguments[1].isScalar() && !arguments[1].isComplexDouble()) value = arguments[1].toScalar().toDouble();
  if (!value) return std::nullopt;
  at::AutoDispatchBelowADInplaceOrView below;
  return at::full({}, *value, at::TensorOptions().dtype(self.scalar_type())).item().toDouble();  // as the dtype rounds it
}

// What a finiteness test of unknown, finite numbers says; none if this is no such test.
inline std::optional<double> finite_answer(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  using Finite = OperatorFacts::Finite;
  if (facts.finite == Finite::None || arguments.empty() || !arguments[0].isTensor()) return std::nullopt;
  const auto& self = arguments[0].toTensor();
  if (!self.defined() || !self.is_floating_point()) return std::nullopt;
  bool equality = facts.base_name == "eq";
  switch (facts.finite) {
    case Finite::False: return 0;
    case Finite::True: return 1;
    case Finite::CompareScalar:  // isinf is written as abs(x) == inf
      if (arguments.size() > 1 && arguments[1].isDouble() && !std::isfinite(arguments[1].toDouble())) return equality ? 0 : 1;
      return std::nullopt;
    case Finite::CompareTensor: {  // isnan is written as x != x
      if (arguments.size() < 2 || !arguments[1].isTensor()) return std::nullopt;
      const auto& other = arguments[1].toTensor();
      if (other.is_cpu() && other.numel() == 1 && other.is_floating_point() && !std::isfinite(other.item<double>())) return equality ? 0 : 1;
      bool same = other.is_cuda() && block_of(other) == block_of(self) && other.storage_offset() == self.storage_offset() && other.sizes() == self.sizes() && other.strides() == self.strides();
      return same ? std::optional<double>(equality ? 1 : 0) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

// Gives all of a tensor one value: bytes when it is small, the constant state otherwise.
inline void set_constant(const at::Tensor& tensor, double value, int32_t producer) {
  auto* block = block_of(tensor);
  if (!block) return;
  bool unchanged = block->state == ValueState::Constant && block->constant == value && (value == 0 || block->constant_type == tensor.scalar_type());
  if (unchanged) return;
  if (covers_storage(tensor)) {
    become_constant(*block, value, tensor.scalar_type());
  } else if (is_known(tensor)) {
    at::AutoDispatchBelowADInplaceOrView below;
    host_alias(tensor).fill_(value);
  } else {
    forget_values(*block, producer);
  }
}

}  // namespace maya
