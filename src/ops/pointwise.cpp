// Elementwise operators of two and three operands, and of one tensor with numbers.
#include <cmath>
#include <limits>
#include <utility>

#include "ops/bodies_internal.h"
#include "ops/pointwise_internal.h"

namespace magneto::ops {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_bool(const Operand& one) { return one.type.dtype == Dtype::kBool; }

// The factor of add and sub: a bool only for bools, a float only for floats.
bool alpha_fits(const Call& call, size_t i, Dtype common) {
  const graph::Arg& alpha = call.args[i];
  if (std::holds_alternative<Expr>(alpha)) return true;
  if (std::holds_alternative<bool>(alpha)) return common == Dtype::kBool;
  if (std::holds_alternative<double>(alpha)) return types::is_floating(common) || types::is_complex(common);
  if ((types::is_floating(common) || types::is_complex(common)) && converts_real(call, i)) return true;
  return std::holds_alternative<std::complex<double>>(alpha) && types::is_complex(common);
}

std::optional<Typed> sum(const Call& call) {
  auto t = typed(call, {0, 1}, To::kCommon, kAll);
  if (!t || call.args.size() != 3 || !alpha_fits(call, 2, t->common)) return std::nullopt;
  return t;
}
std::optional<Typed> difference(const Call& call) {
  auto t = sum(call);
  if (!t || is_bool(t->operands[0]) || is_bool(t->operands[1])) return std::nullopt;
  return t;
}
template <auto rule>
Results fresh_from(const Call& call) {
  const auto t = rule(call);
  if (!t) return std::nullopt;
  return elementwise(call, t->operands, t->common, t->result);
}
template <auto rule>
Results stored_from(const Call& call) {
  const auto t = rule(call);
  if (!t) return std::nullopt;
  return write_to_first(call, *t);
}

// other - alpha * self: the operands change places
Results rsub(const Call& call) {
  auto t = difference(call);
  if (!t) return std::nullopt;
  std::swap(t->operands[0], t->operands[1]);
  return elementwise(call, t->operands, t->common, t->result);
}

std::optional<Typed> division(const Call& call) {
  if (is_absent(call, 2)) return typed(call, {0, 1}, To::kFloat, kAll);
  const std::string* mode = text(call, 2);
  if (!mode || (*mode != "floor" && *mode != "trunc")) return std::nullopt;
  return typed(call, {0, 1}, To::kCommon, kReals);
}

// The tensor is converted to the common type of all arguments, and the function is one of that tensor alone.
template <size_t... arguments>
std::optional<Typed> of_converted(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self) return std::nullopt;
  std::vector<Operand> all;
  for (const size_t i : {arguments...}) {
    if (is_absent(call, i)) continue;
    auto one = operand(call, i);
    if (!one) return std::nullopt;
    all.push_back(std::move(*one));
  }
  const auto common = common_dtype(call, all);
  if (!common || all.size() < 2) return std::nullopt;
  Operand converted{*self, false};
  if (self->dtype != *common) {
    auto strides = strides_like(call, *self);
    if (!strides) return std::nullopt;
    converted.type.strides = std::move(*strides);
    converted.type.dtype = *common;
  }
  return Typed{{std::move(converted)}, *common, *common};
}

template <size_t... arguments>
std::optional<Typed> clamped(const Call& call) {
  auto t = of_converted<arguments...>(call);
  return t && accepts(kReals, t->common) ? t : std::nullopt;
}

// With a NaN as its only limit torch gives NaN or the element, as its vectors happen to end.
bool is_only_limit(const Call& call, size_t i) { return !is_absent(call, i) && is_absent(call, 3 - i); }

std::optional<Typed> clamped_by_numbers(const Call& call) {
  for (const size_t i : {1, 2})
    if (is_only_limit(call, i)) orders_real(call, i);
  return clamped<0, 1, 2>(call);
}

