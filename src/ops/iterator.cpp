// Layouts of elementwise results, as torch's TensorIterator chooses them.
//
// When all operands have the same shape and are all contiguous, all channels last, or all dense with the same strides,
// the result is like them. Otherwise the dimensions are sorted by the operands' strides, the first operand that has an
// opinion deciding, and the result is packed in that order. A broadcast dimension has stride 0 and no opinion.
//
// On the CPU an operand of another element type is converted before that, which makes it dense.
#include "ops/rules_internal.h"

namespace magneto::ops {

std::optional<Sizes> broadcast(const Call& call, const Sizes& a, const Sizes& b) {
  const Sizes &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  Sizes result = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Expr &x = longer[i + shift], &y = shorter[i];
    if (x == y || y == Expr(1)) continue;
    if (x == Expr(1)) {
      result[i + shift] = y;
      continue;
    }
    if (!known(equal(call, x, y))) return std::nullopt;
  }
  return result;
}

std::optional<Sizes> broadcast(const Call& call, std::span<const Operand> operands) {
  std::optional<Sizes> shape;
  for (const Operand& one : operands) {
    shape = shape ? broadcast(call, *shape, one.type.sizes) : one.type.sizes;
    if (!shape) return std::nullopt;
  }
  return shape;
}

namespace {

// The three fast ways. Nothing: unknown. An empty optional inside: none of them applies.
std::optional<std::optional<Sizes>> fast_strides(const Call& call, std::span<const Operand> operands) {
  bool all_contiguous = true, all_last = true, all_dense = true;
  for (const Operand& one : operands) {
    const Truth plain = contiguous(call, one.type);
    if (!plain) return std::nullopt;
    all_contiguous = all_contiguous && *plain;
  }
  const TensorType& first = operands.front().type;
  if (all_contiguous) return types::contiguous_strides(first.sizes);
  for (const Operand& one : operands) {
    const Truth last = contiguous_in(call, one.type, MemoryFormat::kChannelsLast);
    if (!last) return std::nullopt;
    all_last = all_last && *last;
  }
  if (all_last) return strides_in(first.sizes, MemoryFormat::kChannelsLast);
  for (const Operand& one : operands) {
    const Truth is_dense = dense(call, one.type);
    if (!is_dense) return std::nullopt;
    all_dense = all_dense && *is_dense;
  }
  if (!all_dense) return std::optional<Sizes>();
  for (const Operand& one : operands) {
    const Truth same = equal(call, one.type.strides, first.strides);
    if (!same) return std::nullopt;
    if (!*same) return std::optional<Sizes>();
  }
  return first.strides;
}

// Strides of an operand in the common shape; 0 where it is broadcast.
std::optional<Sizes> broadcast_strides(const Call& call, const TensorType& type, const Sizes& shape) {
  Sizes strides(shape.size(), Expr(0));
  const size_t shift = shape.size() - type.sizes.size();
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    const Truth one = equal(call, type.sizes[i], 1), wide = equal(call, shape[i + shift], 1);
    if (type.sizes[i] == shape[i + shift]) {
      strides[i + shift] = type.strides[i];
      continue;
    }
    if (!one || !wide) return std::nullopt;
    strides[i + shift] = *one && !*wide ? Expr(0) : type.strides[i];
  }
  return strides;
}

class Sorter {
 public:
  Sorter(const Call& call, const Sizes& shape, std::vector<Sizes> strides)
      : call_(call), shape_(shape), strides_(std::move(strides)) {}

  /// Dimensions, fastest first.
  std::optional<std::vector<size_t>> order() {
    const size_t rank = shape_.size();
    std::vector<size_t> order(rank);
    for (size_t i = 0; i < rank; ++i) order[i] = rank - 1 - i;
    for (size_t i = 1; i < rank; ++i) {
      size_t at = i;
      for (size_t k = i; k-- > 0;) {
        const auto c = compare(order[k], order[at]);
        if (!c) return std::nullopt;
        if (*c > 0) {
          std::swap(order[k], order[at]);
          at = k;
        } else if (*c < 0) {
          break;
        }
      }
    }
    return order;
  }

