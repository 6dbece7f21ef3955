// Page-locked host memory: ordinary memory from one address range, so that "is this pinned?" is a
// comparison. Blocks are powers of two and reused, as in PyTorch's caching host allocator.
#pragma once
#include <c10/core/Allocator.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace maya {

class PinnedMemory final : public c10::Allocator {
 public:
  static PinnedMemory& instance() {
    static auto* memory = new PinnedMemory;
    return *memory;
  }
  bool contains(const void* pointer) const {
    auto* address = static_cast<const char*>(pointer);
    return address >= base_ && address < base_ + kRangeBytes;
  }
  c10::DataPtr allocate(size_t bytes) override {
    size_t size = kSmallest;
    while (size < bytes) size <<= 1;
    void* pointer;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto& free = free_[size];
      if (!free.empty()) {
        pointer = free.back();
        free.pop_back();
      } else {
        TORCH_CHECK(used_ + size <= kRangeBytes, "Maya: more than ", kRangeBytes >> 30, " GiB of pinned memory asked for");
        pointer = base_ + used_;
        used_ += size;
      }
    }
    return {pointer, new Owned{size, pointer}, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  std::mutex& mutex() { return mutex_; }

 private:
  struct Owned {
    size_t size;
    void* pointer;
  };
  static constexpr size_t kSmallest = 512;
  static constexpr size_t kRangeBytes = 1ull << 40;

  PinnedMemory() {
    void* base = mmap(nullptr, kRangeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(base != MAP_FAILED, "Maya could not reserve address space for pinned memory; is ulimit -v set?");
    base_ = static_cast<char*>(base);
  }
  static void release(void* context) {
    auto* owned = static_cast<Owned*>(context);
    auto& memory = instance();
    {
      std::lock_guard<std::mutex> lock(memory.mutex_);
      memory.free_[owned->size].push_back(owned->pointer);
    }
    delete owned;
  }

  char* base_ = nullptr;
  size_t used_ = 0;
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
};

}  // namespace maya
