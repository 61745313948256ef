// codegen/math.h: our own vector math: elementary functions of f32 as arithmetic that every target can write.
//
// Largest error found (tests/codegen/math_test.cpp checks it), in units of the last place:
//   exp 1.5, expm1 2, log 1.5, log1p 2.5, log2 2, tanh 2.5, erf 2, sin, cos 1 (|x| < 1e8), tan 1.5 (the same)
// Infinities, NaN, zeros and denormal numbers give what they should.
#pragma once
#include "codegen/target.h"

namespace magneto::codegen {

bool has_formula(loop::Op op);
/// f(x) for an f32 `x` of any number of lanes. `x` must be a name: it is read more than once.
Value formula(Target& target, loop::Op op, const Value& x);

}  // namespace magneto::codegen
