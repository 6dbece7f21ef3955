// Memory that a CUDA kernel of PyTorch takes from the caching allocator for the time of its call. It is
// gone when the operator returns, but it counts towards the peak and may make the allocator grow.
//
// Modelled, each from the allocations in PyTorch's sources: backward passes of flash and
// memory-efficient attention, of embeddings and embedding bags, and accumulating index_put. Not
// modelled: what cuDNN asks for (the size is its own choice of algorithm), sort, topk and unique, and
// the buffers of a few KiB that reductions use.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "../device/device_allocator.h"
#include "../device/devices.h"
#include "../dispatch/operator_facts.h"

namespace maya {

class ScratchMemory {
 public:
  explicit ScratchMemory(const OperatorFacts& facts) : facts_(facts) {
    const std::string_view name = facts.base_name;
    if (name == "_scaled_dot_product_flash_attention_backward") size_ = &ScratchMemory::flash, heads_first_ = true;
    else if (name == "_flash_attention_backward") size_ = &ScratchMemory::flash;
    else if (name == "_scaled_dot_product_efficient_attention_backward") size_ = &ScratchMemory::efficient, heads_first_ = true;
    else if (name == "_efficient_attention_backward") size_ = &ScratchMemory::efficient;
    else if (name == "embedding_dense_backward" || name == "_embedding_bag_backward" || name == "_embedding_bag_dense_backward") size_ = &ScratchMemory::embedding;
    else if (name == "_index_put_impl_" || name == "index_put_" || name == "index_put") size_ = &ScratchMemory::index_put;
  }

  // Allocates what the kernel would, on the current stream, and gives it back.
  void pass_through(c10::ArrayRef<at::IValue> arguments, int device) const {
    if (!size_) return;
    std::vector<c10::DataPtr> held;
    for (int64_t bytes : (this->*size_)(arguments))
      if (bytes > 0) held.push_back(allocate_device_memory(static_cast<size_t>(bytes), device));
  }

 private:
  using Sizes = std::vector<int64_t>;
  using Arguments = c10::ArrayRef<at::IValue>;

  static int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

  const at::IValue* find(Arguments arguments, std::string_view name) const {
    for (size_t a = 0; a < facts_.argument_names.size(); ++a)
      if (facts_.argument_names[a] == name) return &arguments[a];
    return nullptr;
  }
  // Undefined if the operator has no such argument or got none.
  at::Tensor tensor(Arguments arguments, std::string_view name) const {
    const auto* value = find(arguments, name);
    return value && value->isTensor() ? value->toTensor() : at::Tensor();
  }
  int64_t number(Arguments arguments, std::string_view name, int64_t otherwise) const {
    const auto* value = find(arguments, name);
    return value && value->isInt() ? value->toInt() : otherwise;
  }
  bool flag(Arguments arguments, std::string_view name) const {
    const auto* value = find(arguments, name);
    return value && value->isBool() && value->toBool();
  }

  struct Attention {
    int64_t batch, length, heads, width, key_length, key_heads;
  };
  // Of dense inputs; batch 0 for packed ones of three dimensions.
  Attention attention(Arguments arguments) const {
    auto query = tensor(arguments, "query"), key = tensor(arguments, "key");
    if (query.dim() != 4) return {0, query.size(0), query.size(1), query.size(2), key.size(0), key.size(1)};
    int length = heads_first_ ? 2 : 1, heads = heads_first_ ? 1 : 2;
    return {query.size(0), query.size(length), query.size(heads), query.size(3), key.size(length), key.size(heads)};
  }

