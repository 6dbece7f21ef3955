// Collectives over lists of tensors and over uneven splits, and several in one group.
#pragma once
#include "collectives.h"

namespace maya {

// What NCCL's kernel reads or writes in place of a list of tensors of one size.
inline at::Tensor flat_like(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> sizes{static_cast<int64_t>(tensors.size())}, strides{tensors[0].numel()};
  sizes.insert(sizes.end(), tensors[0].sizes().begin(), tensors[0].sizes().end());
  strides.insert(strides.end(), tensors[0].strides().begin(), tensors[0].strides().end());
  return at::empty_strided(sizes, strides, tensors[0].options());
}

// A copy whose values go another way: each rank's arrive straight in the tensors of the caller.
inline void record_copy_only(const at::Tensor& to, const at::Tensor& from) { record_copy(to, from, one_run(to, from) ? "d2d" : nullptr, false); }

inline bool same_sizes(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors)
    if (tensor.sizes() != tensors[0].sizes()) return false;
  return true;
}

inline NcclBackend::Work NcclBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  auto input = only_tensor(inputs);
  TORCH_CHECK(outputs.size() == 1, kOneTensorOnly);
  const Tensors& to = outputs[0];
  check_same_device(to);
  TORCH_CHECK_WITH(ValueError, static_cast<int>(to.size()) == size_, "Tensor list input to allgather must have one tensor for each rank of the group: ", to.size(), " for ", size_);
  if (input.scalar_type() != to[0].scalar_type()) C10_THROW_ERROR(TypeError, "output tensor must have the same type as input tensor");
  check_dtype_for_nccl(as_real_pairs(input).scalar_type());
  if (!same_sizes(to)) return all_gather_uneven(to, input, options);
  auto flat = flat_like(to);
  CallRecord record("c10d::allgather_", Collective::AllGather);
  record.tensors_through("output_tensors", to, flat, Role::Write).tensors("input_tensors", {input}, Role::Read).bytes(bytes_of(input), bytes_of(to));
  auto deliveries = exchange_gathering("all_gather", input, to, -1, record.name_id());
  auto copies = [&] {
    for (int64_t j = 0; j < size_; ++j) record_copy_only(to[j], flat.select(0, j));
  };
  return issue(std::move(record), {.type = c10d::OpType::ALLGATHER, .device = input.get_device(), .outputs = to, .held = {input, flat}, .deliveries = std::move(deliveries), .after = copies}, options.asyncOp);
}

// One broadcast from each rank, in one group.
inline NcclBackend::Work NcclBackend::all_gather_uneven(const Tensors& outputs, const at::Tensor& input, const c10d::AllgatherOptions& options) {
  startCoalescing();
  for (int root = 0; root < size_; ++root) broadcast_from(outputs[root], root == rank_ ? input : outputs[root], root, options.asyncOp);
  return endCoalescing();
}

