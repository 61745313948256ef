// schedule/merge_internal.h: axes that are walked together become one.
#pragma once
#include <optional>
#include <vector>

#include "loop/program.h"
#include "loop/uses.h"

namespace magneto::schedule {

/// One value of a group: what it is and where it goes.
struct Walked {
  loop::BufferId target;
  loop::TermId value;
  loop::BufferId into;
  std::vector<loop::TermId> place;
  bool stored = false;
};

/// The sizes of the space when its last axes are one, and `values` rewritten to it; none when they stay apart. Axes k
/// and k + 1 are one when every place in memory moves along k as far as along all of k + 1, and neither is used but to
/// find a place. Then [64, 32, 7, 7] is as good as [100352]. A last axis of `long_enough` elements needs no merging.
/// The first `apart` axes stay as they are. Reductions must be over all axes after these.
std::optional<std::vector<loop::TermId>> merge_axes(loop::Program& program, const loop::Uses& uses,
                                                    const std::vector<loop::TermId>& sizes, std::vector<Walked>& values,
                                                    int64_t long_enough, size_t apart = 0);

}  // namespace magneto::schedule
