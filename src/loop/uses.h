// loop/uses.h: what each term depends on, for the verifier, the passes and the printers. One sweep over the arena: an
// operand always has a lower id than the term that reads it.
#pragma once
#include <optional>
#include <unordered_set>
#include <vector>

#include "loop/program.h"

namespace magneto::loop {

struct Use {
  std::vector<AxisId> axes;     ///< free ones, sorted
  std::vector<LocalId> locals;  ///< sorted
  bool loads = false;           ///< reads memory, rows included
  bool reduces = false;         ///< holds a reduction
  bool may_fault = false;       ///< holds `checked`, or divides an integer by what may be zero
};

class Uses {
 public:
  explicit Uses(const Program& program) { extend(program); }
  void extend(const Program& program);  ///< by the terms that were made since
  const Use& of(TermId id) const { return uses_[id.index()]; }
  bool depends(TermId id, AxisId axis) const;

 private:
  std::vector<Use> uses_;
};

/// Calls `visit` with every term under the roots, themselves included, each once.
template <class Visit>
void for_each_part(const Program& program, std::vector<TermId> roots, const Visit& visit) {
  std::unordered_set<TermId> seen;
  while (!roots.empty()) {
    const TermId id = roots.back();
    roots.pop_back();
    if (!seen.insert(id).second) continue;
    visit(id);
    const auto& operands = program.term(id).operands;
    roots.insert(roots.end(), operands.begin(), operands.end());
  }
}
template <class Visit>
void for_each_part(const Program& program, TermId root, const Visit& visit) {
  for_each_part(program, std::vector<TermId>{root}, visit);
}

/// What a kernel does to the memory of a buffer that is no row.
struct Touch {
  BufferId storage;
  bool reads = false;  ///< what was there before; not what it reads back
  bool writes = false;
};
std::vector<Touch> touches_of(const Program& program, const Kernel& kernel);  ///< by storage

/// c when the term is c * axis + something that does not depend on the axis: how far one step along the axis moves it.
/// None when the dependence is of another kind (a gather, / or %).
std::optional<types::Expr> stride_along(const Program& program, const Uses& uses, TermId term, AxisId axis);

/// The same for the place in memory that an index of a buffer leads to, in elements.
std::optional<types::Expr> stride_along(const Program& program, const Uses& uses, BufferId buffer,
                                        const std::vector<TermId>& index, AxisId axis);

/// `value`, which was read at `index`, and the checks of the index that are no part of it: a place is checked where
/// the element does not depend on it, too (a dimension of one element, an expanded one, a constant).
TermId with_checks(Program& program, TermId value, const std::vector<TermId>& index);

/// The number of elements of a range, where it is known, and one that it never has more of: a block of an axis that was
/// cut has both ends open.
std::optional<int64_t> extent_of(const Program& program, const Range& range);
std::optional<int64_t> most_of(const Program& program, const Range& range);

}  // namespace magneto::loop
