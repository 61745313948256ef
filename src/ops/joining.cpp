// Operators that put tensors together or lay one out again: cat, stack, repeat, pad, flip, roll, and backward of views.
#include "ops/body.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// torch skips tensors of size [0], whatever the others are; only their dtype counts.
bool is_skipped(const TensorType& type) { return type.sizes.size() == 1 && type.sizes[0] == Expr(0); }

Results cat(const Call& call) {
  const auto list = tensors(call, 0);
  if (!list || list->empty()) return std::nullopt;
  std::vector<Operand> all;
  const TensorType* first = nullptr;
  for (const TensorType* one : *list) {
    if (one->sizes.empty() || one->device != list->front()->device) return std::nullopt;
    if (!first && !is_skipped(*one)) first = one;
    all.push_back({*one, false});
  }
  const auto dtype = common_dtype(call, all);
  const auto dim = first ? dimension(call, 1, first->sizes.size()) : std::nullopt;
  if (!dtype || !dim) return std::nullopt;
  Sizes sizes = first->sizes;
  sizes[*dim] = 0;
  std::optional<MemoryFormat> format;
  for (const TensorType* one : *list) {
    const auto suggested = suggested_format(call, *one);
    if (!suggested) return std::nullopt;
    format = !format || format == suggested ? *suggested : MemoryFormat::kContiguous;
    if (is_skipped(*one)) continue;
    if (one->sizes.size() != first->sizes.size()) return std::nullopt;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (i != *dim && !known(equal(call, one->sizes[i], sizes[i]))) return std::nullopt;
    sizes[*dim] = sizes[*dim] + one->sizes[*dim];
  }
  auto strides = strides_in(sizes, *format);
  if (!strides) return std::nullopt;
  return just(fresh(TensorType{*dtype, first->device, std::move(sizes), std::move(*strides), 0}));
}

Results stack(const Call& call) {
  const auto list = tensors(call, 0);
  if (!list || list->empty()) return std::nullopt;
  const TensorType& first = *list->front();
  const auto dim = dimension(call, 1, first.sizes.size() + 1);
  if (!dim) return std::nullopt;
  std::vector<Operand> all;
  bool row_major = false;
  for (const TensorType* one : *list) {
    if (!same(call, one->sizes, first.sizes) || one->device != first.device) return std::nullopt;
    // At the end it is cat of the unsqueezed tensors, which would keep channels last; three dimensions can become four.
    // Elsewhere it is a view of cat, which keeps channels last if all have it.
    if (*dim == first.sizes.size()) {
      if (one->sizes.size() >= 3 && !known(contiguous(call, *one))) return std::nullopt;
      row_major = true;
    } else {
      const auto format = suggested_format(call, *one);
      if (!format) return std::nullopt;
      row_major = row_major || *format == MemoryFormat::kContiguous;
    }
    all.push_back({*one, false});
  }
  const auto dtype = common_dtype(call, all);
  if (!dtype || !row_major) return std::nullopt;
  Sizes sizes = first.sizes;
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(*dim), Expr(static_cast<int64_t>(list->size())));
  return just(fresh(*dtype, first.device, std::move(sizes)));
}

Results repeat(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes* times = integers(call, 1);
  if (!self || !times || times->size() < self->sizes.size()) return std::nullopt;
  Sizes sizes = *times;
  const size_t shift = sizes.size() - self->sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (less(call, sizes[i], 0) != false) return std::nullopt;
    if (i >= shift) sizes[i] = sizes[i] * self->sizes[i - shift];
  }
  return just(fresh(self->dtype, self->device, std::move(sizes)));
}

Results flip(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto dims = numbers(call, 1);
  if (!self || !is_plain(self->dtype) || !dims || !reduced(self->sizes, *dims, true)) return std::nullopt;
  // built with empty_like
  auto result = fresh_like(call, *self, self->dtype, MemoryFormat::kPreserve);
  return result ? just(std::move(*result)) : std::nullopt;
}

Results roll(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes* shifts = integers(call, 1);
  const auto dims = numbers(call, 2);
  if (!self || !shifts || !dims || dims->size() != 1 || shifts->size() != 1) return std::nullopt;
  if (self->sizes.empty() || !dimension((*dims)[0], self->sizes.size())) return std::nullopt;
  if (is_empty(call, self->sizes) != false || !known(contiguous(call, *self))) return std::nullopt;
  return just(fresh(self->dtype, self->device, self->sizes));
}

// Pads come in pairs, from the last dimension to the first.
Results pad(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes* pads = integers(call, 1);
  if (!self || !pads || pads->size() % 2 != 0 || pads->size() / 2 > self->sizes.size()) return std::nullopt;
  Sizes sizes = self->sizes;
  bool grows = false;
  for (size_t i = 0; i < pads->size() / 2; ++i) {
    const size_t dim = sizes.size() - 1 - i;
    for (const Expr& one : {(*pads)[2 * i], (*pads)[2 * i + 1]}) {
      const Truth positive = less(call, 0, one), negative = less(call, one, 0);
      if (!positive || !negative || *negative) return std::nullopt;
      grows = grows || *positive;
      sizes[dim] = sizes[dim] + one;
    }
  }
  if (!grows) return std::nullopt;
  if (accepts(kInexact, self->dtype)) takes_real(call, 2);
  auto result = fresh_in_suggested(call, self->dtype, std::move(sizes), *self);
  return result ? just(std::move(*result)) : std::nullopt;
}

