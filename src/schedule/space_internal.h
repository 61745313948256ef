// schedule/space_internal.h: the space of an equation and of a group of joined ones.
//
// A *flat* space has points only: y[i0, i1] = x[i0, i1] + 1.0. A space of *rows* has an outer part, the points of a
// reduction's result, and an inner part that is walked at each of them: s[i0] = sum(i1 < n, x[i0, i1]). An equation
// over all axes i0, i1 is at home in it as an element, one over i0 as a value of the row. In a space of *columns* it is
// the last outer axis along which memory is contiguous, as in s[i0] = sum(i1 < n, x[i1, i0]): then many points of it
// are computed side by side.
//
// A part of a column reduction that was cut, s[i0, i1] = sum(i2 in i0 * 64 .. min(i0 * 64 + 64, n), x[i2, i1]), may
// also be at home in a space of rows, [n] and i1: then the rows are walked in *blocks* of 64, one after the other.
#pragma once
#include <optional>
#include <vector>

#include "loop/program.h"
#include "loop/uses.h"

namespace magneto::schedule {

struct Shape;

/// How rows are walked in blocks.
struct Blocks {
  std::vector<loop::TermId> rows;  ///< sizes of the outer part of the space of rows
  size_t cut = 0;                  ///< the axis of it that is walked in blocks; those before it are points as they are
  loop::TermId parts;              ///< the number of blocks
  loop::TermId width;              ///< of a block
  friend bool operator==(const Blocks&, const Blocks&) = default;
};

struct Space {
  bool fits = false;  ///< a map that may share a kernel with others
  bool columns = false;
  std::vector<loop::TermId> outer;  ///< sizes of i0, i1, ...
  std::vector<loop::Range> inner;   ///< of reductions; empty: flat
  std::optional<Blocks> blocks;     ///< of rows: they are walked so; of columns: they may be
};

Space space_of(loop::Program& program, const loop::Uses& uses, const loop::Equation& e);
/// The space that holds both, if there is one.
std::optional<Space> join(loop::Program& program, const Shape& shape, const Space& a, const Space& b);
/// The axes of an equation in the order of the elements that it walks: of columns that may be rows, first those of the
/// row. What reads a buffer at these reads the element of the very point.
std::vector<loop::AxisId> walk_of(loop::Program& program, const Space& space);

}  // namespace magneto::schedule
