// ProcessGroupNCCL of the emulated device: streams, events and host waits as the real one has them,
// collectives as records, values between ranks through the group's store.
#pragma once
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <set>

#include "../kernels/copies.h"
#include "call_record.h"
#include "checks.h"
#include "options.h"
#include "reduction.h"
#include "work.h"

namespace maya {

class NcclBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  NcclBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<NcclOptions> options)
      : c10d::Backend(rank, size), store_(store), options_(std::move(options)) {
    TORCH_CHECK_WITH(ValueError, machine().device_count > 0, "ProcessGroupNCCL is only supported with GPUs, no GPUs found!");
    std::vector<int64_t> members(options_->global_ranks_in_group.begin(), options_->global_ranks_in_group.end());
    if (members.empty())
      for (int member = 0; member < size; ++member) members.push_back(member);
    members_ = members;
    const std::string& name = options_->group_name.empty() ? "default" : options_->group_name;
    communicator_ = Recorder::instance().communicator(name, members);
    exchange_ = std::make_shared<Exchange>(store, rank, members, name, options_->timeout);
  }

  const std::string getBackendName() const override { return "nccl"; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsTimeEstimation() const override { return false; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
    exchange_->set_timeout(timeout);
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return c10::static_intrusive_pointer_cast<c10d::Backend::Options>(options_); }
  c10::intrusive_ptr<NcclOptions> options() const { return options_; }
  void setSequenceNumberForGroup() override {}  // starts at 0 on every rank
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  void eagerConnectSingleDevice(at::Device device) override { stream_of(device_key(device.index()), device.index()); }
  bool is_initialized() const { return !streams_.empty(); }
  int64_t splits() const { return splits_; }
  void count_split() { ++splits_; }
  void enableCollectivesTiming() override {}

  void startCoalescing() override;
  Work endCoalescing() override;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors&, int) override { C10_THROW_ERROR(NotImplementedError, "ProcessGroupNCCL does not support recvAnysource"); }
  Work barrier(const c10d::BarrierOptions& options) override;
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks, const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

 private:
  // One collective on its way from the arguments to a Work.
  struct Issued {
    c10d::OpType type;
    int device = 0;
    Tensors outputs;            // of the Work and its future
    Tensors held;               // alive until the script waits
    Deliveries deliveries;
    std::function<void()> before, after;  // copies on the collective's stream around it
  };
  struct CommunicationStream {
    int64_t id;
    c10::Event inputs_ready{c10::kCUDA};
  };
  struct Coalescing {
    bool open = false;
    bool asynchronous = true;
    int32_t group = -1;
    int device = -1;
    int64_t stream = 0;
    Tensors outputs, held;
    Deliveries deliveries;
    uint64_t operations = 0;
  };

  static std::string device_key(int device) { return std::to_string(device); }
  CommunicationStream& stream_of(const std::string& key, int device) {
    auto found = streams_.find(key);
    if (found == streams_.end()) {
      used_devices_.insert(device);
      found = streams_.emplace(key, std::make_unique<CommunicationStream>()).first;
      found->second->id = next_pool_stream(device, options_->is_high_priority_stream ? -1 : 0);
    }
    return *found->second;
  }
  // The GPU a barrier takes when nobody names one.
  int guess_device() const {
    if (bound_device_id_) return bound_device_id_->index();
    if (!used_devices_.empty()) return *used_devices_.begin();
    return static_cast<int>(members_[rank_] % machine().device_count);
  }

  Work issue(CallRecord record, Issued issued, bool asynchronous);
  Work issue_message(CallRecord record, Issued issued, int peer);
  std::shared_ptr<Delivery> delivery(Round round, Delivery::Apply apply) { return std::make_shared<Delivery>(exchange_, std::move(round), std::move(apply)); }
  Deliveries exchange_reduction(const char* operation, const at::Tensor& input, const at::Tensor& output, const c10d::ReduceOp& op, int root, bool scatters, int32_t producer);
  Deliveries exchange_gathering(const char* operation, const at::Tensor& input, const Tensors& outputs, int root, int32_t producer);
  Deliveries exchange_pairs(const char* operation, const Tensors& outputs, const Tensors& inputs, int32_t producer);
  Work all_gather_uneven(const Tensors& outputs, const at::Tensor& input, const c10d::AllgatherOptions& options);
  Work broadcast_from(const at::Tensor& output, const at::Tensor& input, int root, bool asynchronous);

  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<NcclOptions> options_;
  std::vector<int64_t> members_;
  int32_t communicator_;
  std::shared_ptr<Exchange> exchange_;
  std::map<std::string, std::unique_ptr<CommunicationStream>> streams_;
  std::set<int> used_devices_;
  Coalescing coalescing_;
  uint64_t sequence_ = 0, message_sequence_ = 0;
  int64_t splits_ = 0;
};

