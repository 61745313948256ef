#include "loop/semantics.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace magneto::loop {

namespace {

uint64_t u(int64_t value) { return static_cast<uint64_t>(value); }
int64_t i(uint64_t value) { return static_cast<int64_t>(value); }
int bits_of(Dtype dtype) { return static_cast<int>(types::item_size(dtype)) * 8; }

int64_t divide(Op op, int64_t a, int64_t b, bool& fault) {
  if (b == 0) {
    fault = true;
    return 0;
  }
  const bool quotient = op == Op::kFloorDiv || op == Op::kTruncDiv;
  if (b == -1) return quotient ? i(0 - u(a)) : 0;  // the least integer has no positive twin
  const int64_t q = a / b, r = a % b;
  const bool towards_minus = (op == Op::kFloorDiv || op == Op::kMod) && r != 0 && (r < 0) != (b < 0);
  if (quotient) return towards_minus ? q - 1 : q;
  return towards_minus ? r + b : r;
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = u(base);
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1) result *= factor;
  return i(result);
}

Number integer(Op op, Dtype dtype, int64_t a, int64_t b, bool& fault) {
  const bool in_range = b >= 0 && b < bits_of(dtype);
  switch (op) {
    case Op::kAdd:
      return Number::of_int(i(u(a) + u(b)));
    case Op::kSub:
      return Number::of_int(i(u(a) - u(b)));
    case Op::kMul:
      return Number::of_int(i(u(a) * u(b)));
    case Op::kFloorDiv:
    case Op::kMod:
    case Op::kTruncDiv:
    case Op::kFmod:
      return Number::of_int(divide(op, a, b, fault));
    case Op::kMin:
      return Number::of_int(std::min(a, b));
    case Op::kMax:
      return Number::of_int(std::max(a, b));
    case Op::kPow:
      return Number::of_int(power(a, b));
    case Op::kAnd:
      return Number::of_int(a & b);
    case Op::kOr:
      return Number::of_int(a | b);
    case Op::kXor:
      return Number::of_int(a ^ b);
    case Op::kShl:
      return Number::of_int(in_range ? i(u(a) << b) : 0);
    case Op::kShr:
      return Number::of_int(a >> (in_range ? b : bits_of(dtype) - 1));
    case Op::kEq:
      return Number::of_int(a == b);
    case Op::kNe:
      return Number::of_int(a != b);
    case Op::kLt:
      return Number::of_int(a < b);
    case Op::kLe:
      return Number::of_int(a <= b);
    case Op::kGt:
      return Number::of_int(a > b);
    case Op::kGe:
      return Number::of_int(a >= b);
    case Op::kChecked:
      if (a >= 0 && a < b) return Number::of_int(a);
      fault = true;
      return Number::of_int(0);
    case Op::kNeg:
      return Number::of_int(i(0 - u(a)));
    case Op::kNot:
      return Number::of_int(dtype == Dtype::kBool ? !a : ~a);
    case Op::kAbs:
      return Number::of_int(a < 0 ? i(0 - u(a)) : a);
    default:
      throw base::Fault(std::string("interpret: ") + std::string(traits(op).name) + " takes no integers");
  }
}

double remainder_of(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}

// As torch divides with rounding_mode="floor": by way of the exact remainder, so that a quotient just below a whole
// number is not rounded up to it first.
double floor_quotient(double a, double b) {
  if (b == 0) return a / b;
  const double r = std::fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(q);
  return q - whole > 0.5 ? whole + 1 : whole;
}

