// What the boxed kernel must know about an operator, read off its schema once.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <string>
#include <vector>

#include "../recording/recorder.h"
#include "key.h"
#include "name_set.h"
#include "native_meta.h"

namespace maya {

// Selections whose output size depends on values.
inline const NameSet& data_dependent_operators() {
  static const NameSet names{"nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "bincount", "repeat_interleave"};
  return names;
}

struct OperatorFacts {
  std::string name;       // aten::add.Tensor
  std::string base_name;  // add
  int32_t name_id = 0;
  size_t argument_count = 0, return_count = 0;
  uint64_t written_arguments = 0;    // bit a: argument a is written
  uint64_t out_arguments = 0;        // bit a: argument a is an out=, which is overwritten and may be resized
  uint64_t unannounced_writes = 0;   // written although the schema does not say so (running statistics)
  int training_argument = -1;        // only where this argument is true; -1: always
  uint64_t generator_arguments = 0;  // bit a: argument a is a Generator
  uint64_t dtype_arguments = 0;      // bit a: argument a is a ScalarType
  std::vector<int> return_aliases;   // argument that return r is, -1 for a fresh output
  std::vector<ScalarKeying> keying;
  std::vector<std::string> argument_names;
  bool only_aliases = false;     // every return is an argument (in-place, _foreach_*_, void)
  bool has_out = false;          // out= variant
  bool overwrites_self = false;  // does not read what it writes: fill_, normal_
  int info_return = -1;          // the return that says whether a factorization succeeded
  bool checks_overlap = false;   // refuses to write where elements share memory
  bool pointwise = false;
  bool data_dependent = false;
  bool computable = false;  // there is a CPU kernel with the same meaning
  bool allows_host_tensors = false;
  bool matmul = false, convolution = false, recurrent = false;
  bool selects_constant = false;    // constants in → constants out, element by element or reduced
  bool sums = false;
  bool fills = false;  // writes one number everywhere
  bool keeps_statistics = false;  // batch normalization, which saves mean and deviation for its backward
  enum class Absorbs : uint8_t { None, Zero, True } absorbs = Absorbs::None;  // an operand that decides the result alone
  bool random = false;
  bool counts_versions = false;
  bool index_factory = false;
  enum class Finite : uint8_t { None, False, True, CompareScalar, CompareTensor } finite = Finite::None;
  std::optional<c10::KernelFunction> meta;  // where the meta kernel to ask is not the registered one

  explicit OperatorFacts(const c10::OperatorHandle& op) {
    const auto& schema = op.schema();
    name = schema.name();
    base_name = name.substr(name.find("::") + 2);
    if (!schema.overload_name().empty()) name += "." + schema.overload_name();
    name_id = Recorder::instance().intern_name(name);
    argument_count = schema.arguments().size();
    return_count = schema.returns().size();
    read_arguments(schema);
    read_returns(schema);
    classify(op);
    find_unannounced_writes();
    meta = native_meta(op, base_name);
  }

  bool writes(size_t argument) const { return (written_arguments >> argument) & 1; }
  bool is_out(size_t argument) const { return (out_arguments >> argument) & 1; }
  // Is what the argument held before the call lost unread?
  bool overwrites(size_t argument) const { return has_out ? is_out(argument) : overwrites_self && writes(argument); }
  bool is_generator(size_t argument) const { return (generator_arguments >> argument) & 1; }
  bool is_dtype(size_t argument) const { return (dtype_arguments >> argument) & 1; }

 private:
  void read_arguments(const c10::FunctionSchema& schema) {
    TORCH_INTERNAL_ASSERT(argument_count <= 64, name);
    static const NameSet value_decides_shape{"arange", "range"};
    for (size_t a = 0; a < argument_count; ++a) {
      const auto& argument = schema.arguments()[a];
      argument_names.push_back(argument.name());
      if (argument.alias_info() && argument.alias_info()->isWrite()) written_arguments |= 1ull << a;
      if (argument.is_out()) out_arguments |= 1ull << a, has_out = true;
      auto real = argument.real_type()->str();
      if (real.find("Generator") != std::string::npos) generator_arguments |= 1ull << a;
      if (real.find("ScalarType") != std::string::npos) dtype_arguments |= 1ull << a;
      auto kind = argument.type()->str();
      bool continuous = kind.find("float") != std::string::npos || kind.find("number") != std::string::npos || kind.find("Scalar") == 0;
      keying.push_back(continuous && !value_decides_shape.count(base_name) ? ScalarKeying::Class : ScalarKeying::Exact);
    }
  }

  void read_returns(const c10::FunctionSchema& schema) {
    only_aliases = true;
    for (size_t r = 0; r < return_count; ++r) {
      const auto* alias = schema.returns()[r].alias_info();
      int source = -1;
      for (size_t a = 0; alias && alias->isWrite() && a < argument_count; ++a) {
        const auto* candidate = schema.arguments()[a].alias_info();
        if (candidate && candidate->beforeSets() == alias->beforeSets()) {
          source = static_cast<int>(a);
          break;
        }
      }
      if (source < 0) only_aliases = false;
      return_aliases.push_back(source);
      if (schema.returns()[r].name() == "info") info_return = static_cast<int>(r);
    }
    // cuDNN hands back the weight buffer it was given.
    if (base_name == "_cudnn_rnn") return_aliases[4] = 3;
  }

  // PyTorch's schemas of these older operators do not mark what they update.
  void find_unannounced_writes() {
    static const NameSet updates_statistics{"native_batch_norm", "cudnn_batch_norm", "batch_norm_update_stats", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"};
    if (!updates_statistics.count(base_name)) return;
    for (size_t a = 0; a < argument_count; ++a) {
      if (argument_names[a] == "running_mean" || argument_names[a] == "running_var") unannounced_writes |= 1ull << a;
      if (argument_names[a] == "training") training_argument = static_cast<int>(a);
    }
  }

  void classify(const c10::OperatorHandle& op) {
    static const NameSet overwriting{"fill_", "zero_", "normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_", "_foreach_zero_", "eye_"};
    static const NameSet host_tensors{"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put", "_ctc_loss", "_ctc_loss_backward", "_cudnn_ctc_loss", "_cudnn_rnn", "_cudnn_rnn_backward", "_efficient_attention_backward", "_flash_attention_backward",
                                      "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward", "_pad_packed_sequence", "_pack_padded_sequence", "segment_reduce"};
    static const NameSet matmuls{"mm", "addmm", "bmm", "baddbmm", "addbmm", "_addmm_activation", "addmv", "addr", "linear", "dot", "vdot", "_cudnn_rnn", "_cudnn_rnn_backward"};
    static const NameSet constants{"isnan", "isinf", "isfinite", "isposinf", "isneginf", "any", "all", "logical_and", "logical_or", "logical_not", "logical_xor", "logical_and_", "logical_or_", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor",
                                   "__and__", "__or__", "eq", "ne", "lt", "le", "gt", "ge", "mul", "add", "sub", "div", "where", "max", "min", "amax", "amin", "mean", "abs", "neg", "sqrt", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "clone",
                                   "mul_", "add_", "sub_", "div_", "masked_fill", "masked_fill_", "clamp_", "sqrt_", "neg_", "addcmul", "addcdiv", "lerp", "cat", "stack", "_to_copy", "sum", "reciprocal", "rsqrt", "exp", "log", "pow", "expm1", "sigmoid", "tanh", "relu", "sign", "ceil", "floor", "round", "trunc"};
    // These repeat or accumulate without harm where elements share memory; torch lets them.
    static const NameSet tolerant{"fill_", "zero_", "index_put_", "_index_put_impl_", "index_fill_", "masked_fill_"};
    overwrites_self = overwriting.count(base_name);
    checks_overlap = written_arguments != 0 && !tolerant.count(base_name) && base_name.compare(0, 1, "_") != 0;
    pointwise = op.hasTag(at::Tag::pointwise);
    data_dependent = data_dependent_operators().count(base_name);
    allows_host_tensors = host_tensors.count(base_name);
    matmul = matmuls.count(base_name);
    recurrent = base_name.find("_cudnn_rnn") == 0;
    convolution = base_name.find("convolution") != std::string::npos;
    selects_constant = constants.count(base_name);
    sums = base_name == "sum";
    auto plain_name = base_name.back() == '_' ? base_name.substr(0, base_name.size() - 1) : base_name;
    if (plain_name == "mul" || plain_name == "bitwise_and" || plain_name == "logical_and") absorbs = Absorbs::Zero;
    if (plain_name == "bitwise_or" || plain_name == "logical_or") absorbs = Absorbs::True;
    fills = !has_out && (base_name == "fill_" || base_name == "zero_" || base_name == "_foreach_zero_");
    counts_versions = base_name.find("_foreach_") == 0 && base_name.back() == '_';
    index_factory = base_name == "arange" || base_name == "randperm";
    keeps_statistics = base_name.find("native_batch_norm") != std::string::npos;
    random = generator_arguments != 0 || base_name == "native_dropout";
    if (base_name == "isnan" || base_name == "isinf" || base_name == "isposinf" || base_name == "isneginf") finite = Finite::False;
    if (base_name == "isfinite") finite = Finite::True;
    if (base_name == "eq" || base_name == "ne") finite = name.find(".Scalar") != std::string::npos ? Finite::CompareScalar : Finite::CompareTensor;
    // Kernels of libraries that exist on the GPU only have CPU names with another meaning or none.
    static constexpr std::string_view gpu_only[] = {"flash_attention", "efficient_attention", "cudnn", "miopen", "native_dropout", "_scaled_mm", "_grouped_mm", "_fused_sdp_choice"};
    bool foreign = false;
    for (auto part : gpu_only) foreign |= base_name.find(part) != std::string::npos;
    computable = !foreign && (op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU));
  }
};

}  // namespace maya
