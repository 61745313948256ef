// Operators along one dimension that keep its size: softmax, running sums, sorting.
#include <limits>

#include "ops/body.h"
#include "ops/expander.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// A row-major result of the input's sizes.
Results plain(const TensorType& self, Dtype dtype) { return just(fresh(dtype, self.device, self.sizes)); }

Results softmax(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto widen = flag(call, 2);
  if (!self || !accepts(kFloats, self->dtype) || !widen || !dimension(call, 1, self->sizes.size())) return std::nullopt;
  if (*widen && (self->dtype != Dtype::kF16 || on_cpu(*self))) return std::nullopt;
  return plain(*self, *widen ? Dtype::kF32 : self->dtype);
}

Results softmax_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *output = tensor(call, 1);
  if (!grad || !output || grad->sizes != output->sizes || grad->dtype != output->dtype) return std::nullopt;
  const auto dtype = dtype_or(call, 3, grad->dtype);
  if (!accepts(kFloats, grad->dtype) || dtype != grad->dtype || !dimension(call, 2, grad->sizes.size()))
    return std::nullopt;
  return plain(*grad, grad->dtype);
}

Results safe_softmax(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kFloats, self->dtype) || !dimension(call, 1, self->sizes.size())) return std::nullopt;
  const auto dtype = dtype_or(call, 2, self->dtype);
  if (dtype != self->dtype) return std::nullopt;
  return plain(*self, *dtype);
}

Results running(const Call& call) {  // cumsum, cumprod
  const TensorType* self = tensor(call, 0);
  if (!self || !is_plain(self->dtype) || !dimension(call, 1, self->sizes.size())) return std::nullopt;
  const bool whole = self->dtype == Dtype::kBool || types::is_integral(self->dtype);
  const auto dtype = dtype_or(call, 2, whole ? Dtype::kI64 : self->dtype);
  if (!dtype || !accepts(kNoBool, *dtype)) return std::nullopt;
  return plain(*self, *dtype);
}

Results running_(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kNoBool, self->dtype) || !dimension(call, 1, self->sizes.size())) return std::nullopt;
  if (dtype_or(call, 2, self->dtype) != self->dtype || !known(dense(call, *self))) return std::nullopt;
  return just(same_as(call, 0));
}

Results running_extreme(const Call& call) {  // cummax, cummin
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kNoComplex, self->dtype) || !dimension(call, 1, self->sizes.size())) return std::nullopt;
  return std::vector<Result>{fresh(self->dtype, self->device, self->sizes),
                             fresh(Dtype::kI64, self->device, self->sizes)};
}

Results log_running(const Call& call) {  // logcumsumexp
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kFloats, self->dtype) || !dimension(call, 1, self->sizes.size())) return std::nullopt;
  return plain(*self, self->dtype);
}

// Values and positions keep the order of the input's strides.
Results sorted(const Call& call, size_t dim_argument) {
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kNoComplex, self->dtype) || !dimension(call, dim_argument, self->sizes.size()))
    return std::nullopt;
  const auto strides = strides_like(call, *self);
  if (!strides) return std::nullopt;
  TensorType values{self->dtype, self->device, self->sizes, *strides, 0};
  TensorType positions = values;
  positions.dtype = Dtype::kI64;
  return std::vector<Result>{fresh(std::move(values)), fresh(std::move(positions))};
}
Results sort(const Call& call) { return sorted(call, 1); }
Results sort_stable(const Call& call) { return sorted(call, 2); }

Results top(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto count = integer(call, 1);
  if (!self || !accepts(kReals, self->dtype) || !count) return std::nullopt;
  const auto dim = dimension(call, 2, self->sizes.size());
  if (!dim) return std::nullopt;
  const Expr size = self->sizes.empty() ? Expr(1) : self->sizes[*dim];
  if (less(call, size, *count) != false || less(call, *count, 0) != false) return std::nullopt;
  Sizes sizes = self->sizes;
  if (!sizes.empty()) sizes[*dim] = *count;
  return std::vector<Result>{fresh(self->dtype, self->device, sizes), fresh(Dtype::kI64, self->device, sizes)};
}

Results triangle(const Call& call) {  // tril, triu
  const TensorType* self = tensor(call, 0);
  if (!self || !is_plain(self->dtype) || self->sizes.size() < 2) return std::nullopt;
  return plain(*self, self->dtype);
}
Results triangle_(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !is_plain(self->dtype) || self->sizes.size() < 2 || !known(contiguous(call, *self))) return std::nullopt;
  return just(same_as(call, 0));
}

// ---- expansions: softmax --------------------------------------------------------------------------------------------

using graph::ValueId;

