// Which attention kernel a GPU of this kind would take. The rules are those of torch's selector for
// CUDA (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, read at 2.13 and 2.14); the
// device-independent checks come from the installed header, so that they match the installed torch.
#pragma once
#include <ATen/Context.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include "../device/devices.h"

namespace at::native {
using maya_sdp_choice_fn = int64_t (*)(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool, std::optional<double>, bool);
DECLARE_DISPATCH(maya_sdp_choice_fn, _fused_sdp_choice_stub)
}  // namespace at::native

namespace maya {

inline bool capability_between(int low_major, int low_minor, int high_major, int high_minor) {
  auto at = std::pair(machine().capability_major, machine().capability_minor);
  return at >= std::pair(low_major, low_minor) && at <= std::pair(high_major, high_minor);
}

inline bool refuse(bool debug, const char* why) {
  if (debug) TORCH_WARN(why);
  return false;
}

inline bool is_low_precision(const sdp::sdp_params& p) {
  auto type = p.query.scalar_type();
  bool same = p.key.scalar_type() == type && p.value.scalar_type() == type;
  return same && (type == c10::kHalf || (type == c10::kBFloat16 && machine().capability_major >= 8));
}

inline bool can_use_flash(const sdp::sdp_params& p, bool debug) {
  if (!sdp::check_runtime_disabled_flash(p, debug) || !p.query.is_cuda() || !sdp::check_tensor_shapes(p, debug) || !sdp::check_for_attn_mask(p, debug)) return false;
  auto head = p.query.sym_size(-1);
  if (head != p.key.sym_size(-1) || head != p.value.sym_size(-1) || head > 256)
    return refuse(debug, "Flash attention requires q,k,v to have the same last dimension and to be less than or equal to 256.");
  if (!capability_between(8, 0, 12, 1)) return refuse(debug, "Flash attention only supports gpu architectures in the range [sm80, sm121].");
  if (sdp::input_requires_grad(p) && (capability_between(8, 6, 8, 9) || capability_between(12, 0, 12, 1)) && head > 192 && !(p.dropout == 0 && head > 224))
    return refuse(debug, "Flash attention does not support training with this head dimension on this gpu architecture.");
  if (p.is_causal && p.query.sym_size(-2) != p.key.sym_size(-2)) return refuse(debug, "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k.");
  if (!is_low_precision(p)) return refuse(debug, "Flash attention needs query, key and value of one half-precision dtype.");
  return sdp::check_batch_size_and_num_heads_dense<true>(p, debug) && sdp::check_nonzero_sequence_lengths_dense(p, debug) &&
         sdp::check_last_dim_stride_equals_1_dense<true>(p, debug);
}

inline bool can_use_efficient(const sdp::sdp_params& p, bool debug) {
  if (!sdp::check_runtime_disabled_mem_efficient(p, debug) || !p.query.is_cuda() || !sdp::check_tensor_shapes(p, debug)) return false;
  auto type = p.query.scalar_type();
  bool half = type == c10::kHalf || type == c10::kBFloat16;
  bool tensor_cores = machine().capability_major >= 8 || (machine().capability_major >= 7 && half);
  int64_t alignment = machine().capability_major >= 8 ? 4 : 1;
  if (tensor_cores) alignment = std::max<int64_t>(alignment, 128 / (half ? 16 : 32));
  auto head = p.query.sym_size(-1);
  if (head != p.key.sym_size(-1) || head % alignment != 0 || head <= 0 || p.value.sym_size(-1) % alignment != 0 || p.value.sym_size(-1) <= 0)
    return refuse(debug, "Mem efficient attention requires last dimension of inputs to be divisible by the GEMM alignment.");
  bool dtype_ok = p.key.scalar_type() == type && p.value.scalar_type() == type &&
                  (type == c10::kHalf || type == c10::kFloat || (type == c10::kBFloat16 && machine().capability_major >= 8));
  if (!dtype_ok) return refuse(debug, "Mem efficient attention does not support these dtypes on this gpu architecture.");
  return sdp::check_nonzero_sequence_lengths_dense(p, debug) && sdp::check_last_dim_stride_equals_1_dense<false>(p, debug) &&
         sdp::check_batch_size_and_num_heads_dense<false>(p, debug);
}

inline bool can_use_cudnn(const sdp::sdp_params& p, bool debug) {
  auto& context = at::globalContext();
  if (!context.userEnabledCuDNNSDP()) return refuse(debug, "cuDNN attention has been runtime disabled.");
  if (!p.query.is_cuda() || !sdp::check_tensor_shapes(p, debug) || !capability_between(8, 0, 12, 1)) return false;
  if (context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly()) return refuse(debug, "cuDNN SDPA is not deterministic.");
  auto version = machine().cudnn_version;
  if (version < 90000) return refuse(debug, "cuDNN version too old to use cuDNN Attention (< v9.0.0)");
  if (p.dropout > 0 && version > 91100 && version < 91400) return refuse(debug, "cuDNN version does not support dropout in SDPA (9.11 - 9.13).");
  if (!is_low_precision(p) || !sdp::check_attn_mask_shape(p, debug)) return false;
  if (p.dropout * 16.0 != std::floor(p.dropout * 16.0)) return refuse(debug, "cuDNN dropout probability resolution is limited to 1/16.");
  if (!sdp::check_nonzero_sequence_lengths_dense(p, debug) || !sdp::check_last_dim_stride_equals_1_dense<true>(p, debug)) return false;
  auto d_qk = p.query.sym_size(3), d_v = p.value.sym_size(3);
  bool sm90_or_100 = (machine().capability_major == 9 && machine().capability_minor == 0) || machine().capability_major == 10;
  c10::SymInt limit = sm90_or_100 && version >= 91100 && d_qk == 192 && d_v == 128 ? 192 : 128;
  if (d_qk > limit || d_v > limit || d_qk % 8 != 0 || d_v % 8 != 0) return refuse(debug, "cuDNN SDPA does not support this head dimension.");
  if (p.key.sym_size(2) == 1 || (p.dropout != 0 && p.query.sym_size(2) == 1)) return refuse(debug, "cuDNN SDPA does not support sequence length 1 here.");
  return true;
}

// cuDNN comes first on Hopper and data-center Blackwell from cuDNN 9.15.1 on.
inline void set_attention_priority() {
  auto& m = machine();
  bool generation = m.capability_major == 9 || m.capability_major == 10;
  bool toolkit = m.cuda_runtime_version >= 13000 || m.capability_minor == 0 || m.capability_minor == 3;
  if (m.cudnn_version <= 91500 || !generation || !toolkit || c10::utils::check_env("TORCH_CUDNN_SDPA_DEPRIORITIZED") == true) return;
  using at::SDPBackend;
  at::globalContext().setSDPPriorityOrder({static_cast<int64_t>(SDPBackend::cudnn_attention), static_cast<int64_t>(SDPBackend::flash_attention),
                                           static_cast<int64_t>(SDPBackend::efficient_attention), static_cast<int64_t>(SDPBackend::math)});
}

inline int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask, double dropout,
                                bool causal, std::optional<double> /*scale*/, bool grouped) {
  using at::SDPBackend;
  auto& context = at::globalContext();
  sdp::sdp_params params{query, key, value, mask, dropout, causal, grouped};
  for (auto backend : context.sDPPriorityOrder()) {
    bool usable = backend == SDPBackend::flash_attention ? can_use_flash(params, false)
        : backend == SDPBackend::cudnn_attention         ? can_use_cudnn(params, false)
        : backend == SDPBackend::efficient_attention     ? can_use_efficient(params, false)
                                                         : backend == SDPBackend::math && context.userEnabledMathSDP();
    if (usable) return static_cast<int64_t>(backend);
  }
  TORCH_WARN("Memory efficient kernel not used because:");
  can_use_efficient(params, true);
  TORCH_WARN("Flash attention kernel not used because:");
  can_use_flash(params, true);
  TORCH_WARN("cuDNN attention kernel not used because:");
  can_use_cudnn(params, true);
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

inline int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask, double dropout,
                                bool causal, std::optional<double> scale, bool grouped) {
  return choose_attention(query, key, value, mask, dropout, causal, scale, grouped);
}

}  // namespace maya
