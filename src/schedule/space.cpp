#include <algorithm>

#include "schedule/space_internal.h"
#include "schedule/terms_internal.h"
#include "schedule/tile.h"

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

/// The blocks of rows that a part of a column reduction is the sum of.
std::optional<Blocks> blocks_of(Program& program, const Uses& uses, const Equation& e, const Space& space) {
  const Term t = program.term(e.value);
  const bool adds = t.fold == Fold::kSum || t.fold == Fold::kProd || t.fold == Fold::kMax || t.fold == Fold::kMin;
  if (!space.columns || t.op != Op::kReduce || !adds || space.outer.size() < 2) return std::nullopt;
  Blocks made;
  made.cut = space.outer.size() - 2;
  made.parts = space.outer[made.cut];
  const AxisId block = canonical_axis(program, made.cut);
  const Range& first = space.inner.front();
  const Term begin = program.term(first.begin), end = program.term(first.end);
  if (begin.op != Op::kMul || begin.operands[0] != program.axis_value(block) || end.op != Op::kMin) return std::nullopt;
  made.width = begin.operands[1];
  if (end.operands[0] != program.binary(Op::kAdd, first.begin, made.width)) return std::nullopt;
  if (!program.as_size(made.width) || !program.as_size(end.operands[1])) return std::nullopt;
  if (uses.depends(t.operands[0], block)) return std::nullopt;
  made.rows.assign(space.outer.begin(), space.outer.begin() + static_cast<long>(made.cut));
  made.rows.push_back(end.operands[1]);
  for (size_t k = 1; k < space.inner.size(); ++k) {
    const Range& r = space.inner[k];
    if (!(program.as_size(r.begin) == types::Expr(0)) || !program.as_size(r.end)) return std::nullopt;
    made.rows.push_back(r.end);
  }
  return made;
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
  space.blocks = blocks_of(program, uses, e, space);
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

/// Columns as rows that are walked in blocks, where that suits what they shall be joined with. On a GPU it never does:
/// the threads of a block are better at columns side by side.
static std::optional<Space> by_rows(Program& program, const Shape& shape, const Space& columns, const Space& other) {
  if (!columns.blocks || shape.on_gpu()) return std::nullopt;
  const types::Expr width = *program.as_size(columns.outer.back());
  if (width.value_or(INT64_MAX) < int64_t{shape.vector} * shape.columns) return std::nullopt;  // they fit in registers
  if (width.value_or(0) > shape.most_columns) return std::nullopt;
  Space rows;
  rows.fits = true;
  rows.blocks = columns.blocks;
  rows.outer = columns.blocks->rows;
  rows.inner = {
      {canonical_axis(program, rows.outer.size()), program.constant_int(0, Dtype::kI64), columns.outer.back()}};
  if (!other.inner.empty()) return rows;
  // alone, elements are walked as one long axis
  const bool whole = types::Expr::mod(width, shape.vector) == types::Expr(0) || width.value_or(0) >= 32 * shape.vector;
  return whole && elements_of(program, other, rows) ? std::optional(rows) : std::nullopt;
}

std::optional<Space> join(Program& program, const Shape& shape, const Space& a, const Space& b) {
  if (!a.fits || !b.fits) return std::nullopt;
  if (a.columns != b.columns) {
    const Space &columns = a.columns ? a : b, &other = a.columns ? b : a;
    if (const auto rows = by_rows(program, shape, columns, other))
      if (const auto both = join(program, shape, *rows, other)) return both;
  }
  if (!a.inner.empty() && !b.inner.empty()) {
    if (!(a.outer == b.outer && a.inner == b.inner && a.columns == b.columns)) return std::nullopt;
    if (!(a.blocks == b.blocks) && (a.columns || (a.blocks && b.blocks))) return std::nullopt;
    return a.blocks ? a : b;
  }
  if (a.inner.empty() && b.inner.empty()) return a.outer == b.outer ? std::optional(a) : std::nullopt;
  const Space &flat = a.inner.empty() ? a : b, &rows = a.inner.empty() ? b : a;
  if (rows.columns && rows.blocks) return std::nullopt;  // what it reads in place is that of the row
  if (flat.outer == rows.outer || elements_of(program, flat, rows)) return rows;
  return std::nullopt;
}

std::vector<AxisId> walk_of(Program& program, const Space& space) {
  std::vector<AxisId> axes;
  const size_t all = space.outer.size() + space.inner.size();
  for (size_t k = 0; k < all; ++k) axes.push_back(canonical_axis(program, k));
  if (!space.columns || !space.blocks) return axes;
  const auto at = [&](size_t k) { return axes.begin() + static_cast<long>(k); };
  std::rotate(at(space.outer.size() - 1), at(space.outer.size()), axes.end());  // the column stands last
  axes.erase(at(space.blocks->cut));
  return axes;
}

}  // namespace magneto::schedule
