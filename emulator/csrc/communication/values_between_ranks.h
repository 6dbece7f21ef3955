// What a collective does to the values, apart from what it does to streams. Size and dtype alone
// decide whether values travel, so that all ranks decide alike.
#pragma once
#include "backend.h"

namespace maya {

inline bool values_travel(c10::ScalarType type, int64_t bytes) { return bytes <= known_limit_bytes(type); }

// "all_reduce of float32[1024] (sum)": what all ranks must agree on.
inline std::string call_text(const char* operation, c10::ScalarType type, int64_t numel, const char* detail = nullptr) {
  std::string text = std::string(operation) + " of " + dtype_name(type);
  if (numel >= 0) text += "[" + std::to_string(numel) + "]";
  if (detail) text += std::string(" (") + detail + ")";
  return text;
}

// In a group of one every collective but PREMUL_SUM is a copy.
inline void copy_alone(const at::Tensor& output, const at::Tensor& input, int32_t producer) {
  if (!output.is_same(input) && !output.is_alias_of(input)) copy_values(output, input.view(output.sizes()), producer);
}

// All ranks' inputs combined: into every rank's output, the root's, or each rank's slice.
inline Deliveries NcclBackend::exchange_reduction(const char* operation, const at::Tensor& input, const at::Tensor& output, const c10d::ReduceOp& op, int root, bool scatters, int32_t producer) {
  auto kind = static_cast<ReduceKind>(op);
  if (size_ == 1 && kind != ReduceKind::PREMUL_SUM) {
    copy_alone(output, input, producer);
    return {};
  }
  auto call = call_text(operation, input.scalar_type(), input.numel(), reduce_name(kind));
  if (!values_travel(input.scalar_type(), bytes_of(input))) {
    exchange_->pass(operation, call);
    if (root < 0 || root == rank_) wrote(output, false, producer_of(input, producer));
    return {};
  }
  at::Tensor given = kind == ReduceKind::PREMUL_SUM ? premultiplied(host_values(input), op) : host_values(input);
  auto [round, own] = exchange_->all_give(operation, call, {given}, root);
  if (root >= 0 && root != rank_) return {};
  int32_t maker = producer_of(input, producer);
  int64_t offset = scatters ? rank_ * output.numel() : 0;
  return {delivery(round, [=, own = std::move(own), sources = round.sources, rank = rank_, size = size_](const std::vector<Contribution>& others) {
    std::vector<at::Tensor> parts(size);
    parts[rank] = own.values[0];
    for (size_t i = 0; i < sources.size(); ++i) parts[sources[i]] = others[i].values[0];
    at::Tensor total = reduced(parts, kind);
    write_result(output, total.defined() && scatters ? total.narrow(0, offset, output.numel()) : total, maker);
  })};
}

// Every rank's input, one after the other, into `outputs` (one for each rank) of all or of the root.
inline Deliveries NcclBackend::exchange_gathering(const char* operation, const at::Tensor& input, const Tensors& outputs, int root, int32_t producer) {
  auto type = input.scalar_type();
  if (size_ == 1) {
    copy_alone(outputs[0], input, producer);
    return {};
  }
  bool even = root >= 0 || bytes_of(outputs) == bytes_of(input) * size_;
  auto call = call_text(operation, type, even ? input.numel() : -1);
  int64_t together = even ? bytes_of(input) * size_ : bytes_of(outputs);
  int32_t maker = producer_of(input, producer);
  if (!values_travel(type, together)) {
    exchange_->pass(operation, call);
    for (const auto& output : outputs) wrote(output, false, maker);
    return {};
  }
  auto [round, own] = exchange_->all_give(operation, call, {host_values(input)}, root);
  if (root >= 0 && root != rank_) return {};
  return {delivery(round, [=, own = std::move(own), sources = round.sources, rank = rank_](const std::vector<Contribution>& others) {
    write_result(outputs[rank], own.values[0], maker);
    for (size_t i = 0; i < sources.size(); ++i) write_result(outputs[sources[i]], others[i].values[0], maker);
  })};
}

// Each pair of ranks exchanges a slice: inputs[d] goes to rank d, outputs[s] comes from rank s.
inline Deliveries NcclBackend::exchange_pairs(const char* operation, const Tensors& outputs, const Tensors& inputs, int32_t producer) {
  auto type = inputs.front().scalar_type();
  if (size_ == 1) {
    copy_alone(outputs[0], inputs[0], producer);
    return {};
  }
  auto call = call_text(operation, type, -1);
  std::map<int, std::vector<at::Tensor>> gives;
  std::vector<int> reads;
  at::Tensor own = host_values(inputs[rank_]);
  int32_t maker = producer_of(inputs[rank_], producer);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    // Both sides know the size of what they exchange.
    if (inputs[peer].numel() > 0 && values_travel(type, bytes_of(inputs[peer]) * size_)) gives[peer] = {host_values(inputs[peer])};
    if (outputs[peer].numel() > 0 && values_travel(type, bytes_of(outputs[peer]) * size_)) reads.push_back(peer);
    else if (outputs[peer].numel() > 0) wrote(outputs[peer], false, maker);
  }
  Round round = exchange_->pairs(operation, call, gives, reads);
  return {delivery(round, [=, sources = round.sources, rank = rank_](const std::vector<Contribution>& others) {
    if (outputs[rank].numel() > 0) write_result(outputs[rank], own, maker);
    for (size_t i = 0; i < sources.size(); ++i) write_result(outputs[sources[i]], others[i].values[0], maker);
  })};
}

}  // namespace maya
