// schedule/index_internal.h: integer arithmetic of indices, folded by what is known of the axes.
#pragma once
#include <unordered_map>

#include "loop/program.h"

namespace magneto::schedule {

/// The number of values of each axis that starts at 0, by the term of the axis.
using Extents = std::unordered_map<loop::TermId, types::Expr>;

/// a // n or a % n, where a is a sum of multiples of n and of a rest that is known to lie in 0 .. n: i for
/// (8 * i + j) // 8 with j < 8. None when that is not known.
std::optional<loop::TermId> divide(loop::Program& program, const Extents& extents, loop::Op op, loop::TermId a,
                                   const types::Expr& n);

}  // namespace magneto::schedule
