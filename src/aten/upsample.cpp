// aten/upsample.cpp: images whose sizes are symbols, resized.
//
// torch counts the sizes of the result as plain numbers: in a symbolic trace that would fix them. Size times factor,
// rounded down, is exact for factors such as 2, 1.5 or 0.25; for others torch's own code goes on.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <numeric>

#include "aten/symbolic_key_internal.h"

namespace magneto::aten {

namespace {

using Sizes = std::vector<c10::SymInt>;
using Factors = std::optional<c10::ArrayRef<double>>;

std::optional<c10::SymInt> scaled(const c10::SymInt& size, double factor) {
  constexpr int64_t kParts = 64;
  const double parts = factor * kParts;
  if (!(factor > 0) || factor > 1024 || parts != std::floor(parts)) return std::nullopt;
  const auto count = static_cast<int64_t>(parts);
  const int64_t common = std::gcd(count, kParts);
  const c10::SymInt times = size * c10::SymInt(count / common);
  return common == kParts ? times : times / c10::SymInt(kParts / common);
}

/// Of an image of one to three dimensions; nothing: torch counts them.
std::optional<Sizes> sizes_of(const at::Tensor& image, const at::OptionalSymIntArrayRef& given, const Factors& factors,
                              size_t dims) {
  if (static_cast<size_t>(image.dim()) != dims + 2) return std::nullopt;
  if (given) return given->size() == dims && !factors ? std::optional(given->vec()) : std::nullopt;
  if (!factors || factors->size() != dims) return std::nullopt;
  Sizes sizes;
  for (size_t d = 0; d < dims; ++d)
    if (auto size = scaled(image.sym_size(static_cast<int64_t>(d) + 2), (*factors)[d]))
      sizes.push_back(std::move(*size));
  return sizes.size() == dims ? std::optional(std::move(sizes)) : std::nullopt;
}

using Scale = std::optional<double>;
Scale scale(const Factors& factors, size_t d) { return factors ? Scale((*factors)[d]) : std::nullopt; }

/// One dimension after the other has a factor of its own in the operator that is recorded.
template <auto resize, size_t dims, class... Corners>
at::Tensor resized(const at::Tensor& image, const Sizes& sizes, const Factors& factors, Corners... corners) {
  if constexpr (dims == 1)
    return resize(image, sizes, corners..., scale(factors, 0));
  else if constexpr (dims == 2)
    return resize(image, sizes, corners..., scale(factors, 0), scale(factors, 1));
  else
    return resize(image, sizes, corners..., scale(factors, 0), scale(factors, 1), scale(factors, 2));
}

template <class Signature>
struct Pointer;
template <class Result, class... Arguments>
struct Pointer<Result(Arguments...)> {
  using Type = Result (*)(Arguments...);
};
template <size_t dims, class... Corners>
struct Resize;
template <class... Corners>
struct Resize<1, Corners...> : Pointer<at::Tensor(const at::Tensor&, c10::SymIntArrayRef, Corners..., Scale)> {};
template <class... Corners>
struct Resize<2, Corners...> : Pointer<at::Tensor(const at::Tensor&, c10::SymIntArrayRef, Corners..., Scale, Scale)> {};
template <class... Corners>
struct Resize<3, Corners...>
    : Pointer<at::Tensor(const at::Tensor&, c10::SymIntArrayRef, Corners..., Scale, Scale, Scale)> {};
template <class... Corners>
using ByFactors =
    typename Pointer<at::Tensor(const at::Tensor&, at::OptionalSymIntArrayRef, Corners..., Factors)>::Type;

/// Those that are smooth are told whether corners lie on corners.
template <size_t dims, class... Corners>
struct Substitute {
  template <typename Resize<dims, Corners...>::Type resize, ByFactors<Corners...> otherwise>
  static at::Tensor run(const at::Tensor& image, at::OptionalSymIntArrayRef size, Corners... corners, Factors factors) {
    c10::impl::ExcludeDispatchKeyGuard once(kSymbolicKey);
    const auto sizes = sizes_of(image, size, factors, dims);
    return sizes ? resized<resize, dims>(image, *sizes, factors, corners...)
                 : otherwise(image, size, corners..., factors);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("upsample_nearest1d.vec",
               Substitute<1>::run<at::upsample_nearest1d_symint, at::upsample_nearest1d_symint>);
  library.impl("upsample_nearest2d.vec",
               Substitute<2>::run<at::upsample_nearest2d_symint, at::upsample_nearest2d_symint>);
  library.impl("upsample_nearest3d.vec",
               Substitute<3>::run<at::upsample_nearest3d_symint, at::upsample_nearest3d_symint>);
  library.impl("_upsample_nearest_exact1d.vec",
               Substitute<1>::run<at::_upsample_nearest_exact1d_symint, at::_upsample_nearest_exact1d_symint>);
  library.impl("_upsample_nearest_exact2d.vec",
               Substitute<2>::run<at::_upsample_nearest_exact2d_symint, at::_upsample_nearest_exact2d_symint>);
  library.impl("_upsample_nearest_exact3d.vec",
               Substitute<3>::run<at::_upsample_nearest_exact3d_symint, at::_upsample_nearest_exact3d_symint>);
  library.impl("upsample_linear1d.vec",
               Substitute<1, bool>::run<at::upsample_linear1d_symint, at::upsample_linear1d_symint>);
  library.impl("upsample_bilinear2d.vec",
               Substitute<2, bool>::run<at::upsample_bilinear2d_symint, at::upsample_bilinear2d_symint>);
  library.impl("upsample_bicubic2d.vec",
               Substitute<2, bool>::run<at::upsample_bicubic2d_symint, at::upsample_bicubic2d_symint>);
  library.impl("upsample_trilinear3d.vec",
               Substitute<3, bool>::run<at::upsample_trilinear3d_symint, at::upsample_trilinear3d_symint>);
  library.impl("_upsample_bilinear2d_aa.vec",
               Substitute<2, bool>::run<at::_upsample_bilinear2d_aa_symint, at::_upsample_bilinear2d_aa_symint>);
  library.impl("_upsample_bicubic2d_aa.vec",
               Substitute<2, bool>::run<at::_upsample_bicubic2d_aa_symint, at::_upsample_bicubic2d_aa_symint>);
}

}  // namespace magneto::aten
