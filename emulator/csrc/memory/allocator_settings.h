// Settings of the caching allocator, as PYTORCH_CUDA_ALLOC_CONF spells them.
//
// PyTorch parses one string twice: first the options every accelerator has, then CUDA's own. Both
// passes are kept apart here because the second one sees what the first left behind, and because
// errors surface in that order. Wording and exception types were compared with torch 2.13.0
// (torch._C._accelerator_setAllocatorSettings) and the strings of torch 2.14.1's libc10_cuda.so.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace maya {

inline constexpr int64_t kMebibyte = int64_t{1} << 20;
inline constexpr int64_t kSmallestBlockBytes = 512;           // every size is a multiple of it
inline constexpr int64_t kSmallRequestBytes = kMebibyte;      // the largest request of the small pool
inline constexpr int64_t kSmallSegmentBytes = 2 * kMebibyte;  // what the small pool asks the driver for
inline constexpr int64_t kLargeRequestBytes = 10 * kMebibyte; // from here on a request gets its own segment
inline constexpr int64_t kLargeSegmentBytes = 20 * kMebibyte; // shared segment of requests of 1-10 MiB
inline constexpr int64_t kLargeRoundingBytes = 2 * kMebibyte; // own segments are multiples of it
inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Splits "key:value,key:[a:1,b:2]" into its words and punctuation; blanks vanish.
class SettingsTokens {
 public:
  explicit SettingsTokens(std::string_view text) {
    std::string word;
    auto flush = [&] {
      if (!word.empty()) tokens_.push_back(std::move(word));
      word.clear();
    };
    for (char c : text) {
      if (c == ',' || c == ':' || c == '[' || c == ']') {
        flush();
        tokens_.emplace_back(1, c);
      } else if (!std::isspace(static_cast<unsigned char>(c))) {
        word += c;
      }
    }
    flush();
  }

  size_t size() const { return tokens_.size(); }

  const std::string& at(size_t i) const {
    if (i >= tokens_.size()) {
      throw std::runtime_error(
          "i < config_.size() INTERNAL ASSERT FAILED at \"c10/core/AllocatorConfig.h\", please report a bug "
          "to PyTorch. Index out of bounds in ConfigTokenizer");
    }
    return tokens_[i];
  }

  uint64_t number(size_t i) const { return std::stoull(at(i)); }
  double real(size_t i) const { return std::stod(at(i)); }

  bool flag(size_t i) const {
    const std::string& token = at(i);
    if (token == "True") return true;
    if (token == "False") return false;
    throw std::invalid_argument("Expected 'True' or 'False' at index " + std::to_string(i) +
                                " in ConfigTokenizer but got '" + token + "'");
  }

