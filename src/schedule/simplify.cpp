// Before:  y[a, b, c] = x[(a * 8 + b) // 8, b, 0] + sum(k < 8, x[a, k, c])     with c < 1
// After:   t[i0]      = sum(i1 < 8, x[i0, i1, 0])
//          y[i0, i1, z0] = x[i0, i1, 0] + t[i0]
//
// Names by place make the space of an equation comparable: equations over the same sizes have equal axes, and a load at
// i0, i1 is the element of the very point at which it stands. Joining equations then needs no renaming.
#include "schedule/simplify.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "schedule/dead.h"
#include "schedule/index_internal.h"
#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

namespace {

class Simplifier {
 public:
  explicit Simplifier(Program& program) : program_(program), uses_(program) {}

  void run() {
    std::vector<Equation> before = std::move(program_.equations);
    for (Equation& e : before) {
      extracted_.clear();  // equal terms of two equations may run over different sizes
      equation(e);
      made_.push_back(std::move(e));
    }
    program_.equations = std::move(made_);
  }

 private:
  using Names = std::unordered_map<AxisId, TermId>;

  void equation(Equation& e) {
    if (e.kind == Equation::Kind::kExtern) return;
    Names names;
    extents_.clear();
    size_t next = 0, ones = 0;
    const bool map = e.kind == Equation::Kind::kMap;
    const types::Sizes sizes = program_.buffer(e.target).type.sizes;
    if (e.kind == Equation::Kind::kScatter) {
      for (Range& r : e.over) {
        r.begin = rename(r.begin, names, e.over.size(), false);
        r.end = rename(r.end, names, e.over.size(), false);
        const AxisId axis = canonical_axis(program_, next++);
        bind(names, r.axis, axis, r.begin, r.end);
        r.axis = axis;
      }
    } else {
      for (size_t d = 0; d < e.axes.size(); ++d) {
        const AxisId old = e.axes[d];
        if (map && is_one(sizes[d])) {
          e.axes[d] = program_.axis(base::concat("z", ones++));
          names[old] = program_.constant_int(0, Dtype::kI64);
        } else {
          e.axes[d] = canonical_axis(program_, next++);
          bind(names, old, e.axes[d], program_.constant_int(0, Dtype::kI64), program_.size(sizes[d]));
        }
        if (e.along == old && e.along.valid() && !along_.valid()) along_ = e.axes[d];
      }
      if (along_.valid()) e.along = along_;
      along_ = {};
    }
    core_ = next;
    for (TermId& id : e.index) id = rename(id, names, next, false);
    e.value = rename(e.value, names, next, map);
  }

  void bind(Names& names, AxisId old, AxisId axis, TermId begin, TermId end) {
    const TermId value = program_.axis_value(axis);
    names[old] = value;
    const auto first = program_.as_size(begin), last = program_.as_size(end);
    extents_.erase(value);
    if (first && last && *first == Expr(0)) extents_[value] = *last;
  }

  /// `next`: the number of axes that are bound here. A reduction may stay where `top` holds and it has the whole space.
  TermId rename(TermId root, const Names& names, size_t next, bool top) {
    Rewrite rewrite(program_, [&](TermId id) -> std::optional<TermId> {
      const Term t = program_.term(id);
      if (t.op == Op::kAxis) {
        const auto found = names.find(AxisId(t.id));
        base::check(found != names.end(), "simplify: axis ", program_.axis_name(AxisId(t.id)), " is not bound");
        return found->second;
      }
      if (t.op == Op::kReduce) return reduction(t, names, next, top);
      if ((t.op == Op::kFloorDiv || t.op == Op::kMod) && t.dtype == Dtype::kI64) {
        const TermId a = rename(t.operands[0], names, next, top), n = rename(t.operands[1], names, next, top);
        if (const auto size = program_.as_size(n))
          if (const auto found = divide(program_, extents_, t.op, a, *size)) return found;
        return rebuild(program_, t, {a, n});
      }
      return std::nullopt;
    });
    return rewrite(root);
  }

  TermId reduction(const Term& t, const Names& outside, size_t next, bool top) {
    Names names = outside;
    std::vector<Range> ranges;
    const size_t first = next;
    for (const Range& r : program_.ranges_of(t)) {
      const TermId begin = rename(r.begin, names, next, false), end = rename(r.end, names, next, false);
      const auto low = program_.as_size(begin), high = program_.as_size(end);
      if (low && high && is_one(*high - *low)) {
        names[r.axis] = begin;
        continue;
      }
      const AxisId axis = canonical_axis(program_, next++);
      bind(names, r.axis, axis, begin, end);
      ranges.push_back({axis, begin, end});
    }
    const TermId body = rename(t.operands[0], names, next, false);
    if (ranges.empty() && program_.term(body).dtype == t.dtype && !gives_position(t.fold)) return body;
    if (ranges.empty() && gives_position(t.fold)) return program_.constant_int(0, Dtype::kI64);
    if (ranges.empty()) {  // a fold that changes the type keeps one axis
      const AxisId axis = canonical_axis(program_, next++);
      ranges.push_back({axis, program_.constant_int(0, Dtype::kI64), program_.constant_int(1, Dtype::kI64)});
    }
    const TermId made = program_.reduce(t.fold, ranges, body);
    uses_.extend(program_);
    const std::vector<AxisId> free = uses_.of(made).axes;
    if (top && free.size() == core_ && first == core_) return made;
    return extract(made, free);
  }

  /// An equation of its own for a reduction, over the axes that it depends on.
  TermId extract(TermId reduce, std::vector<AxisId> free) {
    std::vector<TermId> index;
    types::TensorType type;
    type.dtype = program_.term(reduce).dtype;
    for (const AxisId axis : free) {
      const TermId value = program_.axis_value(axis);
      const auto extent = extents_.find(value);
      if (extent == extents_.end()) return reduce;  // its space is no box: it stays
      index.push_back(value);
      type.sizes.push_back(extent->second);
    }
    type.strides = types::contiguous_strides(type.sizes);
    if (const auto known = extracted_.find(reduce); known != extracted_.end())
      return program_.load(known->second, index);
    Equation e;
    e.target = program_.add_buffer(fresh_name(program_, "part"), type, Role::kTemp);
    e.axes = free;
    e.value = reduce;
    const auto extents = extents_;
    const size_t core = core_;
    equation(e);
    extents_ = extents;
    core_ = core;
    made_.push_back(e);
    return program_.load(extracted_[reduce] = e.target, index);
  }

  Program& program_;
  Uses uses_;
  std::vector<Equation> made_;
  Extents extents_;
  std::unordered_map<TermId, BufferId> extracted_;
  AxisId along_;
  size_t core_ = 0;
};

}  // namespace

void simplify(Program& program) {
  Simplifier(program).run();
  drop_dead(program);
}

}  // namespace magneto::schedule