 private:
  std::optional<int> compare(size_t a, size_t b) {
    for (const Sizes& strides : strides_) {
      const Truth zero_a = equal(call_, strides[a], 0), zero_b = equal(call_, strides[b], 0);
      if (!zero_a || !zero_b) return std::nullopt;
      if (*zero_a || *zero_b) continue;
      const Truth below = less(call_, strides[a], strides[b]);
      if (!below) return std::nullopt;
      if (*below) return -1;
      const Truth same = equal(call_, strides[a], strides[b]);
      if (!same) return std::nullopt;
      if (!*same) return 1;
      const Truth larger = less(call_, shape_[b], shape_[a]);
      if (!larger) return std::nullopt;
      if (*larger) return 1;
    }
    return 0;
  }

  const Call& call_;
  const Sizes& shape_;
  std::vector<Sizes> strides_;
};

}  // namespace

std::optional<Layout> iterate(const Call& call, std::vector<Operand> operands, std::optional<Dtype> common) {
  auto shape = broadcast(call, operands);
  const auto device = common_device(operands);
  if (!shape || !device) return std::nullopt;
  if (common && device->kind == Device::Kind::kCpu)
    for (Operand& one : operands)
      if (one.type.dtype != *common) {
        auto strides = strides_like(call, one.type);
        if (!strides) return std::nullopt;
        one.type.strides = std::move(*strides);
      }
  bool same_shape = true;
  for (const Operand& one : operands) same_shape = same_shape && one.type.sizes == *shape;
  if (same_shape) {
    auto fast = fast_strides(call, operands);
    if (!fast) return std::nullopt;
    if (*fast) return Layout{std::move(*shape), std::move(**fast)};
  }
  std::vector<Sizes> strides;
  for (const Operand& one : operands) {
    auto wide = broadcast_strides(call, one.type, *shape);
    if (!wide) return std::nullopt;
    strides.push_back(std::move(*wide));
  }
  const auto order = Sorter(call, *shape, std::move(strides)).order();
  if (!order) return std::nullopt;
  bool in_order = true;
  for (size_t i = 0; i < order->size(); ++i) in_order = in_order && (*order)[i] == order->size() - 1 - i;
  Layout result{std::move(*shape), {}};
  if (in_order) {
    result.strides = types::contiguous_strides(result.sizes);
  } else {
    result.strides.resize(result.sizes.size());
    Expr next = 1;
    for (const size_t d : *order) {
      result.strides[d] = next;
      next = next * result.sizes[d];
    }
  }
  return result;
}

Results elementwise(const Call& call, const std::vector<Operand>& operands, std::optional<Dtype> common, Dtype result) {
  const auto device = common_device(operands);
  auto layout = iterate(call, operands, common);
  if (!device || !layout) return std::nullopt;
  return just(fresh(TensorType{result, *device, std::move(layout->sizes), std::move(layout->strides), 0}));
}

Results in_place(const Call& call, const Sizes& sizes, Dtype from) {
  const TensorType* self = tensor(call, 0);
  if (!self || !can_cast(from, self->dtype)) return std::nullopt;
  const auto shape = broadcast(call, self->sizes, sizes);
  if (!shape || !same(call, *shape, self->sizes)) return std::nullopt;
  // torch refuses to write to memory that overlaps itself; dense is enough, gaps are fine when the strides keep apart
  for (size_t i = 0; i < self->strides.size(); ++i) {
    const Truth broadcast_dim = equal(call, self->strides[i], 0);
    if (!broadcast_dim || (*broadcast_dim && !known(equal(call, self->sizes[i], 1)))) return std::nullopt;
  }
  return just(same_as(call, 0));
}

}  // namespace magneto::ops
