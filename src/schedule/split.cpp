// The first reduced axis is cut: of a column sum it is the axis over rows, and whole rows stay together; where it is
// short, as in a batch of sequences, a later one. Only an equation with one reduction is cut; what stands around the
// reduction moves to the second stage with it.
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
constexpr int64_t kParts = 64;      ///< of a column sum: enough for all threads, and few rows more to read

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

/// What is read element by element: by reductions along rows, and by what is no reduction. A column sum of the same
/// data may then be made while the rows are walked.
struct Walks {
  std::vector<bool> by_rows, flat;

  Walks(Program& program, const Uses& uses) : by_rows(program.buffers()), flat(program.buffers()) {
    for (const Equation& e : program.equations) {
      if (e.kind != Equation::Kind::kMap) continue;
      const Space space = space_of(program, uses, e);
      if (space.columns) continue;
      std::vector<bool>& walked = space.inner.empty() ? flat : by_rows;
      if (space.inner.empty()) walked[e.target.index()] = true;
      for_each_part(program, e.value, [&](TermId id) {
        if (is_load(program.term(id))) walked[program.term(id).id] = true;
      });
    }
  }
};

struct Cut {
  size_t axis = 0;  ///< the reduced axis that is cut; those before it are whole in the second stage
  int64_t width = 0;
};

class Splitter {
 public:
  Splitter(Program& program, const Shape& shape)
      : program_(program), shape_(shape), uses_(program), walks_(program, uses_) {}

  void run() {
    std::vector<Equation> made;
    for (Equation& e : program_.equations) {
      const TermId reduce = one_reduction(program_, uses_, e);
      if (const auto cut = reduce.valid() ? cut_of(e, reduce) : std::nullopt)
        made.push_back(first_stage(e, reduce, *cut));
      made.push_back(std::move(e));
    }
    program_.equations = std::move(made);
  }

 private:
  std::optional<Cut> cut_of(const Equation& e, TermId reduce) {
    const std::vector<Range> ranges = program_.ranges_of(program_.term(reduce));
    for (const Range& r : ranges)
      if (!(program_.as_size(r.begin) == Expr(0)) || !program_.as_size(r.end)) return std::nullopt;
    const Expr points = types::numel(program_.buffer(e.target).type.sizes), row = after(ranges, 0);
    if (points == Expr(0) || (row.is_constant() && row.value_or(0) * points.value_or(1) < kLong)) return std::nullopt;
    const bool columns = space_of(program_, uses_, e).columns;
    const auto cut =
        columns && !shape_.on_gpu() ? cut_rows(ranges, points, reduce) : cut_first(ranges, points, columns);
    const auto parts = cut ? Expr::ceil_div(size_of(ranges[cut->axis]), cut->width) : Expr(1);
    return cut && (cut->axis > 0 || parts.value_or(2) > 1) ? cut : std::nullopt;
  }

  Expr size_of(const Range& r) const { return *program_.as_size(r.end); }
  /// The elements of the ranges from k on.
  Expr after(const std::vector<Range>& ranges, size_t k) const {
    Expr all = 1;
    for (; k < ranges.size(); ++k) all = all * size_of(ranges[k]);
    return all;
  }

  /// The first axis, into parts of about as many elements as keep a thread busy.
  std::optional<Cut> cut_first(const std::vector<Range>& ranges, const Expr& points, bool columns) const {
    const int64_t together = columns ? int64_t{shape_.vector} * shape_.columns : 1;  // columns are one point
    if (!points.is_constant() || points.value_or(0) >= shape_.few_points * together) return std::nullopt;
    const int64_t across = after(ranges, 1).value_or(64) * std::min(points.value_or(1), together);
    return Cut{0, std::max<int64_t>(1, shape_.part / std::max<int64_t>(1, across))};
  }

  /// Of a column sum on a CPU, whole rows: so many that there are kParts of them, but not only a few. Where the rows
  /// are walked for something else the parts cost no trip through memory, so they may be smaller.
  std::optional<Cut> cut_rows(const std::vector<Range>& ranges, const Expr& points, TermId reduce) const {
    bool by_rows = false, flat = false;
    for_each_part(program_, reduce, [&](TermId id) {
      const Term& t = program_.term(id);
      if (!is_load(t) || core_of(program_, BufferId(t.id)).size() <= ranges.size()) return;
      by_rows |= walks_.by_rows[t.id];
      flat |= walks_.flat[t.id];
    });
    const bool few = points.is_constant() && points.value_or(0) < shape_.few_points * shape_.streamed;
    if (!few && !(by_rows && points.value_or(0) <= shape_.most_columns)) return std::nullopt;
    const int64_t least = by_rows || flat ? std::max<int64_t>(2, shape_.part_rows / 8) : shape_.part_rows;
    const Expr rows = after(ranges, 0);
    const int64_t wanted =
        rows.is_constant() ? std::max(least, (rows.value_or(0) + kParts - 1) / kParts) : shape_.part_rows;
    Cut cut;
    while (after(ranges, cut.axis + 1).value_or(INT64_MAX) > wanted) ++cut.axis;
    const int64_t each = after(ranges, cut.axis + 1).value_or(1);
    cut.width = std::max<int64_t>(1, (wanted + each - 1) / each);
    return cut;
  }

  Equation first_stage(Equation& e, TermId reduce, const Cut& cut) {
    const Term t = program_.term(reduce);
    const std::vector<Range> ranges = program_.ranges_of(t);
    const types::TensorType target = program_.buffer(e.target).type;
    const Expr parts = Expr::ceil_div(size_of(ranges[cut.axis]), cut.width);
    std::vector<Range> second(ranges.begin(), ranges.begin() + static_cast<long>(cut.axis));
    const AxisId block = program_.axis("block");
    second.push_back({block, program_.constant_int(0, Dtype::kI64), program_.size(parts)});
    types::TensorType type;
    type.dtype = t.dtype;
    type.device = target.device;
    Equation first;
    std::vector<TermId> index;
    const auto add = [&](AxisId axis, const Expr& size) {
      first.axes.push_back(axis);
      index.push_back(program_.axis_value(axis));
      type.sizes.push_back(size);
    };
    for (const Range& r : second) add(r.axis, size_of(r));
    for (size_t d = 0; d < e.axes.size(); ++d)
      if (!is_one(target.sizes[d])) add(e.axes[d], target.sizes[d]);
    type.strides = types::contiguous_strides(type.sizes);
    first.target = program_.add_buffer(fresh_name(program_, "part"), type, Role::kTemp);
    std::vector<Range> part(ranges.begin() + static_cast<long>(cut.axis), ranges.end());
    const TermId step = program_.constant_int(cut.width, Dtype::kI64);
    const TermId end = part.front().end;
    part.front().begin = program_.binary(Op::kMul, program_.axis_value(block), step);
    part.front().end = program_.binary(Op::kMin, program_.binary(Op::kAdd, part.front().begin, step), end);
    first.value = program_.reduce(t.fold, part, t.operands[0]);
    const TermId joined = program_.reduce(t.fold, second, program_.load(first.target, index));
    Rewrite rewrite(program_, [&](TermId id) { return id == reduce ? std::optional(joined) : std::nullopt; });
    e.value = rewrite(e.value);
    return first;
  }

  Program& program_;
  const Shape& shape_;
  const Uses uses_;
  const Walks walks_;
};

}  // namespace

void split(Program& program, const Shape& shape) {
  Splitter(program, shape).run();
  simplify(program);  // names by place again
}

}  // namespace magneto::schedule
