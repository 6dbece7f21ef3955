// CUDA generators: seed and Philox offset as a GPU keeps them. Small random tensors get real
// numbers from a CPU generator seeded with (seed, offset), so that the user's CPU random state is
// never consumed and equal seeds give equal numbers.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>

#include <vector>

#include "devices.h"

namespace maya {

class DeviceGenerator final : public at::CPUGeneratorImpl {
 public:
  explicit DeviceGenerator(c10::DeviceIndex device) : at::CPUGeneratorImpl(c10::default_rng_seed_val) {
    device_ = c10::Device(c10::kCUDA, device);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::CUDA);
  }
  void set_current_seed(uint64_t seed) override {
    at::CPUGeneratorImpl::set_current_seed(seed);
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = static_cast<int64_t>(offset); }
  uint64_t get_offset() const override { return static_cast<uint64_t>(offset_); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    // 16 bytes on a GPU: seed and offset.
    auto state = at::detail::empty_cpu({16}, c10::kByte);
    auto* words = static_cast<int64_t*>(state.data_ptr());
    words[0] = static_cast<int64_t>(const_cast<DeviceGenerator*>(this)->current_seed());
    words[1] = offset_;
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 || state.numel() == 8, "RNG state is wrong size");
    const auto* words = static_cast<const int64_t*>(state.data());
    at::CPUGeneratorImpl::set_current_seed(static_cast<uint64_t>(words[0]));
    offset_ = state.numel() == 16 ? words[1] : 0;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(clone_impl());
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    auto* other = static_cast<DeviceGenerator*>(state.get());
    at::CPUGeneratorImpl::set_current_seed(other->current_seed());
    offset_ = other->offset_;
  }

  // A CPU generator for one operator; advances the Philox offset as a kernel would.
  at::Generator next_cpu_generator() {
    std::lock_guard<std::mutex> lock(mutex_);
    // Two odd constants (Knuth's and SplitMix64's) spread seed and offset over the 64 bits.
    uint64_t seed = current_seed() * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(offset_) * 0xD1B54A32D192ED03ull;
    advance();
    return at::make_generator<at::CPUGeneratorImpl>(seed);
  }
  void advance() { offset_ += kPhiloxIncrement; }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* copy = new DeviceGenerator(device_.index());
    copy->set_current_seed(const_cast<DeviceGenerator*>(this)->current_seed());
    copy->offset_ = offset_;
    return copy;
  }
  static constexpr int64_t kPhiloxIncrement = 4;
  int64_t offset_ = 0;
};

inline const at::Generator& default_generator(int device) {
  static auto* generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int index = 0; index < kMaxDevices; ++index) made->push_back(at::make_generator<DeviceGenerator>(static_cast<c10::DeviceIndex>(index)));
    return made;
  }();
  return generators->at(device);
}

inline DeviceGenerator* device_generator(const at::Generator& generator) {
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl());
}

}  // namespace maya
