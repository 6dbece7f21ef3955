// How much memory cuBLAS takes from the caching allocator.
//
// The first GEMM on a (cuBLAS handle, stream) allocates one workspace through the caching allocator
// and keeps it until torch._C._cuda_clearCublasWorkspaces(). PyTorch keeps a handle per thread and
// device, so the autograd thread's first GEMM allocates a second workspace: a training step holds
// two. Since 2.7 cuBLASLt shares the workspace of cuBLAS unless TORCH_CUBLASLT_UNIFIED_WORKSPACE=0;
// then the first cuBLASLt GEMM (addmm with a bias epilogue, _scaled_mm) of a (handle, stream)
// allocates its own cublaslt_workspace_bytes(). Read in aten/src/ATen/cuda/CublasHandlePool.cpp and
// checked in the machine code of torch 2.14.1 (persistent, unified by default).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <regex>
#include <string>

namespace maya {

// `config`: the value of CUBLAS_WORKSPACE_CONFIG (":KiB:count[:KiB:count...]"), null if unset.
inline int64_t cublas_workspace_bytes(int major, int /*minor*/,
                                      const char* config = std::getenv("CUBLAS_WORKSPACE_CONFIG")) {
  // 32 MiB from Hopper on; before it NVIDIA's default :4096:2:16:8, i.e. 2 x 4 MiB and 8 x 16 KiB.
  const int64_t standard = major >= 9 ? int64_t{32} << 20 : (int64_t{2} * 4096 + 8 * 16) * 1024;
  if (config == nullptr) return standard;
  const std::string text(config);
  const std::regex pair(":([0-9]+):([0-9]+)");
  int64_t total = 0;
  bool found = false;
  for (std::sregex_iterator match(text.begin(), text.end(), pair), end; match != end; ++match) {
    total += std::stoll((*match)[1]) * 1024 * std::stoll((*match)[2]);
    found = true;
  }
  return found ? total : standard;  // PyTorch warns and goes on with the standard size
}

inline bool cublaslt_shares_workspace(
    const char* unified = std::getenv("TORCH_CUBLASLT_UNIFIED_WORKSPACE")) {
  return unified == nullptr || std::string(unified) != "0";
}

// `config`: the value of CUBLASLT_WORKSPACE_SIZE in KiB, null if unset.
inline int64_t cublaslt_workspace_bytes(const char* config = std::getenv("CUBLASLT_WORKSPACE_SIZE")) {
  constexpr int64_t standard = 1024 * 1024;
  if (config == nullptr) return standard;
  try {
    return int64_t{std::stoi(config)} * 1024;
  } catch (const std::logic_error&) {  // not a number, or too large: PyTorch warns and uses the standard
    return standard;
  }
}

}  // namespace maya
