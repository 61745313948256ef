#include <algorithm>

#include "schedule/space_internal.h"
#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;

namespace {

/// Whether most of what the reductions read is contiguous along the last outer axis and not along the last inner one.
bool by_columns(Program& program, const Uses& uses, TermId value, const Space& space) {
  if (space.outer.empty() || space.inner.empty()) return false;
  const AxisId column = canonical_axis(program, space.outer.size() - 1), row = space.inner.back().axis;
  int votes = 0;
  for_each_part(program, value, [&](TermId id) {
    const Term& t = program.term(id);
    if (!is_load(t) || !uses.depends(id, row) || !uses.depends(id, column)) return;
    const BufferId buffer(t.id);
    const std::vector<TermId> index(t.operands.begin(),
                                    t.operands.begin() + static_cast<long>(program.buffer(buffer).type.sizes.size()));
    const auto along = [&](AxisId axis) {
      const auto stride = stride_along(program, uses, buffer, index, axis);
      return stride && is_one(*stride);
    };
    votes += along(column) - along(row);
  });
  return votes > 0;
}

}  // namespace

Space space_of(Program& program, const Uses& uses, const Equation& e) {
  Space space;
  if (e.kind != Equation::Kind::kMap) return space;
  const types::Sizes sizes = program.buffer(e.target).type.sizes;
  for (const size_t d : core_of(program, e.target)) space.outer.push_back(program.size(sizes[d]));
  space.fits = true;
  if (!uses.of(e.value).reduces) return space;
  for_each_part(program, e.value, [&](TermId id) {
    const Term& t = program.term(id);
    if (t.op != Op::kReduce) return;
    const std::vector<Range> ranges = program.ranges_of(t);
    if (!space.inner.empty() && !(space.inner == ranges)) space.fits = false;
    if (space.inner.empty()) space.inner = ranges;
    if (uses.of(t.operands[0]).reduces) space.fits = false;
  });
  space.columns = by_columns(program, uses, e.value, space);
  return space;
}

/// Whether the points of a flat space are the elements of a space of rows.
static bool elements_of(Program& program, const Space& flat, const Space& rows) {
  if (rows.columns || flat.outer.size() != rows.outer.size() + rows.inner.size()) return false;
  if (!std::equal(rows.outer.begin(), rows.outer.end(), flat.outer.begin())) return false;
  for (size_t k = 0; k < rows.inner.size(); ++k) {
    const Range& r = rows.inner[k];
    const auto begin = program.as_size(r.begin);
    if (!begin || !(*begin == types::Expr(0)) || r.end != flat.outer[rows.outer.size() + k]) return false;
    if (r.axis != canonical_axis(program, rows.outer.size() + k)) return false;
  }
  return true;
}

std::optional<Space> join(Program& program, const Space& a, const Space& b) {
  if (!a.fits || !b.fits) return std::nullopt;
  if (!a.inner.empty() && !b.inner.empty()) {
    const bool same = a.outer == b.outer && a.inner == b.inner && a.columns == b.columns;
    return same ? std::optional(a) : std::nullopt;
  }
  if (a.inner.empty() && b.inner.empty()) return a.outer == b.outer ? std::optional(a) : std::nullopt;
  const Space &flat = a.inner.empty() ? a : b, &rows = a.inner.empty() ? b : a;
  if (flat.outer == rows.outer || elements_of(program, flat, rows)) return rows;
  return std::nullopt;
}

}  // namespace magneto::schedule
