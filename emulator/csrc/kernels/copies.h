// copy_: between host and device a copy engine moves bytes; on one device it is a copy engine's
// work when the layouts and dtypes are equal and a kernel otherwise; as PyTorch does it.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
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

inline at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static const int32_t name_id = Recorder::instance().intern_name("aten::copy_");
  Statistics::instance().operations++;
  if (self.numel() == 0 || self.is_same(source)) return self;
  if (self.is_meta()) return self;
  TORCH_CHECK(!source.is_meta(), "Cannot copy out of meta tensor; no data!");
  bool same_type = self.scalar_type() == source.scalar_type();
  at::Tensor from = source.sizes() == self.sizes() ? source : source.expand(self.sizes());
  if (self.is_cuda() && from.is_cuda()) {
    bool one_device = self.get_device() == from.get_device();
    bool same_layout = same_type && self.strides() == from.strides() && self.is_non_overlapping_and_dense() && self.is_conj() == from.is_conj() && self.is_neg() == from.is_neg();
    record_copy(self, from, !one_device ? "p2p" : same_layout ? "d2d" : nullptr, false);
  } else {
    // A copy between host and device moves contiguous bytes of one dtype; anything else is brought
    // into that form on the source's side first, and spread out on the target's side afterwards.
    bool plain_source = same_type && from.is_non_overlapping_and_dense();
    bool plain_target = self.is_non_overlapping_and_dense() && (self.strides() == from.strides() || self.is_contiguous());
    if (!plain_source || (!from.is_contiguous() && from.strides() != self.strides())) {
      from = from.to(self.scalar_type()).contiguous();
      plain_target = self.is_contiguous();
    }
    if (!plain_target) {
      auto packed = at::empty_like(self, self.options(), c10::MemoryFormat::Contiguous);
      packed.copy_(from, non_blocking);
      self.copy_(packed);
      return self;
    }
    bool pinned = is_pinned_host(self.is_cpu() ? self : from);
    record_copy(self, from, self.is_cpu() ? "d2h" : "h2d", !(non_blocking && pinned));
  }
  copy_values(self, from, name_id);
  return self;
}

}  // namespace maya
