// Operators that put tensors together or lay one out anew: cat, stack, repeat, pad, flip, roll, and backward of views.
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
  std::vector<Operand> all;
  for (const TensorType* one : *list) {
    if (!same(call, one->sizes, first.sizes) || one->device != first.device) return std::nullopt;
    // cat of the unsqueezed tensors would keep channels last; three dimensions can become four
    if (one->sizes.size() >= 3 && !known(contiguous(call, *one))) return std::nullopt;
    all.push_back({*one, false});
  }
  const auto dtype = common_dtype(call, all);
  const auto dim = dimension(call, 1, first.sizes.size() + 1);
  if (!dtype || !dim) return std::nullopt;
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
  auto result = fresh_in_suggested(call, self->dtype, std::move(sizes), *self);
  return result ? just(std::move(*result)) : std::nullopt;
}

// The gradient of a view: zeros of the sizes of the input.
Results zeros_of(const Call& call) {
  const TensorType* grad = tensor(call, 0);
  const Sizes* sizes = integers(call, 1);
  if (!grad || !sizes || !is_plain(grad->dtype)) return std::nullopt;
  return just(fresh(grad->dtype, grad->device, *sizes));
}

constexpr Op kOps[] = {
    {.name = "aten::cat", .type = cat},
    {.name = "aten::constant_pad_nd", .type = pad},
    {.name = "aten::flip", .type = flip},
    {.name = "aten::repeat", .type = repeat},
    {.name = "aten::roll", .type = roll},
    {.name = "aten::select_backward", .type = zeros_of},
    {.name = "aten::slice_backward", .type = zeros_of},
    {.name = "aten::diagonal_backward", .type = zeros_of},
    {.name = "aten::stack", .type = stack},
};

}  // namespace

std::span<const Op> joining_ops() { return kOps; }

}  // namespace magneto::ops
