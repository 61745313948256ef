// The first reduced axis is cut: of a column sum it is the axis over rows, and whole rows stay together. Only an
// equation with one reduction is cut; what stands around the reduction moves to the second stage with it.
#include "schedule/split.h"

#include <algorithm>

#include "base/text.h"
#include "schedule/simplify.h"
#include "schedule/space_internal.h"
#include "schedule/terms_internal.h"
#include "schedule/tile.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

namespace {

constexpr int64_t kLong = 1 << 15;  ///< elements from which on a second kernel pays
constexpr int64_t kRows = 64;       ///< of one part of a column sum, at least: its results are a row, too

/// The only reduction of an equation, when it can be cut.
TermId one_reduction(const Program& program, const Uses& uses, const Equation& e) {
  TermId found;
  int count = 0;
  if (e.kind != Equation::Kind::kMap || !uses.of(e.value).reduces) return found;
  for_each_part(program, e.value, [&](TermId id) {
    if (program.term(id).op != Op::kReduce) return;
    ++count;
    found = id;
  });
  if (count != 1 || gives_position(program.term(found).fold)) return {};
  if (program.term(program.term(found).operands[0]).dtype != program.term(found).dtype) return {};
  return found;
}

}  // namespace

void split(Program& program, const Shape& shape) {
  const Uses uses(program);
  std::vector<Equation> made;
  for (Equation& e : program.equations) {
    const TermId reduce = one_reduction(program, uses, e);
    const auto keep = [&] { made.push_back(e); };
    if (!reduce.valid()) {
      keep();
      continue;
    }
    const Term t = program.term(reduce);
    const std::vector<Range> ranges = program.ranges_of(t);
    const types::TensorType target = program.buffer(e.target).type;
    const Expr points = types::numel(target.sizes);
    Expr row = 1, rest = 1;
    bool box = true;
    for (const Range& r : ranges) {
      const auto begin = program.as_size(r.begin), end = program.as_size(r.end);
      box &= begin && end && *begin == Expr(0);
      if (!box) break;
      row = row * *end;
      if (&r != &ranges.front()) rest = rest * *end;
    }
    // of a column sum, so many columns are one point of the outer space
    const int64_t columns = shape.threads == 1 ? shape.streamed : int64_t{shape.vector} * shape.columns;
    const int64_t together = space_of(program, uses, e).columns ? columns : 1;
    const bool few = points.is_constant() && points.value_or(0) > 0 && points.value_or(0) < shape.few_points * together;
    if (!box || !few || (row.is_constant() && row.value_or(0) * points.value_or(1) < kLong)) {
      keep();
      continue;
    }
    const int64_t across = rest.value_or(64) * std::min(points.value_or(1), together);
    const int64_t least = together > 1 && !shape.on_gpu() ? kRows : 1;
    const int64_t width = std::max<int64_t>(least, shape.part / std::max<int64_t>(1, across));
    const Expr size = *program.as_size(ranges.front().end);
    const Expr parts = Expr::ceil_div(size, width);
    if (parts.is_constant() && parts.value_or(0) < 2) {
      keep();
      continue;
    }
    types::TensorType type;
    type.dtype = t.dtype;
    type.device = target.device;
    type.sizes = {parts};
    for (const Expr& s : target.sizes)
      if (!is_one(s)) type.sizes.push_back(s);
    type.strides = types::contiguous_strides(type.sizes);
    Equation first;
    first.target = program.add_buffer(fresh_name(program, "part"), type, Role::kTemp);
    const AxisId block = program.axis("block");
    first.axes = {block};
    std::vector<TermId> index = {program.axis_value(block)};
    for (size_t d = 0; d < e.axes.size(); ++d) {
      if (is_one(target.sizes[d])) continue;
      first.axes.push_back(e.axes[d]);
      index.push_back(program.axis_value(e.axes[d]));
    }
    std::vector<Range> cut = ranges;
    const TermId step = program.constant_int(width, Dtype::kI64);
    cut.front().begin = program.binary(Op::kMul, program.axis_value(block), step);
    cut.front().end = program.binary(Op::kMin, program.binary(Op::kAdd, cut.front().begin, step), ranges.front().end);
    first.value = program.reduce(t.fold, cut, t.operands[0]);
    const TermId joined = program.reduce(t.fold, {{block, program.constant_int(0, Dtype::kI64), program.size(parts)}},
                                         program.load(first.target, index));
    Rewrite rewrite(program, [&](TermId id) { return id == reduce ? std::optional(joined) : std::nullopt; });
    e.value = rewrite(e.value);
    made.push_back(std::move(first));
    made.push_back(e);
  }
  program.equations = std::move(made);
  simplify(program);  // names by place again
}

}  // namespace magneto::schedule
