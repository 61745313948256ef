// aten/matmul.cpp: the matrix product of tensors whose sizes are symbols.
//
// torch takes aten::matmul apart in C++ code that asks for plain sizes: in a symbolic trace that would fix them. So
// while a symbolic trace is entered, we take it apart ourselves, into the same operators in the same order. (Where that
// differs from what torch did, the symbolic trace does not tell the same as the live trace, and is given up: a wrong
// guess here costs only the symbols.)
//
//   vector and matrix cases      dot, mv, mm
//   [.., n, m] @ [m, p]          folded: one mm of [.. * n, m], when that needs no copy
//   else                         batches expanded to one another: bmm
#include <ATen/ATen.h>
#include <torch/library.h>

#include "aten/symbolic_key_internal.h"

namespace magneto::aten {

namespace {

using Shape = std::vector<c10::SymInt>;

Shape shape_of(const at::Tensor& tensor) { return tensor.sym_sizes().vec(); }

c10::SymInt product(const Shape& sizes) {
  c10::SymInt result = 1;
  for (const c10::SymInt& size : sizes) result = result * size;
  return result;
}

// Whether the larger operand, all but its last dimension folded into one, times the smaller one is one product.
bool folds(const at::Tensor& a, const at::Tensor& b) {
  const bool a_is_larger = a.dim() >= b.dim();
  const at::Tensor large = a_is_larger ? a : b.mT();
  const at::Tensor small = a_is_larger ? b : a.dim() == 2 ? a.t() : a;
  if (large.dim() < 3 || small.dim() > 2) return false;
  if (small.requires_grad()) return true;  // the gradient of an expanded operand would be large
  if (a.dim() == 2) return false;
  if (large.sym_numel() == 0) return true;
  const auto sizes = large.sym_sizes(), strides = large.sym_strides();
  for (int64_t d = 0; d + 2 < large.dim(); ++d)
    if (strides[d] != strides[d + 1] * sizes[d + 1]) return false;
  return true;
}

at::Tensor folded(const at::Tensor& a, const at::Tensor& b) {
  const bool turned = b.dim() > a.dim();
  const at::Tensor large = turned ? b.mT() : a;
  const at::Tensor small = !turned ? b : a.dim() == 2 ? a.t() : a;
  const Shape sizes = shape_of(large);
  Shape output(sizes.begin(), sizes.end() - 1);
  const c10::SymInt rows = product(output);
  const bool is_matrix = small.dim() == 2;
  if (is_matrix) output.push_back(small.sym_size(1));
  const at::Tensor flat = large.reshape_symint({rows, sizes.back()});
  if (!is_matrix) return at::_unsafe_view_symint(flat.mv(small), output);
  const at::Tensor result = at::_unsafe_view_symint(flat.mm(small), output);
  return turned ? result.mT().contiguous() : result;
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape result = a.size() >= b.size() ? a : b;
  const Shape& other = a.size() >= b.size() ? b : a;
  const size_t shift = result.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d)
    if (result[shift + d] == 1) result[shift + d] = other[d];
  return result;
}

at::Tensor product_of(const at::Tensor& a, const at::Tensor& b);

at::Tensor batched(const at::Tensor& a, const at::Tensor& b) {
  const Shape of_a = shape_of(a), of_b = shape_of(b);
  const c10::SymInt n = a.dim() > 1 ? of_a.end()[-2] : c10::SymInt(1), m1 = of_a.back();
  const c10::SymInt m2 = b.dim() > 1 ? of_b.end()[-2] : of_b.front(), p = b.dim() > 1 ? of_b.back() : c10::SymInt(1);
  const Shape batch_a(of_a.begin(), of_a.end() - std::min<int64_t>(a.dim(), 2)),
      batch_b(of_b.begin(), of_b.end() - std::min<int64_t>(b.dim(), 2));
  if (a.dim() == 3 && b.dim() == 3 && batch_a[0] != batch_b[0]) {
    if (batch_a[0] == 1 && a.requires_grad()) return product_of(a.squeeze(0), b);
    if (batch_b[0] == 1 && b.requires_grad()) return product_of(a, b.squeeze(0));
  }
  Shape output = broadcast(batch_a, batch_b);
  const c10::SymInt batches = product(output);
  const auto expanded = [&](const at::Tensor& tensor, std::initializer_list<c10::SymInt> matrix) {
    Shape sizes = output;
    sizes.insert(sizes.end(), matrix);
    return tensor.expand_symint(sizes);
  };
  const bool is_vector = b.dim() == 1;
  const at::Tensor left = expanded(a, {n, m1}).reshape_symint({batches, n, m1});
  const at::Tensor right = is_vector ? expanded(b, {m2}).reshape_symint({batches, m2}).unsqueeze(2)
                                     : expanded(b, {m2, p}).reshape_symint({batches, m2, p});
  if (a.dim() > 1) output.push_back(n);
  if (b.dim() > 1) output.push_back(p);
  const at::Tensor result = left.bmm(right);
  return at::_unsafe_view_symint(is_vector ? result.squeeze(-1) : result, output);
}

at::Tensor product_of(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() == 1 && b.dim() == 1) return a.dot(b);
  if (a.dim() == 2 && b.dim() == 1) return a.mv(b);
  if (a.dim() == 1 && b.dim() == 2) return a.unsqueeze(0).mm(b).squeeze_(0);
  if (a.dim() == 2 && b.dim() == 2) return a.mm(b);
  return folds(a, b) ? folded(a, b) : batched(a, b);
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b) {
  c10::impl::ExcludeDispatchKeyGuard once(kSymbolicKey);
  const bool autocast = !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU) ||
                        !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCUDA);
  if (autocast || a.dim() == 0 || b.dim() == 0) return at::matmul(a, b);
  return product_of(a, b);
}

}  // namespace

// Autograd's own key comes below: the operators that we call are recorded as any others.
TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) { library.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) { library.impl("matmul", matmul); }

}  // namespace magneto::aten