template <size_t... bounds>
std::optional<Typed> clamped_by_tensors(const Call& call) {
  Typed t;
  for (const size_t i : {size_t{0}, bounds...}) {
    if (is_absent(call, i)) continue;
    auto one = operand(call, i);
    if (!one) return std::nullopt;
    t.operands.push_back(std::move(*one));
  }
  const auto common = common_dtype(call, t.operands);
  if (!common || t.operands.size() < 2 || !accepts(kReals, *common)) return std::nullopt;
  t.common = t.result = *common;
  return t;
}

std::optional<Typed> power_of_tensor(const Call& call) {
  auto t = of_converted<0, 1>(call);
  if (!t || !accepts(kNoBool, t->common)) return std::nullopt;
  converts_real(call, 1);
  const auto exponent = number(call, 1);
  if (types::is_integral(t->common) && (!exponent || *exponent < 0)) return std::nullopt;
  return t;
}

Results where_type(const Call& call) {
  const TensorType* condition = tensor(call, 0);
  auto values = operands(call, {1, 2});
  if (!condition || condition->dtype != Dtype::kBool || !values) return std::nullopt;
  const auto common = common_dtype(call, *values);
  if (!common) return std::nullopt;
  std::vector<Operand> all = {{*condition, false}};
  for (Operand& one : *values) {
    if (one.type.dtype != *common) {
      auto strides = strides_like(call, one.type);
      if (!strides) return std::nullopt;
      one.type.strides = std::move(*strides);
      one.type.dtype = *common;
    }
    all.push_back(std::move(one));
  }
  return elementwise(call, all, std::nullopt, *common);
}

// A product or quotient of two tensors added to a third; the factor must fit as alpha does.
template <unsigned accepted>
std::optional<Typed> added(const Call& call) {
  auto t = typed(call, {0, 1, 2}, To::kCommon, accepted);
  if (!t || call.args.size() != 4 || !alpha_fits(call, 3, t->common)) return std::nullopt;
  return t;
}
std::optional<Typed> quotient_added(const Call& call) {
  auto t = added<kInexact>(call);
  if (!t || (accepts(kBits, t->operands[1].type.dtype) && accepts(kBits, t->operands[2].type.dtype)))
    return std::nullopt;
  return t;
}

// A number to the power of a tensor: row-major, whatever the exponents' layout.
Results power_of_number(const Call& call) {
  const auto t = typed(call, {0, 1}, To::kCommon, kNoBool);
  if (!t || !t->operands[0].wrapped) return std::nullopt;
  return just(fresh(t->result, t->operands[1].type.device, t->operands[1].type.sizes));
}

std::optional<Typed> lerp_with(const Call& call, std::initializer_list<size_t> arguments) {
  auto t = typed(call, arguments, To::kCommon, kFloats);
  if (!t) return std::nullopt;
  for (const Operand& one : t->operands)
    if (one.wrapped || one.type.dtype != t->common) return std::nullopt;
  return t;
}
std::optional<Typed> lerp_tensor(const Call& call) { return lerp_with(call, {0, 1, 2}); }
std::optional<Typed> lerp_scalar(const Call& call) {
  if (!real(call, 2) && !converts_real(call, 2)) return std::nullopt;
  return lerp_with(call, {0, 1});
}

// Both in one element type; torch does not promote here.
Results heaviside(const Call& call) { return uniform<kNoComplex, 0, 1>(call); }

// ---- bodies --------------------------------------------------------------------------------------------------------

