// schedule/stream_internal.h: a column reduction that walks whole rows.
#pragma once
#include <vector>

#include "loop/program.h"
#include "schedule/tile.h"

namespace magneto::schedule {

/// What one point of a column reduction does.
struct Columns {
  loop::Range lane;                    ///< its columns
  std::vector<loop::Range> rows;       ///< what is reduced
  std::vector<loop::Statement> folds;  ///< of an element: values and folds, none of which gives a position
  std::vector<loop::Statement> after;  ///< what is done with the folds of a column
};

struct Streamed {
  std::vector<loop::BufferId> kept;  ///< a row of accumulators for each fold
  std::vector<loop::Statement> body;
};

/// A kept row of accumulators, and what they are before the first row.
loop::BufferId add_sums(loop::Program& program, loop::Dtype dtype, const types::Expr& columns);
loop::Statement start_sums(loop::Program& program, loop::BufferId sums, std::vector<loop::TermId> place,
                           loop::Fold fold);

Streamed stream(loop::Program& program, const Shape& shape, Columns columns);

}  // namespace magneto::schedule
