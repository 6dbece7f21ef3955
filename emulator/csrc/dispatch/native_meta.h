// The shape functions that CUDA's own kernels run. Most of torch's kernels are "structured": a C++
// function checks the arguments and says what the outputs are, for the CPU, CUDA and meta alike.
// For the meta device torch then registers Python references over them, which check less, answer
// other strides here and there and take a hundred times as long. The C++ ones stay in the
// dispatcher's list of kernels, behind; torch offers no public way to them (read at 2.13 and 2.14).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

#include "name_set.h"

namespace maya {

// An explicit instantiation may name private members; the friend hands them out.
template <auto Member>
struct RevealOperator {
  friend auto& entry_of(const c10::OperatorHandle& op) { return (op.*Member)->op; }
};
auto& entry_of(const c10::OperatorHandle& op);
template struct RevealOperator<&c10::OperatorHandle::operatorDef_>;

template <auto Member>
struct RevealKernels {
  friend const auto& kernels_of(const c10::impl::OperatorEntry& entry) { return entry.*Member; }
};
const auto& kernels_of(const c10::impl::OperatorEntry& entry);
template struct RevealKernels<&c10::impl::OperatorEntry::kernels_>;

// _linalg_svd: the C++ function takes meta for a CPU, Python's assumes CUDA. index_add and index_reduce:
// only for the meta device it looks at the first index, which an empty list does not have.
inline bool python_knows_better(const std::string& base_name) {
  static const NameSet names{"_linalg_svd", "index_add", "index_add_", "index_reduce", "index_reduce_"};
  return names.count(base_name);
}

// The C++ meta kernel of an operator, if Python's hides it.
inline std::optional<c10::KernelFunction> native_meta(const c10::OperatorHandle& op, const std::string& base_name) {
  if (python_knows_better(base_name)) return std::nullopt;
  const auto& kernels = kernels_of(entry_of(op));
  auto found = kernels.find(c10::DispatchKey::Meta);
  if (found == kernels.end() || found->second.size() < 2) return std::nullopt;
  const auto& oldest = found->second.back();
  if (oldest.debug.find("RegisterMeta") == std::string::npos) return std::nullopt;
  return oldest.kernel;
}

}  // namespace maya
