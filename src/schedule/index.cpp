// An index is taken apart into a sum of factor * axis. What n divides goes into the quotient; the rest stays in 0 .. n
// when its axes count through the places of a number, like digits: j + 8 * k with j < 8 and k < 4 counts to 32.
#include <algorithm>

#include "schedule/index_internal.h"
#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

namespace {

struct Linear {
  std::vector<std::pair<Expr, TermId>> parts;
  Expr constant = 0;
};

void collect(const Program& program, TermId id, const Expr& factor, Linear& sum) {
  if (const auto size = program.as_size(id)) {
    sum.constant = sum.constant + factor * *size;
    return;
  }
  const Term& t = program.term(id);
  if (t.op == Op::kAdd || t.op == Op::kSub) {
    collect(program, t.operands[0], factor, sum);
    return collect(program, t.operands[1], t.op == Op::kAdd ? factor : -factor, sum);
  }
  if (t.op == Op::kNeg) return collect(program, t.operands[0], -factor, sum);
  if (t.op == Op::kMul)
    for (size_t k = 0; k < 2; ++k)
      if (const auto size = program.as_size(t.operands[k]))
        return collect(program, t.operands[1 - k], factor * *size, sum);
  for (auto& [coefficient, atom] : sum.parts)
    if (atom == id) {
      coefficient = coefficient + factor;
      return;
    }
  sum.parts.emplace_back(factor, id);
}

bool counts_below(const Extents& extents, Linear rest, const Expr& n) {
  if (!(rest.constant == Expr(0))) {
    // numbers alone: the largest value is known
    Expr most = rest.constant;
    for (const auto& [factor, atom] : rest.parts) {
      const auto found = extents.find(atom);
      if (found == extents.end() || factor.value_or(-1) < 0) return false;
      most = most + factor * (found->second - 1);
    }
    return rest.constant.value_or(-1) >= 0 && most.is_constant() && n.is_constant() && most.value_or(0) < n.value_or(0);
  }
  Expr total = 1;
  while (!rest.parts.empty()) {
    const auto next = std::find_if(rest.parts.begin(), rest.parts.end(), [&](const auto& p) {
      const auto factor = p.first.constant(), reached = total.constant();
      return extents.count(p.second) && (p.first == total || (factor && reached && *factor >= *reached));
    });
    if (next == rest.parts.end()) return false;
    // numbers: the smallest factor first
    auto least = next;
    for (auto at = next; at != rest.parts.end(); ++at)
      if (extents.count(at->second) && at->first.is_constant() && least->first.is_constant() &&
          at->first.value_or(0) >= total.value_or(1) && at->first.value_or(0) < least->first.value_or(0))
        least = at;
    total = least->first * extents.at(least->second);
    rest.parts.erase(least);
  }
  return total == n || (total.is_constant() && n.is_constant() && total.value_or(0) <= n.value_or(0));
}

TermId write(Program& program, const Linear& sum) {
  TermId made;
  for (const auto& [factor, atom] : sum.parts) {
    if (factor == Expr(0)) continue;
    const TermId part = factor == Expr(1) ? atom : program.binary(Op::kMul, atom, program.size(factor));
    made = made.valid() ? program.binary(Op::kAdd, made, part) : part;
  }
  if (!made.valid()) return program.size(sum.constant);
  return sum.constant == Expr(0) ? made : program.binary(Op::kAdd, made, program.size(sum.constant));
}

}  // namespace

std::optional<TermId> divide(Program& program, const Extents& extents, Op op, TermId a, const Expr& n) {
  if (n.value_or(1) < 1) return std::nullopt;
  Linear sum, multiples, rest;
  collect(program, a, 1, sum);
  const auto sort = [&](const Expr& factor, TermId atom) {
    const bool divides = Expr::mod(factor, n) == Expr(0);
    if (!divides) return false;
    multiples.parts.emplace_back(Expr::floor_div(factor, n), atom);
    return true;
  };
  for (const auto& [factor, atom] : sum.parts)
    if (!sort(factor, atom)) rest.parts.emplace_back(factor, atom);
  if (Expr::mod(sum.constant, n) == Expr(0))
    multiples.constant = Expr::floor_div(sum.constant, n);
  else
    rest.constant = sum.constant;
  if (!counts_below(extents, rest, n)) return std::nullopt;
  return write(program, op == Op::kFloorDiv ? multiples : rest);
}

}  // namespace magneto::schedule
