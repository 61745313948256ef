// schedule/turn_internal.h: tiles for what is read across the direction in which it is written.
#pragma once
#include <optional>
#include <vector>

#include "schedule/merge_internal.h"
#include "schedule/tile.h"

namespace magneto::schedule {

struct Turn {
  std::vector<loop::Range> outer;     ///< all axes but two, then the tiles
  std::vector<loop::Range> inner;     ///< the two axes inside a tile; memory is written along the last one
  std::vector<loop::BufferId> rows;   ///< the kept tiles
  std::vector<loop::Statement> fill;  ///< one loop that fills them along the direction in which memory is read
};

/// When some of what a flat group reads is contiguous along another axis than the last: y[i0, i1] = x[i1, i0]. The
/// loads in `values` become loads of tiles. None when nothing is turned, or the axes are short.
std::optional<Turn> turn(loop::Program& program, const loop::Uses& uses, const std::vector<loop::TermId>& sizes,
                         std::vector<Walked>& values, const Shape& shape);

}  // namespace magneto::schedule