inline NcclBackend::Work NcclBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  auto output = only_tensor(outputs);
  TORCH_CHECK(inputs.size() == 1, kOneTensorOnly);
  const Tensors& from = inputs[0];
  check_same_device(from);
  TORCH_CHECK_WITH(ValueError, static_cast<int>(from.size()) == size_, "Tensor list input to reduce_scatter must have one tensor for each rank of the group: ", from.size(), " for ", size_);
  check_dtype_for_nccl(as_real_pairs(output).scalar_type());
  check_reduce_op(options.reduceOp, output.scalar_type());
  if (!same_sizes(from)) {  // one reduce to each rank, in one group
    startCoalescing();
    for (int root = 0; root < size_; ++root) {
      CallRecord record("c10d::reduce_", Collective::Reduce);
      record.tensors("tensors", {from[root]}, Role::Read).text("reduce_op", reduce_name(options.reduceOp)).bytes(bytes_of(from[root]), bytes_of(from[root]));
      record.communication.reduce_op = options.reduceOp;
      record.communication.peer = static_cast<int32_t>(members_[root]);
      auto deliveries = exchange_reduction("reduce", from[root], root == rank_ ? output : from[root], options.reduceOp, root, false, record.name_id());
      issue(std::move(record), {.type = c10d::OpType::REDUCE, .device = output.get_device(), .outputs = root == rank_ ? Tensors{output} : Tensors{}, .held = {from[root]}, .deliveries = std::move(deliveries)}, options.asyncOp);
    }
    return endCoalescing();
  }
  auto flat = flat_like(from);
  CallRecord record("c10d::reduce_scatter_", Collective::ReduceScatter);
  record.tensors("output_tensors", {output}, Role::Write).tensors_through("input_tensors", from, flat, Role::Read).text("reduce_op", reduce_name(options.reduceOp)).bytes(bytes_of(from), bytes_of(output));
  record.communication.reduce_op = options.reduceOp;
  for (int64_t j = 0; j < size_; ++j) copy_values(flat.select(0, j), from[j], record.name_id());
  auto copies = [&] {
    for (int64_t j = 0; j < size_; ++j) record_copy_only(flat.select(0, j), from[j]);
  };
  auto deliveries = exchange_reduction("reduce_scatter", flat, output, options.reduceOp, -1, true, record.name_id());
  return issue(std::move(record), {.type = c10d::OpType::REDUCE_SCATTER, .device = output.get_device(), .outputs = outputs, .held = {flat, output}, .deliveries = std::move(deliveries), .before = copies}, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  auto refuse = [](const std::string& why) { C10_THROW_ERROR(ValueError, "ProcessGroupNCCL::gather: " + why); };
  c10d::assertRootRank(refuse, options.rootRank, size_);
  auto input = only_tensor(inputs);
  check_dtype_for_nccl(as_real_pairs(input).scalar_type());
  int root = static_cast<int>(options.rootRank);
  Tensors to;
  if (rank_ == root) {
    if (outputs.size() != 1) refuse("requires a single-element output list containing a list with " + std::to_string(size_) + " tensors.");
    if (static_cast<int>(outputs[0].size()) != size_) refuse("Incorrect output list size " + std::to_string(outputs[0].size()) + ". Output list size should be " + std::to_string(size_) + ", same as size of the process group.");
    c10d::assertTypeAndSizesMatch(refuse, outputs[0], input.options(), input.sizes());
    to = outputs[0];
  } else if (!outputs.empty()) {
    refuse("requires empty output on non-root");
  }
  CallRecord record("c10d::gather_", Collective::Gather);
  record.tensors("output_tensors", to, Role::Write).tensors("input_tensors", {input}, Role::Read).bytes(bytes_of(input), bytes_of(input) * size_);
  record.communication.peer = static_cast<int32_t>(members_[root]);
  auto deliveries = exchange_gathering("gather", input, to, root, record.name_id());
  return issue(std::move(record), {.type = c10d::OpType::GATHER, .device = input.get_device(), .outputs = to, .held = {input}, .deliveries = std::move(deliveries)}, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  auto refuse = [](const std::string& why) { C10_THROW_ERROR(ValueError, "ProcessGroupNCCL::scatter: " + why); };
  c10d::assertRootRank(refuse, options.rootRank, size_);
  auto output = only_tensor(outputs);
  check_dtype_for_nccl(as_real_pairs(output).scalar_type());
  int root = static_cast<int>(options.rootRank);
  Tensors from;
  if (rank_ == root) {
    if (inputs.size() != 1) refuse("requires a single-element input list containing a list with " + std::to_string(size_) + " tensors.");
    if (static_cast<int>(inputs[0].size()) != size_) refuse("Incorrect input list size " + std::to_string(inputs[0].size()) + ". Input list size should be " + std::to_string(size_) + ", same as size of the process group.");
    c10d::assertTypeAndSizesMatch(refuse, inputs[0], output.options(), output.sizes());
    from = inputs[0];
  } else if (!inputs.empty()) {
    refuse("requires empty input on non-root");
  }
  CallRecord record("c10d::scatter_", Collective::Scatter);
  record.tensors("output_tensors", {output}, Role::Write).tensors("input_tensors", from, Role::Read).bytes(bytes_of(output) * size_, bytes_of(output));
  record.communication.peer = static_cast<int32_t>(members_[root]);
  int32_t maker = record.name_id();
  Deliveries deliveries;
  auto call = call_text("scatter", output.scalar_type(), output.numel(), ("from rank " + std::to_string(members_[root])).c_str());
  if (size_ == 1 || rank_ == root) copy_alone(output, from[rank_], maker);
  if (size_ > 1 && !values_travel(output.scalar_type(), bytes_of(output) * size_)) {
    exchange_->pass("scatter", call);
    if (rank_ != root) wrote(output, false, maker);
  } else if (size_ > 1) {
    Tensors given;
    for (const auto& tensor : from) given.push_back(host_values(tensor));
    Round round = exchange_->root_gives("scatter", call, given, root);
    if (rank_ != root)
      deliveries.push_back(delivery(std::move(round), [=, rank = rank_](const std::vector<Contribution>& others) { write_result(output, others[0].values.at(rank), maker); }));
  }
  Tensors held = from;
  held.push_back(output);
  return issue(std::move(record), {.type = c10d::OpType::SCATTER, .device = output.get_device(), .outputs = {output}, .held = held, .deliveries = std::move(deliveries)}, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  check_device_tensor(output);
  check_device_tensor(input);
  if (output.scalar_type() != input.scalar_type()) C10_THROW_ERROR(ValueError, "Tensors must have identical type");
  auto to = as_real_pairs(output), from = as_real_pairs(input);
  check_dtype_for_nccl(from.scalar_type());
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  auto slices = [this](const at::Tensor& tensor, const std::vector<int64_t>& splits) {
    if (splits.empty()) return tensor.view({size_, -1}).unbind(0);
    return tensor.split_with_sizes(splits, 0);
  };
  CallRecord record("c10d::alltoall_base_", Collective::AllToAll);
  record.tensor("output", to, Role::Write).tensor("input", from, Role::Read).numbers("output_split_sizes", output_splits).numbers("input_split_sizes", input_splits).bytes(bytes_of(from), bytes_of(to));
  auto deliveries = exchange_pairs("all_to_all", slices(to, output_splits), slices(from, input_splits), record.name_id());
  return issue(std::move(record), {.type = c10d::OpType::ALLTOALL_BASE, .device = input.get_device(), .outputs = {output}, .held = {input, output}, .deliveries = std::move(deliveries)}, options.asyncOp);
}

inline NcclBackend::Work NcclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK_WITH(ValueError, static_cast<int>(inputs.size()) == size_ && static_cast<int>(outputs.size()) == size_, "all_to_all needs one input and one output tensor for each of the ", size_, " ranks");
  for (int peer = 0; peer < size_; ++peer) {
    check_device_tensor(outputs[peer]);
    check_device_tensor(inputs[peer]);
    TORCH_CHECK_WITH(ValueError, inputs[peer].get_device() == outputs[0].get_device() && outputs[peer].get_device() == outputs[0].get_device(), "Tensors must be on the same device");
    if (inputs[peer].scalar_type() != outputs[0].scalar_type()) C10_THROW_ERROR(ValueError, "Tensors must have identical type");
  }
  check_dtype_for_nccl(as_real_pairs(inputs[0]).scalar_type());
  CallRecord record("c10d::alltoall_", Collective::AllToAll);
  record.tensors("output_tensors", outputs, Role::Write).tensors("input_tensors", inputs, Role::Read).bytes(bytes_of(inputs), bytes_of(outputs));
  auto deliveries = exchange_pairs("all_to_all", outputs, inputs, record.name_id());
  Tensors held = inputs;
  held.insert(held.end(), outputs.begin(), outputs.end());
  return issue(std::move(record), {.type = c10d::OpType::ALLTOALL, .device = inputs[0].get_device(), .outputs = outputs, .held = held, .deliveries = std::move(deliveries)}, options.asyncOp);
}

// Several collectives of one kind between ncclGroupStart and ncclGroupEnd.
inline NcclBackend::Work NcclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  check_same_device(tensors);
  startCoalescing();
  for (auto& tensor : tensors) {
    Tensors one{tensor};
    allreduce(one, options);
  }
  return endCoalescing();
}

inline NcclBackend::Work NcclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "allgather_into_tensor_coalesced needs as many outputs as inputs");
  startCoalescing();
  for (size_t i = 0; i < inputs.size(); ++i) _allgather_base(outputs[i], inputs[i], options);
  return endCoalescing();
}

inline NcclBackend::Work NcclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "reduce_scatter_tensor_coalesced needs as many outputs as inputs");
  startCoalescing();
  for (size_t i = 0; i < inputs.size(); ++i) _reduce_scatter_base(outputs[i], inputs[i], options);
  return endCoalescing();
}

inline NcclBackend::Work NcclBackend::allgather_coalesced(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) {
  C10_THROW_ERROR(NotImplementedError, "ProcessGroupNCCL does not support allgather_coalesced");
}

}  // namespace maya