  // From a key to the last token of its value.
  size_t skip_value(size_t i) const {
    at(i + 1);
    i += 2;
    if (at(i) != "[") return i;
    while (++i < size() && tokens_[i] != "]") {
    }
    if (i >= size()) {
      throw std::runtime_error("Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    }
    return i;
  }

 private:
  std::vector<std::string> tokens_;
};

class AllocatorSettings {
 public:
  static constexpr size_t kRoundupIntervals = 16;  // 1 MiB, 2 MiB, ... 32 GiB and above

  // ---- every accelerator
  int64_t large_segment_bytes = kLargeSegmentBytes;
  int64_t max_split_bytes = kNoLimit;
  int64_t max_non_split_rounding_bytes = kLargeSegmentBytes;
  std::array<int64_t, kRoundupIntervals> roundup_power2_divisions{};
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  bool pinned_use_background_threads = false;
  int64_t pinned_max_round_threshold_bytes = kNoLimit;
  int64_t pinned_max_cached_bytes = kNoLimit;
  // ---- CUDA only
  bool release_lock_on_cudamalloc = false;
  bool pinned_use_cuda_host_register = false;
  int64_t pinned_num_register_threads = 1;
  int64_t pinned_reserve_segment_size_mb = 0;
  bool pinned_free_catch_all = false;
  bool graph_capture_record_stream_reuse = false;
  bool throw_on_cudamalloc_oom = false;
  double per_process_memory_fraction = 1.0;
  // ----
  std::string text;  // what was last parsed

  // Throws std::invalid_argument (ValueError), std::out_of_range (IndexError) or std::runtime_error,
  // which pybind11 turns into the exception types PyTorch raises. Options before the faulty one stay set.
  void parse(const std::string& settings) {
    parse_common(settings, /*reject_unknown=*/true);
    parse_cuda(settings);
  }

  // The environment variable that PyTorch would read; the older name wins while it is set.
  static std::string environment() {
    for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
      if (const char* value = std::getenv(name)) return value;
    }
    return "";
  }

  int64_t divisions_of(int64_t bytes) const {
    int log2 = 63 - std::countl_zero(static_cast<uint64_t>(bytes));
    int interval = std::clamp(log2 - 20, 0, static_cast<int>(kRoundupIntervals) - 1);
    return roundup_power2_divisions[interval];
  }

  // The size of the block that answers a request.
  int64_t round_size(int64_t bytes) const {
    if (bytes < kSmallestBlockBytes) return kSmallestBlockBytes;
    int64_t divisions = divisions_of(bytes);
    if (divisions > 1 && bytes > kSmallestBlockBytes * divisions) {
      uint64_t floor = std::bit_floor(static_cast<uint64_t>(bytes));
      if (floor == static_cast<uint64_t>(bytes)) return bytes;
      uint64_t step = floor >> (63 - std::countl_zero(static_cast<uint64_t>(divisions)));
      if (step == 0) return static_cast<int64_t>(floor << 1);
      return static_cast<int64_t>((static_cast<uint64_t>(bytes) + step - 1) & ~(step - 1));
    }
    return (bytes + kSmallestBlockBytes - 1) / kSmallestBlockBytes * kSmallestBlockBytes;
  }

  // What the driver is asked for when no cached block fits a rounded size.
  int64_t segment_size(int64_t rounded_bytes) const {
    if (rounded_bytes <= kSmallRequestBytes) return kSmallSegmentBytes;
    if (rounded_bytes < kLargeRequestBytes) return large_segment_bytes;
    return (rounded_bytes + kLargeRoundingBytes - 1) / kLargeRoundingBytes * kLargeRoundingBytes;
  }

  void parse_common(const std::string& settings, bool reject_unknown);
  void parse_cuda(const std::string& settings);

 private:
  static int64_t mebibytes(uint64_t value) {
    constexpr uint64_t most = std::numeric_limits<uint64_t>::max() / static_cast<uint64_t>(kMebibyte);
    uint64_t bytes = std::min(value, most) * static_cast<uint64_t>(kMebibyte);
    return static_cast<int64_t>(std::min(bytes, static_cast<uint64_t>(kNoLimit)));
  }

  int64_t at_least_a_segment(const SettingsTokens& tokens, size_t i, const char* option) const {
    uint64_t value = tokens.number(i);
    int64_t least = large_segment_bytes / kMebibyte;
    if (value < static_cast<uint64_t>(least)) {
      throw std::invalid_argument(std::string("CachingAllocator option ") + option +
                                  " too small, must be >= " + std::to_string(least));
    }
    return mebibytes(value);
  }

  size_t parse_roundup(const SettingsTokens& tokens, size_t i);

  static bool is_common_key(const std::string& key) {
    return key == "large_segment_size_mb" || key == "max_split_size_mb" || key == "max_non_split_rounding_mb" ||
           key == "garbage_collection_threshold" || key == "roundup_power2_divisions" ||
           key == "expandable_segments" || key == "pinned_use_background_threads" ||
           key == "pinned_max_round_threshold_mb" || key == "pinned_max_cached_size_mb";
  }

  static bool is_cuda_key(const std::string& key) {
    for (const char* known :
         {"backend", "release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "pinned_use_cuda_host_register",
          "pinned_use_hip_host_register", "graph_capture_record_stream_reuse", "pinned_reserve_segment_size_mb",
          "pinned_num_register_threads", "per_process_memory_fraction", "pinned_free_catch_all",
          "throw_on_cudamalloc_oom"}) {
      if (key == known) return true;
    }
    return false;
  }
};

}  // namespace maya

#include "allocator_settings_parser.h"
