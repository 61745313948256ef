// ops/element.h: arithmetic on single elements, in which operators say what they compute. An Element is a term of the
// loop language with C++'s operators: `1.0 / (1.0 + exp(-x))`. Both operands have one type; a plain number takes the
// type of the other operand. Bools are counted with as bytes where the language has no operation on bools.
#pragma once
#include <vector>

#include "base/check.h"
#include "loop/program.h"
#include "types/dtype.h"

namespace magneto::ops {

class Element {
 public:
  Element() = default;
  Element(loop::Program* program, loop::TermId term) : program_(program), term_(term) {}
  bool valid() const { return term_.valid(); }
  loop::TermId term() const { return term_; }
  loop::Program& program() const {
    base::check(valid(), "ops: an element is used that was never made");
    return *program_;
  }
  types::Dtype dtype() const { return program().term(term_).dtype; }
  /// A constant of the same type.
  Element number(double value) const;

 private:
  loop::Program* program_ = nullptr;
  loop::TermId term_;
};

using Index = std::vector<Element>;  ///< one i64 for each dimension

Element unary(loop::Op op, Element a);
/// Integer identities (i + 0, i * 1, numbers with numbers) are folded: indices stay short.
Element binary(loop::Op op, Element a, Element b);
Element where(Element condition, Element a, Element b);
Element cast(types::Dtype dtype, Element a);  ///< the element itself when it has that type already
Element checked(Element index, Element size);

#define MAGNETO_OPERATOR(sign, op)                                                                   \
  inline Element operator sign(Element a, Element b) { return binary(loop::Op::op, a, b); }          \
  inline Element operator sign(Element a, double b) { return binary(loop::Op::op, a, a.number(b)); } \
  inline Element operator sign(double a, Element b) { return binary(loop::Op::op, b.number(a), b); }
MAGNETO_OPERATOR(+, kAdd)
MAGNETO_OPERATOR(-, kSub)
MAGNETO_OPERATOR(*, kMul)
MAGNETO_OPERATOR(/, kDiv)
MAGNETO_OPERATOR(%, kMod)
MAGNETO_OPERATOR(&, kAnd)
MAGNETO_OPERATOR(|, kOr)
MAGNETO_OPERATOR(^, kXor)
MAGNETO_OPERATOR(==, kEq)
MAGNETO_OPERATOR(!=, kNe)
MAGNETO_OPERATOR(<, kLt)
MAGNETO_OPERATOR(<=, kLe)
MAGNETO_OPERATOR(>, kGt)
MAGNETO_OPERATOR(>=, kGe)
#undef MAGNETO_OPERATOR
inline Element operator-(Element a) { return unary(loop::Op::kNeg, a); }
inline Element operator~(Element a) { return unary(loop::Op::kNot, a); }

#define MAGNETO_FUNCTION(name, op) \
  inline Element name(Element a) { return unary(loop::Op::op, a); }
MAGNETO_FUNCTION(abs, kAbs)
MAGNETO_FUNCTION(floor, kFloor)
MAGNETO_FUNCTION(ceil, kCeil)
MAGNETO_FUNCTION(trunc, kTrunc)
MAGNETO_FUNCTION(round, kRound)
MAGNETO_FUNCTION(sqrt, kSqrt)
MAGNETO_FUNCTION(rsqrt, kRsqrt)
MAGNETO_FUNCTION(exp, kExp)
MAGNETO_FUNCTION(expm1, kExpm1)
MAGNETO_FUNCTION(log, kLog)
MAGNETO_FUNCTION(log1p, kLog1p)
MAGNETO_FUNCTION(log2, kLog2)
MAGNETO_FUNCTION(sin, kSin)
MAGNETO_FUNCTION(cos, kCos)
MAGNETO_FUNCTION(tan, kTan)
MAGNETO_FUNCTION(tanh, kTanh)
MAGNETO_FUNCTION(erf, kErf)
MAGNETO_FUNCTION(asin, kAsin)
MAGNETO_FUNCTION(acos, kAcos)
MAGNETO_FUNCTION(atan, kAtan)
MAGNETO_FUNCTION(sinh, kSinh)
MAGNETO_FUNCTION(cosh, kCosh)
MAGNETO_FUNCTION(lgamma, kLgamma)
#undef MAGNETO_FUNCTION

#define MAGNETO_FUNCTION(name, op)                                                 \
  inline Element name(Element a, Element b) { return binary(loop::Op::op, a, b); } \
  inline Element name(Element a, double b) { return binary(loop::Op::op, a, a.number(b)); }
MAGNETO_FUNCTION(min, kMin)
MAGNETO_FUNCTION(max, kMax)
MAGNETO_FUNCTION(pow, kPow)
MAGNETO_FUNCTION(atan2, kAtan2)
MAGNETO_FUNCTION(copysign, kCopysign)
MAGNETO_FUNCTION(floor_div, kFloorDiv)
MAGNETO_FUNCTION(trunc_div, kTruncDiv)
MAGNETO_FUNCTION(fmod, kFmod)
MAGNETO_FUNCTION(shift_left, kShl)
MAGNETO_FUNCTION(shift_right, kShr)
#undef MAGNETO_FUNCTION

inline Element square(Element a) { return a * a; }
inline Element is_nan(Element a) { return a != a; }
inline Element sigmoid(Element a) { return 1.0 / (1.0 + exp(-a)); }

}  // namespace magneto::ops
