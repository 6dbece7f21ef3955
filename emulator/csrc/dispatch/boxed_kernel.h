// The kernel behind every CUDA operator that has no kernel of its own in kernels/: it looks up what
// the operator produces for these shapes (asking the meta kernel once), makes outputs without
// bytes, follows values where they are small, and records the operation.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>

#include "../values/constants.h"
#include "../values/value_state.h"
#include "call_arguments.h"
#include "meta_call.h"
#include "operator_facts.h"
#include "shape_cache.h"
#include "../kernels/scratch_memory.h"
#include "../kernels/storage_changes.h"
#include "../kernels/workspaces.h"
#include "tape.h"
#include "unknown_selection.h"

namespace maya {

struct BoxedKernel final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    std::call_once(prepared_, [&] {
      facts_ = std::make_unique<OperatorFacts>(op);
      scratch_ = std::make_unique<ScratchMemory>(*facts_);
    });
    const auto& facts = *facts_;
    const size_t begin = stack->size() - facts.argument_count;
    c10::ArrayRef<at::IValue> arguments(stack->data() + begin, facts.argument_count);
    CallArguments call(facts, arguments);
    DeviceScope scope(call.device);
    if (Tape::instance().replaying()) return replay(facts, stack, begin);
    Statistics::instance().operations++;
    if (facts.matmul) CublasWorkspaces::instance().ensure(current_device_index, current_streams[current_device_index]);

    bool compute = facts.computable && call.all_known && call.inputs_small;
    std::shared_ptr<const CachedCall> cached;
    if (!(facts.data_dependent && compute)) {
      cached = look_up(op, facts, arguments, compute);
      if (cached && !cached->outputs_small(facts.index_factory)) compute = false;
    }
    if (cached && facts.has_out) resize_out_arguments(*cached, *stack, begin);
    if (cached) Tape::instance().note(cached);

