// exp:   x = n ln 2 + r with |r| <= ln 2 / 2, e^r by a polynomial, 2^n put together from its bits in two factors, so
// that
//        results that overflow or are denormal come out right.
// log:   x = 2^e (1 + f) with 1 + f in [sqrt 1/2, sqrt 2], log (1 + f) = f - f^2 / 2 + f^3 P(f).
// tanh:  an odd polynomial near 0, else 1 - 2 / (e^2x + 1).
// erf:   an odd polynomial near 0, else one of the distance from the middle of [0.92, 3.92], beyond which it is 1.
// sin, cos, tan: reduced by multiples of pi/2 and evaluated in f64: the reduction needs its digits anyway. From 1e15 on
//        they are the library's.
// atan, atan2: of the smaller part divided by the larger one, then turned into the right eighth of the circle.
// asin, acos: an odd polynomial up to 1/2; beyond it of sqrt((1 - |x|) / 2), which is half of the angle from the end.
// sinh, cosh: e^|x| / 2 and its inverse; sinh near 0 by an odd polynomial.
// fmod:  a - n b with n = trunc(a / b) is exact while n fits into a mantissa. a / b may be rounded up to the next whole
//        number, never down to one below: the sign of the rest tells. Larger quotients are the library's.
// pow:   2^(y log2 |x|) in f64, where what log2 rounds away does not count; then the cases of the standard.
// The coefficients are minimax fits of our own (iteratively reweighted least squares at Chebyshev points).
#include "codegen/math.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "base/check.h"

namespace magneto::codegen {

using loop::Dtype;
using loop::Number;
using loop::Op;

namespace {

class Formula {
 public:
  Formula(Target& target, int lanes) : t_(target), lanes_(lanes) {}

  Value exp(const Value& x) { return halved_exp(x, 0); }

  /// e^x / 2^halvings
  Value halved_exp(const Value& x, int halvings) {
    const Value limited = clamped(x, -104, 89 + halvings);
    const Value n = keep(round(mul(limited, real(1.4426950408889634))), "n");
    const Value r = keep(reduce(limited, n), "r");
    const Value p = polynomial(
        r, {0.0013814554549753666, 0.008368736132979393, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552});
    const Value y = add(fma(mul(r, r), p, r), real(1));
    const Value power = halvings ? keep(sub(n, real(halvings)), "power") : n;
    if (const auto made = t_.scaled(y, power)) return *made;
    const Value whole_n = keep(to_int(power), "k");
    const Value half = keep(t_.binary(Op::kShr, whole_n, whole(1)), "half");
    return mul(mul(y, power_of_two(half)), power_of_two(sub(whole_n, half)));
  }

  Value expm1(const Value& x) {
    // e^x - 1 = 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2))
    const Value limited = clamped(x, -60, 89);
    const Value n = keep(round(mul(limited, real(1.4426950408889634))), "n");
    const Value r = keep(reduce(limited, n), "r");
    const Value p = polynomial(
        r, {0.0013814554549753666, 0.008368736132979393, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552});
    const Value q = fma(mul(r, r), p, r);
    const Value scale = keep(power_of_two(sub_int(to_int(n), 1)), "scale");
    const Value y = keep(fma(scale, q, sub(scale, real(0.5))), "y");
    const Value tiny = compare(Op::kLt, t_.unary(Op::kAbs, x), real(2.9e-8));  // half of the least number is zero
    return where(tiny, x, add(y, y));
  }

  Value log(const Value& x) { return logarithm(x, false); }
  Value log2(const Value& x) { return logarithm(x, true); }

  Value log1p(const Value& x) {
    const Value u = keep(add(real(1), x), "u");
    const Value lost = div(sub(x, sub(u, real(1))), u);  // what the sum rounded away
    const Value y = keep(log(u), "y");
    const Value fine = t_.binary(Op::kAnd, compare(Op::kGt, u, real(0)), compare(Op::kLt, u, real(kInf)));
    return zero_stays(x, where(fine, add(y, lost), y));
  }