struct Along {  // a tensor in a type to compute in, and the dimension
  ValueId x;
  Sizes dims;
};
std::optional<Along> along(Expander& e, size_t argument, size_t dim_argument) {
  const ValueId self = e.tensor(argument);
  const auto dim = integer(e.call, dim_argument);
  if (!self.valid() || !dim || !types::is_floating(e.type(self).dtype)) return std::nullopt;
  return Along{e.widened(self), {*dim}};
}
Values softmax_expanded(Expander& e) {  // self, dim, half_to_float
  const auto a = along(e, 0, 1);
  if (!a) return {};
  const ValueId powers = e.apply("aten::exp", e.difference(a->x, e.greatest(a->x, a->dims)));
  return {e.to(e.results[0].dtype, e.quotient(powers, e.sum(powers, a->dims)))};
}
Values log_softmax_expanded(Expander& e) {
  const auto a = along(e, 0, 1);
  if (!a) return {};
  const ValueId shifted = e.difference(a->x, e.greatest(a->x, a->dims));
  const ValueId logs = e.apply("aten::log", e.sum(e.apply("aten::exp", shifted), a->dims));
  return {e.to(e.results[0].dtype, e.difference(shifted, logs))};
}
// Rows of -inf alone give zeros instead of NaN.
Values safe_softmax_expanded(Expander& e) {  // self, dim, dtype
  const ValueId self = e.tensor(0);
  const auto dim = integer(e.call, 1);
  if (!self.valid() || !dim) return {};
  const ValueId x = e.widened(e.to(e.results[0].dtype, self));
  const ValueId most = e.greatest(x, {*dim}), powers = e.apply("aten::exp", e.difference(x, most));
  const ValueId usual = e.quotient(powers, e.sum(powers, {*dim}));
  const ValueId nothing = e.add("aten::eq.Scalar", {most, -std::numeric_limits<double>::infinity()});
  return {e.to(e.results[0].dtype, e.add("aten::where.ScalarSelf", {nothing, 0.0, usual}))};
}
Values softmax_backward_expanded(Expander& e) {  // grad, output, dim, input dtype
  const auto a = along(e, 0, 2);
  if (!a || !e.tensor(1).valid()) return {};
  const ValueId y = e.widened(e.tensor(1)), both = e.product(a->x, y);
  return {e.to(e.results[0].dtype, e.difference(both, e.product(y, e.sum(both, a->dims))))};
}
Values log_softmax_backward_expanded(Expander& e) {
  const auto a = along(e, 0, 2);
  if (!a || !e.tensor(1).valid()) return {};
  const ValueId y = e.widened(e.tensor(1));
  return {e.to(e.results[0].dtype, e.difference(a->x, e.product(e.apply("aten::exp", y), e.sum(a->x, a->dims))))};
}

// ---- scans and triangles -------------------------------------------------------------------------------------------

// One element is added after the other: what torch adds up in on a CPU is what such a chain needs on a GPU, too.
Dtype accumulates_in(Dtype dtype) {
  if (loop::is_half(dtype)) return Dtype::kF32;
  return dtype == Dtype::kF32 ? Dtype::kF64 : dtype;
}

template <loop::Fold fold>
bool running_equation(Body& b, loop::Equation& equation) {
  const auto dim = dimension(b.call, 1, b.index.size());
  if (!dim || b.index.empty() || b.type.dtype == Dtype::kBool) return false;
  equation.kind = loop::Equation::Kind::kScan;
  equation.fold = fold;
  equation.along = equation.axes[*dim];
  equation.value = cast(accumulates_in(b.type.dtype), cast(b.type.dtype, b.at(0, b.index))).term();
  return true;
}

template <bool lower>
Element triangle_body(Body& b) {
  const auto shift = integer(b.call, 1);
  if (!shift) return b.decline();
  const Element row = b.index[b.index.size() - 2], distance = b.index.back() - row, x = b.at(0, b.index);
  return where(lower ? distance <= b.size(*shift) : distance >= b.size(*shift), x, b.number(0, x.dtype()));
}

constexpr Op kOps[] = {
    {.name = "aten::_log_softmax", .type = softmax, .expand = log_softmax_expanded},
    {.name = "aten::_log_softmax_backward_data", .type = softmax_backward, .expand = log_softmax_backward_expanded},
    {.name = "aten::_safe_softmax", .type = safe_softmax, .expand = safe_softmax_expanded},
    {.name = "aten::_softmax", .type = softmax, .expand = softmax_expanded},
    {.name = "aten::_softmax_backward_data", .type = softmax_backward, .expand = softmax_backward_expanded},
    {.name = "aten::cummax", .type = running_extreme},
    {.name = "aten::cummin", .type = running_extreme},
    {.name = "aten::cumprod", .type = running, .equation = running_equation<loop::Fold::kProd>},
    {.name = "aten::cumprod_", .type = running_, .writes = kFirst, .functional = "aten::cumprod"},
    {.name = "aten::cumsum", .type = running, .equation = running_equation<loop::Fold::kSum>},
    {.name = "aten::cumsum_", .type = running_, .writes = kFirst, .functional = "aten::cumsum"},
    {.name = "aten::logcumsumexp", .type = log_running},
    {.name = "aten::sort", .type = sort},
    {.name = "aten::sort.stable", .type = sort_stable},
    {.name = "aten::topk", .type = top},
    {.name = "aten::tril", .type = triangle, .body = triangle_body<true>},
    {.name = "aten::tril_", .type = triangle_, .writes = kFirst, .functional = "aten::tril"},
    {.name = "aten::triu", .type = triangle, .body = triangle_body<false>},
    {.name = "aten::triu_", .type = triangle_, .writes = kFirst, .functional = "aten::triu"},
};

}  // namespace

std::span<const Op> scan_ops() { return kOps; }

}  // namespace magneto::ops
