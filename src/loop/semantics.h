// loop/semantics.h: what each operation does to one element, in double precision and in integers that wrap. The
// interpreter computes with it, and the simplifier may fold constants with it.
#pragma once
#include <array>

#include "loop/program.h"

namespace magneto::loop {

/// The result of an operation with one to three operands, of operand type `dtype` (of kWhere: that of its values).
/// `fault` becomes true when an integer is divided by zero (the result is then 0) or `checked` fails (then 0, too).
/// Floats are not rounded: that is for the caller to decide.
Number apply(Op op, Dtype dtype, const std::array<Number, 3>& operands, bool& fault);

/// To bool: not zero. From float to integer: towards zero, then modulo 2^n. To half types: rounded.
Number convert(Dtype from, Dtype to, Number value);
Number reinterpret_bits(Dtype from, Dtype to, Number value);

/// A fold so far: the number, and where it was found (of argmax and argmin).
struct Folded {
  Number value;
  int64_t position = 0;
};
Folded identity(Fold fold, Dtype element);
/// Ties go to the lower position, NaN wins over every number; so the order of the elements does not matter.
Folded combine(Fold fold, Dtype element, const Folded& a, const Folded& b);
Number result(Fold fold, const Folded& folded);

Number read(Dtype dtype, const void* at);
void write(Dtype dtype, void* at, Number value);  ///< rounds and wraps

}  // namespace magneto::loop
