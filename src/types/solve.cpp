#include "types/solve.h"

#include <algorithm>

#include "types/expr_internal.h"

namespace magneto::types {

namespace {

using Values = std::vector<std::optional<Expr>>;

Expr replace(const Expr& e, const Values& values);

Expr replace(const Atom& a, const Values& values) {
  if (a.kind == Atom::Kind::kSymbol)
    return a.symbol < values.size() && values[a.symbol] ? *values[a.symbol] : Expr::symbol(a.symbol);
  Expr result = replace(a.operands[0], values);
  for (size_t k = 1; k < a.operands.size(); ++k) {
    const Expr next = replace(a.operands[k], values);
    switch (a.kind) {
      case Atom::Kind::kFloorDiv:
        result = Expr::floor_div(result, next);
        break;
      case Atom::Kind::kMod:
        result = Expr::mod(result, next);
        break;
      case Atom::Kind::kMin:
        result = Expr::min(result, next);
        break;
      default:
        result = Expr::max(result, next);
    }
  }
  return result;
}

Expr replace(const Expr& e, const Values& values) {
  if (e.is_constant()) return e;
  std::vector<uint32_t> symbols;
  e.collect_symbols(symbols);
  if (std::none_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return s < values.size() && values[s]; }))
    return e;
  Expr sum = e.node()->constant;
  for (const Term& term : e.node()->terms) {
    Expr product = term.factor;
    for (const AtomPtr& a : term.atoms) product = product * replace(*a, values);
    sum = sum + product;
  }
  return sum;
}

/// A symbol that `zero == 0` tells, and its value. One that stands alone in a term, and nowhere else.
std::optional<std::pair<uint32_t, Expr>> tell(const Expr& zero) {
  if (zero.is_constant()) return std::nullopt;
  for (const Term& term : zero.node()->terms) {
    if (term.atoms.size() != 1 || term.atoms[0]->kind != Atom::Kind::kSymbol) continue;
    const Expr symbol = Expr::symbol(term.atoms[0]->symbol), rest = zero - term.factor * symbol;
    std::vector<uint32_t> others;
    rest.collect_symbols(others);
    if (std::find(others.begin(), others.end(), term.atoms[0]->symbol) != others.end()) continue;
    if (term.factor == 1) return {{term.atoms[0]->symbol, -rest}};
    if (term.factor == -1) return {{term.atoms[0]->symbol, rest}};
    if (const auto number = rest.constant(); number && *number % term.factor == 0)
      return {{term.atoms[0]->symbol, Expr(-*number / term.factor)}};
  }
  return std::nullopt;
}

}  // namespace

Solution::Solution(const std::vector<Condition>& conditions) {
  for (bool again = true; again;) {  // an equality may tell a symbol only once another one is known
    again = false;
    for (const Condition& condition : conditions) {
      if (condition.relation != Relation::kEq) continue;
      const auto told = tell(of(condition.left - condition.right));
      if (!told) continue;
      Values one(told->first + 1);
      one[told->first] = told->second;
      for (std::optional<Expr>& value : values_)
        if (value) value = replace(*value, one);
      if (values_.size() <= told->first) values_.resize(told->first + 1);
      values_[told->first] = told->second;
      empty_ = false;
      again = true;
    }
  }
}

Expr Solution::of(const Expr& e) const { return empty_ ? e : replace(e, values_); }

}  // namespace magneto::types
