// codegen/math.h: our own vector math: elementary functions of f32 as arithmetic that every target can write.
//
// Largest error promised (tests/codegen/math_test.cpp checks it), in units of the last place:
//   exp 1.2, expm1 1.6, log 1.2, log1p 1.8, log2 1.8, tanh 2.2, erf 1.6, sin, cos, tan 0.6 (|x| < 1e8),
//   atan 2, atan2 3, asin 2.5, acos 2, sinh 2.5, cosh 2, pow 0.6, fmod 0
// Infinities, NaN, zeros and denormal numbers give what they should.
#pragma once
#include "codegen/target.h"

namespace magneto::codegen {

bool has_formula(loop::Op op);
/// f(x) for an f32 `x` of any number of lanes. `x` must be a name: it is read more than once.
Value formula(Target& target, loop::Op op, const Value& x);
Value formula(Target& target, loop::Op op, const Value& a, const Value& b);  ///< pow, atan2; fmod, also of f64

}  // namespace magneto::codegen
