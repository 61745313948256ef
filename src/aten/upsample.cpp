// aten/upsample.cpp: images whose sizes are symbols, resized by factors.
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

/// Of an image; nothing: they are given, or torch counts them.
std::optional<Sizes> scaled(const at::Tensor& image, const at::OptionalSymIntArrayRef& given, const Factors& factors) {
  if (given || !factors || factors->size() != 2 || image.dim() != 4) return std::nullopt;
  Sizes sizes;
  for (int d = 0; d < 2; ++d)
    if (auto size = scaled(image.sym_size(d + 2), (*factors)[d])) sizes.push_back(std::move(*size));
  return sizes.size() == 2 ? std::optional(std::move(sizes)) : std::nullopt;
}

using Nearest = at::Tensor (*)(const at::Tensor&, c10::SymIntArrayRef, std::optional<double>, std::optional<double>);
using NearestByFactors = at::Tensor (*)(const at::Tensor&, at::OptionalSymIntArrayRef, Factors);
template <Nearest resize, NearestByFactors otherwise>
at::Tensor nearest(const at::Tensor& image, at::OptionalSymIntArrayRef size, Factors factors) {
  c10::impl::ExcludeDispatchKeyGuard once(kSymbolicKey);
  const auto sizes = scaled(image, size, factors);
  return sizes ? resize(image, *sizes, (*factors)[0], (*factors)[1]) : otherwise(image, size, factors);
}

using Smooth = at::Tensor (*)(const at::Tensor&, c10::SymIntArrayRef, bool, std::optional<double>,
                              std::optional<double>);
using SmoothByFactors = at::Tensor (*)(const at::Tensor&, at::OptionalSymIntArrayRef, bool, Factors);
template <Smooth resize, SmoothByFactors otherwise>
at::Tensor smooth(const at::Tensor& image, at::OptionalSymIntArrayRef size, bool corners, Factors factors) {
  c10::impl::ExcludeDispatchKeyGuard once(kSymbolicKey);
  const auto sizes = scaled(image, size, factors);
  return sizes ? resize(image, *sizes, corners, (*factors)[0], (*factors)[1])
               : otherwise(image, size, corners, factors);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("upsample_nearest2d.vec", nearest<at::upsample_nearest2d_symint, at::upsample_nearest2d_symint>);
  library.impl("_upsample_nearest_exact2d.vec",
               nearest<at::_upsample_nearest_exact2d_symint, at::_upsample_nearest_exact2d_symint>);
  library.impl("upsample_bilinear2d.vec", smooth<at::upsample_bilinear2d_symint, at::upsample_bilinear2d_symint>);
  library.impl("upsample_bicubic2d.vec", smooth<at::upsample_bicubic2d_symint, at::upsample_bicubic2d_symint>);
}

}  // namespace magneto::aten