// ---- bodies: each element comes from one place of one tensor -------------------------------------------------------

// One piece after the other: where an index lies after the end of a piece, the next one is asked.
Element cat_body(Body& b) {
  const auto& list = std::get<std::vector<graph::ValueId>>(b.call.args[0]);
  const auto dim = dimension(b.call, 1, b.index.size());
  if (!dim) return b.decline();
  b.compute_as(b.type.dtype);
  std::vector<std::pair<Expr, Element>> pieces;  // after which position, and its element
  Expr start = 0;
  for (const graph::ValueId id : list) {
    const TensorType& type = b.call.type(id);
    if (is_skipped(type)) continue;
    const Expr end = start + type.sizes[*dim];
    Index at = b.index;
    at[*dim] = at[*dim] - b.size(start);
    const Element i = b.index[*dim];
    const Element from_here = start == Expr(0) ? i < b.size(end) : (i >= b.size(start)) & (i < b.size(end));
    pieces.emplace_back(end, cast(b.dtype, b.at_if(id, at, from_here, 0)));
    start = end;
  }
  Element value = pieces.empty() ? b.number(0) : pieces.back().second;
  for (size_t k = pieces.size(); k-- > 1;)
    value = where(b.index[*dim] < b.size(pieces[k - 1].first), pieces[k - 1].second, value);
  return value;
}
Element stack_body(Body& b) {
  const auto& list = std::get<std::vector<graph::ValueId>>(b.call.args[0]);
  const auto dim = dimension(b.call, 1, b.index.size());
  if (!dim) return b.decline();
  b.compute_as(b.type.dtype);
  Index at = b.index;
  at.erase(at.begin() + static_cast<ptrdiff_t>(*dim));
  Element value = cast(b.dtype, b.at(list.back(), at));
  for (size_t k = list.size() - 1; k-- > 0;)
    value = where(b.index[*dim] == b.whole(static_cast<int64_t>(k)), cast(b.dtype, b.at(list[k], at)), value);
  return value;
}
Element repeat_body(Body& b) {
  const TensorType& self = b.type_of(0);
  const size_t shift = b.index.size() - self.sizes.size();
  Index at;
  for (size_t d = 0; d < self.sizes.size(); ++d)
    at.push_back(self.sizes[d] == b.type.sizes[d + shift] ? b.index[d + shift]
                                                          : b.index[d + shift] % b.size(self.sizes[d]));
  return b.at(0, at);
}
Element flip_body(Body& b) {
  const auto dims = numbers(b.call, 1);
  if (!dims) return b.decline();
  Index at = b.index;
  for (const int64_t dim : *dims)
    if (const auto d = dimension(dim, at.size()); d && !at.empty()) at[*d] = b.size(b.type.sizes[*d] - 1) - at[*d];
  return b.at(0, at);
}
Element roll_body(Body& b) {  // positions move up by the shifts
  const Sizes* shifts = integers(b.call, 1);
  const auto dims = numbers(b.call, 2);
  if (!shifts || !dims || dims->size() != shifts->size()) return b.decline();
  Index at = b.index;
  for (size_t k = 0; k < dims->size(); ++k) {
    const auto d = dimension((*dims)[k], at.size());
    if (!d || at.empty()) return b.decline();
    at[*d] = (at[*d] - b.size((*shifts)[k])) % b.size(b.type.sizes[*d]);
  }
  return b.at(0, at);
}
Element pad_body(Body& b) {  // self, pads, value
  const Sizes* pads = integers(b.call, 1);
  if (!pads || !(real(b.call, 2) || takes_real(b.call, 2))) return b.decline();
  const Sizes& sizes = b.type_of(0).sizes;
  Index at = b.index;
  Element inside{};
  for (size_t k = 0; k < pads->size() / 2; ++k) {
    const size_t d = sizes.size() - 1 - k;
    const Expr &before = (*pads)[2 * k], &after = (*pads)[2 * k + 1];
    at[d] = at[d] - b.size(before);
    const auto both = [&](Element more) { inside = inside.valid() ? inside & more : more; };
    if (before != Expr(0)) both(at[d] >= 0);
    if (after != Expr(0)) both(at[d] < b.size(sizes[d]));
  }
  if (!inside.valid()) return b.at(0, at);
  b.dtype = b.type_of(0).dtype;
  return b.at_if(std::get<graph::ValueId>(b.call.args[0]), at, inside, b.scalar(2));
}

constexpr Op kOps[] = {
    {.name = "aten::cat", .type = cat, .body = cat_body},
    {.name = "aten::constant_pad_nd", .type = pad, .body = pad_body},
    {.name = "aten::flip", .type = flip, .body = flip_body},
    {.name = "aten::repeat", .type = repeat, .body = repeat_body},
    {.name = "aten::roll", .type = roll, .body = roll_body},
    {.name = "aten::stack", .type = stack, .body = stack_body},
};

}  // namespace

std::span<const Op> joining_ops() { return kOps; }

}  // namespace magneto::ops
