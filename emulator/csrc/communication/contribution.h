// What one rank gives to a collective: what it called, and the values of its tensors as far as it
// has them.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/ops/full.h>

#include <cstring>
#include <string>
#include <vector>

#include "../values/constants.h"
#include "transport.h"

namespace maya {

struct Contribution {
  std::string call;                // what the rank called, the same on all ranks
  std::vector<at::Tensor> values;  // host tensors of one dimension; undefined where unknown
};

// The numbers of a device tensor as a host tensor of one dimension; undefined if nobody knows them.
inline at::Tensor host_values(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below;
  if (is_known(tensor)) return host_alias(tensor).reshape({-1}).clone();
  if (auto constant = constant_of(tensor)) return at::full({tensor.numel()}, *constant, at::TensorOptions().dtype(tensor.scalar_type()));
  return {};
}

namespace contribution_format {
template <class Number>
void put(Bytes& bytes, Number number) {
  const auto* raw = reinterpret_cast<const uint8_t*>(&number);
  bytes.insert(bytes.end(), raw, raw + sizeof number);
}
template <class Number>
Number take(const uint8_t*& at, const uint8_t* end) {
  TORCH_CHECK(static_cast<size_t>(end - at) >= sizeof(Number), "Maya: a truncated message between ranks");
  Number number;
  std::memcpy(&number, at, sizeof number);
  at += sizeof number;
  return number;
}
}  // namespace contribution_format

inline Bytes encode(const Contribution& contribution) {
  using namespace contribution_format;
  Bytes bytes;
  put<uint32_t>(bytes, static_cast<uint32_t>(contribution.call.size()));
  bytes.insert(bytes.end(), contribution.call.begin(), contribution.call.end());
  put<uint32_t>(bytes, static_cast<uint32_t>(contribution.values.size()));
  for (const auto& value : contribution.values) {
    put<uint8_t>(bytes, value.defined());
    if (!value.defined()) continue;
    put<int8_t>(bytes, static_cast<int8_t>(value.scalar_type()));
    put<int64_t>(bytes, value.numel());
    const auto* data = static_cast<const uint8_t*>(value.const_data_ptr());
    bytes.insert(bytes.end(), data, data + value.nbytes());
  }
  return bytes;
}

inline Contribution decode(const Bytes& bytes) {
  using namespace contribution_format;
  const uint8_t *at = bytes.data(), *end = at + bytes.size();
  Contribution contribution;
  auto length = take<uint32_t>(at, end);
  TORCH_CHECK(static_cast<size_t>(end - at) >= length, "Maya: a truncated message between ranks");
  contribution.call.assign(reinterpret_cast<const char*>(at), length);
  at += length;
  auto count = take<uint32_t>(at, end);
  for (uint32_t i = 0; i < count; ++i) {
    contribution.values.emplace_back();
    if (!take<uint8_t>(at, end)) continue;
    auto type = static_cast<c10::ScalarType>(take<int8_t>(at, end));
    auto numel = take<int64_t>(at, end);
    at::Tensor value = at::detail::empty_cpu({numel}, type);
    TORCH_CHECK(static_cast<size_t>(end - at) >= value.nbytes(), "Maya: a truncated message between ranks");
    if (value.nbytes()) std::memcpy(value.mutable_data_ptr(), at, value.nbytes());
    at += value.nbytes();
    contribution.values.back() = std::move(value);
  }
  return contribution;
}

}  // namespace maya