// A factor of 1 is left away: it is the default, and true * 1 has no meaning.
bool is_one(const Body& b, size_t factor) { return number(b.call, factor) == 1 || flag(b.call, factor) == true; }
Element scaled(Body& b, size_t factor, Element x) { return is_one(b, factor) ? x : b.scalar(factor) * x; }
// The same of add and sub, whose kernels for a CPU round the factor to the type of the result.
Element times_alpha(Body& b, Element x) {
  if (is_one(b, 2)) return x;
  return (b.on_cpu() ? b.as_half(b.scalar(2)) : b.scalar(2)) * x;
}
Element add_body(Body& b) {
  b.promote({0, 1});
  return b.exact(0) + times_alpha(b, b.exact(1));
}
Element sub_body(Body& b) {
  b.promote({0, 1});
  return b.exact(0) - times_alpha(b, b.exact(1));
}
Element rsub_body(Body& b) {
  b.promote({0, 1});
  return b.exact(1) - times_alpha(b, b.exact(0));
}
template <loop::Op op>
Element scaled_by(Body& b) {
  if (op == loop::Op::kDiv)
    b.promote_to_float({0, 1});
  else
    b.promote({0, 1});
  return binary(op, op == loop::Op::kMul ? b.exact(0) : b.x(0), b.exact(1, /*kept_on_cpu=*/true));
}
Element division_body(Body& b) {
  if (is_absent(b.call, 2)) return scaled_by<loop::Op::kDiv>(b);
  return *text(b.call, 2) == "floor" ? scaled_by<loop::Op::kFloorDiv>(b) : scaled_by<loop::Op::kTruncDiv>(b);
}

// The exponents that torch computes without pow. Those of a root are powers in its kernel for f16 on a CPU.
Element power_body(Body& b) {
  b.promote({0, 1});
  const Element x = b.x(0);
  const bool by_pow = b.type.dtype == Dtype::kF16 && b.on_cpu();
  const auto root = [&] {
    return by_pow ? where(x == -kInfinity, x.number(kInfinity), sqrt(x) + 0.0) : sqrt(x);  // -0.0 + 0.0 is 0.0
  };
  const auto inverse_root = [&] { return by_pow ? 1.0 / root() : rsqrt(x); };
  if (takes_real(b.call, 1)) {
    const Element rounded = b.x(1);
    const Dtype computed = std::exchange(b.dtype, Dtype::kF64);
    const Element exponent = b.scalar(1);
    b.dtype = computed;
    Element power = where(exponent == 1, x, pow(x, rounded));
    power = where(exponent == 2, x * x, where(exponent == 3, x * x * x, power));
    power = where(exponent == 0.5, root(), where(exponent == -0.5, inverse_root(), power));
    return where(exponent == -1, 1.0 / x, where(exponent == -2, 1.0 / (x * x), power));
  }
  const auto exponent = real(b.call, 1);
  if (!exponent) return pow(x, b.x(1));
  if (*exponent == 1) return x;
  if (*exponent == 2) return x * x;
  if (*exponent == 3) return x * x * x;
  if (types::is_floating(b.dtype)) {
    if (*exponent == 0.5) return root();
    if (*exponent == -0.5) return inverse_root();
    if (*exponent == -1) return 1.0 / x;
    if (*exponent == -2) return 1.0 / (x * x);
  }
  return pow(x, b.x(1));
}

template <loop::Op op>
Element logical(Body& b) {
  b.dtype = Dtype::kBool;
  return binary(op, b.x(0), b.x(1));
}

// The other operand where one is NaN.
Element fmax_of(Element a, Element b) { return where(is_nan(a), b, where(is_nan(b), a, max(a, b))); }
Element fmin_of(Element a, Element b) { return where(is_nan(a), b, where(is_nan(b), a, min(a, b))); }
// By the larger one, so that no square overflows.
Element hypot_of(Element a, Element b) {
  const Element most = max(abs(a), abs(b)), least = min(abs(a), abs(b)), ratio = least / most;
  const Element finite = where(most == 0, most, most * sqrt(1 + ratio * ratio));
  return where((abs(a) == kInfinity) | (abs(b) == kInfinity), a.number(kInfinity), finite);  // also beside a NaN
}
Element log_add_exp(Element a, Element b) {
  const Element sum = max(a, b) + log1p(exp(-abs(a - b)));
  return where((a == b) & (abs(a) == std::numeric_limits<double>::infinity()), a, sum);
}
Element x_log_y(Element x, Element y) { return where(is_nan(y), y, where(x == 0, x.number(0), x * log(y))); }

