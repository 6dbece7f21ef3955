// The two parsing passes of AllocatorSettings. Included by allocator_settings.h only.
#pragma once

namespace maya {

inline size_t AllocatorSettings::parse_roundup(const SettingsTokens& tokens, size_t i) {
  auto is_power_of_two = [](uint64_t value) { return std::has_single_bit(value); };
  if (tokens.at(i) != "[") {
    uint64_t value = tokens.number(i);
    if (!is_power_of_two(value)) {
      throw std::invalid_argument("For roundups, the divisions has to be power of 2 ");
    }
    roundup_power2_divisions.fill(static_cast<int64_t>(value));
    return i;
  }
  bool first = true;
  size_t last = 0;
  while (++i < tokens.size() && tokens.at(i) != "]") {
    size_t key = i;
    i += 2;
    uint64_t value = tokens.number(i);
    if (value != 0 && !is_power_of_two(value)) {
      throw std::invalid_argument(
          "For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
    }
    auto begin = roundup_power2_divisions.begin();
    if (tokens.at(key) == ">") {
      if (last + 1 < kRoundupIntervals) {
        std::fill(begin + static_cast<int64_t>(last) + 1, roundup_power2_divisions.end(),
                  static_cast<int64_t>(value));
      }
    } else {
      uint64_t boundary = tokens.number(key);  // MiB
      if (!is_power_of_two(boundary)) {
        throw std::invalid_argument("For roundups, the intervals have to be power of 2 ");
      }
      size_t index = std::min<size_t>(63 - std::countl_zero(boundary), kRoundupIntervals - 1);
      if (first) std::fill(begin, begin + static_cast<int64_t>(index), static_cast<int64_t>(value));
      first = false;
      roundup_power2_divisions[index] = static_cast<int64_t>(value);
      last = index;
    }
    if (tokens.at(i + 1) != "]") ++i;
  }
  if (i >= tokens.size()) {
    throw std::runtime_error("Expected closing bracket ']' in ConfigTokenizer but reached end of config");
  }
  return i;
}

inline void AllocatorSettings::parse_common(const std::string& settings, bool reject_unknown) {
  // These three go back to their defaults unless named; the others keep what an earlier call set.
  max_split_bytes = kNoLimit;
  roundup_power2_divisions.fill(0);
  garbage_collection_threshold = 0;
  text = settings;
  SettingsTokens tokens(settings);
  // First and wherever it stands, because the least max_split_size_mb depends on it.
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens.at(i) != "large_segment_size_mb") continue;
    tokens.at(i + 1);
    uint64_t size = tokens.number(i += 2);
    if (size <= static_cast<uint64_t>(kLargeRequestBytes / kMebibyte)) {
      throw std::invalid_argument("CachingAllocator option large_segment_size_mb must be > " +
                                  std::to_string(kLargeRequestBytes / kMebibyte) + " MB");
    }
    large_segment_bytes = mebibytes(size);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& key = tokens.at(i);
    size_t value = i + 2;
    if (is_common_key(key)) tokens.at(i + 1);
    if (key == "large_segment_size_mb") {
      i = tokens.skip_value(i);
    } else if (key == "max_split_size_mb") {
      max_split_bytes = at_least_a_segment(tokens, i = value, "max_split_size_mb");
    } else if (key == "max_non_split_rounding_mb") {
      max_non_split_rounding_bytes = at_least_a_segment(tokens, i = value, "max_non_split_rounding_mb");
    } else if (key == "garbage_collection_threshold") {
      double threshold = tokens.real(i = value);
      if (!(threshold > 0 && threshold < 1)) {
        throw std::invalid_argument("garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
      }
      garbage_collection_threshold = threshold;
    } else if (key == "roundup_power2_divisions") {
      i = parse_roundup(tokens, value);
    } else if (key == "expandable_segments") {
      expandable_segments = tokens.flag(i = value);
    } else if (key == "pinned_use_background_threads") {
      pinned_use_background_threads = tokens.flag(i = value);
    } else if (key == "pinned_max_round_threshold_mb") {
      pinned_max_round_threshold_bytes = mebibytes(tokens.number(i = value));
    } else if (key == "pinned_max_cached_size_mb") {
      pinned_max_cached_bytes = mebibytes(tokens.number(i = value));
    } else {
      if (reject_unknown && !is_cuda_key(key)) {
        throw std::invalid_argument("Unrecognized key '" + key + "' in Accelerator allocator config.");
      }
      i = tokens.skip_value(i);
    }
    if (i + 1 < tokens.size()) ++i;  // PyTorch skips this token without looking whether it is a comma
  }
}

inline void AllocatorSettings::parse_cuda(const std::string& settings) {
  SettingsTokens tokens(settings);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& key = tokens.at(i);
    size_t value = i + 2;
    if (is_cuda_key(key)) tokens.at(i + 1);
    if (key == "backend") {
      const std::string& backend = tokens.at(i = value);
      if (backend != "native" && backend != "cudaMallocAsync") {
        throw std::invalid_argument("Unknown allocator backend, options are native and cudaMallocAsync");
      }
      // cudaMallocAsync is another allocator altogether; the emulator models the native one in its place.
    } else if (key == "release_lock_on_cudamalloc" || key == "release_lock_on_hipmalloc") {
      release_lock_on_cudamalloc = tokens.flag(i = value);
    } else if (key == "pinned_use_cuda_host_register" || key == "pinned_use_hip_host_register") {
      pinned_use_cuda_host_register = tokens.flag(i = value);
    } else if (key == "pinned_num_register_threads") {
      uint64_t threads = tokens.number(i = value);
      if (!std::has_single_bit(threads)) {
        throw std::invalid_argument("Number of register threads has to be power of 2, got " +
                                    std::to_string(threads));
      }
      if (threads > 128) {
        throw std::invalid_argument("Number of register threads should be less than or equal to 128, got " +
                                    std::to_string(threads));
      }
      pinned_num_register_threads = static_cast<int64_t>(threads);
    } else if (key == "pinned_reserve_segment_size_mb") {
      uint64_t size = tokens.number(i = value);
      if (size == 0) throw std::invalid_argument("Pinned reserve segment size has to be greater than 0");
      pinned_reserve_segment_size_mb = static_cast<int64_t>(size);
    } else if (key == "pinned_free_catch_all") {
      pinned_free_catch_all = tokens.flag(i = value);
    } else if (key == "graph_capture_record_stream_reuse") {
      graph_capture_record_stream_reuse = tokens.flag(i = value);
    } else if (key == "throw_on_cudamalloc_oom") {
      throw_on_cudamalloc_oom = tokens.flag(i = value);
    } else if (key == "per_process_memory_fraction") {
      double fraction = tokens.real(i = value);
      if (!(fraction >= 0 && fraction <= 1)) {
        throw std::invalid_argument("per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
      }
      per_process_memory_fraction = fraction;
    } else {
      if (!is_common_key(key)) {
        throw std::invalid_argument("Unrecognized key '" + key + "' in CUDA allocator config.");
      }
      i = tokens.skip_value(i);
    }
    if (i + 1 < tokens.size()) ++i;
  }
}

}  // namespace maya
