// schedule/space_internal.h: the space of an equation and of a group of joined ones.
//
// A *flat* space has points only: y[i0, i1] = x[i0, i1] + 1.0. A space of *rows* has an outer part, the points of a
// reduction's result, and an inner part that is walked at each of them: s[i0] = sum(i1 < n, x[i0, i1]). An equation
// over all axes i0, i1 is at home in it as an element, one over i0 as a value of the row. In a space of *columns* it is
// the last outer axis along which memory is contiguous, as in s[i0] = sum(i1 < n, x[i1, i0]): then many points of it
// are computed side by side.
#pragma once
#include <vector>

#include "loop/program.h"
#include "loop/uses.h"

namespace magneto::schedule {

struct Space {
  bool fits = false;  ///< a map that may share a kernel with others
  bool columns = false;
  std::vector<loop::TermId> outer;  ///< sizes of i0, i1, ...
  std::vector<loop::Range> inner;   ///< of reductions; empty: flat
};

Space space_of(loop::Program& program, const loop::Uses& uses, const loop::Equation& e);
/// The space that holds both, if there is one.
std::optional<Space> join(loop::Program& program, const Space& a, const Space& b);

}  // namespace magneto::schedule
