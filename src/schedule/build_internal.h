// schedule/build_internal.h: one kernel of a group of joined equations.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/space_internal.h"
#include "schedule/terms_internal.h"
#include "schedule/tile.h"

namespace magneto::schedule {

/// What all kernels of a program share while they are built.
struct Workshop {
  loop::Program& program;
  loop::Uses& uses;
  Weights& weights;
  const Shape& shape;
  std::vector<bool> stored;  ///< buffers that must be in memory: outputs, and what another group reads
};

loop::Kernel build(Workshop& shop, const std::vector<const loop::Equation*>& members, const Space& space);
/// Vector width, unrolling and tail of a loop, from the extent of its last axis.
void shape_loop(const loop::Program& program, const Shape& shape, int unroll, loop::Loop& loop);
/// An index of the target of an equation: its axes, 0 where it has one element only.
std::vector<loop::TermId> place_of(loop::Program& program, const loop::Equation& e);

}  // namespace magneto::schedule
