// Layouts as torch decides them: contiguous, channels last, dense. Each decision follows c10's code step by step, so
// that tensors with dimensions of size 0 or 1 and unusual strides come out the same.
#include <algorithm>

#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// Whether strides grow without gaps when the dimensions are visited in `order` (fastest first).
Truth packed(const Call& call, const TensorType& type, std::span<const size_t> order) {
  Expr expected = 1, fresh = 1;  // they differ only in empty tensors
  for (const size_t d : order) {
    const Truth one = equal(call, type.sizes[d], 1);
    if (!one) {
      // A size that may be 1 makes its stride irrelevant only in that case: the stride must fit, or nothing is known.
      if (type.strides[d] != expected && type.strides[d] != fresh) return std::nullopt;
    } else if (!*one) {
      if (type.strides[d] != fresh) {
        const Truth fits = equal(call, type.strides[d], expected);
        if (!fits || !*fits) return fits;
      }
    } else {
      continue;
    }
    expected = expected * type.sizes[d];
    fresh = fresh * Expr::max(type.sizes[d], 1);
  }
  return true;
}

std::vector<size_t> channels_last_order(size_t rank) {  // fastest first
  std::vector<size_t> order = {1};
  for (size_t d = rank; d-- > 2;) order.push_back(d);
  order.push_back(0);
  return order;
}

Truth strides_like_channels_last(const Call& call, const TensorType& type) {
  Expr min = 0;
  const Truth broadcast = equal(call, type.strides[1], 0);
  if (!broadcast) return std::nullopt;
  if (*broadcast) return false;
  for (const size_t d : channels_last_order(type.sizes.size())) {
    const Truth empty = equal(call, type.sizes[d], 0);
    if (!empty) return std::nullopt;
    if (*empty) return false;
    const Truth below = less(call, type.strides[d], min);
    if (!below) return std::nullopt;
    if (*below) return false;
    if (d == 0) {
      const Truth ambiguous = equal(call, min, type.strides[1]);
      if (!ambiguous) return std::nullopt;
      if (*ambiguous) return false;
    }
    min = type.strides[d] * type.sizes[d];  // a size of 1 changes nothing
  }
  return true;
}

// The order of dimensions, fastest first, that a stable insertion sort by stride gives. -1: a before b, 1: b before a.
std::optional<int> compare(const Call& call, const TensorType& type, size_t a, size_t b) {
  const Truth zero_a = equal(call, type.strides[a], 0), zero_b = equal(call, type.strides[b], 0);
  if (!zero_a || !zero_b) return std::nullopt;
  if (*zero_a || *zero_b) return 0;
  const Truth below = less(call, type.strides[a], type.strides[b]);
  if (!below) return std::nullopt;
  if (*below) return -1;
  const Truth same = equal(call, type.strides[a], type.strides[b]);
  if (!same) return std::nullopt;
  if (!*same) return 1;
  const Truth larger = less(call, type.sizes[b], type.sizes[a]);
  if (!larger) return std::nullopt;
  return *larger ? 1 : 0;
}

std::optional<Sizes> dense_strides(const Call& call, const TensorType& type) {
  const size_t rank = type.sizes.size();
  if (rank == 1) return Sizes{1};
  std::vector<size_t> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  for (size_t i = 1; i < rank; ++i) {
    size_t at = i;
    for (size_t k = i; k-- > 0;) {
      const auto c = compare(call, type, order[k], order[at]);
      if (!c) return std::nullopt;
      if (*c > 0) {
        std::swap(order[k], order[at]);
        at = k;
      } else if (*c < 0) {
        break;
      }
    }
  }
  Sizes strides(rank);
  Expr next = 1;
  for (const size_t d : order) {
    strides[d] = next;
    next = next * Expr::max(type.sizes[d], 1);
  }
  return strides;
}

}  // namespace

bool row_major(const Call& call, const TensorType& type) {
  return same(call, type.strides, types::contiguous_strides(type.sizes));
}

