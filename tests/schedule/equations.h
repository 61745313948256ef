// tests/schedule/equations.h: random programs of equations, valid by construction.
#pragma once
#include "loop/program.h"

namespace magneto::schedule {

/// Ten or so equations over [s0, s1], [s0], [s1] and []: elements, reductions by row and by column, views, gathers,
/// several outputs. Values stay small, so that an order of summation does not matter.
loop::Program random_equations(unsigned seed);

}  // namespace magneto::schedule
