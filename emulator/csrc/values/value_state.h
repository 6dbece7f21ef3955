// Small device tensors have real values, beside the block. The state is kept for a whole storage:
// a write that is not known makes it unknown, overwriting all of it from known values heals it.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/fill.h>

#include "../device/device_allocator.h"

namespace maya {

// Values of floating-point tensors are followed up to 64 KiB: losses, norms, scales, counters.
// Integers and booleans steer programs (token batches, masks), so they get more.
constexpr int64_t kKnownFloatBytes = 64 << 10;
constexpr int64_t kKnownIntegralBytes = 2 << 20;
constexpr int64_t kKnownByteBytes = 16 << 20;  // pickled objects on their way between ranks
constexpr int64_t kKnownIndexBytes = 32 << 20;  // arange and randperm: orders of a data set

inline int64_t known_limit_bytes(c10::ScalarType type) {
  if (type == c10::kByte) return kKnownByteBytes;
  return c10::isIntegralType(type, /*includeBool=*/true) ? kKnownIntegralBytes : kKnownFloatBytes;
}

inline DeviceBlock* block_of(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage()) return nullptr;
  const auto& storage = impl->unsafe_storage();
  if (auto* block = block_of(storage.data_ptr())) return block;
  auto* whole = block_at(storage.data_ptr());
  // A window on part of a block knows nothing of the rest of it.
  return whole && static_cast<int64_t>(storage.nbytes()) == whole->block->requested_bytes ? whole : nullptr;
}

inline bool covers_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.numel() * static_cast<int64_t>(tensor.itemsize()) == static_cast<int64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes());
}

inline bool small_enough(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes()) <= known_limit_bytes(tensor.scalar_type());
}

inline c10::intrusive_ptr<c10::StorageImpl> new_host_storage(size_t bytes) {
  auto* allocator = c10::GetAllocator(c10::kCPU);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator, false);
}

inline void forget_values(DeviceBlock& block, int32_t producer) {
  block.state = ValueState::Unknown;
  block.producer = producer;
  block.values.reset();
}

inline void become_constant(DeviceBlock& block, double value, c10::ScalarType type) {
  block.state = ValueState::Constant;
  block.constant = value;
  block.constant_type = type;
  block.values.reset();
}

inline void become_known(DeviceBlock& block, c10::intrusive_ptr<c10::StorageImpl> values) {
  block.values = std::move(values);
  block.state = ValueState::Known;  // last: another thread may be reading the state
}

// Two threads may read one constant at once.
inline std::mutex& materialise_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Constant → bytes. The storage's size comes from the tensor that is asked about.
inline void materialise(DeviceBlock& block, const c10::StorageImpl& storage) {
  std::lock_guard<std::mutex> lock(materialise_mutex());
  if (block.state != ValueState::Constant) return;
  size_t bytes = storage.nbytes();
  auto values = new_host_storage(bytes);
  auto type = block.constant_type;
  int64_t count = static_cast<int64_t>(bytes / c10::elementSize(type));
  if (block.constant == 0) {
    std::memset(values->mutable_data(), 0, bytes);
  } else {
    auto whole = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(values), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
    whole.unsafeGetTensorImpl()->set_sizes_contiguous({count});
    at::AutoDispatchBelowADInplaceOrView below;
    whole.fill_(block.constant);
  }
  become_known(block, std::move(values));
}

// Are this tensor's values there, or is it a small constant, whose bytes can be made?
inline bool is_known(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return true;
  auto* block = block_of(tensor);
  if (!block) return false;
  if (block->state == ValueState::Known) return true;
  if (tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) return true;
  return block->state == ValueState::Constant && small_enough(tensor);
}

inline at::Tensor on_storage(const at::Tensor& like, c10::intrusive_ptr<c10::StorageImpl> storage) {
  auto* impl = like.unsafeGetTensorImpl();
  c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  if (impl->is_conj()) keys = keys.add(c10::DispatchKey::Conjugate);
  if (impl->is_neg()) keys = keys.add(c10::DispatchKey::Negative);
  auto alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, impl->dtype());
  auto* alias_impl = alias.unsafeGetTensorImpl();
  alias_impl->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (impl->is_wrapped_number()) alias_impl->set_wrapped_number(true);
  return alias;
}

// A CPU tensor over the known values of a device tensor: same sizes, strides, offset and flags.
inline at::Tensor host_alias(const at::Tensor& tensor) {
  auto* block = block_of(tensor);
  if (block->state == ValueState::Constant) materialise(*block, *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  size_t bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  // Known holds for a storage of no bytes too, and a storage may have grown since.
  if (!block->values || block->values->nbytes() < bytes) {
    auto grown = new_host_storage(bytes);
    std::memset(grown->mutable_data(), 0, bytes);
    if (block->values) std::memcpy(grown->mutable_data(), block->values->data(), block->values->nbytes());
    become_known(*block, std::move(grown));
  }
  return on_storage(tensor, block->values);
}

// A CPU tensor to write all of `tensor` into, whatever was known before.
inline at::Tensor host_alias_to_overwrite(const at::Tensor& tensor) {
  auto* block = block_of(tensor);
  if (block->state != ValueState::Known) become_known(*block, new_host_storage(tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes()));
  return host_alias(tensor);
}

// Gives a fresh device tensor the values of a CPU result of the same sizes.
inline void adopt_values(const at::Tensor& device, const at::Tensor& host) {
  auto* block = block_of(device);
  if (!block) return;
  const auto& host_storage = host.unsafeGetTensorImpl()->unsafe_storage();
  bool same_layout = host.storage_offset() == 0 && device.storage_offset() == 0 && host.strides() == device.strides() &&
                     host_storage.nbytes() >= device.unsafeGetTensorImpl()->unsafe_storage().nbytes();
  // The result's storage can be taken over when nobody else holds it: `host` and its caller's copy.
  if (same_layout && host_storage.use_count() == 1) {
    become_known(*block, host_storage.getWeakStorageImpl().lock());
    return;
  }
  at::AutoDispatchBelowADInplaceOrView below;
  host_alias_to_overwrite(device).copy_(host);
}

inline void wrote(const at::Tensor& tensor, bool known, int32_t producer) {
  auto* block = block_of(tensor);
  if (block && !known) forget_values(*block, producer);
}

}  // namespace maya