  // flash_attn/flash_api.cpp, mha_bwd and mha_varlen_bwd: softmax_d, dq_accum, and the keys' and
  // values' gradients of every query head. Deterministic algorithms hold several dq_accum: not modelled.
  Sizes flash(Arguments arguments) const {
    auto a = attention(arguments);
    int64_t width = round_up(a.width, a.width <= 128 ? 32 : 64);
    int64_t rows = a.batch * round_up(a.length, 128);
    if (a.batch == 0) {
      auto ends = tensor(arguments, "cum_seq_q");
      rows = a.length + 128 * (ends.defined() ? ends.numel() - 1 : 1);
    }
    Sizes sizes{4 * rows * a.heads, 4 * rows * a.heads * width};
    if (a.key_heads != a.heads) {
      int64_t expanded = std::max<int64_t>(1, a.batch) * a.key_length * a.heads * a.width * tensor(arguments, "query").element_size();
      sizes.push_back(expanded);
      sizes.push_back(expanded);
    }
    return sizes;
  }

  // attention_backward.cu and mem_eff_attention/kernel_backward.h. `delta` for every row. In half
  // precision a workspace holds the queries' gradients in float32, in blocks of 64 or, for wider heads,
  // 128 rows; in float32 delta comes from a product of its own that is as large as the output.
  Sizes efficient(Arguments arguments) const {
    auto a = attention(arguments);
    int64_t batch = std::max<int64_t>(1, a.batch);
    int64_t delta = 4 * batch * a.heads * a.length;
    if (tensor(arguments, "query").element_size() >= 4) return {4 * batch * a.heads * a.length * a.width, delta, delta};
    int64_t block = a.width <= 64 ? 64 : 128;
    int64_t blocks = round_up(a.length, block) / block, columns = round_up(a.width, 64) / 64;
    int64_t workspace = batch * a.heads * blocks * columns * (16 + 4 * block * 64);
    return {delta, workspace};
  }

  // Embedding.cu, EmbeddingBag.cu and EmbeddingBackwardKernel.cu: indices are sorted with their
  // positions, runs of equal ones are cut into pieces of ten, and each piece has its sum in float32.
  Sizes embedding(Arguments arguments) const {
    auto indices = tensor(arguments, "indices");
    auto gradient = tensor(arguments, "grad_output");
    if (!gradient.defined()) gradient = tensor(arguments, "grad");
    if (!indices.defined() || !gradient.defined() || indices.numel() == 0 || flag(arguments, "sparse")) return {};
    int64_t count = indices.numel(), rows = number(arguments, "num_weights", count);
    bool bags = facts_.base_name != "embedding_dense_backward";
    // Few indices without a padding row are added one by one, without sorting.
    if (!bags && count <= 3072 && number(arguments, "padding_idx", -1) < 0) return {};
    if (bags && number(arguments, "mode", 0) == 2) return {};  // maxima are scattered
    int64_t positions = count * indices.element_size();
    int64_t runs = std::min(count, rows), pieces = count / 10 + runs;
    int64_t width = gradient.size(-1), accumulated = std::max<int64_t>(4, gradient.element_size());
    Sizes sizes{positions, positions};                                          // sorted, and where from
    sizes.insert(sizes.end(), 3, runs * indices.element_size());                // begin and pieces of each run
    sizes.push_back(pieces * indices.element_size());
    sizes.push_back(pieces * width * accumulated);
    return sizes;
  }

  // Indexing.cu, index_put_with_sort_kernel: linear index, sorted index, positions, and the radix
  // sort's second pair of buffers. Without `accumulate` nothing is sorted.
  Sizes index_put(Arguments arguments) const {
    if (!flag(arguments, "accumulate")) return {};
    int64_t count = 0;
    for (const at::IValue& item : find(arguments, "indices")->toListRef()) {
      if (!item.isTensor()) continue;
      const auto& index = item.toTensor();
      if (!index.defined()) continue;
      if (index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte) return {};  // how many: unknown here
      count = std::max(count, index.numel());
    }
    return {8 * count, 8 * count, 8 * count, 16 * count};
  }

  const OperatorFacts& facts_;
  Sizes (ScratchMemory::*size_)(Arguments) const = nullptr;
  bool heads_first_ = false;
};

}  // namespace maya
