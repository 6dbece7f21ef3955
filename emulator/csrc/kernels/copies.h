// copy_: between host and device a copy engine moves bytes; on one device it is a copy engine's
// work when the layouts and dtypes are equal and a kernel otherwise; as PyTorch does it.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/to.h>

#include <shared_mutex>
#include <unordered_map>

#include "../device/pinned_memory.h"
#include "../dispatch/meta_call.h"

namespace maya {

struct CopyFacts {
  int32_t metadata = 0;
  int64_t duration_ns = 0;
};

class CopyMetadata {
 public:
  static CopyMetadata& instance() {
    static auto* metadata = new CopyMetadata;
    return *metadata;
  }
  CopyFacts of(const std::string& name, const at::Tensor& to, const at::Tensor& from, const char* direction, bool pinned) {
    Key key;
    KeyBuilder builder(key);
    builder.word(direction ? direction[0] * 256 + direction[2] : 0);
    builder.word(pinned);
    builder.tensor(to);
    builder.tensor(from);
    key.seal();
    {
      std::shared_lock<std::shared_mutex> lock(cache_mutex());
      auto found = cache_.find(key);
      if (found != cache_.end()) return found->second;
    }
    std::string json = "{\"args\":{\"self\":";
    append_json_tensor(json, to);
    json += ",\"src\":";
    append_json_tensor(json, from);
    json += "},\"out\":[]";
    if (direction) {
      json += ",\"memcpy\":{\"direction\":\"";
      json += direction;
      json += "\",\"bytes\":" + std::to_string(to.numel() * static_cast<int64_t>(to.itemsize())) + ",\"pinned\":" + (pinned ? "true" : "false") + "}";
    }
    json += "}";
    CopyFacts facts{Recorder::instance().intern_metadata(json), Oracle::instance().duration_ns(name, json)};
    std::unique_lock<std::shared_mutex> lock(cache_mutex());
    cache_.emplace(std::move(key), facts);
    return facts;
  }

