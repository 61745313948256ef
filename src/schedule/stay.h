// schedule/stay.h: on a GPU, what several phases of a point read stays in shared memory.
#pragma once
#include "schedule/tile.h"

namespace magneto::schedule {

/// A row that a later phase keeps is free until then: it first keeps what that phase and the ones before it read. Long
/// rows are then read from memory once, at the cost of no byte.
///
///     phase i1 < n { max m = x[i0, i1] }              phase i1 < n { let x = x[i0, i1]   store e_row[i1] = x   max m =
///     x } phase i1 < n { let e = exp(x[i0, i1] - m)       phase i1 < n { let x_1 = e_row[i1] let e = exp(x_1 - m)
///                    store e_row[i1] = e  sum s = e }                store e_row[i1] = e   sum s = e }
///
/// Runs after tile. Rows that threads keep in registers are left alone.
void stay(loop::Program& program, const Shape& shape);

}  // namespace magneto::schedule
