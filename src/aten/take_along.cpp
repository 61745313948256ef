// aten/take_along.cpp: take_along_dim of tensors whose sizes are symbols, where torch's own code asks for plain ones.
// As in matmul.cpp: the same operators in the same order, or the symbolic trace is given up.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "aten/symbolic_key_internal.h"

namespace magneto::aten {

namespace {

using Shape = std::vector<c10::SymInt>;

at::Tensor take_along_dim(const at::Tensor& self, const at::Tensor& indices, std::optional<int64_t> dim) {
  c10::impl::ExcludeDispatchKeyGuard once(kSymbolicKey);
  if (!dim || self.dim() == 0 || self.dim() != indices.dim() || self.device() != indices.device() ||
      indices.scalar_type() != at::kLong || *dim < -self.dim() || *dim >= self.dim())
    return at::take_along_dim(self, indices, dim);
  const auto at = static_cast<size_t>(*dim < 0 ? *dim + self.dim() : *dim);
  Shape of_self = self.sym_sizes().vec(), of_indices = indices.sym_sizes().vec();
  for (size_t d = 0; d < of_self.size(); ++d) {
    if (d == at || of_self[d] == of_indices[d]) continue;
    if (of_self[d] != 1 && of_indices[d] != 1) return at::take_along_dim(self, indices, dim);
    of_self[d] = of_indices[d] = of_self[d] == 1 ? of_indices[d] : of_self[d];
  }
  const at::Tensor places = indices.expand_symint(of_indices), values = self.expand_symint(of_self);
  return values.gather(*dim, places.remainder(c10::Scalar(self.sym_size(*dim))));  // they count from the end, too
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) { library.impl("take_along_dim", take_along_dim); }

}  // namespace magneto::aten
