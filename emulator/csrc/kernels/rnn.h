// cuDNN's recurrent networks: LSTM asks a stub, not an operator, and the weights move into one flat
// buffer.
#pragma once
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/_cudnn_rnn.h>

#include "../dispatch/shape_cache.h"

namespace at::native {
using maya_lstm_fn = void (*)(Tensor&, Tensor&, Tensor&, const Tensor&, TensorList, TensorList, bool, int64_t, double, bool, bool, bool);
DECLARE_DISPATCH(maya_lstm_fn, lstm_cudnn_stub)
}  // namespace at::native

namespace maya {

constexpr int64_t kCudnnLstm = 2;  // CUDNN_LSTM

inline at::Tensor cudnn_rnn_flatten_weight(at::TensorList weights, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool) {
  TORCH_CHECK(!weights.empty(), "_cudnn_rnn_flatten_weight_: cannot flatten empty weight list");
  static const int32_t name_id = Recorder::instance().intern_name("aten::_cudnn_rnn_flatten_weight");
  int64_t total = 0;
  for (const auto& weight : weights) total += weight.numel();
  DeviceScope scope(weights[0].get_device());
  auto buffer = new_device_tensor({total}, {1}, weights[0].scalar_type());
  wrote(buffer, false, name_id);
  int64_t offset = 0;
  for (const auto& weight : weights) {
    auto* impl = weight.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(buffer.storage());
    impl->set_storage_offset(offset);
    offset += weight.numel();
  }
  return buffer;
}

inline void lstm_cudnn(at::Tensor& output, at::Tensor& hidden, at::Tensor& cell, const at::Tensor& input, at::TensorList states, at::TensorList params, bool has_biases,
                       int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  bool projected = states[0].size(2) != states[1].size(2);
  int64_t per_layer = 2 + (has_biases ? 2 : 0) + (projected ? 1 : 0);
  auto result = at::_cudnn_rnn(input, params, per_layer, std::nullopt, states[0], states[1], kCudnnLstm, states[1].size(2), projected ? states[0].size(2) : 0,
                               layers, batch_first, dropout, train, bidirectional, {}, std::nullopt);
  output = std::get<0>(result);
  hidden = std::get<1>(result);
  cell = std::get<2>(result);
}

}  // namespace maya
