// loop/op.h: the operations on elements, and what the text, the verifier and the printers know of each: one row of a
// table. Semantics are torch's: `//` and `%` round to minus infinity, `trunc_div` and `fmod` to zero, min and max give
// NaN when an operand is NaN, `round` rounds halves to even, integers wrap.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "types/dtype.h"

namespace magneto::loop {

enum class Op : uint8_t {
  // leaves and operations with a look of their own
  kConstant,  ///< 1.5, 3, true, 2:i32
  kSize,      ///< an integer expression of symbols: s0, 2*s0 + 1
  kAxis,      ///< the value of an axis, i64
  kLocal,     ///< a value that a kernel named before
  kLoad,      ///< x[i, j]
  kGuarded,   ///< load(x[i - 4], 4 <= i, 0.0): reads memory only where the condition holds
  kReduce,    ///< sum(j < 8, x[i, j]); only in equations
  kCast,      ///< f32(x)
  kBits,      ///< bits_i32(x): the same bits, read as a type of the same size
  // three operands
  kWhere,
  kFma,
  // two operands
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kTruncDiv,
  kFmod,
  kMin,
  kMax,
  kPow,
  kAtan2,
  kCopysign,
  kAnd,
  kOr,
  kXor,
  kShl,
  kShr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kChecked,  ///< checked(k, n): k, and a fault of the kernel unless 0 <= k < n
  // one operand
  kNeg,
  kNot,  ///< ~x: of a bool the other one, of an integer all bits turned
  kAbs,
  kFloor,
  kCeil,
  kTrunc,
  kRound,
  kSqrt,
  kRsqrt,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kLog2,
  kSin,
  kCos,
  kTan,
  kTanh,
  kErf,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kLgamma,
};

/// Which element types an operation takes. Half types are only moved, never computed with: cast them to f32 first.
enum class Takes : uint8_t { kAny, kNumber, kFloat, kInteger, kBits /* integer or bool */, kNothing };

struct OpTraits {
  std::string_view name;  ///< as a function, or the sign when it stands between its operands
  int operands;           ///< 0: a look of its own
  int precedence;         ///< Python's; 0: written as a function
  Takes takes;
  bool compares;  ///< gives a bool, whatever it takes
};

const OpTraits& traits(Op op);
std::optional<Op> find_function(std::string_view name, int operands);  ///< of those written as a function

/// How a reduction folds its elements. Each starts from its identity; an empty max is the least value.
enum class Fold : uint8_t { kSum, kProd, kMax, kMin, kArgmax, kArgmin, kAny, kAll };

std::string_view name(Fold fold);
std::optional<Fold> find_fold(std::string_view name);
inline bool gives_position(Fold fold) { return fold == Fold::kArgmax || fold == Fold::kArgmin; }
types::Dtype result_of(Fold fold, types::Dtype element);

bool takes(Takes what, types::Dtype dtype);
/// f64, f32, the halves, integers of 8 to 64 bits, bool.
bool is_known(types::Dtype dtype);
inline bool is_half(types::Dtype dtype) { return dtype == types::Dtype::kF16 || dtype == types::Dtype::kBF16; }
bool is_unsigned(types::Dtype dtype);

}  // namespace magneto::loop
