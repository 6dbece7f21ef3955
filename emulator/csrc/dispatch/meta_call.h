// A cache miss: run the operator on meta tensors and keep what it would produce.
#pragma once
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/MemoryFormat.h>

#include "../values/policy.h"
#include "argument_checks.h"
#include "call_arguments.h"
#include "compiled_dtypes.h"
#include "convolution_format.h"
#include "dtype_checks.h"
#include "functional_sibling.h"
#include "oracle.h"
#include "recurrent_format.h"
#include "shape_cache.h"
#include "statistics.h"

namespace maya {

inline int64_t math_flags(const OperatorFacts& facts) {
  auto& context = at::globalContext();
  return facts.convolution || facts.recurrent ? context.allowTF32CuDNN() : context.allowTF32CuBLAS();
}

inline at::Tensor meta_like(const at::Tensor& tensor) {
  // 0-dim CPU tensors stay: they take part in type promotion as numbers do.
  if (tensor.is_meta() || (tensor.is_cpu() && tensor.dim() == 0)) return tensor;
  auto meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  // Kernels that see these views (others get their operands resolved) may lay out results by them.
  if (tensor.is_conj()) meta._set_conj(true);
  if (tensor.is_neg()) meta._set_neg(true);
  return meta;
}

inline std::string open_metadata(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments) {
  std::string json = "{\"args\":{";
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (a) json += ',';
    append_json_string(json, facts.argument_names[a]);
    json += ':';
    append_json_value(json, arguments[a], facts.keying[a], facts.is_dtype(a));
  }
  json += "},\"out\":[";
  return json;
}

inline void close_metadata(std::string& json, const OperatorFacts& facts) {
  json += ']';
  if (facts.matmul || facts.convolution) json += math_flags(facts) ? ",\"math\":\"tf32\"" : ",\"math\":\"ieee\"";
  json += '}';
}

// For calls whose results are at hand (data-dependent selections).
inline std::string metadata_of_call(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, const torch::jit::Stack& results) {
  auto json = open_metadata(facts, arguments);
  for (size_t r = 0; r < results.size(); ++r) {
    if (r) json += ',';
    append_json_value(json, results[r], ScalarKeying::Class, false);
  }
  close_metadata(json, facts);
  return json;
}

inline void append_output_json(std::string& json, const OutputMeta& meta) {
  if (!meta.defined) {
    json += "null";
    return;
  }
  append_json_tensor(json, meta.type, {meta.sizes.data(), meta.sizes.size()}, {meta.strides.data(), meta.strides.size()}, true);
}

// Output of a selection whose size depends on unknown values: the policy says how many.
std::shared_ptr<CachedCall> select_unknown(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments);

[[noreturn]] inline void throw_without_shape(const OperatorFacts& facts) {
  TORCH_CHECK_NOT_IMPLEMENTED(facts.name.find("sparse") == std::string::npos && facts.name.find("quantize") == std::string::npos, "Maya does not emulate ", facts.name,
                              ": sparse, quantized and nested CUDA tensors are not supported yet");
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Maya cannot tell the output shapes of ", facts.name,
                              ": this torch has no meta kernel for it. Report the operator, or avoid it on the emulated device.");
}

// Null when there is no meta kernel and `computable` says that values can stand in for it.
inline std::shared_ptr<const CachedCall> call_meta(const c10::OperatorHandle& op, const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, bool computable) {
  check_dtypes(facts, arguments);
  ArgumentChecks(facts, arguments).run();
  check_kernel_arguments(facts, arguments);
  auto call = std::make_shared<CachedCall>();
  torch::jit::Stack stack;
  for (const auto& argument : arguments) stack.push_back(map_tensors(argument, c10::Device(c10::kMeta), meta_like));
  torch::jit::Stack kept(stack);  // out= arguments are resized in place
  bool answered = true;
  if (facts.data_dependent) {
    call = select_unknown(facts, arguments);
  } else {
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      const c10::DispatchKeySet keys(c10::DispatchKey::Meta);
      if (facts.meta) facts.meta->callBoxed(op, keys, &stack);
      else op.redispatchBoxed(keys, &stack);
    } catch (const c10::NotImplementedError& error) {
      Statistics::instance().note_missing_meta(facts.name, error.what_without_backtrace());
      if (facts.has_out) {
        if (computable) return nullptr;
        auto results = call_functional_sibling(facts, kept);
        if (!results) throw_without_shape(facts);
        for (size_t r = 0; r < facts.return_count; ++r)
          if (facts.return_aliases[r] >= 0) kept[facts.return_aliases[r]] = (*results)[r];
      } else if (!facts.only_aliases) {
        if (computable) return nullptr;
        throw_without_shape(facts);
      }
      answered = false;  // in place: the outputs are the arguments, no shape to learn
    }
  }
  check_full_precision(facts, arguments);
  if (!facts.data_dependent) {
    for (size_t r = 0; r < facts.return_count; ++r) {
      call->outputs.emplace_back();
      call->values.emplace_back();
      if (facts.return_aliases[r] >= 0 || !answered) {
        call->forms.push_back(CachedCall::Form::Alias);
        continue;
      }
      const auto& value = stack[stack.size() - facts.return_count + r];
      if (value.isTensor()) {
        call->forms.push_back(CachedCall::Form::Tensor);
        call->outputs[r].push_back(meta_of(value.toTensor()));
      } else if (value.isTensorList()) {
        call->forms.push_back(CachedCall::Form::List);
        for (const at::Tensor& item : value.toTensorList()) call->outputs[r].push_back(meta_of(item));
      } else {
        call->forms.push_back(CachedCall::Form::Value);
        call->values[r] = value;
      }
    }
    if (answered && lays_out_as_sibling(facts))
      if (auto results = call_functional_sibling(facts, kept))
        for (size_t r = 0; r < facts.return_count; ++r)
          if (facts.return_aliases[r] >= 0 && kept[facts.return_aliases[r]].toTensor().sizes() == (*results)[r].toTensor().sizes())
            kept[facts.return_aliases[r]] = (*results)[r];
    if (facts.has_out)
      for (size_t a = 0; a < facts.argument_count; ++a)
        if (facts.is_out(a) && kept[a].isTensor() && kept[a].toTensor().defined()) {
          call->resized.emplace_back(static_cast<int>(a), meta_of(kept[a].toTensor()));
          call->note_size(call->resized.back().second);
        }
  }
  if (facts.convolution) keep_channels_last(facts, arguments, *call);
  if (facts.base_name == "_cudnn_rnn") keep_time_major(facts, arguments, *call);
  auto json = open_metadata(facts, arguments);
  bool first = true;
  for (size_t r = 0; r < call->outputs.size(); ++r) {
    if (call->forms[r] == CachedCall::Form::Alias) continue;
    if (!first) json += ',';
    first = false;
    if (call->forms[r] == CachedCall::Form::Value) {
      append_json_value(json, call->values[r], ScalarKeying::Class, false);
      continue;
    }
    if (call->forms[r] == CachedCall::Form::List) json += '[';
    for (size_t i = 0; i < call->outputs[r].size(); ++i) {
      if (i) json += ',';
      append_output_json(json, call->outputs[r][i]);
      call->note_size(call->outputs[r][i]);
    }
    if (call->forms[r] == CachedCall::Form::List) json += ']';
  }
  close_metadata(json, facts);
  call->metadata = Recorder::instance().intern_metadata(json);
  call->duration_ns = Oracle::instance().duration_ns(facts.name, json);
  return call;
}

}  // namespace maya
