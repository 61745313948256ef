// codegen/groups_internal.h: groups of neighbouring elements that a thread of a GPU reads or writes at once.
#pragma once
#include <set>
#include <vector>

#include "loop/program.h"
#include "loop/uses.h"

namespace magneto::codegen {

/// What a loop reads and writes element by element, at places that are known before it.
struct Grouped {
  struct Place {
    loop::BufferId buffer;
    std::vector<loop::TermId> index;
  };
  std::set<loop::TermId> loads;
  std::set<const loop::Statement*> stores;
  std::vector<Place> places;
  size_t terms = 0;  ///< of the whole body
};
Grouped grouped_of(const loop::Program& program, const loop::Uses& uses, const loop::Loop& loop);

/// Whether the number of elements is known to be a multiple of n.
bool is_multiple(const loop::Program& program, const loop::Range& range, int64_t n);

/// Whether all places are known to begin a multiple of n elements after the begin of their buffers, at the begin of
/// the loop: aligned like a group of n, since buffers are.
bool are_aligned(const loop::Program& program, const std::vector<Grouped::Place>& places, const loop::Range& range,
                 int64_t n);

}  // namespace magneto::codegen
