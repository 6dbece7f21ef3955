// Operators that change which storage a tensor has, or how large it is. Nothing is launched.
#pragma once
#include "../device/device_allocator.h"
#include "../values/value_state.h"

namespace maya {

// A bigger storage for the same StorageImpl; what was known of the old bytes is kept.
inline void grow_storage(c10::StorageImpl* storage, size_t bytes) {
  auto* old = block_of(storage->data_ptr());
  int device = storage->device().index();
  auto fresh = allocate_device_memory(bytes, device);
  if (auto* block = block_of(fresh); old && block) {
    block->constant = old->constant;
    block->constant_type = old->constant_type;
    block->producer = old->producer;
    block->values = old->values;
    block->state = old->state.load();
  }
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

inline void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  if (bytes == storage->nbytes()) return;
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  if (bytes == 0) {
    storage->set_data_ptr_noswap(allocate_device_memory(0, storage->device().index()));
    storage->set_nbytes(0);
    return;
  }
  grow_storage(storage, bytes);
}

// `strides`: contiguous if not given.
inline void resize_device_tensor(const at::Tensor& tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides = std::nullopt) {
  auto* impl = tensor.unsafeGetTensorImpl();
  int64_t extent = 1;
  if (strides) {
    impl->set_sizes_and_strides(sizes, *strides);
    for (size_t d = 0; d < sizes.size(); ++d) extent += std::max<int64_t>(sizes[d] - 1, 0) * (*strides)[d];
  } else {
    impl->set_sizes_contiguous(sizes);
    extent = impl->numel();
  }
  size_t needed = static_cast<size_t>(extent + impl->storage_offset()) * impl->itemsize();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (storage->nbytes() < needed && impl->numel() > 0) grow_storage(storage, needed);
}

inline const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  if (self.sizes() != sizes) resize_device_tensor(self, sizes);  // else strides stay as they are
  if (format && *format != c10::MemoryFormat::Preserve) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

inline at::Tensor& set_storage_and_layout(at::Tensor& self, c10::Storage source, int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(), "\". This is no longer allowed; the devices must match.");
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (strides.data() && (!strides.empty() || sizes.empty())) {
    impl->set_sizes_and_strides(sizes, strides, offset);
  } else {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(sizes);
  }
  size_t needed = static_cast<size_t>(impl->numel() + impl->storage_offset()) * impl->itemsize();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (storage->nbytes() < needed && impl->numel() > 0) grow_storage(storage, needed);
  return self;
}

inline at::Tensor& set_storage(at::Tensor& self, c10::Storage source) {
  auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_and_layout(self, std::move(source), 0, {count}, {});
}

inline at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_and_layout(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

inline at::Tensor& set_empty(at::Tensor& self) {
  c10::Storage empty(c10::Storage::use_byte_size_t(), 0, allocate_device_memory(0, self.get_device()), &DeviceAllocator::instance(), true);
  return set_storage_and_layout(self, std::move(empty), 0, {0}, {});
}

inline bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() && self.storage_offset() == other.storage_offset() &&
         self.sizes() == other.sizes() && self.strides() == other.strides();
}

inline void record_stream(at::Tensor& self, c10::Stream stream) {
  if (self.unsafeGetTensorImpl()->has_storage()) DeviceGuard::record_stream_use(self.storage().data_ptr(), stream.id());
}

}  // namespace maya
