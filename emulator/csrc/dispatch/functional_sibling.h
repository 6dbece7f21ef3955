// The shape of an out= operator that has no meta kernel, from the operator it is a variant of.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "operator_facts.h"

namespace maya {

// Runs `name` for `name.out` on the meta arguments; its results, in the order of the out= arguments.
// None when there is no such operator or it takes other arguments.
inline std::optional<torch::jit::Stack> call_functional_sibling(const OperatorFacts& facts, const torch::jit::Stack& arguments) {
  auto sibling = c10::Dispatcher::singleton().findSchema({"aten::" + facts.base_name, ""});
  if (!sibling) return std::nullopt;
  torch::jit::Stack stack;
  for (const auto& wanted : sibling->schema().arguments()) {
    size_t a = 0;
    while (a < facts.argument_count && (facts.is_out(a) || facts.argument_names[a] != wanted.name())) ++a;
    if (a == facts.argument_count) return std::nullopt;
    stack.push_back(arguments[a]);
  }
  if (sibling->schema().returns().size() != facts.return_count) return std::nullopt;
  sibling->callBoxed(&stack);
  return stack;
}

// Linear algebra gives a fresh out= the strides of its plain result, columns first; torch's meta
// kernels in Python make it contiguous.
inline bool lays_out_as_sibling(const OperatorFacts& facts) {
  static const NameSet others{"ormqr", "triangular_solve", "geqrf"};
  return facts.has_out && (facts.base_name.find("linalg_") != std::string::npos || others.count(facts.base_name));
}

}  // namespace maya
