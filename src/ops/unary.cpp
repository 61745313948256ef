// Elementwise functions of one tensor.
#include <cmath>
#include <limits>

#include "ops/bodies_internal.h"
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
// nan_to_num: what stands in the place of NaN and of the infinities.
template <TypeRule rule>
Results replaced(const Call& call) {
  if (const TensorType* self = tensor(call, 0); self && accepts(kFloats, self->dtype))
    for (const size_t i : {1, 2, 3}) takes_real(call, i);
  return rule(call);
}

// x != x, a comparison of the tensor with itself.
Results is_nan_type(const Call& call) { return pointwise<To::kBool, kAll, 0>(call); }

// ---- bodies --------------------------------------------------------------------------------------------------------

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Near zero by log1p, far out without squares that overflow.
Element asinh_of(Element x) {
  const Element a = abs(x), near = log1p(a + a * a / (1 + sqrt(a * a + 1)));
  return copysign(where(a > 1e8, log(a) + M_LN2, near), x);
}
Element acosh_of(Element x) {
  const Element t = x - 1, near = where(t < 0, x.number(std::nan("")), log1p(t + sqrt(t * (t + 2))));
  return where(x > 1e8, log(x) + M_LN2, near);
}
Element atanh_of(Element x) { return 0.5 * (log1p(x) - log1p(-x)); }
Element exp2_of(Element x) { return pow(x.number(2), x); }
Element log10_of(Element x) { return log(x) * M_LOG10E; }
Element reciprocal_of(Element x) { return 1 / x; }
Element frac_of(Element x) { return x - trunc(x); }
Element neg_of(Element x) { return -x; }
Element not_of(Element x) { return ~x; }
Element relu_of(Element x) { return max(x, x.number(0)); }
Element sign_of(Element x) {
  if (x.dtype() == Dtype::kBool) return x;
  return where(x > 0, x.number(1), where(x < 0, x.number(-1), x.number(0)));
}
template <Element (*function)(Element)>
Element unless_whole(Element x) {  // integers are round already
  return types::is_floating(x.dtype()) ? function(x) : x;
}
Element sign_bit(Element x) {
  if (!types::is_floating(x.dtype())) return x < 0;
  return copysign(x.number(1), x) < 0;  // also of -0 and NaN
}
Element logit_body(Body& b) {
  b.promote_to_float({0});
  Element x = b.x(0);
  if (const auto eps = real(b.call, 1); eps && *eps >= 0) x = min(max(x, *eps), 1 - *eps);
  return log(x / (1 - x));
}
Element logical_not_body(Body& b) {
  b.dtype = Dtype::kBool;
  return ~b.x(0);
}
Element nan_to_num_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0);
  if (!types::is_floating(b.dtype)) return x;
  const Dtype stored = b.type_of(0).dtype;
  const double most = stored == Dtype::kF16    ? 65504
                      : stored == Dtype::kBF16 ? 3.3895313892515355e38
                      : stored == Dtype::kF32  ? std::numeric_limits<float>::max()
                                               : std::numeric_limits<double>::max();
  const auto given = [&](size_t i, double otherwise) {
    return is_absent(b.call, i) ? b.number(otherwise) : b.scalar(i);
  };
  return where(is_nan(x), given(1, 0),
               where(x == kInfinity, given(2, most), where(x == -kInfinity, given(3, -most), x)));
}

#define FLOAT_OF(op, accepted, element)                                                                               \
  {.name = "aten::" op, .type = pointwise<To::kFloat, accepted, 0>, .body = element}, {                               \
    .name = "aten::" op "_", .type = pointwise_<To::kFloat, accepted, 0>, .writes = kFirst, .functional = "aten::" op \
  }
#define SAME_AS(op, accepted, element)                                                                                 \
  {.name = "aten::" op, .type = pointwise<To::kCommon, accepted, 0>, .body = element}, {                               \
    .name = "aten::" op "_", .type = pointwise_<To::kCommon, accepted, 0>, .writes = kFirst, .functional = "aten::" op \
  }
#define ROUNDS(op, element)                                                                                          \
  {.name = "aten::" op, .type = rounding, .body = of_one<unless_whole<element>>}, {                                  \
    .name = "aten::" op "_", .type = pointwise_<To::kCommon, kReals, 0>, .writes = kFirst, .functional = "aten::" op \
  }

