#include "types/overlap.h"

#include <algorithm>
#include <optional>

namespace magneto::types {

namespace {

bool never_negative(const Expr& e) { return e.lower_bound().value_or(-1) >= 0; }

bool is_empty(const TensorType& type) {
  return std::find(type.sizes.begin(), type.sizes.end(), Expr(0)) != type.sizes.end();
}

/// From the first to the last place, both counted from the offset.
Expr span_of(const TensorType& type) {
  Expr span = 0;
  for (size_t d = 0; d < type.sizes.size(); ++d) span = span + (type.sizes[d] - 1) * type.strides[d];
  return span;
}

/// Takes dimensions one by one, from the innermost on: each must step over all that lies in those before. True when all
/// were taken. `gapless`: each steps over exactly that.
bool nests(const TensorType& type, bool gapless) {
  std::vector<size_t> left;
  for (size_t d = 0; d < type.sizes.size(); ++d)
    if (!(type.sizes[d] == Expr(1))) left.push_back(d);
  Expr span = 0;             // of the dimensions taken
  Expr count = 1, full = 1;  // of their elements; a fresh tensor counts a size of 0 as 1
  bool has_gaps = false;
  const auto fills = [&](size_t d) { return !has_gaps && (type.strides[d] == count || type.strides[d] == full); };
  while (!left.empty()) {
    auto next = std::find_if(left.begin(), left.end(), fills);
    if (next == left.end() && !gapless) {
      has_gaps = true;
      for (auto d = left.begin(); d != left.end(); ++d)  // the smallest step
        if (next == left.end() || never_negative(type.strides[*next] - type.strides[*d])) next = d;
      if (!never_negative(type.strides[*next] - span - 1)) return false;
    }
    if (next == left.end()) return false;
    span = span + (type.sizes[*next] - 1) * type.strides[*next];
    count = count * type.sizes[*next];
    full = full * Expr::max(type.sizes[*next], 1);
    left.erase(next);
  }
  return true;
}

/// The places of a tensor within each period of `period` places.
struct Window {
  Expr first, last;
};
std::optional<Window> window(const TensorType& type, const Expr& period) {
  Expr rest = 0;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (type.sizes[d] == Expr(1) || Expr::mod(type.strides[d], period) == Expr(0)) continue;
    rest = rest + (type.sizes[d] - 1) * type.strides[d];
  }
  Expr first = type.offset;
  if (!never_negative(period - 1 - first)) {
    if (!first.is_constant() || !period.is_constant()) return std::nullopt;
    first = Expr::mod(first, period);
  }
  Window made{first, first + rest};
  return never_negative(period - 1 - made.last) ? std::optional(made) : std::nullopt;
}

/// All places of a small tensor of constant sizes, sorted.
std::optional<std::vector<int64_t>> places(const TensorType& type) {
  constexpr int64_t kMost = 4096;
  std::vector<int64_t> all = {type.offset.value_or(-1)};
  if (!type.offset.is_constant()) return std::nullopt;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    const auto size = type.sizes[d].constant(), stride = type.strides[d].constant();
    if (!size || !stride || *size * static_cast<int64_t>(all.size()) > kMost) return std::nullopt;
    const size_t before = all.size();
    for (int64_t i = 1; i < *size; ++i)
      for (size_t k = 0; k < before; ++k) all.push_back(all[k] + i * *stride);
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool same_places(const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes || !(a.offset == b.offset)) return false;
  for (size_t d = 0; d < a.sizes.size(); ++d)
    if (!(a.strides[d] == b.strides[d]) && !(a.sizes[d] == Expr(1))) return false;
  return true;
}

}  // namespace

bool has_distinct_elements(const TensorType& type) {
  if (is_empty(type) || nests(type, /*gapless=*/false)) return true;
  const auto all = places(type);
  return all && std::adjacent_find(all->begin(), all->end()) == all->end();
}

Overlap overlap(const TensorType& a, const TensorType& b) {
  if (is_empty(a) || is_empty(b)) return Overlap::kNone;
  if (same_places(a, b)) return Overlap::kSame;
  if (a.dtype != b.dtype) return Overlap::kUnknown;  // their offsets count in other units
  if (never_negative(b.offset - a.offset - span_of(a) - 1) || never_negative(a.offset - b.offset - span_of(b) - 1))
    return Overlap::kNone;
  for (const TensorType* of : {&a, &b})
    for (const Expr& period : of->strides) {
      if (!never_negative(period - 1)) continue;
      const auto at_a = window(a, period), at_b = window(b, period);
      if (at_a && at_b &&
          (never_negative(at_b->first - at_a->last - 1) || never_negative(at_a->first - at_b->last - 1)))
        return Overlap::kNone;
    }
  const auto all_a = places(a), all_b = places(b);
  if (!all_a || !all_b) return Overlap::kUnknown;
  std::vector<int64_t> common;
  std::set_intersection(all_a->begin(), all_a->end(), all_b->begin(), all_b->end(), std::back_inserter(common));
  return common.empty() ? Overlap::kNone : Overlap::kUnknown;
}

Sizes dense_strides(const TensorType& type) {
  return nests(type, /*gapless=*/true) ? type.strides : contiguous_strides(type.sizes);
}

}  // namespace magneto::types
