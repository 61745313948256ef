#include "codegen/groups_internal.h"

#include <algorithm>

namespace magneto::codegen {

using namespace loop;

Grouped grouped_of(const Program& program, const Uses& uses, const Loop& l) {
  Grouped made;
  std::set<LocalId> own;
  for (const Statement& s : l.body)
    if (s.local.valid()) own.insert(s.local);
  const AxisId axis = l.ranges.back().axis;
  const auto fits = [&](BufferId id, const std::vector<TermId>& index) {
    for (const TermId i : index) {
      const Use& use = uses.of(i);
      if (use.loads || use.may_fault) return false;
      if (std::any_of(use.locals.begin(), use.locals.end(), [&](LocalId k) { return own.count(k) > 0; })) return false;
    }
    const auto stride = stride_along(program, uses, id, index, axis);
    return stride && *stride == types::Expr(1);
  };
  std::vector<TermId> roots;
  for (const Statement& s : l.body) {
    for_each_term(s, [&](TermId id) { roots.push_back(id); });
    if (s.kind == Statement::Kind::kStore && fits(s.buffer, s.index)) {
      made.stores.insert(&s);
      made.places.push_back({s.buffer, s.index});
    }
  }
  for_each_part(program, std::move(roots), [&](TermId id) {
    ++made.terms;
    const Term& t = program.term(id);
    if (t.op == Op::kLoad && fits(BufferId(t.id), t.operands)) made.loads.insert(id);
  });
  for (const TermId id : made.loads) made.places.push_back({BufferId(program.term(id).id), program.term(id).operands});
  return made;
}

namespace {

bool divides(const Program& program, TermId id, int64_t n) {
  const auto size = program.as_size(id);
  return size && types::Expr::mod(*size, n) == types::Expr(0);
}

/// Whether a term is a multiple of n where the axis of the range is at its begin.
bool begins_at_multiple(const Program& program, TermId id, const Range& r, int64_t n) {
  if (divides(program, id, n)) return true;
  const Term& t = program.term(id);
  const auto operand = [&](size_t k) { return begins_at_multiple(program, t.operands[k], r, n); };
  if (t.op == Op::kAxis) return AxisId(t.id) == r.axis && begins_at_multiple(program, r.begin, r, n);
  if (t.op == Op::kAdd || t.op == Op::kSub) return operand(0) && operand(1);
  return t.op == Op::kMul && (operand(0) || operand(1));
}

}  // namespace

// A block of an axis that was cut ends n * k elements after its begin or at the end of the axis.
bool is_multiple(const Program& program, const Range& r, int64_t n) {
  if (const auto extent = extent_of(program, r)) return *extent % n == 0;
  const Term &begin = program.term(r.begin), &end = program.term(r.end);
  const bool from_multiple =
      begin.op == Op::kMul && (divides(program, begin.operands[0], n) || divides(program, begin.operands[1], n));
  const auto ends_well = [&](TermId id) {
    const Term& t = program.term(id);
    if (t.op == Op::kAdd && t.operands[0] == r.begin) return divides(program, t.operands[1], n);
    return from_multiple && divides(program, id, n);
  };
  if (end.op == Op::kMin) return ends_well(end.operands[0]) && ends_well(end.operands[1]);
  return ends_well(r.end);
}

bool are_aligned(const Program& program, const std::vector<Grouped::Place>& places, const Range& range, int64_t n) {
  return std::all_of(places.begin(), places.end(), [&](const Grouped::Place& place) {
    const types::TensorType& type = program.buffer(place.buffer).type;
    const auto is_multiple = [&](const types::Expr& e) { return types::Expr::mod(e, n) == types::Expr(0); };
    bool aligned = is_multiple(type.offset);
    for (size_t d = 0; d < place.index.size() && aligned; ++d)
      aligned = is_multiple(type.strides[d]) || begins_at_multiple(program, place.index[d], range, n);
    return aligned;
  });
}

}  // namespace magneto::codegen
