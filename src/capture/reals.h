// capture/reals.h: Python floats that change from call to call. Each is a symbol that holds the bits of a double: one
// that is found somewhere (an argument, an attribute), or one that is computed from others as the program computes it.
// What the program asks about them is asked again at each call.
//
//     lr = group["lr"]                 s0: any float
//     step = -lr * 0.9 ** n            s2 = -s0, s3 = 0.9 ** s1, s4 = s2 * s3
//     if lr > 0.5: ...                 s0 > 0.5 is false
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aten/symbols.h"
#include "capture/evaluator.h"
#include "types/expr.h"

namespace magneto::capture {

/// A number that takes part: a float that is a symbol, an int that is an expression of symbols, or this very object.
struct RealOperand {
  int32_t real = -1;
  std::optional<types::Expr> number;
  Ref constant;
};

/// An int of 64 bits that is not negative. Nothing: it is something else.
std::optional<int64_t> size_of(PyObject* object);

/// symbols[result] = what the function makes of the operands, as Python does: int(s0 * 1.5). No function: the operator.
struct RealStep {
  enum class Op : unsigned char { kAdd, kSubtract, kMultiply, kDivide, kNegative, kCall, kCount } op;
  Ref function;
  std::vector<RealOperand> operands;
  uint32_t result;
  aten::Count count = {};  ///< what torch makes of the first operand
  bool gives_int = false;  ///< an int that is not negative: the symbol is that number
  /// False: it raises, or gives no such number.
  bool run(std::span<int64_t> symbols) const;
};

/// The comparison has this outcome.
struct RealCheck {
  static constexpr int kSame = -1;    ///< bit by bit; else Py_LT, Py_EQ ...
  static constexpr int kWithin = -2;  ///< at most as far from 0, or not finite
  RealOperand left;
  int op;
  RealOperand right;
  bool outcome;
  bool holds(std::span<const int64_t> symbols) const;
};

std::string to_string(const RealStep& step);
std::string to_string(const RealCheck& check);

}  // namespace magneto::capture