 private:
  std::unordered_map<Key, CopyFacts, KeyHash> cache_;
};

inline bool is_pinned_host(const at::Tensor& tensor) { return PinnedMemory::instance().contains(tensor.unsafeGetTensorImpl()->unsafe_storage().data()); }

inline void record_copy(const at::Tensor& to, const at::Tensor& from, const char* direction, bool blocking) {
  static const std::string name = "aten::copy_";
  static const int32_t name_id = Recorder::instance().intern_name(name);
  bool pinned = (to.is_cpu() && is_pinned_host(to)) || (from.is_cpu() && is_pinned_host(from));
  auto facts = CopyMetadata::instance().of(name, to, from, direction, pinned);
  int device = to.is_cuda() ? to.get_device() : from.get_device();
  TensorUse uses[2] = {use_of(to, 0, Role::Write), use_of(from, 1, Role::Read)};
  Recorder::instance().record({.name = name_id, .metadata = facts.metadata, .kind = direction ? Kind::Memcpy : Kind::Kernel, .device = device,
                               .stream = current_streams[device], .duration_ns = facts.duration_ns, .blocking = blocking},
                              uses, 2);
}

inline void copy_values(const at::Tensor& to, const at::Tensor& from, int32_t producer) {
  auto* source = from.is_cuda() ? block_of(from) : nullptr;
  if (to.is_cpu()) {
    at::AutoDispatchBelowADInplaceOrView below;
    if (is_known(from)) {
      const_cast<at::Tensor&>(to).copy_(host_alias(from));
    } else if (auto constant = constant_of(from)) {
      const_cast<at::Tensor&>(to).fill_(*constant);
    } else if (to.numel() == 1) {
      const_cast<at::Tensor&>(to).fill_(ValuePolicy::instance().ask_scalar(source ? source->producer : -1, from.scalar_type()));
    } else {
      const_cast<at::Tensor&>(to).fill_(ValuePolicy::instance().ask("copy", source ? source->producer : -1, from.scalar_type(), to.numel()));
    }
    return;
  }
  bool fits = small_enough(to) && block_of(to);
  if (fits && is_known(from) && (is_known(to) || covers_storage(to))) {
    auto host_from = from.is_cpu() ? from : host_alias(from);
    at::AutoDispatchBelowADInplaceOrView below;
    (is_known(to) ? host_alias(to) : host_alias_to_overwrite(to)).copy_(host_from);
  } else if (auto constant = from.is_cuda() ? constant_of(from) : std::nullopt) {
    set_constant(to, *constant, producer);
  } else {
    // The producer of the numbers is what wrote the source: a copy keeps its meaning.
    wrote(to, false, source && source->producer >= 0 ? source->producer : producer);
  }
}

// Do both walk the same bytes in one run, so that a copy engine can move them?
inline bool one_run(const at::Tensor& to, const at::Tensor& from) {
  if (to.scalar_type() != from.scalar_type()) return false;
  for (int64_t d = 0; d < to.dim(); ++d)
    if (to.size(d) > 1 && to.stride(d) != from.stride(d)) return false;
  return to.numel() <= 1 || to.is_non_overlapping_and_dense();
}

inline at::Tensor spread(const at::Tensor& source, const at::Tensor& self) {
  if (source.sizes() == self.sizes()) return source;
  auto common = at::infer_size_dimvector(self.sizes(), source.sizes());
  TORCH_CHECK(self.sizes() == at::IntArrayRef(common), "output with shape ", self.sizes(), " doesn't match the broadcast shape ", at::IntArrayRef(common));
  auto geometry = at::inferExpandGeometry_dimvector(source.sizes(), source.strides(), self.sizes());
  return at::native::as_strided_tensorimpl(source, geometry.sizes, geometry.strides, source.storage_offset());
}

// Between host and device only one run of bytes of one dtype moves. Anything else is packed on the
// source's side and spread out on the target's, as in at::native::copy_kernel_cuda: dtypes are
// converted on the host.
inline void copy_between(at::Tensor& self, const at::Tensor& from, bool non_blocking, int32_t name_id) {
  if (one_run(self, from)) {
    record_copy(self, from, self.is_cpu() ? "d2h" : "h2d", !(non_blocking && is_pinned_host(self.is_cpu() ? self : from)));
    return copy_values(self, from, name_id);
  }
  at::Tensor packed_from = self.is_cuda() ? from.to(self.scalar_type()).contiguous() : from.contiguous();
  bool in_place = self.is_contiguous() && self.scalar_type() == packed_from.scalar_type();
  at::Tensor packed_to = in_place ? self : at::empty_like(self, self.options().dtype(packed_from.scalar_type()), c10::MemoryFormat::Contiguous);
  if (!in_place) {
    packed_to._set_conj(self.is_conj());
    packed_to._set_neg(self.is_neg());
  }
  copy_between(packed_to, packed_from, non_blocking, name_id);
  if (!in_place) self.copy_(packed_to, non_blocking);
}

inline at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static const int32_t name_id = Recorder::instance().intern_name("aten::copy_");
  Statistics::instance().operations++;
  if (self.is_same(source) || self.is_meta()) return self;
  TORCH_CHECK(!source.is_meta(), "Cannot copy out of meta tensor; no data!");
  at::Tensor from = spread(source, self);
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, from);
  if (self.is_cuda() && from.is_cuda()) {
    bool one_device = self.get_device() == from.get_device();
    bool moves = one_run(self, from) && self.is_conj() == from.is_conj() && self.is_neg() == from.is_neg();
    record_copy(self, from, !one_device ? "p2p" : moves ? "d2d" : nullptr, false);
    copy_values(self, from, name_id);
  } else {
    copy_between(self, from, non_blocking, name_id);
  }
  return self;
}

}  // namespace maya
