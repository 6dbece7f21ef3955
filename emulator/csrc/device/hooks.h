// CUDAHooksInterface: what ATen asks of "the CUDA library". The hooks object exists already and is
// long-lived, so its vtable pointer is replaced (install_hooks), not the object.
#pragma once
#include <ATen/detail/CUDAHooksInterface.h>

#include "device_allocator.h"
#include "devices.h"
#include "generator.h"
#include "pinned_memory.h"

namespace maya {

struct DeviceHooks final : at::CUDAHooksInterface {
  explicit DeviceHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool hasMAGMA() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return machine().capability_major >= 8; }
  long versionCuDNN() const override { return machine().cudnn_version; }
  long versionRuntimeCuDNN() const override { return machine().cudnn_version; }
  long versionCUDART() const override { return machine().cuda_runtime_version; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  std::string showConfig() const override { return "Maya's emulated CUDA device"; }

  int64_t cuFFTGetPlanCacheMaxSize(c10::DeviceIndex) const override { return cufft_plan_limit; }
  void cuFFTSetPlanCacheMaxSize(c10::DeviceIndex, int64_t limit) const override { cufft_plan_limit = limit; }
  int64_t cuFFTGetPlanCacheSize(c10::DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(c10::DeviceIndex) const override {}

  bool isPinnedPtr(const void* pointer) const override { return PinnedMemory::instance().contains(pointer); }
  c10::Device getDeviceFromPtr(void* pointer) const override {
    int device = DeviceAllocators::instance().device_at(pointer);
    TORCH_CHECK(device >= 0 || pointer == nullptr, "The specified pointer resides on host memory and is not registered with any CUDA device.");
    return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(std::max(device, 0)));
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex current_device() const override { return current_device_index; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(machine().device_count); }
  int getNumGPUs() const override { return machine().device_count; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device_index; }
  void setCurrentDevice(c10::DeviceIndex device) const override { make_current(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    auto previous = current_device_index;
    make_current(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::instance(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return &DeviceAllocator::instance(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(resolve(device)); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<DeviceGenerator>(static_cast<c10::DeviceIndex>(resolve(device)));
  }
  void deviceSynchronize(c10::DeviceIndex device) const override { synchronize_device(resolve(device)); }

  static inline int64_t cufft_plan_limit = 4096;
};

inline void install_hooks() {
  static auto* ours = new DeviceHooks(at::CUDAHooksArgs{});
  auto& installed = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  // The registry is asked only once, possibly during `import torch`: the object cannot be replaced.
  *reinterpret_cast<void**>(&installed) = *reinterpret_cast<void**>(ours);
}

}  // namespace maya
