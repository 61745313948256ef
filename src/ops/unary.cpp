// Elementwise functions of one tensor.
#include "ops/pointwise_internal.h"

namespace magneto::ops {

namespace {

// Integers come back as they are, by a copy.
Results rounding(const Call& call) { return pointwise<To::kCommon, kReals, 0>(call); }

Results absolute(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (self && types::is_complex(self->dtype) && self->strides != types::contiguous_strides(self->sizes))
    return std::nullopt;  // goes another way through torch, with layouts of its own
  return pointwise<To::kReal, kNoBool, 0>(call);
}

// Made with empty_like, not by TensorIterator.
Results like_itself(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kNoComplex, self->dtype)) return std::nullopt;
  auto result = fresh_like(call, *self, self->dtype, MemoryFormat::kPreserve);
  return result ? just(std::move(*result)) : std::nullopt;
}

// x != x, a comparison of the tensor with itself.
Results is_nan(const Call& call) { return pointwise<To::kBool, kAll, 0>(call); }

#define FLOAT_OF(op, accepted)                                                             \
  {.name = "aten::" op, .type = pointwise<To::kFloat, accepted, 0>}, {                     \
    .name = "aten::" op "_", .type = pointwise_<To::kFloat, accepted, 0>, .writes = kFirst \
  }
#define SAME_AS(op, accepted)                                                               \
  {.name = "aten::" op, .type = pointwise<To::kCommon, accepted, 0>}, {                     \
    .name = "aten::" op "_", .type = pointwise_<To::kCommon, accepted, 0>, .writes = kFirst \
  }

constexpr Op kOps[] = {
    FLOAT_OF("acos", kAll),
    FLOAT_OF("acosh", kAll),
    FLOAT_OF("asin", kAll),
    FLOAT_OF("asinh", kAll),
    FLOAT_OF("atan", kAll),
    FLOAT_OF("atanh", kAll),
    FLOAT_OF("cos", kAll),
    FLOAT_OF("cosh", kAll),
    FLOAT_OF("digamma", kNoComplex),
    FLOAT_OF("erf", kNoComplex),
    FLOAT_OF("erfc", kNoComplex),
    FLOAT_OF("erfinv", kNoComplex),
    FLOAT_OF("exp", kAll),
    FLOAT_OF("exp2", kAll),
    FLOAT_OF("expm1", kAll),
    FLOAT_OF("lgamma", kNoComplex),
    FLOAT_OF("log", kAll),
    FLOAT_OF("log10", kAll),
    FLOAT_OF("log1p", kAll),
    FLOAT_OF("log2", kAll),
    FLOAT_OF("logit", kNoComplex),
    FLOAT_OF("reciprocal", kAll),
    FLOAT_OF("rsqrt", kAll),
    FLOAT_OF("sigmoid", kAll),
    FLOAT_OF("sin", kAll),
    FLOAT_OF("sinh", kAll),
    FLOAT_OF("sqrt", kAll),
    FLOAT_OF("tan", kAll),
    FLOAT_OF("tanh", kAll),
    SAME_AS("bitwise_not", kBits),
    SAME_AS("frac", kFloats),
    SAME_AS("neg", kNoBool),
    SAME_AS("relu", kReals),
    SAME_AS("sgn", kAll),
    SAME_AS("sign", kNoComplex),
    {.name = "aten::abs", .type = absolute},
    {.name = "aten::abs_", .type = pointwise_<To::kCommon, kReals, 0>, .writes = kFirst},
    {.name = "aten::ceil", .type = rounding},
    {.name = "aten::ceil_", .type = pointwise_<To::kCommon, kReals, 0>, .writes = kFirst},
    {.name = "aten::floor", .type = rounding},
    {.name = "aten::floor_", .type = pointwise_<To::kCommon, kReals, 0>, .writes = kFirst},
    {.name = "aten::isnan", .type = is_nan},
    {.name = "aten::logical_not", .type = pointwise<To::kBool, kAll, 0>},
    {.name = "aten::logical_not_", .type = pointwise_<To::kBool, kAll, 0>, .writes = kFirst},
    {.name = "aten::nan_to_num", .type = like_itself},
    {.name = "aten::nan_to_num_", .type = pointwise_<To::kCommon, kNoComplex, 0>, .writes = kFirst},
    {.name = "aten::round", .type = rounding},
    {.name = "aten::round_", .type = pointwise_<To::kCommon, kReals, 0>, .writes = kFirst},
    {.name = "aten::signbit", .type = pointwise<To::kBool, kNoComplex, 0>},
    {.name = "aten::trunc", .type = rounding},
    {.name = "aten::trunc_", .type = pointwise_<To::kCommon, kReals, 0>, .writes = kFirst},
};
#undef FLOAT_OF
#undef SAME_AS

}  // namespace

std::span<const Op> unary_ops() { return kOps; }

}  // namespace magneto::ops