Number floating(Op op, double a, double b, double c) {
  switch (op) {
    case Op::kFma:
      return Number::of(std::fma(a, b, c));
    case Op::kAdd:
      return Number::of(a + b);
    case Op::kSub:
      return Number::of(a - b);
    case Op::kMul:
      return Number::of(a * b);
    case Op::kDiv:
      return Number::of(a / b);
    case Op::kFloorDiv:
      return Number::of(floor_quotient(a, b));
    case Op::kTruncDiv:
      return Number::of(std::trunc(a / b));
    case Op::kMod:
      return Number::of(remainder_of(a, b));
    case Op::kFmod:
      return Number::of(std::fmod(a, b));
    case Op::kMin:
      return Number::of(a != a || b != b ? std::nan("") : std::min(a, b));
    case Op::kMax:
      return Number::of(a != a || b != b ? std::nan("") : std::max(a, b));
    case Op::kPow:
      return Number::of(std::pow(a, b));
    case Op::kAtan2:
      return Number::of(std::atan2(a, b));
    case Op::kCopysign:
      return Number::of(std::copysign(a, b));
    case Op::kEq:
      return Number::of_int(a == b);
    case Op::kNe:
      return Number::of_int(a != b);
    case Op::kLt:
      return Number::of_int(a < b);
    case Op::kLe:
      return Number::of_int(a <= b);
    case Op::kGt:
      return Number::of_int(a > b);
    case Op::kGe:
      return Number::of_int(a >= b);
    case Op::kNeg:
      return Number::of(-a);
    case Op::kAbs:
      return Number::of(std::fabs(a));
    case Op::kFloor:
      return Number::of(std::floor(a));
    case Op::kCeil:
      return Number::of(std::ceil(a));
    case Op::kTrunc:
      return Number::of(std::trunc(a));
    case Op::kRound:
      return Number::of(std::nearbyint(a));
    case Op::kSqrt:
      return Number::of(std::sqrt(a));
    case Op::kRsqrt:
      return Number::of(1 / std::sqrt(a));
    case Op::kExp:
      return Number::of(std::exp(a));
    case Op::kExpm1:
      return Number::of(std::expm1(a));
    case Op::kLog:
      return Number::of(std::log(a));
    case Op::kLog1p:
      return Number::of(std::log1p(a));
    case Op::kLog2:
      return Number::of(std::log2(a));
    case Op::kSin:
      return Number::of(std::sin(a));
    case Op::kCos:
      return Number::of(std::cos(a));
    case Op::kTan:
      return Number::of(std::tan(a));
    case Op::kTanh:
      return Number::of(std::tanh(a));
    case Op::kErf:
      return Number::of(std::erf(a));
    case Op::kAsin:
      return Number::of(std::asin(a));
    case Op::kAcos:
      return Number::of(std::acos(a));
    case Op::kAtan:
      return Number::of(std::atan(a));
    case Op::kSinh:
      return Number::of(std::sinh(a));
    case Op::kCosh:
      return Number::of(std::cosh(a));
    case Op::kLgamma:
      return Number::of(std::lgamma(a));
    default:
      throw base::Fault(std::string("interpret: ") + std::string(traits(op).name) + " takes no floats");
  }
}

}  // namespace

Number apply(Op op, Dtype dtype, const std::array<Number, 3>& operands, bool& fault) {
  if (op == Op::kWhere) return operands[0].whole ? operands[1] : operands[2];
  if (types::is_floating(dtype)) return floating(op, operands[0].real, operands[1].real, operands[2].real);
  Number made = integer(op, dtype, operands[0].whole, operands[1].whole, fault);
  if (!traits(op).compares) made.whole = wrap_to(dtype, made.whole);
  return made;
}

Number convert(Dtype from, Dtype to, Number value) {
  if (types::is_floating(from) && types::is_floating(to))
    return Number::of(is_half(to) ? round_to(to, value.real) : value.real);
  if (types::is_floating(to)) {
    const auto real = static_cast<double>(value.whole);
    return Number::of(is_half(to) ? round_to(to, real) : real);
  }
  if (!types::is_floating(from)) return Number::of_int(wrap_to(to, value.whole));
  if (to == Dtype::kBool) return Number::of_int(value.real != 0);
  const bool fits = value.real > -9.3e18 && value.real < 9.2e18;  // false for NaN, too
  return Number::of_int(wrap_to(to, fits ? static_cast<int64_t>(value.real) : std::numeric_limits<int64_t>::min()));
}

Number reinterpret_bits(Dtype from, Dtype to, Number value) {
  char memory[8] = {};
  write(from, memory, value);
  return read(to, memory);
}

Folded identity(Fold fold, Dtype element) {
  const double inf = std::numeric_limits<double>::infinity();
  const bool real = types::is_floating(element);
  const int bits = bits_of(element) - 1;
  const int64_t least = is_unsigned(element) ? 0 : i(u(-1) << bits);
  const int64_t most = element == Dtype::kBool ? 1 : is_unsigned(element) ? 255 : i(~(u(-1) << bits));
  constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();
  switch (fold) {
    case Fold::kSum:
    case Fold::kAny:
      return {Number{}, 0};
    case Fold::kProd:
    case Fold::kAll:
      return {Number{1, 1}, 0};
    case Fold::kMax:
    case Fold::kArgmax:
      return {real ? Number::of(-inf) : Number::of_int(least), kNowhere};
    case Fold::kMin:
    case Fold::kArgmin:
      return {real ? Number::of(inf) : Number::of_int(most), kNowhere};
  }
  return {};
}

