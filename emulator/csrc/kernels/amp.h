// GradScaler's check: gradients nobody computed are finite, so found_inf stays what it was and the
// scaler takes the step that a healthy run takes.
#pragma once
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>

#include "copies.h"

namespace maya {

inline void amp_foreach_non_finite_check_and_unscale_(at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inverse_scale) {
  static const std::string name = "aten::_amp_foreach_non_finite_check_and_unscale_";
  static const int32_t name_id = Recorder::instance().intern_name(name);
  Statistics::instance().operations++;
  if (grads.empty()) return;
  int device = grads[0].get_device();
  std::string json = "{\"args\":{\"self\":[";
  std::vector<TensorUse> uses;
  bool all_known = is_known(found_inf) && is_known(inverse_scale);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (i) json += ',';
    append_json_tensor(json, grads[i]);
    uses.push_back(use_of(grads[i], 0, Role::ReadWrite));
    all_known = all_known && is_known(grads[i]);
  }
  uses.push_back(use_of(found_inf, 1, Role::ReadWrite));
  uses.push_back(use_of(inverse_scale, 2, Role::Read));
  json += "]},\"out\":[]}";
  Recorder::instance().record({.name = name_id, .metadata = Recorder::instance().intern_metadata(json), .kind = Kind::Kernel, .device = device,
                               .stream = current_streams[device], .duration_ns = Oracle::instance().duration_ns(name, json)}, uses.data(), uses.size());
  if (all_known) {
    std::vector<at::Tensor> host;
    for (const auto& grad : grads) host.push_back(host_alias(grad));
    auto host_found = host_alias(found_inf);
    at::AutoDispatchBelowADInplaceOrView below;
    at::_amp_foreach_non_finite_check_and_unscale_(host, host_found, host_alias(inverse_scale));
    return;
  }
  for (const auto& grad : grads) wrote(grad, false, name_id);
}

}  // namespace maya