  Value tanh(const Value& x) {
    const Value a = keep(t_.unary(Op::kAbs, x), "a"), z = keep(mul(x, x), "z");
    const Value p = polynomial(z, {-0.005704511422663927, 0.02063867636024952, -0.05373959243297577,
                                   0.13331440091133118, -0.3333328068256378});
    const Value small = mul(x, fma(z, p, real(1)));  // keeps the sign of a zero
    const Value e = exp(keep(add(a, a), "twice"));
    const Value large = t_.binary(Op::kCopysign, sub(real(1), div(real(2), add(e, real(1)))), x);
    return where(compare(Op::kLt, a, real(0.625)), small, large);
  }

  Value erf(const Value& x) {
    const Value a = keep(t_.unary(Op::kAbs, x), "a"), z = keep(mul(x, x), "z");
    const Value p =
        polynomial(z, {8.334095036843792e-05, -0.0008134159143082798, 0.005200276616960764, -0.026859091594815254,
                       0.11283689737319946, -0.37612631916999817, 0.12837916612625122});
    const Value small = fma(x, p, x);
    const Value b = keep(least(real(3.92), a), "b");
    const Value t = keep(fma(b, real(0.6666666865348816), real(-1.6133333444595337)), "t");
    const Value y =
        polynomial(t, {0.00037038853042759, -0.00013553370081353933, -0.002388913417235017, 0.0029533077031373978,
                       0.0038232197985053062, -0.012696660123765469, 0.011911672540009022, 0.0056516979821026325,
                       -0.03468916565179825, 0.05708055570721626, -0.057441238313913345, 0.03891957178711891,
                       -0.017581401392817497, 0.004843192175030708, 0.9993792772293091});
    // exactly 1 at the end: gelu multiplies what is left to 1 by x, whatever x is
    const Value far = where(compare(Op::kGe, a, real(3.92)), real(1), least(real(1), y));
    const Value large = t_.binary(Op::kCopysign, far, x);
    return where(compare(Op::kLt, a, real(0.92)), small, large);
  }

  Value atan(const Value& x) {
    const Value a = keep(t_.unary(Op::kAbs, x), "a");
    const Value steep = keep(compare(Op::kGt, a, real(1)), "steep");
    const Value small = where(steep, div(real(1), a), a);
    return t_.binary(Op::kCopysign, eighth(keep(small, "t"), steep), x);
  }

  Value atan2(const Value& y, const Value& x) {
    const Value a = keep(t_.unary(Op::kAbs, y), "a"), b = keep(t_.unary(Op::kAbs, x), "b");
    const Value steep = keep(compare(Op::kGt, a, b), "steep");
    const Value top = where(steep, b, a), bottom = keep(where(steep, a, b), "bottom");
    Value t = keep(div(top, bottom), "t");
    t = where(compare(Op::kEq, a, b), where(compare(Op::kEq, a, real(0)), real(0), real(1)), t);  // 0 / 0, inf / inf
    const Value turned = keep(eighth(keep(t, "t"), steep), "turned");
    const Value left = t_.binary(Op::kLt, t_.bits(Dtype::kI32, x), whole(0));  // -0.0 too
    const Value angle = where(left, sub(real(kPi), sub(turned, real(kPiRest))), turned);
    return t_.binary(Op::kCopysign, angle, y);
  }

  Value asin(const Value& x) {
    const Value a = keep(t_.unary(Op::kAbs, x), "a");
    const Value outer = keep(compare(Op::kGt, a, real(0.5)), "outer");
    const Value p = keep(half_angle(a, outer), "p");
    const Value y = where(outer, sub(real(kPi / 2), sub(add(p, p), real(kPiRest / 2))), p);
    return t_.binary(Op::kCopysign, y, x);
  }

  Value acos(const Value& x) {
    const Value a = keep(t_.unary(Op::kAbs, x), "a");
    const Value outer = keep(compare(Op::kGt, a, real(0.5)), "outer");
    const Value p = keep(half_angle(a, outer), "p"), twice = keep(add(p, p), "twice");
    const Value left = keep(compare(Op::kLt, x, real(0)), "left");
    const Value far = where(left, sub(real(kPi), sub(twice, real(kPiRest))), twice);
    const Value near = sub(real(kPi / 2), sub(where(left, t_.unary(Op::kNeg, p), p), real(kPiRest / 2)));
    return where(outer, far, near);
  }

