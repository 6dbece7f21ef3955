// cuDNN's recurrent networks work time first: with batch_first the output is a transposed view of
// that, which torch's meta kernel does not know.
#pragma once
#include "operator_facts.h"
#include "shape_cache.h"

namespace maya {

inline void keep_time_major(const OperatorFacts& facts, c10::ArrayRef<at::IValue> arguments, CachedCall& call) {
  bool batch_first = false;
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (facts.argument_names[a] == "batch_first") batch_first = arguments[a].toBool();
    if (facts.argument_names[a] == "batch_sizes" && !arguments[a].toIntVector().empty()) return;  // packed
  }
  auto& output = call.outputs[0][0];
  if (!batch_first || output.sizes.size() != 3) return;
  output.strides[0] = output.sizes[2];
  output.strides[1] = output.sizes[0] * output.sizes[2];
  output.strides[2] = 1;
}

}  // namespace maya
