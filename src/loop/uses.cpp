#include "loop/uses.h"

#include <algorithm>
#include <functional>
#include <map>

namespace magneto::loop {

namespace {

template <class Id>
void join(std::vector<Id>& into, const std::vector<Id>& from) {
  if (std::includes(into.begin(), into.end(), from.begin(), from.end())) return;
  if (into.empty()) {
    into = from;
    return;
  }
  std::vector<Id> both;
  both.reserve(into.size() + from.size());
  std::set_union(into.begin(), into.end(), from.begin(), from.end(), std::back_inserter(both));
  into = std::move(both);
}

bool may_be_zero(const Program& program, TermId divisor) {
  const Term& t = program.term(divisor);
  if (t.op == Op::kSize) return false;  // lowering drops loops over nothing before it divides by their extent
  return t.op != Op::kConstant || program.number(t).whole == 0;
}

}  // namespace

void Uses::extend(const Program& program) {
  const size_t first = uses_.size();
  uses_.resize(program.terms());
  for (size_t n = first; n < program.terms(); ++n) {
    const Term& t = program.term(TermId(n));
    Use& use = uses_[n];
    if (t.op == Op::kAxis) use.axes = {AxisId(t.id)};
    if (t.op == Op::kLocal) use.locals = {LocalId(t.id)};
    use.loads = t.op == Op::kLoad || t.op == Op::kGuarded;
    use.reduces = t.op == Op::kReduce;
    const bool divides = t.op == Op::kFloorDiv || t.op == Op::kMod || t.op == Op::kTruncDiv || t.op == Op::kFmod;
    use.may_fault =
        t.op == Op::kChecked || (divides && !types::is_floating(t.dtype) && may_be_zero(program, t.operands[1]));
    for (size_t k = 0; k < t.operands.size(); ++k) {
      const Use& operand = uses_[t.operands[k].index()];
      join(use.axes, operand.axes);
      join(use.locals, operand.locals);
      use.loads |= operand.loads;
      use.reduces |= operand.reduces;
      use.may_fault |= operand.may_fault;
      if (t.op == Op::kReduce && k == 0)  // the body binds the axes; the ranges after it do not see them
        std::erase_if(use.axes, [&](AxisId a) { return std::find(t.axes.begin(), t.axes.end(), a) != t.axes.end(); });
    }
  }
}

bool Uses::depends(TermId id, AxisId axis) const {
  const std::vector<AxisId>& axes = of(id).axes;
  return std::binary_search(axes.begin(), axes.end(), axis);
}

std::vector<Touch> touches_of(const Program& program, const Kernel& kernel) {
  std::map<BufferId, Touch> found;
  const auto touch = [&](BufferId id) -> Touch& {
    const BufferId storage = program.storage(id);
    Touch& made = found[storage];
    made.storage = storage;
    return made;
  };
  const auto read = [&](TermId root) {
    for_each_part(program, root, [&](TermId id) {
      const Term& t = program.term(id);
      if (t.op != Op::kLoad && t.op != Op::kGuarded) return;
      Touch& made = touch(BufferId(t.id));
      made.reads |= !made.writes;
    });
  };
  const std::function<void(const Statement&)> statement = [&](const Statement& s) {
    for_each_term(s, read);
    if (s.buffer.valid()) {
      Touch& made = touch(s.buffer);
      made.reads |= s.kind == Statement::Kind::kUpdate && !made.writes;
      made.writes = true;
    }
    for (const Loop& l : s.loop) {
      for (const Range& r : l.ranges) {
        read(r.begin);
        read(r.end);
      }
      for (const Statement& inner : l.body) statement(inner);
    }
  };
  for (const Statement& s : kernel.once) statement(s);
  for (const Statement& s : kernel.body) statement(s);
  std::vector<Touch> list;
  for (const auto& [storage, made] : found)
    if (program.buffer(storage).role != Role::kRow) list.push_back(made);
  return list;
}

std::optional<types::Expr> stride_along(const Program& program, const Uses& uses, TermId term, AxisId axis) {
  if (!uses.depends(term, axis)) return types::Expr(0);
  const Term& t = program.term(term);
  const auto operand = [&](size_t k) { return stride_along(program, uses, t.operands[k], axis); };
  switch (t.op) {
    case Op::kAxis:
      return types::Expr(1);
    case Op::kNeg:
      if (const auto a = operand(0)) return -*a;
      return std::nullopt;
    case Op::kAdd:
    case Op::kSub: {
      const auto a = operand(0), b = operand(1);
      if (!a || !b) return std::nullopt;
      return t.op == Op::kAdd ? *a + *b : *a - *b;
    }
    case Op::kMul:
      for (size_t k = 0; k < 2; ++k)
        if (const auto factor = program.as_size(t.operands[1 - k]))
          if (const auto a = operand(k)) return *a * *factor;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<types::Expr> stride_along(const Program& program, const Uses& uses, BufferId buffer,
                                        const std::vector<TermId>& index, AxisId axis) {
  const types::Sizes& strides = program.buffer(buffer).type.strides;
  types::Expr sum = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    const auto stride = stride_along(program, uses, index[d], axis);
    if (!stride) return std::nullopt;
    sum = sum + *stride * strides[d];
  }
  return sum;
}

TermId with_checks(Program& program, TermId value, const std::vector<TermId>& index) {
  std::vector<TermId> lost;
  for_each_part(program, index, [&](TermId id) {
    if (program.term(id).op == Op::kChecked) lost.push_back(id);
  });
  if (lost.empty()) return value;
  for_each_part(program, value, [&](TermId id) { std::erase(lost, id); });
  std::sort(lost.begin(), lost.end());  // a check that stands in another one comes first
  while (!lost.empty()) {
    const TermId last = lost.back();
    for_each_part(program, last, [&](TermId id) { std::erase(lost, id); });
    const TermId zero = program.constant_int(0, program.term(last).dtype);
    value = program.where(program.binary(Op::kLt, last, zero), value, value);
  }
  return value;
}

std::optional<int64_t> extent_of(const Program& program, const Range& range) {
  const auto begin = program.as_size(range.begin), end = program.as_size(range.end);
  return begin && end ? (*end - *begin).constant() : std::nullopt;
}

std::optional<int64_t> most_of(const Program& program, const Range& range) {
  if (const auto extent = extent_of(program, range)) return extent;
  const auto ahead = [&](TermId id) -> std::optional<int64_t> {
    const Term& t = program.term(id);
    const auto by = t.op == Op::kAdd && t.operands[0] == range.begin ? program.as_size(t.operands[1]) : std::nullopt;
    return by ? by->constant() : std::nullopt;
  };
  const Term& end = program.term(range.end);
  if (end.op != Op::kMin) return ahead(range.end);
  const auto a = ahead(end.operands[0]), b = ahead(end.operands[1]);
  return a ? a : b;
}

}  // namespace magneto::loop
