// cuDNN's recurrent networks: the modules ask stubs, not operators, and their weights move into one
// flat buffer.
#pragma once
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_rnn.h>

#include "../dispatch/shape_cache.h"

namespace maya {

enum CudnnRnnMode : int64_t { kCudnnRelu = 0, kCudnnTanh = 1, kCudnnLstm = 2, kCudnnGru = 3 };  // cudnnRNNMode_t

inline at::Tensor flat_weights(at::TensorList weights) {
  static const int32_t name_id = Recorder::instance().intern_name("aten::_cudnn_rnn_flatten_weight");
  int64_t total = 0;
  for (const auto& weight : weights) total += weight.numel();
  DeviceScope scope(weights[0].get_device());
  auto buffer = new_device_tensor({total}, {1}, weights[0].scalar_type());
  wrote(buffer, false, name_id);
  return buffer;
}

inline at::Tensor cudnn_rnn_flatten_weight(at::TensorList weights, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool) {
  TORCH_CHECK(!weights.empty(), "_cudnn_rnn_flatten_weight_: cannot flatten empty weight list");
  auto buffer = flat_weights(weights);
  int64_t offset = 0;
  for (const auto& weight : weights) {
    auto* impl = weight.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(buffer.storage());
    impl->set_storage_offset(offset);
    offset += weight.numel();
  }
  return buffer;
}

// The buffer that the weights lie in, if they do; a copy of them otherwise, which torch warns about.
inline at::Tensor weight_buffer_of(at::TensorList weights) {
  const auto& first = weights[0];
  int64_t total = 0;
  bool flat = true;
  for (const auto& weight : weights) {
    flat = flat && weight.is_alias_of(first) && weight.storage_offset() == first.storage_offset() + total;
    total += weight.numel();
  }
  if (!flat) {
    TORCH_WARN(
        "RNN module weights are not part of single contiguous chunk of memory. This means they need to be compacted at every call, possibly greatly "
        "increasing memory usage. To compact weights again call flatten_parameters().");
    return flat_weights(weights);
  }
  return at::native::as_strided_tensorimpl(first.detach(), {total}, {1}, first.storage_offset());
}

struct RnnCall {
  const at::Tensor& input;
  const at::Tensor& hidden;
  std::optional<at::Tensor> cell;
  at::TensorList params;
  bool has_biases;
  CudnnRnnMode mode;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;
  std::vector<int64_t> batch_sizes;

  std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> run() const {
    int64_t width = cell ? cell->size(2) : hidden.size(2);
    bool projected = cell && hidden.size(2) != width;
    int64_t per_layer = 2 + (has_biases ? 2 : 0) + (projected ? 1 : 0);
    TORCH_CHECK(hidden.is_contiguous(), "rnn: hx is not contiguous");
    TORCH_CHECK(!cell || cell->is_contiguous(), "rnn: cx is not contiguous");
    return at::_cudnn_rnn(input, params, per_layer, weight_buffer_of(params), hidden, cell, mode, width, projected ? hidden.size(2) : 0, layers, batch_first, dropout,
                          train, bidirectional, batch_sizes, std::nullopt);
  }
};

inline std::vector<int64_t> lengths_of(const at::Tensor& batch_sizes) {
  return {batch_sizes.data_ptr<int64_t>(), batch_sizes.data_ptr<int64_t>() + batch_sizes.size(0)};
}

inline void lstm_cudnn(at::Tensor& output, at::Tensor& hidden, at::Tensor& cell, const at::Tensor& input, at::TensorList states, at::TensorList params, bool has_biases,
                       int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  auto result = RnnCall{input, states[0], states[1], params, has_biases, kCudnnLstm, layers, dropout, train, bidirectional, batch_first, {}}.run();
  output = std::get<0>(result), hidden = std::get<1>(result), cell = std::get<2>(result);
}

inline void lstm_packed_cudnn(at::Tensor& output, at::Tensor& hidden, at::Tensor& cell, const at::Tensor& data, const at::Tensor& batch_sizes, at::TensorList states,
                              at::TensorList params, bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  auto result = RnnCall{data, states[0], states[1], params, has_biases, kCudnnLstm, layers, dropout, train, bidirectional, false, lengths_of(batch_sizes)}.run();
  output = std::get<0>(result), hidden = std::get<1>(result), cell = std::get<2>(result);
}

template <CudnnRnnMode mode>
void rnn_cudnn(at::Tensor& output, at::Tensor& hidden, const at::Tensor& input, const at::Tensor& state, at::TensorList params, bool has_biases, int64_t layers,
               double dropout, bool train, bool bidirectional, bool batch_first) {
  auto result = RnnCall{input, state, std::nullopt, params, has_biases, mode, layers, dropout, train, bidirectional, batch_first, {}}.run();
  output = std::get<0>(result), hidden = std::get<1>(result);
}

template <CudnnRnnMode mode>
void rnn_packed_cudnn(at::Tensor& output, at::Tensor& hidden, const at::Tensor& data, const at::Tensor& batch_sizes, const at::Tensor& state, at::TensorList params,
                      bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  auto result = RnnCall{data, state, std::nullopt, params, has_biases, mode, layers, dropout, train, bidirectional, false, lengths_of(batch_sizes)}.run();
  output = std::get<0>(result), hidden = std::get<1>(result);
}

inline void install_rnn_stubs() {
  using namespace at::native;
  lstm_cudnn_stub.set_cuda_dispatch_ptr(&lstm_cudnn);
  lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&lstm_packed_cudnn);
  gru_cudnn_stub.set_cuda_dispatch_ptr(&rnn_cudnn<kCudnnGru>);
  gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&rnn_packed_cudnn<kCudnnGru>);
  rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&rnn_cudnn<kCudnnTanh>);
  rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&rnn_packed_cudnn<kCudnnTanh>);
  rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&rnn_cudnn<kCudnnRelu>);
  rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&rnn_packed_cudnn<kCudnnRelu>);
}

}  // namespace maya
