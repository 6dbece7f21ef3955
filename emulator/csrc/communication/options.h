// ProcessGroupNCCL.Options and its NCCLConfig, as scripts set them.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <climits>
#include <optional>
#include <string>

namespace maya {

constexpr int kUndefined = INT_MIN;  // NCCL_CONFIG_UNDEF_INT
constexpr std::chrono::milliseconds kNcclTimeout = std::chrono::minutes(10);  // kProcessGroupNCCLDefaultTimeout

struct NcclConfig {
  int blocking = kUndefined, cga_cluster_size = kUndefined, min_ctas = kUndefined, max_ctas = kUndefined, split_share = kUndefined, traffic_class = kUndefined;
  int collnet_enable = kUndefined, cta_policy = kUndefined, shrink_share = kUndefined, nvls_ctas = kUndefined, max_p2p_peers = kUndefined;
  std::optional<std::string> net_name, comm_name;
};

struct NcclOptions final : c10d::Backend::Options {
  explicit NcclOptions(bool high_priority = false) : c10d::Backend::Options("nccl", kNcclTimeout), is_high_priority_stream(high_priority) {}
  NcclOptions(const NcclOptions&) = default;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  c10::intrusive_ptr<c10d::Backend::Options> clone() const override { return c10::make_intrusive<NcclOptions>(*this); }
#endif

  bool is_high_priority_stream;
  NcclConfig config;
  c10::intrusive_ptr<c10d::Backend> split_from;
  int split_color = -2;  // uninitialized; -1: not in a group
};

}  // namespace maya
