// Sparse COO tensors: gradients of embeddings, and what optimizers do with them.
//
// Most sparse kernels of torch are one C++ function for the CPU and CUDA, written in operators on the
// indices and the values; those of the CPU serve here as they are. The ones with CUDA code of their
// own are below, in the same steps: read off aten/src/ATen/native/sparse/cuda.
#pragma once
#include <ATen/ExpandUtils.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy_sparse_to_sparse.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "../dispatch/boxed_kernel.h"

namespace maya {

inline int64_t sparse_extent(const at::Tensor& sparse) {
  return c10::multiply_integers(sparse.sizes().slice(0, sparse.sparse_dim()));
}

// One number for each place. (torch's flatten_indices asks a stub that a CPU build lacks for CUDA
// when there are several sparse dimensions.)
inline at::Tensor flat_places(const at::Tensor& indices, at::IntArrayRef sizes) {
  auto flat = indices.select(0, 0);
  for (int64_t d = 1; d < indices.size(0); ++d) flat = flat.mul(sizes[d]).add(indices.select(0, d));
  return flat;
}

// Equal places are found by sorting, as Thrust's unique_by_key does, and the host waits for their
// number; unknown indices coalesce to as many places as the value policy says.
inline at::Tensor coalesce_sparse(const at::Tensor& self) {
  if (self._nnz() < 2) {
    auto same = self.detach();
    at::sparse::get_sparse_impl(same)->set_coalesced(true);
    return same;
  }
  auto values = self._values();
  auto [places, inverse, counts] = at::_unique2(flat_places(self._indices(), self.sizes()), /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/false);
  auto sizes = values.sizes().vec();
  sizes[0] = places.size(0);
  auto summed = at::zeros(sizes, values.options()).index_add_(0, inverse, values);
  std::vector<at::Tensor> rows(static_cast<size_t>(self.sparse_dim()));
  for (int64_t d = self.sparse_dim() - 1; d >= 0; --d) {
    rows[d] = d == 0 ? places : at::remainder(places, self.size(d));
    if (d) places = at::div(places, self.size(d), "floor");
  }
  return at::_sparse_coo_tensor_unsafe(at::stack(rows), summed, self.sizes())._coalesced_(true);
}

// `out` becomes as `like` is, with other values.
inline at::Tensor& with_values(at::Tensor& out, const at::Tensor& like, const at::Tensor& values) {
  bool coalesced = like.is_coalesced();
  auto indices = like._indices();
  out.sparse_resize_(like.sizes(), like.sparse_dim(), like.dense_dim());
  at::sparse::alias_into_sparse(out, indices, values.to(out.scalar_type()));
  at::sparse::get_sparse_impl(out)->set_coalesced(coalesced);
  return out;
}

inline at::Tensor& add_dense_and_sparse(at::Tensor& out, const at::Tensor& dense, const at::Tensor& sparse, const at::Scalar& alpha) {
  TORCH_CHECK(dense.sizes().equals(sparse.sizes()), "add: expected 'self' and 'other' to have same size, but self has size ", dense.sizes(), " while other has size ", sparse.sizes(),
              " (FYI: op2-sparse addition does not currently support broadcasting)");
  if (!out.is_same(dense)) out.resize_as_(dense).copy_(dense);
  if (sparse._nnz() == 0) return out;
  auto target = out.contiguous();
  auto shape = sparse._values().sizes().vec();
  shape[0] = sparse_extent(sparse);
  target.view(shape).index_add_(0, flat_places(sparse._indices(), sparse.sizes()), sparse._values().to(out.scalar_type()), alpha);
  if (!target.is_same(out)) out.copy_(target);
  return out;
}

inline at::Tensor& add_out_sparse(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  if (!self.is_sparse()) return add_dense_and_sparse(out, self, other, alpha);
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes().equals(other.sizes()), "add: expected 'self' and 'other' to have same size, but ", self.sizes(), " != ", other.sizes());
  if (other._nnz() == 0) return at::copy_sparse_to_sparse_(out, self);
  if (self._nnz() == 0) return with_values(out, other, other._values().mul(alpha));
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim(), "add: expected 'self' and 'other' to have same density");
  auto type = at::result_type(self, other);
  auto added = other._values().to(type);
  if (!alpha.equal(1)) added = added.mul(alpha);
  auto indices = at::cat({self._indices(), other._indices()}, 1);
  auto values = at::cat({self._values().to(type), added}, 0).to(out.scalar_type());
  out.sparse_resize_(self.sizes(), self.sparse_dim(), self.dense_dim());
  at::sparse::alias_into_sparse(out, indices, values);
  at::sparse::get_sparse_impl(out)->set_coalesced(false);
  if (out._nnz() > out.numel()) {
    auto coalesced = out.coalesce();
    at::sparse::alias_into_sparse(out, coalesced._indices(), coalesced._values());
    at::sparse::get_sparse_impl(out)->set_coalesced(true);
  }
  return out;
}

// Of the dense tensor only the places that the sparse one has are read.
inline at::Tensor& mul_dense_and_sparse(at::Tensor& out, const at::Tensor& dense, const at::Tensor& sparse) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::is_expandable_to(dense.sizes(), sparse.sizes()), "Maya emulates the product of a dense and a sparse CUDA tensor only in the sizes of the sparse one, not of ",
                              dense.sizes(), " and ", sparse.sizes());
  auto shape = sparse._values().sizes().vec();
  shape[0] = sparse_extent(sparse);
  auto places = dense.expand(sparse.sizes()).reshape(shape).index_select(0, flat_places(sparse._indices(), sparse.sizes()));
  return with_values(out, sparse, sparse._values().mul(places));
}

inline at::Tensor& mul_out_sparse(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  if (other.dim() == 0) return with_values(out, self, self._values().mul(other));
  if (self.dim() == 0) return with_values(out, other, other._values().mul(self));
  if (!self.is_sparse()) return mul_dense_and_sparse(out, self, other);
  if (!other.is_sparse()) return mul_dense_and_sparse(out, other, self);
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Maya does not emulate products of two sparse CUDA tensors yet");
}

inline void register_sparse_kernels(torch::Library& library) {
  library.impl("_coalesce", coalesce_sparse);
  library.impl("add.out", add_out_sparse);
  library.impl("mul.out", mul_out_sparse);
}

// The kernel that torch registered for `key`, before anybody else did.
inline std::optional<c10::KernelFunction> first_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  const auto& kernels = kernels_of(entry_of(op));
  auto found = kernels.find(key);
  if (found == kernels.end() || found->second.empty()) return std::nullopt;
  return found->second.back().kernel;
}

// Dense: one kernel. Sparse: the shared function, which puts the sparse gradient together.
struct EmbeddingBagBackwardKernel final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const auto& arguments = op.schema().arguments();
    const size_t begin = stack->size() - arguments.size();
    for (size_t a = 0; a < arguments.size(); ++a)
      if (arguments[a].name() == "sparse" && (*stack)[begin + a].toBool()) return first_kernel(op, c10::DispatchKey::CPU)->callBoxed(op, keys, stack);
    plain_(op, keys, stack);
  }

 private:
  BoxedKernel plain_;
};

}  // namespace maya