template <size_t... bounds>
void promote_present(Body& b) {
  std::vector<Operand> all;
  for (const size_t i : {size_t{0}, bounds...}) {
    if (is_absent(b.call, i)) continue;
    if (auto one = operand(b.call, i)) all.push_back(std::move(*one));
  }
  const auto common = common_dtype(b.call, all);
  if (!common)
    b.decline();
  else
    b.compute_as(*common);
}
Element clamp_body(Body& b) {
  for (const size_t i : {1, 2})
    if (const auto limit = real(b.call, i); limit && std::isnan(*limit) && is_only_limit(b.call, i)) return b.decline();
  promote_present<1, 2>(b);
  Element x = b.x(0);
  if (!is_absent(b.call, 1)) x = max(x, b.x(1));
  if (!is_absent(b.call, 2)) x = min(x, b.x(2));
  return x;
}
Element clamp_min_body(Body& b) {
  b.promote({0, 1});
  return max(b.x(0), b.x(1));
}
Element clamp_max_body(Body& b) {
  b.promote({0, 1});
  return min(b.x(0), b.x(1));
}

Element where_body(Body& b) {
  b.dtype = Dtype::kBool;
  const Element condition = b.x(0);
  b.promote({1, 2});
  return where(condition, b.x(1), b.x(2));
}
Element addcmul_body(Body& b) {
  b.promote({0, 1, 2});
  return b.x(0) + scaled(b, 3, b.x(1)) * b.x(2);
}
Element addcdiv_body(Body& b) {
  b.promote({0, 1, 2});
  return b.x(0) + scaled(b, 3, b.x(1)) / b.x(2);
}
// From the nearer end, so that weights 0 and 1 give the ends exactly.
Element lerp_body(Body& b) {
  const bool is_tensor = tensor(b.call, 2) != nullptr;
  // integers with a weight that is a float are floats
  is_tensor ? b.promote({0, 1, 2}) : b.promote({0, 1});
  if (!types::is_floating(b.type.dtype)) return b.decline();
  const Element from = b.x(0), to = b.x(1), weight = is_tensor ? b.x(2) : b.scalar(2);
  return where(abs(weight) < 0.5, from + weight * (to - from), to - (to - from) * (1 - weight));
}

constexpr TypeRule quotient = pointwise<To::kCommon, kReals, 0, 1>;
constexpr TypeRule quotient_ = pointwise_<To::kCommon, kReals, 0, 1>;

#define BOTH(op, overload, to, accepted, element)                                               \
  {.name = "aten::" op overload, .type = pointwise<to, accepted, 0, 1>, .body = element}, {     \
    .name = "aten::" op "_" overload, .type = pointwise_<to, accepted, 0, 1>, .writes = kFirst, \
    .functional = "aten::" op overload                                                          \
  }
#define TENSOR_AND_SCALAR(op, to, accepted, element) \
  BOTH(op, ".Tensor", to, accepted, element), BOTH(op, ".Scalar", to, accepted, element)
#define DIVIDES(op, overload, rule, rule_, element)                                               \
  {.name = "aten::" op overload, .type = rule, .may_raise_on_data = true, .body = element}, {     \
    .name = "aten::" op "_" overload, .type = rule_, .writes = kFirst, .may_raise_on_data = true, \
    .functional = "aten::" op overload                                                            \
  }
#define RULES(op, overload, rule, element)                                                                            \
  {.name = "aten::" op overload, .type = fresh_from<rule>, .body = element}, {                                        \
    .name = "aten::" op "_" overload, .type = stored_from<rule>, .writes = kFirst, .functional = "aten::" op overload \
  }