  Value sinh(const Value& x) {
    const Value a = keep(t_.unary(Op::kAbs, x), "a"), z = keep(mul(x, x), "z");
    const Value p = polynomial(z, {0.00020372195285744965, 0.008330283686518669, 0.1666671633720398});
    const Value small = fma(mul(x, z), p, x);
    const Value e = keep(halved_exp(a, 1), "e");
    const Value large = t_.binary(Op::kCopysign, sub(e, div(real(0.25), e)), x);
    return where(compare(Op::kLt, a, real(1)), small, large);
  }

  Value cosh(const Value& x) {
    const Value e = keep(halved_exp(keep(t_.unary(Op::kAbs, x), "a"), 1), "e");
    return add(e, div(real(0.25), e));
  }

  Value fmod(const Value& a, const Value& b) {  // f32 and f64
    const auto number = [&](double v) { return t_.constant(a.type, Number::of(v)); };
    const Value q = keep(div(a, b), "q");
    const Value most = number(a.type.dtype == Dtype::kF32 ? 0x1p22 : 0x1p51);
    const Value fine = keep(compare(Op::kLt, t_.unary(Op::kAbs, q), most), "fine");  // and no NaN
    const Value n = keep(t_.unary(Op::kTrunc, q), "n");
    const Value rest = keep(fma(t_.unary(Op::kNeg, n), b, a), "rest");
    const Value beyond = compare(Op::kLt, mul(rest, t_.binary(Op::kCopysign, number(1), a)), number(0));
    const Value r = where(beyond, add(rest, t_.binary(Op::kCopysign, b, a)), rest);
    const Value whole = keep(where(compare(Op::kEq, n, number(0)), a, r), "r");  // b may be infinite
    return t_.library_unless(fine, t_.binary(Op::kCopysign, whole, a), Op::kFmod, a, &b);
  }

  Value pow(const Value& x, const Value& y) {
    const Value a = keep(t_.unary(Op::kAbs, x), "a");
    Value exponent = mul(keep(t_.cast(Dtype::kF64, y), "wide"), log2_wide(a));
    exponent = where(compare(Op::kEq, a, real(1)), real64(0), exponent);  // whatever y is
    const Value size = keep(exp2_of_wide(keep(exponent, "exponent")), "size");

    const Value half = keep(mul(y, real(0.5)), "half");
    const auto is_whole = [&](const Value& v) { return compare(Op::kEq, t_.unary(Op::kFloor, v), v); };
    const Value even = keep(is_whole(half), "even"), integer = keep(is_whole(y), "integer");
    const Value minus = t_.binary(Op::kLt, t_.bits(Dtype::kI32, x), whole(0));
    const Value odd = t_.binary(Op::kAnd, integer, t_.unary(Op::kNot, even));
    Value power = where(t_.binary(Op::kAnd, minus, odd), t_.unary(Op::kNeg, size), size);
    const Value below = t_.binary(Op::kAnd, compare(Op::kLt, x, real(0)), compare(Op::kGt, x, real(-kInf)));
    power = where(t_.binary(Op::kAnd, below, t_.unary(Op::kNot, integer)), real(std::nan("")), power);
    const Value one = t_.binary(Op::kOr, compare(Op::kEq, x, real(1)), compare(Op::kEq, y, real(0)));
    return where(one, real(1), power);
  }

