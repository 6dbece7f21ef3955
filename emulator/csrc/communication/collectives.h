// Collectives of one tensor a rank: what each checks, records and does to values.
#pragma once
#include "values_between_ranks.h"

namespace maya {

inline NcclBackend::Work NcclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  auto tensor = as_real_pairs(only_tensor(tensors), options.reduceOp, "all_reduce");
  check_dtype_for_nccl(tensor.scalar_type());
  TORCH_CHECK(!c10::isFloat8Type(tensor.scalar_type()), "Unsupported Float8 type for NCCL reduction");
  check_reduce_op(options.reduceOp, tensor.scalar_type());
  CallRecord record("c10d::allreduce_", Collective::AllReduce);
  record.tensors("tensors", {tensor}, Role::ReadWrite).text("reduce_op", reduce_name(options.reduceOp)).bytes(bytes_of(tensor), bytes_of(tensor));
  record.communication.reduce_op = options.reduceOp;
  auto deliveries = exchange_reduction("all_reduce", tensor, tensor, options.reduceOp, -1, false, record.name_id());
  return issue(std::move(record), {.type = c10d::OpType::ALLREDUCE, .device = tensor.get_device(), .outputs = tensors, .held = {tensor}, .deliveries = std::move(deliveries)}, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  // As in an NCCL without sparse collectives, which every public one is.
  C10_THROW_ERROR(Error, "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead.");
}

inline NcclBackend::Work NcclBackend::broadcast_from(const at::Tensor& output, const at::Tensor& input, int root, bool asynchronous) {
  CallRecord record("c10d::broadcast_", Collective::Broadcast);
  record.tensors("tensors", {output}, rank_ == root ? Role::Read : Role::Write).bytes(bytes_of(output), bytes_of(output));
  record.communication.peer = static_cast<int32_t>(members_.at(root));
  Deliveries deliveries;
  int32_t maker = record.name_id();
  if (size_ == 1) {
    copy_alone(output, input, maker);
  } else {
    auto call = call_text("broadcast", output.scalar_type(), output.numel(), ("from rank " + std::to_string(members_[root])).c_str());
    if (!values_travel(output.scalar_type(), bytes_of(output))) {
      exchange_->pass("broadcast", call);
      if (rank_ != root) wrote(output, false, producer_of(output, maker));
    } else {
      Round round = exchange_->root_gives("broadcast", call, {rank_ == root ? host_values(input) : at::Tensor()}, root);
      if (rank_ != root)
        deliveries.push_back(delivery(std::move(round), [=](const std::vector<Contribution>& others) { write_result(output, others[0].values[0], maker); }));
      else copy_alone(output, input, maker);
    }
  }
  return issue(std::move(record), {.type = c10d::OpType::BROADCAST, .device = output.get_device(), .outputs = {output}, .held = {input}, .deliveries = std::move(deliveries)}, asynchronous);
}

inline NcclBackend::Work NcclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  auto tensor = as_real_pairs(only_tensor(tensors));
  check_dtype_for_nccl(tensor.scalar_type());
  int root = static_cast<int>(options.rootRank + options.rootTensor);
  TORCH_CHECK_WITH(ValueError, root >= 0 && root < size_, "ProcessGroupNCCL::broadcast: invalid root rank: ", root);
  return broadcast_from(tensor, tensor, root, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  auto tensor = as_real_pairs(only_tensor(tensors), options.reduceOp, "reduce");
  check_dtype_for_nccl(tensor.scalar_type());
  check_reduce_op(options.reduceOp, tensor.scalar_type());
  int root = static_cast<int>(options.rootRank + options.rootTensor);
  TORCH_CHECK_WITH(ValueError, root >= 0 && root < size_, "ProcessGroupNCCL::reduce: invalid root rank: ", root);
  CallRecord record("c10d::reduce_", Collective::Reduce);
  record.tensors("tensors", {tensor}, rank_ == root ? Role::ReadWrite : Role::Read).text("reduce_op", reduce_name(options.reduceOp)).bytes(bytes_of(tensor), bytes_of(tensor));
  record.communication.reduce_op = options.reduceOp;
  record.communication.peer = static_cast<int32_t>(members_.at(root));
  auto deliveries = exchange_reduction("reduce", tensor, tensor, options.reduceOp, root, false, record.name_id());
  return issue(std::move(record), {.type = c10d::OpType::REDUCE, .device = tensor.get_device(), .outputs = tensors, .held = {tensor}, .deliveries = std::move(deliveries)}, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  check_device_tensor(input);
  check_device_tensor(output);
  if (input.scalar_type() != output.scalar_type()) C10_THROW_ERROR(TypeError, "output tensor must have the same type as input tensor");
  if (input.numel() * size_ != output.numel()) C10_THROW_ERROR(ValueError, "output tensor size must be equal to world_size times input tensor size");
  auto from = as_real_pairs(input), to = as_real_pairs(output);
  check_dtype_for_nccl(from.scalar_type());
  CallRecord record("c10d::_allgather_base_", Collective::AllGather);
  record.tensor("output_tensor", to, Role::Write).tensor("input_tensor", from, Role::Read).bytes(bytes_of(from), bytes_of(to));
  Tensors slices = to.view({size_, -1}).unbind(0);
  auto deliveries = exchange_gathering("all_gather", from, slices, -1, record.name_id());
  return issue(std::move(record), {.type = c10d::OpType::_ALLGATHER_BASE, .device = input.get_device(), .outputs = {output}, .held = {input, output}, .deliveries = std::move(deliveries)}, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  if (input.scalar_type() != output.scalar_type()) C10_THROW_ERROR(TypeError, "input tensor must be the same type as the output tensor.");
  if (input.numel() != output.numel() * size_) C10_THROW_ERROR(ValueError, "input tensor must be the same size as output size times world size");
  check_device_tensor(input);
  check_device_tensor(output);
  auto from = as_real_pairs(input, options.reduceOp, "reduce_scatter"), to = as_real_pairs(output);
  check_dtype_for_nccl(from.scalar_type());
  TORCH_CHECK(!c10::isFloat8Type(from.scalar_type()), "Unsupported Float8 type for NCCL reduction");
  check_reduce_op(options.reduceOp, from.scalar_type());
  CallRecord record("c10d::_reduce_scatter_base_", Collective::ReduceScatter);
  record.tensor("output_tensor", to, Role::Write).tensor("input_tensor", from, Role::Read).text("reduce_op", reduce_name(options.reduceOp)).bytes(bytes_of(from), bytes_of(to));
  record.communication.reduce_op = options.reduceOp;
  auto deliveries = exchange_reduction("reduce_scatter", from, to, options.reduceOp, -1, true, record.name_id());
  return issue(std::move(record), {.type = c10d::OpType::_REDUCE_SCATTER_BASE, .device = input.get_device(), .outputs = {output}, .held = {input, output}, .deliveries = std::move(deliveries)}, options.asyncOp);
}

// An all-reduce of one element, which the host waits for.
inline NcclBackend::Work NcclBackend::barrier(const c10d::BarrierOptions& options) {
  int device = options.device && options.device->is_cuda() && options.device->has_index() ? options.device->index() : !options.device_ids.empty() ? static_cast<int>(options.device_ids[0]) : guess_device();
  check_ordinal(device);
  DeviceScope scope(device);
  at::Tensor token = at::zeros({1}, at::TensorOptions().device(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))).dtype(c10::kFloat));
  CallRecord record("c10d::barrier", Collective::Barrier);
  record.tensor("tensor", token, Role::ReadWrite).bytes(bytes_of(token), bytes_of(token));
  record.communication.reduce_op = c10d::ReduceOp::SUM;
  Deliveries deliveries;
  if (size_ > 1) deliveries.push_back(delivery(exchange_->all_give("barrier", "barrier", {}).first, [](const std::vector<Contribution>&) {}));
  auto work = issue(std::move(record), {.type = c10d::OpType::BARRIER, .device = device, .outputs = {token}, .held = {token}, .deliveries = std::move(deliveries)}, options.asyncOp);
  if (options.asyncOp) {
    static_cast<CommunicationWork*>(work.get())->block_host_in_wait();
    return work;
  }
  synchronize_stream(device, current_streams[device]);
  return nullptr;
}

inline NcclBackend::Work NcclBackend::send(Tensors& tensors, int to, int) {
  auto tensor = as_real_pairs(only_tensor(tensors, /*message=*/true));
  check_dtype_for_nccl(tensor.scalar_type());
  CallRecord record("c10d::send", Kind::Send);
  record.tensors("tensors", {tensor}, Role::Read).bytes(bytes_of(tensor), bytes_of(tensor));
  auto call = call_text("a message", tensor.scalar_type(), tensor.numel());
  if (!values_travel(tensor.scalar_type(), bytes_of(tensor))) exchange_->skip_send(to);
  else exchange_->send(call, host_values(tensor), to);
  return issue_message(std::move(record), {.type = c10d::OpType::SEND, .device = tensor.get_device(), .outputs = {tensor}, .held = {tensor}}, to);
}

inline NcclBackend::Work NcclBackend::recv(Tensors& tensors, int from, int) {
  auto tensor = as_real_pairs(only_tensor(tensors, /*message=*/true));
  check_dtype_for_nccl(tensor.scalar_type());
  CallRecord record("c10d::recv_", Kind::Recv);
  record.tensors("tensors", {tensor}, Role::Write).bytes(bytes_of(tensor), bytes_of(tensor));
  auto call = call_text("a message", tensor.scalar_type(), tensor.numel());
  int32_t maker = record.name_id();
  Deliveries deliveries;
  if (!values_travel(tensor.scalar_type(), bytes_of(tensor))) {
    exchange_->skip_receive(from);
    wrote(tensor, false, maker);
  } else {
    deliveries.push_back(delivery(exchange_->receive(call, from), [=](const std::vector<Contribution>& others) { write_result(tensor, others[0].values[0], maker); }));
  }
  return issue_message(std::move(record), {.type = c10d::OpType::RECV, .device = tensor.get_device(), .outputs = {tensor}, .held = {tensor}, .deliveries = std::move(deliveries)}, from);
}

}  // namespace maya
