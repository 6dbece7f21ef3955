// Puts the emulated device behind PyTorch's seams: guard, allocator, hooks, kernels.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <vector>

#include "device/hooks.h"
#include "dispatch/boxed_kernel.h"
#include "kernels/amp.h"
#include "kernels/attention.h"
#include "kernels/copies.h"
#include "kernels/creation_and_views.h"
#include "kernels/ctc.h"
#include "kernels/grouped_mm.h"
#include "kernels/indexing.h"
#include "kernels/reads.h"
#include "kernels/rnn.h"
#include "kernels/sparse.h"
#include "kernels/storage_changes.h"

namespace maya {

struct SilentWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Kernels with a body of their own. Everything else with a CUDA kernel gets the boxed one.
inline void register_direct_kernels(torch::Library& library) {
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("unfold", unfold);
  library.impl("view_as_real", at::native::view_as_real);
  library.impl("view_as_complex", at::native::view_as_complex);
  library.impl("copy_", copy_);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("equal", equal);
  library.impl("resize_", resize_);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Storage_storage_offset", set_storage_and_layout);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_empty);
  library.impl("is_set_to", is_set_to);
  library.impl("record_stream", record_stream);
  library.impl("_fused_sdp_choice", fused_sdp_choice);
  library.impl("_amp_foreach_non_finite_check_and_unscale_", amp_foreach_non_finite_check_and_unscale_);
  library.impl("_cudnn_rnn_flatten_weight", cudnn_rnn_flatten_weight);
  library.impl("_use_cudnn_ctc_loss", use_cudnn_ctc_loss);
  library.impl("_use_cudnn_ctc_loss.Tensor", use_cudnn_ctc_loss_tensor);
  library.impl("_use_miopen_ctc_loss", use_miopen_ctc_loss);
  library.impl("_use_miopen_ctc_loss.Tensor", use_miopen_ctc_loss_tensor);
  library.impl("_nested_tensor_from_mask_left_aligned", nested_tensor_from_mask_left_aligned);
  library.impl("_efficientzerotensor", efficient_zero_tensor);
}

inline const std::vector<std::string>& direct_operators() {
  static const std::vector<std::string> names{
      "empty.memory_format", "empty_strided", "as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "copy_",
      "_local_scalar_dense", "equal", "resize_", "set_.source_Storage", "set_.source_Storage_storage_offset", "set_.source_Tensor", "set_", "is_set_to",
      "record_stream", "_fused_sdp_choice", "_amp_foreach_non_finite_check_and_unscale_", "_cudnn_rnn_flatten_weight", "_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor", "_nested_tensor_from_mask_left_aligned", "_efficientzerotensor", "is_pinned", "_pin_memory"};
  return names;
}

inline bool indexes_with_masks(const std::string& base) {
  return base == "index" || base == "index_put" || base == "index_put_" || base == "_index_put_impl_" || base == "_unsafe_index" || base == "_unsafe_index_put";
}

inline std::vector<c10::RegistrationHandleRAII>& registrations() {
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>;
  return *handles;
}

// Gives each named operator (of aten, unless it says `namespace::name`) the boxed kernel. Returns the names this torch does not have.
inline std::vector<std::string> register_operators(const std::vector<std::string>& names) {
  SilentWarnings silent;  // "Overriding a previously registered kernel", once for each, in a CUDA build
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  std::vector<std::string> absent;
  for (const auto& name : names) {
    auto dot = name.find('.');
    auto base = name.substr(0, dot);
    c10::OperatorName full(base.find("::") == std::string::npos ? "aten::" + base : base, dot == std::string::npos ? "" : name.substr(dot + 1));
    if (!c10::Dispatcher::singleton().findSchema(full)) {
      absent.push_back(name);
      continue;
    }
    auto kernel = indexes_with_masks(base) ? c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<IndexingKernel>())
        : base == "_embedding_bag_backward" && dot == std::string::npos
        ? c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<EmbeddingBagBackwardKernel>())
        : base == "_grouped_mm"            ? c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<GroupedProductKernel>())
                                           : c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>());
    registrations().push_back(c10::Dispatcher::singleton().registerImpl(full, c10::DispatchKey::CUDA, std::move(kernel), std::nullopt, nullptr, "maya"));
  }
  return absent;
}

inline void no_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Maya does not emulate ", op.schema().name(), " on sparse, quantized or nested CUDA tensors yet");
}

// Gives every operator that has a kernel of its own for `key` (a CUDA build's for sparse, quantized and
// nested tensors, which would ask the driver) the refusal below: a fallback does not displace them.
inline void refuse_operators(const std::string& key, const std::vector<std::string>& names) {
  SilentWarnings silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const auto& name : names) {
    auto dot = name.find('.');
    c10::OperatorName full(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
    if (!c10::Dispatcher::singleton().findSchema(full)) continue;
    registrations().push_back(c10::Dispatcher::singleton().registerImpl(full, c10::parseDispatchKey(key), c10::KernelFunction::makeFromBoxedFunction<&no_kernel>(), std::nullopt,
                                                                        nullptr, "maya"));
  }
}

// Gives each named operator, for `to`, the kernel that torch has for `from`: those are one C++ function
// for the CPU and CUDA.
inline void share_kernels(const std::string& from, const std::string& to, const std::vector<std::string>& names) {
  SilentWarnings silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const auto& name : names) {
    auto dot = name.find('.');
    auto op = c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (!op) continue;
    auto kernel = first_kernel(*op, c10::parseDispatchKey(from));
    if (kernel) registrations().push_back(c10::Dispatcher::singleton().registerImpl(op->operator_name(), c10::parseDispatchKey(to), *kernel, std::nullopt, nullptr, "maya"));
  }
}

inline std::mutex& other_kernels_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Operators outside the list (a library's own): the boxed kernel, one instance for each schema.
inline void any_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static auto* kernels = new std::unordered_map<const void*, std::unique_ptr<BoxedKernel>>;
  BoxedKernel* kernel;
  {
    std::lock_guard<std::mutex> lock(other_kernels_mutex());
    auto& slot = (*kernels)[&op.schema()];
    if (!slot) slot = std::make_unique<BoxedKernel>();
    kernel = slot.get();
  }
  (*kernel)(op, keys, stack);
}

inline void install_device() {
  DeviceAllocators::instance().configure();
  c10::impl::registerDeviceGuard(c10::kCUDA, new DeviceGuard);
  c10::SetAllocator(c10::kCUDA, &DeviceAllocator::instance(), 255);
  install_hooks();
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&fused_sdp_choice);
  install_rnn_stubs();
  set_attention_priority();
}

}  // namespace maya