  Value circle(Op op, const Value& x) {
    const Value wide = keep(t_.cast(Dtype::kF64, x), "wide");
    const Value n = keep(t_.unary(Op::kRound, mul(wide, real64(0.6366197723675814))), "n");
    const Value minus = keep(t_.unary(Op::kNeg, n), "minus_n");
    const Value r = keep(fma(minus, real64(6.123233995736766e-17), fma(minus, real64(1.5707963267948966), wide)), "r");
    const Value z = keep(mul(r, r), "z");
    const Value sine = keep(fma(mul(r, z),
                                polynomial(z, {-2.4796470968085122e-08, 2.7555890194325713e-06, -0.00019841266578082592,
                                               0.008333333330724575, -0.1666666666666333}),
                                r),
                            "sine");
    const Value cosine = keep(fma(mul(z, z),
                                  polynomial(z, {2.0694041949535245e-09, -2.755629760459612e-07, 2.4801584968425294e-05,
                                                 -0.0013888888887023459, 0.04166666666666428}),
                                  fma(z, real64(-0.5), real64(1))),
                              "cosine");
    // the quarter of the circle: n mod 4, shifted by one for the cosine
    const Value turn = op == Op::kCos ? keep(add(n, real64(1)), "turn") : n;
    const Value quarter = keep(sub(turn, mul(real64(4), t_.unary(Op::kFloor, mul(turn, real64(0.25))))), "quarter");
    const auto is = [&](double q) { return compare(Op::kEq, quarter, real64(q)); };
    const Value odd = keep(t_.binary(Op::kOr, is(1), is(3)), "odd");
    // beyond, n has more digits than an f64
    const Value fine = t_.unary(Op::kNot, compare(Op::kGe, t_.unary(Op::kAbs, x), real(1e15)));
    if (op == Op::kTan) {
      const Value top = where(odd, cosine, sine), bottom = where(odd, t_.unary(Op::kNeg, sine), cosine);
      return t_.library_unless(fine, zero_stays(x, t_.cast(Dtype::kF32, div(top, bottom))), op, x);
    }
    const Value size = keep(where(odd, cosine, sine), "size");
    const Value negative = t_.binary(Op::kGe, quarter, real64(2));
    const Value y = t_.cast(Dtype::kF32, where(negative, t_.unary(Op::kNeg, size), size));
    return t_.library_unless(fine, op == Op::kSin ? zero_stays(x, y) : y, op, x);
  }

 private:
  static constexpr size_t kLong = 8;  ///< coefficients
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kPi = 3.1415927410125732;          ///< as f32
  static constexpr double kPiRest = -8.742277657347586e-08;  ///< what is lost by that

  Value real(double v) { return t_.constant({Dtype::kF32, lanes_}, Number::of(v)); }
  Value real64(double v) { return t_.constant({Dtype::kF64, lanes_}, Number::of(v)); }
  Value whole(int64_t v) { return t_.constant({Dtype::kI32, lanes_}, Number::of_int(v)); }
  Value add(const Value& a, const Value& b) { return t_.binary(Op::kAdd, a, b); }
  Value sub(const Value& a, const Value& b) { return t_.binary(Op::kSub, a, b); }
  Value mul(const Value& a, const Value& b) { return t_.binary(Op::kMul, a, b); }
  Value div(const Value& a, const Value& b) { return t_.binary(Op::kDiv, a, b); }
  Value fma(const Value& a, const Value& b, const Value& c) { return t_.fma(a, b, c); }
  Value zero_stays(const Value& x, const Value& y) { return where(compare(Op::kEq, x, real(0)), x, y); }
  Value compare(Op op, const Value& a, const Value& b) { return t_.binary(op, a, b); }
  Value where(const Value& c, const Value& a, const Value& b) { return t_.where(c, a, b); }
  Value keep(const Value& a, std::string_view name) { return t_.keep(a, name); }
  Value least(const Value& constant, const Value& x) { return keep(t_.binary(Op::kMin, constant, x), "x"); }
  Value round(const Value& a) { return t_.unary(Op::kRound, a); }
  Value to_int(const Value& a) { return t_.cast(Dtype::kI32, a); }
  Value sub_int(const Value& a, int64_t b) { return sub(a, whole(b)); }

