// cuDNN keeps channels-last: meta kernels of convolutions answer contiguous outputs, so the
// suggested memory format is put back. The rule is cuDNN's: either operand channels-last (and no
// float64) makes the result channels-last.
#pragma once
#include <ATen/Context.h>
#include <c10/core/MemoryFormat.h>

#include "operator_facts.h"
#include "shape_cache.h"

namespace maya {

inline void make_channels_last(OutputMeta& meta) {
  if (!meta.defined || (meta.sizes.size() != 4 && meta.sizes.size() != 5)) return;
  at::IntArrayRef sizes(meta.sizes.data(), meta.sizes.size());
  auto strides = sizes.size() == 4 ? c10::get_channels_last_strides_2d(sizes) : c10::get_channels_last_strides_3d(sizes);
  meta.strides.assign(strides.begin(), strides.end());
}

inline void keep_channels_last(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, CachedCall& call) {
  if (!at::globalContext().userEnabledCuDNN()) return;  // PyTorch's own kernels answer contiguous
  bool channels_last = false;
  for (size_t a = 0; a < arguments.size(); ++a) {
    const auto& name = facts.argument_names[a];
    if (name != "input" && name != "self" && name != "weight") continue;
    if (!arguments[a].isTensor() || !arguments[a].toTensor().defined()) continue;
    const auto& tensor = arguments[a].toTensor();
    if (tensor.scalar_type() == c10::kDouble) return;
    auto format = tensor.suggest_memory_format();
    if (format == c10::MemoryFormat::ChannelsLast || format == c10::MemoryFormat::ChannelsLast3d) channels_last = true;
  }
  if (!channels_last) return;
  for (auto& outputs : call.outputs)
    for (auto& meta : outputs) make_channels_last(meta);
}

}  // namespace maya
