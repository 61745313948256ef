// Operators along one dimension that keep its size: softmax, running sums, sorting.
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

// A row-major result of the input's sizes.
Results plain(const TensorType& self, Dtype dtype) { return just(fresh(dtype, self.device, self.sizes)); }

Results softmax(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto widen = flag(call, 2);
  if (!self || !accepts(kFloats, self->dtype) || !widen || !dimension(call, 1, self->sizes.size())) return std::nullopt;
  if (*widen && (self->dtype != Dtype::kF16 || self->device.kind == Device::Kind::kCpu)) return std::nullopt;
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

constexpr Op kOps[] = {
    {.name = "aten::_log_softmax", .type = softmax},
    {.name = "aten::_log_softmax_backward_data", .type = softmax_backward},
    {.name = "aten::_safe_softmax", .type = safe_softmax},
    {.name = "aten::_softmax", .type = softmax},
    {.name = "aten::_softmax_backward_data", .type = softmax_backward},
    {.name = "aten::cummax", .type = running_extreme},
    {.name = "aten::cummin", .type = running_extreme},
    {.name = "aten::cumprod", .type = running},
    {.name = "aten::cumprod_", .type = running_, .writes = kFirst},
    {.name = "aten::cumsum", .type = running},
    {.name = "aten::cumsum_", .type = running_, .writes = kFirst},
    {.name = "aten::logcumsumexp", .type = log_running},
    {.name = "aten::sort", .type = sort},
    {.name = "aten::sort.stable", .type = sort_stable},
    {.name = "aten::topk", .type = top},
    {.name = "aten::tril", .type = triangle},
    {.name = "aten::tril_", .type = triangle_, .writes = kFirst},
    {.name = "aten::triu", .type = triangle},
    {.name = "aten::triu_", .type = triangle_, .writes = kFirst},
};

}  // namespace

std::span<const Op> scan_ops() { return kOps; }

}  // namespace magneto::ops