constexpr Op kOps[] = {
    FLOAT_OF("acos", kAll, float_of_one<acos>),
    FLOAT_OF("acosh", kAll, float_of_one<acosh_of>),
    FLOAT_OF("asin", kAll, float_of_one<asin>),
    FLOAT_OF("asinh", kAll, float_of_one<asinh_of>),
    FLOAT_OF("atan", kAll, float_of_one<atan>),
    FLOAT_OF("atanh", kAll, float_of_one<atanh_of>),
    FLOAT_OF("cos", kAll, float_of_one<cos>),
    FLOAT_OF("cosh", kAll, float_of_one<cosh>),
    FLOAT_OF("digamma", kNoComplex, nullptr),
    FLOAT_OF("erf", kNoComplex, float_of_one<erf>),
    FLOAT_OF("erfc", kNoComplex, nullptr),
    FLOAT_OF("erfinv", kNoComplex, nullptr),
    FLOAT_OF("exp", kAll, float_of_one<exp>),
    FLOAT_OF("exp2", kAll, float_of_one<exp2_of>),
    FLOAT_OF("expm1", kAll, float_of_one<expm1>),
    FLOAT_OF("lgamma", kNoComplex, float_of_one<lgamma>),
    FLOAT_OF("log", kAll, float_of_one<log>),
    FLOAT_OF("log10", kAll, float_of_one<log10_of>),
    FLOAT_OF("log1p", kAll, float_of_one<log1p>),
    FLOAT_OF("log2", kAll, float_of_one<log2>),
    FLOAT_OF("logit", kNoComplex, logit_body),
    FLOAT_OF("reciprocal", kAll, float_of_one<reciprocal_of>),
    FLOAT_OF("rsqrt", kAll, float_of_one<rsqrt>),
    FLOAT_OF("sigmoid", kAll, float_of_one<sigmoid>),
    FLOAT_OF("sin", kAll, float_of_one<sin>),
    FLOAT_OF("sinh", kAll, float_of_one<sinh>),
    FLOAT_OF("sqrt", kAll, float_of_one<sqrt>),
    FLOAT_OF("tan", kAll, float_of_one<tan>),
    FLOAT_OF("tanh", kAll, float_of_one<tanh>),
    SAME_AS("bitwise_not", kBits, of_one<not_of>),
    SAME_AS("frac", kFloats, of_one<frac_of>),
    SAME_AS("neg", kNoBool, of_one<neg_of>),
    SAME_AS("relu", kReals, of_one<relu_of>),
    SAME_AS("sgn", kAll, of_one<sign_of>),
    SAME_AS("sign", kNoComplex, of_one<sign_of>),
    {.name = "aten::abs", .type = absolute, .body = of_one<abs>},
    {.name = "aten::abs_", .type = pointwise_<To::kCommon, kReals, 0>, .writes = kFirst, .functional = "aten::abs"},
    ROUNDS("ceil", ceil),
    ROUNDS("floor", floor),
    {.name = "aten::isnan", .type = is_nan_type, .body = of_one<is_nan>},
    {.name = "aten::logical_not", .type = pointwise<To::kBool, kAll, 0>, .body = logical_not_body},
    {.name = "aten::logical_not_",
     .type = pointwise_<To::kBool, kAll, 0>,
     .writes = kFirst,
     .functional = "aten::logical_not"},
    {.name = "aten::nan_to_num", .type = replaced<like_itself>, .body = nan_to_num_body},
    {.name = "aten::nan_to_num_",
     .type = replaced<pointwise_<To::kCommon, kNoComplex, 0>>,
     .writes = kFirst,
     .functional = "aten::nan_to_num"},
    ROUNDS("round", round),
    {.name = "aten::signbit", .type = pointwise<To::kBool, kNoComplex, 0>, .body = of_one<sign_bit>},
    ROUNDS("trunc", trunc),
};
#undef FLOAT_OF
#undef SAME_AS
#undef ROUNDS

}  // namespace

std::span<const Op> unary_ops() { return kOps; }

}  // namespace magneto::ops