Truth contiguous(const Call& call, const TensorType& type) {
  if (types::is_contiguous(type)) return true;
  const Truth empty = is_empty(call, type.sizes);
  if (known(empty)) return true;
  std::vector<size_t> order;
  for (size_t i = type.sizes.size(); i-- > 0;) order.push_back(i);
  const Truth result = packed(call, type, order);
  return empty ? result : std::nullopt;  // not packed, but perhaps empty
}

Truth contiguous_in(const Call& call, const TensorType& type, MemoryFormat format) {
  if (format == MemoryFormat::kContiguous) return contiguous(call, type);
  const size_t rank = format == MemoryFormat::kChannelsLast ? 4 : 5;
  if (format == MemoryFormat::kPreserve || type.sizes.size() != rank) return false;
  // c10 does not look for empty tensors here; the products with 0 and with max(0, 1) differ then
  const Truth empty = is_empty(call, type.sizes);
  if (known(empty)) return std::nullopt;
  return packed(call, type, channels_last_order(rank));
}

Truth dense(const Call& call, const TensorType& type) {
  const Truth plain = contiguous(call, type);
  if (known(plain)) return true;
  const size_t rank = type.sizes.size();
  // Dimensions of size 0 or 1 do not count; the others sorted by stride must be packed.
  std::vector<size_t> order;
  for (size_t i = 0; i < rank; ++i) {
    const Truth counts = less(call, 1, type.sizes[i]);
    if (!counts) return std::nullopt;
    if (*counts) order.push_back(i);
  }
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t k = i; k > 0; --k) {
      const Truth swap = less(call, type.strides[order[k]], type.strides[order[k - 1]]);
      if (!swap) return std::nullopt;
      if (!*swap) break;
      std::swap(order[k], order[k - 1]);
    }
  const Truth result = packed(call, type, order);
  if (known(result)) return true;
  return plain ? result : std::nullopt;
}

std::optional<MemoryFormat> suggested_format(const Call& call, const TensorType& type) {
  const size_t rank = type.sizes.size();
  if (rank != 4 && rank != 5) return MemoryFormat::kContiguous;
  const Truth last = strides_like_channels_last(call, type);
  if (!last) return std::nullopt;
  if (!*last) return MemoryFormat::kContiguous;
  return rank == 4 ? MemoryFormat::kChannelsLast : MemoryFormat::kChannelsLast3d;
}

std::optional<Sizes> strides_in(const Sizes& sizes, MemoryFormat format) {
  if (format == MemoryFormat::kContiguous) return types::contiguous_strides(sizes);
  const size_t rank = format == MemoryFormat::kChannelsLast ? 4 : 5;
  if (format == MemoryFormat::kPreserve || sizes.size() != rank) return std::nullopt;
  Sizes strides(rank);
  Expr next = 1;
  for (const size_t d : channels_last_order(rank)) {
    strides[d] = next;
    next = next * Expr::max(sizes[d], 1);
  }
  return strides;
}

std::optional<Sizes> strides_like(const Call& call, const TensorType& type) {
  if (type.sizes.empty()) return Sizes{};
  const Truth is_dense = dense(call, type);
  if (!is_dense) return std::nullopt;
  return *is_dense ? type.strides : dense_strides(call, type);
}

std::optional<Result> fresh_in_suggested(const Call& call, Dtype dtype, Sizes sizes, const TensorType& of) {
  const auto format = suggested_format(call, of);
  if (!format) return std::nullopt;
  auto strides = strides_in(sizes, *format);
  if (!strides) return std::nullopt;
  return fresh(TensorType{dtype, of.device, std::move(sizes), std::move(*strides), 0});
}

std::optional<Result> fresh_like(const Call& call, const TensorType& type, Dtype dtype, MemoryFormat format) {
  auto strides = format == MemoryFormat::kPreserve ? strides_like(call, type) : strides_in(type.sizes, format);
  if (!strides) return std::nullopt;
  return fresh(TensorType{dtype, type.device, type.sizes, std::move(*strides), 0});
}

}  // namespace magneto::ops