Folded combine(Fold fold, Dtype element, const Folded& a, const Folded& b) {
  bool fault = false;
  const auto both = [&](Op op) { return Folded{apply(op, element, {a.value, b.value, Number{}}, fault), 0}; };
  switch (fold) {
    case Fold::kSum:
      return both(Op::kAdd);
    case Fold::kProd:
      return both(Op::kMul);
    case Fold::kMax:
      return both(Op::kMax);
    case Fold::kMin:
      return both(Op::kMin);
    case Fold::kAny:
      return both(Op::kOr);
    case Fold::kAll:
      return both(Op::kAnd);
    case Fold::kArgmax:
    case Fold::kArgmin: {
      const bool real = types::is_floating(element);
      const bool a_nan = real && a.value.real != a.value.real, b_nan = real && b.value.real != b.value.real;
      if (a_nan != b_nan) return a_nan ? a : b;
      const bool equal = a_nan || (real ? a.value.real == b.value.real : a.value.whole == b.value.whole);
      if (equal) return a.position <= b.position ? a : b;
      const bool less = real ? a.value.real < b.value.real : a.value.whole < b.value.whole;
      return less == (fold == Fold::kArgmin) ? a : b;
    }
  }
  return {};
}

Number result(Fold fold, const Folded& folded) {
  return gives_position(fold) ? Number::of_int(folded.position) : folded.value;
}

Number read(Dtype dtype, const void* at) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case Dtype::kBool:
      return Number::of_int(as(uint8_t{}) != 0);
    case Dtype::kU8:
      return Number::of_int(as(uint8_t{}));
    case Dtype::kI8:
      return Number::of_int(as(int8_t{}));
    case Dtype::kI16:
      return Number::of_int(as(int16_t{}));
    case Dtype::kI32:
      return Number::of_int(as(int32_t{}));
    case Dtype::kI64:
      return Number::of_int(as(int64_t{}));
    case Dtype::kF64:
      return Number::of(as(double{}));
    case Dtype::kF32:
      return Number::of(static_cast<double>(as(float{})));
    case Dtype::kBF16:
      return Number::of(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(as(uint16_t{})) << 16)));
    case Dtype::kF16: {
      const uint16_t half = as(uint16_t{});
      const int exponent = half >> 10 & 31, mantissa = half & 1023;
      double value = exponent == 31 ? (mantissa ? std::nan("") : HUGE_VAL)
                     : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                    : std::ldexp(mantissa, -24);
      return Number::of(half >> 15 ? -value : value);
    }
    default:
      throw base::Fault("interpret: no memory holds " + std::string(types::name(dtype)));
  }
}

void write(Dtype dtype, void* at, Number value) {
  const auto put = [&](auto number) { std::memcpy(at, &number, sizeof number); };
  const double real = round_to(dtype, value.real);
  switch (dtype) {
    case Dtype::kBool:
      return put(static_cast<uint8_t>(value.whole != 0));
    case Dtype::kU8:
    case Dtype::kI8:
      return put(static_cast<uint8_t>(value.whole));
    case Dtype::kI16:
      return put(static_cast<uint16_t>(value.whole));
    case Dtype::kI32:
      return put(static_cast<uint32_t>(value.whole));
    case Dtype::kI64:
      return put(value.whole);
    case Dtype::kF64:
      return put(real);
    case Dtype::kF32:
      return put(static_cast<float>(real));
    case Dtype::kBF16:
      return put(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(real)) >> 16 | (real != real) << 6));
    case Dtype::kF16: {
      const uint16_t sign = std::signbit(real) ? 0x8000 : 0;
      const double size = std::fabs(real);
      if (real != real) return put(static_cast<uint16_t>(0x7e00));
      if (std::isinf(real)) return put(static_cast<uint16_t>(sign | 0x7c00));
      if (size < std::ldexp(1.0, -14))
        return put(static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(size, 24))));
      const int exponent = std::ilogb(size);
      const auto mantissa = static_cast<int>(std::ldexp(size, 10 - exponent)) - 1024;
      return put(static_cast<uint16_t>(sign | (exponent + 15) << 10 | mantissa));
    }
    default:
      throw base::Fault("interpret: no memory holds " + std::string(types::name(dtype)));
  }
}

}  // namespace magneto::loop