inline NcclBackend::Work NcclBackend::issue(CallRecord record, Issued issued, bool asynchronous) {
  DeviceScope scope(issued.device);
  if (!coalescing_.open || coalescing_.operations++ == 0) ++sequence_;
  auto& communication = stream_of(device_key(issued.device), issued.device);
  auto current = current_stream_of(issued.device);
  c10::Stream stream = asynchronous ? c10::Stream(c10::Stream::UNSAFE, current.device(), communication.id) : current;
  if (asynchronous) {
    communication.inputs_ready.record(current);
    communication.inputs_ready.block(stream);
  }
  record.communication.communicator = communicator_;
  if (coalescing_.open) {
    TORCH_CHECK(coalescing_.device < 0 || coalescing_.device == issued.device, kOneTensorOnly);
    coalescing_.device = issued.device;
    coalescing_.asynchronous = asynchronous;
    coalescing_.stream = stream.id();
    record.communication.coalescing_group = coalescing_.group;
  }
  auto on_stream = [&](const std::function<void()>& copies) {
    if (!copies) return;
    int64_t previous = std::exchange(current_streams[issued.device], stream.id());
    copies();
    current_streams[issued.device] = previous;
  };
  on_stream(issued.before);
  record.record(issued.device, stream.id());
  on_stream(issued.after);
  auto move_to = [](auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
  if (coalescing_.open) {
    move_to(issued.outputs, coalescing_.outputs);
    move_to(issued.held, coalescing_.held);
    move_to(issued.deliveries, coalescing_.deliveries);
    return nullptr;
  }
  auto work = c10::make_intrusive<CommunicationWork>(rank_, issued.type, sequence_, issued.device, stream, std::move(issued.outputs), std::move(issued.held), std::move(issued.deliveries));
  if (asynchronous) return work;
  work->deliver();
  return nullptr;
}

// Messages always run on a stream of their own: the group's in a batch, the pair's otherwise.
inline NcclBackend::Work NcclBackend::issue_message(CallRecord record, Issued issued, int peer) {
  DeviceScope scope(issued.device);
  std::string key = coalescing_.open || bound_device_id_ ? device_key(issued.device) : std::to_string(std::min(rank_, peer)) + ":" + std::to_string(std::max(rank_, peer));
  if (coalescing_.open && coalescing_.operations++ == 0) ++sequence_;
  if (!coalescing_.open) ++message_sequence_;
  auto& communication = stream_of(key, issued.device);
  auto current = current_stream_of(issued.device);
  c10::Stream stream(c10::Stream::UNSAFE, current.device(), communication.id);
  communication.inputs_ready.record(current);
  communication.inputs_ready.block(stream);
  record.communication.communicator = communicator_;
  record.communication.peer = static_cast<int32_t>(members_.at(peer));
  if (coalescing_.open) {
    coalescing_.device = issued.device;
    coalescing_.stream = stream.id();
    record.communication.coalescing_group = coalescing_.group;
  }
  record.record(issued.device, stream.id());
  if (coalescing_.open) {
    coalescing_.outputs.insert(coalescing_.outputs.end(), issued.outputs.begin(), issued.outputs.end());
    coalescing_.held.insert(coalescing_.held.end(), issued.held.begin(), issued.held.end());
    coalescing_.deliveries.insert(coalescing_.deliveries.end(), issued.deliveries.begin(), issued.deliveries.end());
    return nullptr;
  }
  return c10::make_intrusive<CommunicationWork>(rank_, issued.type, message_sequence_, issued.device, stream, std::move(issued.outputs), std::move(issued.held), std::move(issued.deliveries));
}

inline void NcclBackend::startCoalescing() {
  coalescing_ = Coalescing();
  coalescing_.open = true;
  coalescing_.group = Recorder::instance().new_coalescing_group();
}

inline NcclBackend::Work NcclBackend::endCoalescing() {
  Coalescing done = std::exchange(coalescing_, Coalescing());
  if (done.device < 0) return nullptr;  // nothing was called in between
  DeviceScope scope(done.device);
  c10::Stream stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(done.device)), done.stream);
  auto work = c10::make_intrusive<CommunicationWork>(rank_, c10d::OpType::COALESCED, sequence_, done.device, stream, std::move(done.outputs), std::move(done.held), std::move(done.deliveries));
  if (done.asynchronous) return work;
  work->deliver();
  return nullptr;
}

inline c10::intrusive_ptr<c10d::Backend> NcclBackend::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks, const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  int device = guess_device();
  auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  ++splits_;
  if (mine == ranks.end()) return nullptr;
  auto wanted = c10::dynamic_intrusive_pointer_cast<NcclOptions>(options);
  TORCH_CHECK(wanted, "opts not a ProcessGroupNCCL::Options.");
  std::vector<uint64_t> global;
  for (int rank : ranks) global.push_back(static_cast<uint64_t>(members_.at(rank)));
  wanted->global_ranks_in_group = std::move(global);
  wanted->split_from = c10::intrusive_ptr<c10d::Backend>::unsafe_reclaim_from_nonowning(this);
  auto child = c10::make_intrusive<NcclBackend>(store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), wanted);
  child->eagerConnectSingleDevice(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return child;
}

}  // namespace maya
