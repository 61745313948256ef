// Elementwise operators of two and three operands, and of one tensor with numbers.
#include "ops/pointwise_internal.h"

namespace magneto::ops {

namespace {

bool is_bool(const Operand& one) { return one.type.dtype == Dtype::kBool; }

// The factor of add and sub: a bool only for bools, a float only for floats.
bool alpha_fits(const Call& call, size_t i, Dtype common) {
  const graph::Arg& alpha = call.args[i];
  if (std::holds_alternative<Expr>(alpha)) return true;
  if (std::holds_alternative<bool>(alpha)) return common == Dtype::kBool;
  if (std::holds_alternative<double>(alpha)) return types::is_floating(common) || types::is_complex(common);
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
  const auto exponent = number(call, 1);
  if (types::is_integral(t->common) && (!exponent || *exponent < 0)) return std::nullopt;
  return t;
}

Results where(const Call& call) {
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
  if (!real(call, 2)) return std::nullopt;
  return lerp_with(call, {0, 1});
}

// Both in one element type; torch does not promote here.
Results heaviside(const Call& call) { return uniform<kNoComplex, 0, 1>(call); }

constexpr TypeRule quotient = pointwise<To::kCommon, kReals, 0, 1>;
constexpr TypeRule quotient_ = pointwise_<To::kCommon, kReals, 0, 1>;

#define BOTH(op, overload, to, accepted)                                                       \
  {.name = "aten::" op overload, .type = pointwise<to, accepted, 0, 1>}, {                     \
    .name = "aten::" op "_" overload, .type = pointwise_<to, accepted, 0, 1>, .writes = kFirst \
  }
#define TENSOR_AND_SCALAR(op, to, accepted) BOTH(op, ".Tensor", to, accepted), BOTH(op, ".Scalar", to, accepted)
#define DIVIDES(op, overload, rule, rule_)                                                       \
  {.name = "aten::" op overload, .type = rule, .may_raise_on_data = true}, {                     \
    .name = "aten::" op "_" overload, .type = rule_, .writes = kFirst, .may_raise_on_data = true \
  }
#define RULES(op, overload, rule)                                                 \
  {.name = "aten::" op overload, .type = fresh_from<rule>}, {                     \
    .name = "aten::" op "_" overload, .type = stored_from<rule>, .writes = kFirst \
  }

constexpr Op kOps[] = {
    RULES("add", ".Tensor", sum),
    RULES("add", ".Scalar", sum),
    RULES("sub", ".Tensor", difference),
    RULES("sub", ".Scalar", difference),
    {.name = "aten::rsub.Tensor", .type = rsub},
    {.name = "aten::rsub.Scalar", .type = rsub},
    TENSOR_AND_SCALAR("mul", To::kCommon, kAll),
    TENSOR_AND_SCALAR("div", To::kFloat, kAll),
    // integers divided by zero are an error, and only the data tells
    DIVIDES("div", ".Tensor_mode", fresh_from<division>, stored_from<division>),
    DIVIDES("div", ".Scalar_mode", fresh_from<division>, stored_from<division>),
    {.name = "aten::floor_divide", .type = quotient, .may_raise_on_data = true},
    {.name = "aten::floor_divide_.Tensor", .type = quotient_, .writes = kFirst, .may_raise_on_data = true},
    DIVIDES("remainder", ".Tensor", quotient, quotient_),
    DIVIDES("remainder", ".Scalar", quotient, quotient_),
    {.name = "aten::remainder.Scalar_Tensor", .type = quotient, .may_raise_on_data = true},
    DIVIDES("fmod", ".Tensor", quotient, quotient_),
    DIVIDES("fmod", ".Scalar", quotient, quotient_),
    {.name = "aten::pow.Tensor_Tensor", .type = pointwise<To::kCommon, kNoBool, 0, 1>},
    {.name = "aten::pow_.Tensor", .type = pointwise_<To::kCommon, kNoBool, 0, 1>, .writes = kFirst},
    {.name = "aten::pow.Tensor_Scalar", .type = fresh_from<power_of_tensor>},
    {.name = "aten::pow_.Scalar", .type = stored_from<power_of_tensor>, .writes = kFirst},
    {.name = "aten::pow.Scalar", .type = power_of_number},

    TENSOR_AND_SCALAR("eq", To::kBool, kAll),
    TENSOR_AND_SCALAR("ne", To::kBool, kAll),
    TENSOR_AND_SCALAR("lt", To::kBool, kNoComplex),
    TENSOR_AND_SCALAR("le", To::kBool, kNoComplex),
    TENSOR_AND_SCALAR("gt", To::kBool, kNoComplex),
    TENSOR_AND_SCALAR("ge", To::kBool, kNoComplex),
    BOTH("logical_and", "", To::kBool, kAll),
    BOTH("logical_or", "", To::kBool, kAll),
    BOTH("logical_xor", "", To::kBool, kAll),
    TENSOR_AND_SCALAR("bitwise_and", To::kCommon, kBits),
    TENSOR_AND_SCALAR("bitwise_or", To::kCommon, kBits),
    TENSOR_AND_SCALAR("bitwise_xor", To::kCommon, kBits),
    {.name = "aten::bitwise_and.Scalar_Tensor", .type = pointwise<To::kCommon, kBits, 0, 1>},
    {.name = "aten::bitwise_or.Scalar_Tensor", .type = pointwise<To::kCommon, kBits, 0, 1>},
    {.name = "aten::bitwise_xor.Scalar_Tensor", .type = pointwise<To::kCommon, kBits, 0, 1>},
    BOTH("bitwise_left_shift", ".Tensor", To::kCommon, kIntegers),
    BOTH("bitwise_left_shift", ".Tensor_Scalar", To::kCommon, kIntegers),
    BOTH("bitwise_right_shift", ".Tensor", To::kCommon, kIntegers),
    BOTH("bitwise_right_shift", ".Tensor_Scalar", To::kCommon, kIntegers),

    {.name = "aten::maximum", .type = pointwise<To::kCommon, kNoComplex, 0, 1>},
    {.name = "aten::minimum", .type = pointwise<To::kCommon, kNoComplex, 0, 1>},
    {.name = "aten::fmax", .type = pointwise<To::kCommon, kNoComplex, 0, 1>},
    {.name = "aten::fmin", .type = pointwise<To::kCommon, kNoComplex, 0, 1>},
    BOTH("atan2", "", To::kFloat, kNoComplex),
    BOTH("copysign", ".Tensor", To::kFloat, kNoComplex),
    BOTH("gcd", "", To::kCommon, kIntegers),
    BOTH("hypot", "", To::kCommon, kFloats),
    BOTH("lcm", "", To::kCommon, kIntegers),
    {.name = "aten::logaddexp", .type = pointwise<To::kCommon, kFloats, 0, 1>},
    {.name = "aten::heaviside", .type = heaviside},
    BOTH("xlogy", ".Tensor", To::kFloat, kNoComplex),

    RULES("clamp", "", (clamped<0, 1, 2>)),
    RULES("clamp_min", "", (clamped<0, 1>)),
    RULES("clamp_max", "", (clamped<0, 1>)),
    RULES("clamp", ".Tensor", (clamped_by_tensors<1, 2>)),
    RULES("clamp_min", ".Tensor", (clamped_by_tensors<1>)),
    RULES("clamp_max", ".Tensor", (clamped_by_tensors<1>)),

    {.name = "aten::where.self", .type = where},
    {.name = "aten::where.ScalarOther", .type = where},
    {.name = "aten::where.ScalarSelf", .type = where},
    RULES("addcmul", "", added<kNoBool>),
    RULES("addcdiv", "", quotient_added),
    RULES("lerp", ".Tensor", lerp_tensor),
    RULES("lerp", ".Scalar", lerp_scalar),
};
#undef BOTH
#undef TENSOR_AND_SCALAR
#undef DIVIDES
#undef RULES

}  // namespace

std::span<const Op> pointwise_ops() { return kOps; }

}  // namespace magneto::ops