constexpr Op kOps[] = {
    RULES("add", ".Tensor", sum, add_body),
    RULES("add", ".Scalar", sum, add_body),
    RULES("sub", ".Tensor", difference, sub_body),
    RULES("sub", ".Scalar", difference, sub_body),
    {.name = "aten::rsub.Tensor", .type = rsub, .body = rsub_body},
    {.name = "aten::rsub.Scalar", .type = rsub, .body = rsub_body},
    TENSOR_AND_SCALAR("mul", To::kCommon, kAll, scaled_by<loop::Op::kMul>),
    TENSOR_AND_SCALAR("div", To::kFloat, kAll, scaled_by<loop::Op::kDiv>),
    // integers divided by zero are an error, and only the data tells
    DIVIDES("div", ".Tensor_mode", fresh_from<division>, stored_from<division>, division_body),
    DIVIDES("div", ".Scalar_mode", fresh_from<division>, stored_from<division>, division_body),
    {.name = "aten::floor_divide", .type = quotient, .may_raise_on_data = true, .body = scaled_by<loop::Op::kFloorDiv>},
    {.name = "aten::floor_divide_.Tensor",
     .type = quotient_,
     .writes = kFirst,
     .may_raise_on_data = true,
     .functional = "aten::floor_divide"},
    DIVIDES("remainder", ".Tensor", quotient, quotient_, of_two<loop::Op::kMod>),
    DIVIDES("remainder", ".Scalar", quotient, quotient_, of_two<loop::Op::kMod>),
    {.name = "aten::remainder.Scalar_Tensor",
     .type = quotient,
     .may_raise_on_data = true,
     .body = of_two<loop::Op::kMod>},
    DIVIDES("fmod", ".Tensor", quotient, quotient_, of_two<loop::Op::kFmod>),
    DIVIDES("fmod", ".Scalar", quotient, quotient_, of_two<loop::Op::kFmod>),
    {.name = "aten::pow.Tensor_Tensor", .type = pointwise<To::kCommon, kNoBool, 0, 1>, .body = of_two<loop::Op::kPow>},
    {.name = "aten::pow_.Tensor",
     .type = pointwise_<To::kCommon, kNoBool, 0, 1>,
     .writes = kFirst,
     .functional = "aten::pow.Tensor_Tensor"},
    {.name = "aten::pow.Tensor_Scalar", .type = fresh_from<power_of_tensor>, .body = power_body},
    {.name = "aten::pow_.Scalar",
     .type = stored_from<power_of_tensor>,
     .writes = kFirst,
     .functional = "aten::pow.Tensor_Scalar"},
    {.name = "aten::pow.Scalar", .type = power_of_number, .body = of_two<loop::Op::kPow>},

    TENSOR_AND_SCALAR("eq", To::kBool, kAll, of_two<loop::Op::kEq>),
    TENSOR_AND_SCALAR("ne", To::kBool, kAll, of_two<loop::Op::kNe>),
    TENSOR_AND_SCALAR("lt", To::kBool, kNoComplex, of_two<loop::Op::kLt>),
    TENSOR_AND_SCALAR("le", To::kBool, kNoComplex, of_two<loop::Op::kLe>),
    TENSOR_AND_SCALAR("gt", To::kBool, kNoComplex, of_two<loop::Op::kGt>),
    TENSOR_AND_SCALAR("ge", To::kBool, kNoComplex, of_two<loop::Op::kGe>),
    BOTH("logical_and", "", To::kBool, kAll, logical<loop::Op::kAnd>),
    BOTH("logical_or", "", To::kBool, kAll, logical<loop::Op::kOr>),
    BOTH("logical_xor", "", To::kBool, kAll, logical<loop::Op::kXor>),
    TENSOR_AND_SCALAR("bitwise_and", To::kCommon, kBits, of_two<loop::Op::kAnd>),
    TENSOR_AND_SCALAR("bitwise_or", To::kCommon, kBits, of_two<loop::Op::kOr>),
    TENSOR_AND_SCALAR("bitwise_xor", To::kCommon, kBits, of_two<loop::Op::kXor>),
    {.name = "aten::bitwise_and.Scalar_Tensor",
     .type = pointwise<To::kCommon, kBits, 0, 1>,
     .body = of_two<loop::Op::kAnd>},
    {.name = "aten::bitwise_or.Scalar_Tensor",
     .type = pointwise<To::kCommon, kBits, 0, 1>,
     .body = of_two<loop::Op::kOr>},
    {.name = "aten::bitwise_xor.Scalar_Tensor",
     .type = pointwise<To::kCommon, kBits, 0, 1>,
     .body = of_two<loop::Op::kXor>},
    BOTH("bitwise_left_shift", ".Tensor", To::kCommon, kIntegers, of_two<loop::Op::kShl>),
    BOTH("bitwise_left_shift", ".Tensor_Scalar", To::kCommon, kIntegers, of_two<loop::Op::kShl>),
    BOTH("bitwise_right_shift", ".Tensor", To::kCommon, kIntegers, of_two<loop::Op::kShr>),
    BOTH("bitwise_right_shift", ".Tensor_Scalar", To::kCommon, kIntegers, of_two<loop::Op::kShr>),

    {.name = "aten::maximum", .type = pointwise<To::kCommon, kNoComplex, 0, 1>, .body = of_two<loop::Op::kMax>},
    {.name = "aten::minimum", .type = pointwise<To::kCommon, kNoComplex, 0, 1>, .body = of_two<loop::Op::kMin>},
    {.name = "aten::fmax", .type = pointwise<To::kCommon, kNoComplex, 0, 1>, .body = by_two<fmax_of>},
    {.name = "aten::fmin", .type = pointwise<To::kCommon, kNoComplex, 0, 1>, .body = by_two<fmin_of>},
    BOTH("atan2", "", To::kFloat, kNoComplex, float_of_two<loop::Op::kAtan2>),
    BOTH("copysign", ".Tensor", To::kFloat, kNoComplex, float_of_two<loop::Op::kCopysign>),
    BOTH("gcd", "", To::kCommon, kIntegers, nullptr),
    BOTH("hypot", "", To::kCommon, kFloats, by_two<hypot_of>),
    BOTH("lcm", "", To::kCommon, kIntegers, nullptr),
    {.name = "aten::logaddexp", .type = pointwise<To::kCommon, kFloats, 0, 1>, .body = by_two<log_add_exp>},
    {.name = "aten::heaviside", .type = heaviside},  // torch's versions disagree on NaN
    BOTH("xlogy", ".Tensor", To::kFloat, kNoComplex, float_by_two<x_log_y>),

    RULES("clamp", "", clamped_by_numbers, clamp_body),
    RULES("clamp_min", "", (clamped<0, 1>), clamp_min_body),
    RULES("clamp_max", "", (clamped<0, 1>), clamp_max_body),
    RULES("clamp", ".Tensor", (clamped_by_tensors<1, 2>), clamp_body),
    RULES("clamp_min", ".Tensor", (clamped_by_tensors<1>), clamp_min_body),
    RULES("clamp_max", ".Tensor", (clamped_by_tensors<1>), clamp_max_body),

    {.name = "aten::where.self", .type = where_type, .body = where_body},
    {.name = "aten::where.ScalarOther", .type = where_type, .body = where_body},
    {.name = "aten::where.ScalarSelf", .type = where_type, .body = where_body},
    RULES("addcmul", "", added<kNoBool>, addcmul_body),
    RULES("addcdiv", "", quotient_added, addcdiv_body),
    RULES("lerp", ".Tensor", lerp_tensor, lerp_body),
    RULES("lerp", ".Scalar", lerp_scalar, lerp_body),
};
#undef BOTH
#undef TENSOR_AND_SCALAR
#undef DIVIDES
#undef RULES

}  // namespace

std::span<const Op> pointwise_ops() { return kOps; }

}  // namespace magneto::ops