  /// Highest power first. A long one is two of the square, for the even and the odd powers: half as long a wait.
  Value polynomial(const Value& x, std::initializer_list<double> coefficients) {
    const std::vector<double> list(coefficients);
    const auto constant = [&](double v) { return x.type.dtype == Dtype::kF64 ? real64(v) : real(v); };
    const auto every = [&](const Value& of, size_t first, size_t step) {
      Value y = constant(list[first]);
      for (size_t k = first + step; k < list.size(); k += step) y = keep(fma(y, of, constant(list[k])), "p");
      return y;
    };
    if (list.size() < kLong) return every(x, 0, 1);
    const Value square = keep(mul(x, x), "square");
    const size_t even = (list.size() - 1) % 2;
    return keep(fma(every(square, 1 - even, 2), x, every(square, even, 2)), "p");
  }

  Value clamped(const Value& x, double low, double high) {  // NaN stays
    const auto constant = [&](double v) { return t_.constant(x.type, Number::of(v)); };
    return keep(t_.binary(Op::kMax, constant(low), least(constant(high), x)), "x");
  }

  Value reduce(const Value& x, const Value& n) {
    return fma(n, real(0.00021219444170128554), fma(n, real(-0.693359375), x));
  }

  Value power_of_two(const Value& n) {  // n from -126 to 127
    return t_.bits(Dtype::kF32, t_.binary(Op::kShl, add(n, whole(127)), whole(23)));
  }

  Value logarithm(const Value& x, bool base_two) {
    const Value tiny = keep(compare(Op::kLt, x, real(1.1754943508222875e-38)), "tiny");
    const Value scaled = where(tiny, mul(x, real(16777216)), x);
    const Value b = keep(t_.bits(Dtype::kI32, scaled), "b");
    const Value e = keep(t_.binary(Op::kShr, sub_int(b, 0x3f3504f3), whole(23)), "e");
    const Value m = t_.bits(Dtype::kF32, sub(b, t_.binary(Op::kShl, e, whole(23))));
    const Value f = keep(sub(m, real(1)), "f");
    const Value z = keep(mul(f, f), "z");
    const Value p = polynomial(
        f, {0.06744500994682312, -0.11674796044826508, 0.11888616532087326, -0.1240575909614563, 0.1421951800584793,
            -0.16667985916137695, 0.2000211924314499, -0.25000008940696716, 0.3333331346511841});
    const Value power = keep(sub(t_.cast(Dtype::kF32, e), where(tiny, real(24), real(0))), "power");
    const Value tail = keep(mul(mul(p, f), z), "tail");
    Value y;
    if (base_two) {
      const Value natural = add(f, fma(z, real(-0.5), tail));
      y = fma(natural, real(1.4426950408889634), power);
    } else {
      const Value low = fma(z, real(-0.5), fma(power, real(-0.00021219444170128554), tail));
      y = fma(power, real(0.693359375), add(f, low));
    }
    y = where(compare(Op::kLt, x, real(kInf)), y, x);  // inf and NaN
    y = where(compare(Op::kEq, x, real(0)), real(-kInf), y);
    return where(compare(Op::kLt, x, real(0)), real(std::nan("")), y);
  }

  /// The arctangent of t from 0 to 1; of its inverse where `steep`.
  Value eighth(const Value& t, const Value& steep) {
    const Value z = keep(mul(t, t), "z");
    const Value p =
        polynomial(z, {0.0029206720646470785, -0.016367847099900246, 0.04321173205971718, -0.0755220353603363,
                       0.10665999352931976, -0.14211054146289825, 0.19993773102760315, -0.33333152532577515});
    const Value y = keep(fma(mul(t, z), p, t), "y");
    return where(steep, sub(real(kPi / 2), sub(y, real(kPiRest / 2))), y);
  }

  /// The arcsine of a, or half of what it lacks to pi/2 where `outer`.
  Value half_angle(const Value& a, const Value& outer) {
    const Value rest = keep(mul(sub(real(1), a), real(0.5)), "rest");
    const Value z = keep(where(outer, rest, mul(a, a)), "z");
    const Value s = keep(where(outer, t_.unary(Op::kSqrt, rest), a), "s");
    const Value p = polynomial(
        z, {0.04216630011796951, 0.024179520085453987, 0.04547037556767464, 0.07495297491550446, 0.16666752099990845});
    return fma(mul(s, z), p, s);
  }