    torch::jit::Stack results;
    if (!compute || !compute_on_host(op, facts, arguments, cached.get(), results)) {
      if (!cached) throw_without_shape(facts);
      results.clear();
      make_unknown(op, facts, arguments, call, *cached, results);
    }
    scratch_->pass_through(arguments, current_device_index);
    record(facts, arguments, results, cached.get(), call);
    if (facts.counts_versions) count_versions(facts, arguments);
    stack->resize(begin);
    for (auto& result : results) stack->push_back(std::move(result));
  }

 private:
  std::shared_ptr<const CachedCall> look_up(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, bool computable) {
    Key key;
    KeyBuilder builder(key);
    builder.word(static_cast<int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
    if (facts.matmul || facts.convolution) builder.word(math_flags(facts));
    bool cacheable = !facts.data_dependent;  // each unknown selection is asked anew
    for (size_t a = 0; a < arguments.size() && cacheable; ++a) cacheable = builder.value(arguments[a], facts.keying[a]);
    if (cacheable) {
      key.seal();
      std::shared_lock<std::shared_mutex> lock(cache_mutex());
      auto found = cache_.find(key);
      if (found != cache_.end()) {
        Statistics::instance().cache_hits++;
        return found->second;
      }
    }
    Statistics::instance().cache_misses++;
    std::shared_ptr<const CachedCall> made;
    try {
      made = call_meta(op, facts, arguments, computable);
    } catch (const std::exception&) {
      if (computable) throw_error_of_host(op, facts, arguments);
      throw;
    }
    if (made && cacheable) {
      std::unique_lock<std::shared_mutex> lock(cache_mutex());
      cache_.emplace(std::move(key), made);
    }
    return made;
  }

  // Autograd's wrappers leave the versions of these lists to the kernels (ForeachUtils.h).
  static void count_versions(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
    for (size_t a = 0; a < arguments.size(); ++a)
      if (facts.writes(a))
        for_each_tensor(arguments[a], [](const at::Tensor& tensor) {
          if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
        });
  }

  static void resize_out_arguments(const CachedCall& cached, torch::jit::Stack& stack, size_t begin) {
    for (const auto& [argument, meta] : cached.resized) {
      const auto& out = stack[begin + argument].toTensor();
      at::IntArrayRef sizes(meta.sizes.data(), meta.sizes.size());
      if (out.sizes() != sizes) resize_device_tensor(out, sizes, at::IntArrayRef(meta.strides.data(), meta.strides.size()));
    }
  }

  // The real numbers, from the CPU kernel. False: no such luck, go on without values.
  static bool compute_on_host(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, const CachedCall* cached, torch::jit::Stack& results) {
    if (add_scalar_to_counters(facts, arguments, results)) return true;
    torch::jit::Stack host;
    host.reserve(arguments.size());
    for (size_t a = 0; a < arguments.size(); ++a) {
      const auto& argument = arguments[a];
      if (facts.is_generator(a) && argument.isNone()) {
        host.emplace_back(device_generator(default_generator(current_device_index))->next_cpu_generator());
        continue;
      }
      if (!cached && facts.is_out(a) && argument.isTensor()) {
        host.emplace_back(at::detail::empty_cpu({0}, argument.toTensor().scalar_type()));
        continue;
      }
      if (facts.overwrites(a) && !prepare_overwrite(argument)) return false;
      host.push_back(map_tensors(argument, c10::Device(c10::kCPU), [](const at::Tensor& tensor) { return tensor.is_cpu() ? tensor : host_alias(tensor); }));
    }
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &host);
    } catch (const c10::Error& error) {
      throw_as_the_device_would(error, cached != nullptr);
      Statistics::instance().note_host_failure(facts.name, error.what_without_backtrace());
      return false;
    }
    Statistics::instance().computed++;
    const size_t first = host.size() - facts.return_count;
    if (facts.has_out && !cached) fill_out_arguments(facts, arguments, host, first);
    for (size_t r = 0; r < facts.return_count; ++r) {
      if (facts.return_aliases[r] >= 0) {
        results.push_back(arguments[facts.return_aliases[r]]);
        continue;
      }
      auto& value = host[first + r];
      if (value.isTensor()) {
        at::Tensor result = std::move(value).toTensor();
        if (cached && facts.keeps_statistics && result.defined() && result.numel() == 0 && cached->outputs[r][0].defined) {
          // Evaluation: the CPU saves no statistics, CUDA hands out memory that nobody wrote.
          results.emplace_back(new_output(cached->outputs[r][0]));
          continue;
        }
        results.emplace_back(to_device(result, cached ? &cached->outputs[r] : nullptr, 0));
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        size_t index = 0;
        for (const at::Tensor& item : value.toTensorList()) list.push_back(to_device(item, cached ? &cached->outputs[r] : nullptr, index++));
        results.emplace_back(std::move(list));
      } else {
        results.push_back(value);
      }
    }
    return true;
  }

  // What the meta kernel refuses, the CPU kernel refuses as the GPU's does: meta kernels written in
  // Python raise other types. Returns if the CPU has no complaint.
  static void throw_error_of_host(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
    torch::jit::Stack host;
    for (size_t a = 0; a < arguments.size(); ++a)
      host.push_back(map_tensors(arguments[a], c10::Device(c10::kCPU), [&](const at::Tensor& tensor) {
        auto alias = tensor.is_cuda() ? host_alias(tensor) : tensor;
        return facts.writes(a) ? alias.clone() : alias;
      }));
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &host);
    } catch (const c10::Error& error) {
      throw_as_the_device_would(error, true);
    }
  }

  // Returns for what the CPU kernel lacks and the GPU has (half convolutions, say), which the meta
  // kernel has accepted. Anything else is the user's mistake, and a GPU refuses it as well.
  static void throw_as_the_device_would(const c10::Error& error, bool accepted) {
    std::string message = error.what_without_backtrace();
    auto says = [&](const char* words) { return message.find(words) != std::string::npos; };
    // An index beyond its dimension stops a GPU kernel with an assert; a dimension that is not there is seen before.
    bool index = (says("out of bounds") || says("out of range")) && !says("Dimension");
    TORCH_CHECK(!index, "CUDA error: device-side assert triggered\n", message);
    bool lacking = false;
    for (const char* words : {"not implemented for", "not resizable", "on CPU", "(CPU)", "mkldnn", "expected scalar type"}) lacking |= says(words);
    if (!accepted || !lacking) throw;
  }

  // The optimizers' step counters: dozens of 0-dim tensors, on which the CPU's slow path is slow.
  static bool add_scalar_to_counters(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, torch::jit::Stack&) {
    if (facts.name != "aten::_foreach_add_.Scalar" || !arguments[1].isScalar()) return false;
    auto list = arguments[0].toTensorList();
    for (const at::Tensor& item : list)
      if (item.scalar_type() != c10::kFloat || item.numel() != 1) return false;
    float increment = arguments[1].toScalar().to<float>();
    for (const at::Tensor& item : list) {
      auto* block = block_of(item);
      if (!block->values) host_alias(item);  // a constant until now
      static_cast<float*>(block->values->mutable_data())[item.storage_offset()] += increment;
    }
    Statistics::instance().computed++;
    return true;
  }

  // The sizes of out= arguments came with the results.
  static void fill_out_arguments(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, const torch::jit::Stack& host, size_t first) {
    for (size_t r = 0; r < facts.return_count; ++r) {
      if (facts.return_aliases[r] < 0 || !facts.is_out(facts.return_aliases[r]) || !host[first + r].isTensor()) continue;
      const auto& out = arguments[facts.return_aliases[r]].toTensor();
      const auto& values = host[first + r].toTensor();
      if (out.sizes() != values.sizes()) {
        resize_device_tensor(out, values.sizes());
        if (values.is_non_overlapping_and_dense()) out.unsafeGetTensorImpl()->set_sizes_and_strides(values.sizes(), values.strides());
      }
      if (covers_storage(out) || is_known(out)) adopt_values(out, values);
      else wrote(out, false, facts.name_id);
    }
  }

  // Values to write into, where all of the storage is about to be written.
  static bool prepare_overwrite(const at::IValue& argument) {
    bool possible = true;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda() || is_known(tensor)) return;
      if (covers_storage(tensor)) host_alias_to_overwrite(tensor);
      else possible = false;
    });
    return possible;
  }

  static at::Tensor to_device(const at::Tensor& host, const std::vector<OutputMeta>* metas, size_t index) {
    if (!host.defined()) return host;
    const OutputMeta* meta = metas && index < metas->size() ? &(*metas)[index] : nullptr;
    bool agrees = meta && meta->defined && meta->type == host.scalar_type() && at::IntArrayRef(meta->sizes.data(), meta->sizes.size()) == host.sizes();
    // Half-precision kernels keep statistics in float32 on CUDA and in their own dtype on the CPU.
    if (meta && meta->defined && meta->type != host.scalar_type() && at::IntArrayRef(meta->sizes.data(), meta->sizes.size()) == host.sizes())
      return to_device(host.to(meta->type), metas, index);
    at::Tensor device = new_output(agrees ? *meta : meta_of(host));
    // Some kernels answer with a conjugate or negative view: vdot, resolve_conj's relatives.
    if (host.is_conj()) device._set_conj(true);
    if (host.is_neg()) device._set_neg(true);
    adopt_values(device, host);
    return device;
  }

  static void make_unknown(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, const CallArguments& call, const CachedCall& cached, torch::jit::Stack& results) {
    if (facts.random) advance_generator(facts, arguments);
    std::optional<double> constant = finite_answer(facts, arguments);
    if (!constant) constant = filled_with(facts, arguments);
    if (!constant) constant = absorbed(facts, arguments);
    if (!constant && facts.selects_constant && facts.return_count == 1) constant = evaluate_on_constants(op, facts, arguments);
    if (constant && facts.sums && *constant != 0) constant.reset();  // a sum of ones is no constant of the inputs
    auto settle = [&](const at::Tensor& tensor) {
      if (constant) set_constant(tensor, *constant, facts.name_id);
      else wrote(tensor, false, facts.name_id);
    };
    for (size_t a = 0; a < arguments.size(); ++a)
      if (call.writes(a)) for_each_tensor(arguments[a], settle);
    if (facts.info_return >= 0 && facts.return_aliases[facts.info_return] >= 0)
      set_constant(arguments[facts.return_aliases[facts.info_return]].toTensor(), 0, facts.name_id);
    for (size_t r = 0; r < facts.return_count; ++r) {
      switch (cached.forms[r]) {
        case CachedCall::Form::Alias: results.push_back(arguments[facts.return_aliases[r]]); break;
        case CachedCall::Form::Value: results.push_back(cached.values[r]); break;
        case CachedCall::Form::Tensor: {
          auto tensor = new_output(cached.outputs[r][0]);
          // Without values a factorization is taken to succeed.
          if (static_cast<int>(r) == facts.info_return) set_constant(tensor, 0, facts.name_id);
          else if (tensor.defined()) settle(tensor);
          results.emplace_back(std::move(tensor));
          break;
        }
        case CachedCall::Form::List: {
          c10::List<at::Tensor> list;
          for (const auto& meta : cached.outputs[r]) {
            auto tensor = new_output(meta);
            if (tensor.defined()) settle(tensor);
            list.push_back(std::move(tensor));
          }
          results.emplace_back(std::move(list));
        }
      }
    }
  }

  static void advance_generator(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
    if (!facts.generator_arguments) device_generator(default_generator(current_device_index))->advance();
    for (size_t a = 0; a < arguments.size(); ++a) {
      if (!facts.is_generator(a)) continue;
      const auto& generator = arguments[a].isGenerator() ? arguments[a].toGenerator() : default_generator(current_device_index);
      if (generator.device().is_cuda()) device_generator(generator)->advance();
    }
  }

  static void record(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, const torch::jit::Stack& results, const CachedCall* cached, const CallArguments& call) {
    c10::SmallVector<TensorUse, 16> uses;
    if (Recorder::instance().enabled()) {
      for (size_t a = 0; a < arguments.size(); ++a) {
        Role role = !call.writes(a) ? Role::Read : facts.overwrites(a) ? Role::Write : Role::ReadWrite;
        for_each_tensor(arguments[a], [&](const at::Tensor& tensor) { uses.push_back(use_of(tensor, a, role)); });
      }
      for (size_t r = 0; r < results.size(); ++r)
        if (facts.return_aliases[r] < 0)
          for_each_tensor(results[r], [&](const at::Tensor& tensor) { uses.push_back(use_of(tensor, kFirstOutput + r, Role::Write)); });
    }
    int32_t metadata = cached ? cached->metadata : 0;
    int64_t duration = cached ? cached->duration_ns : 0;
    if (!cached) {  // a selection whose size came from real values: not cacheable by shape
      auto json = metadata_of_call(facts, arguments, results);
      metadata = Recorder::instance().intern_metadata(json);
      duration = Oracle::instance().duration_ns(facts.name, json);
    }
    Recorder::instance().record({.name = facts.name_id, .metadata = metadata, .kind = Kind::Kernel,
                                 .device = current_device_index, .stream = current_streams[current_device_index], .duration_ns = duration,
                                 .blocking = facts.data_dependent, .wraps_autograd = call.requires_grad && at::GradMode::is_enabled()},
                                uses.data(), uses.size());
  }

  static void replay(const OperatorFacts& facts, torch::jit::Stack* stack, size_t begin) {
    auto cached = Tape::instance().next();
    torch::jit::Stack results;
    for (size_t r = 0; r < facts.return_count; ++r) {
      if (facts.return_aliases[r] >= 0) results.push_back((*stack)[begin + facts.return_aliases[r]]);
      else if (cached->forms[r] == CachedCall::Form::Tensor) results.emplace_back(new_output(cached->outputs[r][0]));
      else if (cached->forms[r] == CachedCall::Form::List) {
        c10::List<at::Tensor> list;
        for (const auto& meta : cached->outputs[r]) list.push_back(new_output(meta));
        results.emplace_back(std::move(list));
      } else results.push_back(cached->values[r]);
    }
    stack->resize(begin);
    for (auto& result : results) stack->push_back(std::move(result));
  }

  std::once_flag prepared_;
  std::unique_ptr<OperatorFacts> facts_;
  std::unique_ptr<ScratchMemory> scratch_;
  ShapeCache cache_;
};

}  // namespace maya
