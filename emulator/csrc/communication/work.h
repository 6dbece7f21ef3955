// What a collective returns: an event on the stream it runs on, a future, the values on their way.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "delivery.h"

namespace maya {

inline c10::Stream current_stream_of(int device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), current_streams[device]);
}

inline bool blocking_wait() {
  for (const char* name : {"TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"})
    if (const char* value = std::getenv(name)) return std::string_view(value) == "1";
  return false;
}

class CommunicationWork final : public c10d::Work {
 public:
  // Called once everything is on `stream`. `held`: tensors that must live until the script waits.
  CommunicationWork(int rank, c10d::OpType type, uint64_t sequence, int device, c10::Stream stream, std::vector<at::Tensor> outputs, std::vector<at::Tensor> held, Deliveries deliveries)
      : c10d::Work(rank, type, "nccl"), sequence_(sequence), device_(device), end_(c10::kCUDA), outputs_(std::move(outputs)), held_(std::move(held)), deliveries_(std::move(deliveries)) {
    end_.record(stream);
    Outstanding::instance().add(device, stream.id(), deliveries_);
    c10::Device on(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{on});
    StreamScope scope(stream);
    future_->markCompleted(at::IValue(outputs_));
  }

  void block_host_in_wait() { barrier_ = true; }  // of a barrier

  bool isCompleted() override {
    for (const auto& delivery : deliveries_)
      if (!delivery->is_ready()) return false;
    if (!end_.query()) return false;
    deliver();
    return true;
  }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  void synchronize() override {
    end_.block(current_stream_of(device_));
    deliver();
    held_.clear();
  }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    if (blocking_wait()) end_.synchronize();
    else if (barrier_) synchronize_stream(device_, current_streams[device_]);
    return true;
  }
  void blockCurrentStream() override { synchronize(); }
  std::vector<at::Tensor> result() override {
    deliver();
    return outputs_;
  }
  void abort() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    deliver();  // its callbacks run at once, and may read
    return future_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    auto result = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
    result->markCompleted(c10::IValue(static_cast<uint8_t>(c10d::WorkResult::SUCCESS)));
    return result;
  }
  float getDuration() const override { TORCH_CHECK(false, "getDuration only works if timing was enabled"); }
  uint64_t getSequencenumber() const override { return sequence_; }

  void deliver() {
    for (const auto& delivery : deliveries_) delivery->finish();
  }

 private:
  struct StreamScope {  // makes a stream current for a scope
    explicit StreamScope(c10::Stream stream) : device(stream.device_index()), previous(std::exchange(current_streams[device], stream.id())) {}
    ~StreamScope() { current_streams[device] = previous; }
    int device;
    int64_t previous;
  };

  uint64_t sequence_;
  int device_;
  c10::Event end_;
  std::vector<at::Tensor> outputs_, held_;
  Deliveries deliveries_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool barrier_ = false;
};

}  // namespace maya