  /// log2 of an f32 that is not negative, in f64; 4e-12 off.
  Value log2_wide(const Value& a) {
    const auto wide = [&](int64_t v) { return t_.constant({Dtype::kI64, lanes_}, Number::of_int(v)); };
    const Value b = keep(t_.bits(Dtype::kI64, keep(t_.cast(Dtype::kF64, a), "w")), "b");
    const Value e = keep(t_.binary(Op::kShr, sub(b, wide(0x3fe6a09e667f3bcd)), wide(52)), "e");
    const Value m = keep(t_.bits(Dtype::kF64, sub(b, t_.binary(Op::kShl, e, wide(52)))), "m");
    const Value s = keep(div(sub(m, real64(1)), add(m, real64(1))), "s");  // log m = 2 artanh s
    const Value p = polynomial(keep(mul(s, s), "z"), {0.34073009260285114, 0.4116727196907298, 0.5770835849563277,
                                                      0.9617966733418105, 2.8853900817900864});
    Value y = fma(s, p, t_.cast(Dtype::kF64, t_.cast(Dtype::kI32, e)));
    y = where(compare(Op::kLt, a, real(kInf)), y, t_.cast(Dtype::kF64, a));  // inf and NaN
    return keep(where(compare(Op::kEq, a, real(0)), real64(-kInf), y), "log2");
  }

  Value exp2_of_wide(const Value& x) {
    const Value limited = clamped(x, -151, 129);
    const Value n = keep(round(limited), "n"), r = keep(sub(limited, n), "r");
    const Value p =
        polynomial(r, {1.5196477218361375e-05, 0.00015466739759513473, 0.0013333933426549196, 0.009618038193065462,
                       0.055504103685038435, 0.24022651066041795, 0.6931471807034365});
    const Value biased = t_.cast(Dtype::kI64, add(to_int(n), whole(1023)));
    const Value scale = t_.bits(Dtype::kF64, t_.binary(Op::kShl, biased, t_.constant(biased.type, Number::of_int(52))));
    return t_.cast(Dtype::kF32, mul(fma(r, p, real64(1)), scale));
  }

  Target& t_;
  int lanes_;
};

}  // namespace

bool has_formula(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kExpm1:
    case Op::kLog:
    case Op::kLog1p:
    case Op::kLog2:
    case Op::kTanh:
    case Op::kErf:
    case Op::kSin:
    case Op::kCos:
    case Op::kTan:
    case Op::kAtan:
    case Op::kAsin:
    case Op::kAcos:
    case Op::kSinh:
    case Op::kCosh:
    case Op::kAtan2:
    case Op::kPow:
      return true;
    default:
      return false;
  }
}

Value formula(Target& target, Op op, const Value& x) {
  base::check(x.type.dtype == Dtype::kF32, "codegen: formulas are for f32, not ", types::name(x.type.dtype));
  Formula f(target, x.type.lanes);
  switch (op) {
    case Op::kExp:
      return f.exp(x);
    case Op::kExpm1:
      return f.expm1(x);
    case Op::kLog:
      return f.log(x);
    case Op::kLog1p:
      return f.log1p(x);
    case Op::kLog2:
      return f.log2(x);
    case Op::kTanh:
      return f.tanh(x);
    case Op::kErf:
      return f.erf(x);
    case Op::kAtan:
      return f.atan(x);
    case Op::kAsin:
      return f.asin(x);
    case Op::kAcos:
      return f.acos(x);
    case Op::kSinh:
      return f.sinh(x);
    case Op::kCosh:
      return f.cosh(x);
    default:
      return f.circle(op, x);
  }
}

Value formula(Target& target, Op op, const Value& a, const Value& b) {
  Formula f(target, a.type.lanes);
  if (op == Op::kFmod) return f.fmod(a, b);
  base::check(a.type.dtype == Dtype::kF32, "codegen: formulas are for f32, not ", types::name(a.type.dtype));
  return op == Op::kPow ? f.pow(a, b) : f.atan2(a, b);
}

}  // namespace magneto::codegen
