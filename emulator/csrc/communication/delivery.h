// Values that are on their way to this rank's tensors: collected and written when the script waits
// for the work (or for the device), not before.
#pragma once
#include <functional>
#include <list>

#include "exchange.h"

namespace maya {

// Writes a result into a device tensor. Undefined: nobody knows it.
inline void write_result(const at::Tensor& to, const at::Tensor& values, int32_t producer) {
  at::AutoDispatchBelowADInplaceOrView below;
  if (!values.defined()) return wrote(to, false, producer);
  if (is_known(to)) {
    host_alias(to).copy_(values.view(to.sizes()));
  } else if (covers_storage(to) && small_enough(to)) {
    host_alias_to_overwrite(to).copy_(values.view(to.sizes()));
  } else if (to.numel() == 1) {
    set_constant(to, values.item().toDouble(), producer);
  } else {
    wrote(to, false, producer);
  }
}

// The operator that made the unknown numbers of a tensor: a reduced loss is still a loss.
inline int32_t producer_of(const at::Tensor& tensor, int32_t otherwise) {
  auto* block = tensor.is_cuda() ? block_of(tensor) : nullptr;
  return block && block->state == ValueState::Unknown && block->producer >= 0 ? block->producer : otherwise;
}

class Delivery {
 public:
  using Apply = std::function<void(const std::vector<Contribution>&)>;
  Delivery(std::shared_ptr<Exchange> exchange, Round round, Apply apply) : exchange_(std::move(exchange)), round_(std::move(round)), apply_(std::move(apply)) {}

  // Questions never wait for the lock: who holds it may need the GIL that the asker has.
  bool is_ready() {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    return lock && (!apply_ || exchange_->is_ready(round_));
  }
  bool is_done() {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    return lock && !apply_;
  }
  // Waits for the other ranks.
  void finish() {
    WithoutGil free;  // before the lock: two threads may wait for one work
    std::lock_guard<std::mutex> lock(mutex_);
    if (!apply_) return;
    apply_(exchange_->collect(round_));
    apply_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Exchange> exchange_;
  Round round_;
  Apply apply_;
};

using Deliveries = std::vector<std::shared_ptr<Delivery>>;

// Works that nobody has waited for yet: a script may as well wait for the stream or the device.
class Outstanding {
 public:
  static Outstanding& instance() {
    static auto* outstanding = new Outstanding;
    return *outstanding;
  }
  void add(int device, int64_t stream, const Deliveries& deliveries) {
    if (deliveries.empty()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    entries_.remove_if([](const Entry& entry) {
      auto delivery = entry.delivery.lock();
      return !delivery || delivery->is_done();
    });
    for (const auto& delivery : deliveries) entries_.push_back({device, stream, delivery});
  }
  // stream < 0: all of the device's.
  void finish(int device, int64_t stream) {
    Deliveries waited;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& entry : entries_)
        if (entry.device == device && (stream < 0 || entry.stream == stream))
          if (auto delivery = entry.delivery.lock()) waited.push_back(std::move(delivery));
    }
    for (const auto& delivery : waited) delivery->finish();
  }

 private:
  struct Entry {
    int device;
    int64_t stream;
    std::weak_ptr<Delivery> delivery;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
};

}  // namespace maya
