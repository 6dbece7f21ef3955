// Which CTC loss a GPU takes: cuDNN's, or PyTorch's own. The conditions are those of
// at::native::_use_cudnn_ctc_loss (aten/src/ATen/native/cudnn/LossCTC.cpp).
#pragma once
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include "../values/value_state.h"

namespace maya {

constexpr int64_t kCudnnMaxTargetLength = 255;

inline bool cudnn_takes_ctc_tensors(const at::Tensor& log_probs, const at::Tensor& targets, int64_t blank) {
  return at::globalContext().userEnabledCuDNN() && blank == 0 && targets.dim() == 1 && targets.is_contiguous() && log_probs.dim() == 3 && log_probs.is_cuda() &&
      log_probs.scalar_type() == c10::kFloat && targets.scalar_type() == c10::kInt;
}

inline bool cudnn_takes_ctc_lengths(int64_t steps, at::IntArrayRef input_lengths, at::IntArrayRef target_lengths) {
  for (size_t b = 0; b < input_lengths.size(); ++b)
    if (input_lengths[b] != steps || target_lengths[b] > kCudnnMaxTargetLength || target_lengths[b] > input_lengths[b]) return false;
  return true;
}

inline bool use_cudnn_ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets, at::IntArrayRef input_lengths, at::IntArrayRef target_lengths, int64_t blank) {
  return targets.is_cpu() && cudnn_takes_ctc_tensors(log_probs, targets, blank) && cudnn_takes_ctc_lengths(log_probs.size(0), input_lengths, target_lengths);
}

inline bool use_cudnn_ctc_loss_tensor(const at::Tensor& log_probs, const at::Tensor& targets, const at::Tensor& input_lengths, const at::Tensor& target_lengths, int64_t blank) {
  if (!cudnn_takes_ctc_tensors(log_probs, targets, blank) || input_lengths.scalar_type() != c10::kInt || target_lengths.scalar_type() != c10::kInt) return false;
  if (!is_known(input_lengths) || !is_known(target_lengths)) return true;  // full lengths are the usual case
  auto numbers = [](const at::Tensor& tensor) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto host = (tensor.is_cpu() ? tensor : host_alias(tensor)).to(c10::kLong).contiguous();
    return std::vector<int64_t>(host.data_ptr<int64_t>(), host.data_ptr<int64_t>() + host.numel());
  };
  return cudnn_takes_ctc_lengths(log_probs.size(0), numbers(input_lengths), numbers(target_lengths));
}

// AMD's library, which no CUDA build has.
inline bool use_miopen_ctc_loss(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, int64_t) { return false; }
inline bool use_miopen_ctc_loss_tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t) { return false; }

}  // namespace maya
