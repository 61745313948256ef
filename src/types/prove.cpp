// E >= 0 is shown by making E smaller until it has no symbols: of E = R + B * X, with B of a known sign, X is replaced
// by what it is never above (B < 0) or never below (B > 0). The youngest variables leave first, and before them the
// divisions, minima and maxima that hold them, so that what remains is made of what is older: an axis by the bounds of
// its range, which are made of the axes around it, and in the end sizes by the conditions.
//
//   n - 1 - 32*b - i     with i <= 31 and i <= n - 1 - 32*b          (a block of an axis that was cut)
//   replace i by n - 1 - 32*b:     0
//
// Where there is a choice (two bounds of one variable, a minimum) each is tried, as long as there is fuel: the cost of
// a question is bounded. Remainders are written as a - n * (a // n), so that they meet the quotients beside them.
//
// Expressions count modulo 2^64, proofs must not: a sum whose numbers come near that is not looked at.
#include "types/prove.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "types/expr_internal.h"
#include "types/solve.h"

namespace magneto::types {

namespace {

constexpr uint32_t kFirst = Prover::kFirstVariable;
constexpr int kFuel = 200, kDepth = 14;

uint32_t youngest(const Expr& e);
uint32_t youngest(const Atom& a) {
  if (a.kind == Atom::Kind::kSymbol) return a.symbol;
  uint32_t most = 0;
  for (const Expr& operand : a.operands) most = std::max(most, youngest(operand));
  return most;
}
uint32_t youngest(const Expr& e) {
  uint32_t most = 0;
  if (const ExprNode* node = e.node())
    for (const Term& term : node->terms)
      for (const AtomPtr& a : term.atoms) most = std::max(most, youngest(*a));
  return most;
}

int depth_of(const Atom& a) {
  int deepest = 0;
  for (const Expr& operand : a.operands)
    if (const ExprNode* node = operand.node())
      for (const Term& term : node->terms)
        for (const AtomPtr& inner : term.atoms) deepest = std::max(deepest, 1 + depth_of(*inner));
  return a.kind == Atom::Kind::kSymbol ? 0 : std::max(deepest, 1);
}

/// The atom that must leave next: of the youngest ones the one that holds most others, which may stand beside it, too;
/// of x // 16 and x // 64 the second, which is (x // 16) // 4.
AtomPtr first_to_leave(const Expr& e) {
  AtomPtr best;
  std::tuple<uint32_t, int, int64_t> rank;
  for (const Term& term : e.node()->terms)
    for (const AtomPtr& a : term.atoms) {
      const bool divides = a->kind == Atom::Kind::kFloorDiv;
      const std::tuple own = {youngest(*a), depth_of(*a), divides ? a->operands[1].value_or(0) : 0};
      if (best && own <= rank) continue;
      best = a;
      rank = own;
    }
  return best;
}

/// e == rest + factor * x.
struct Parts {
  Expr rest, factor;
};
std::optional<Parts> isolate(const Expr& e, const Atom& x) {
  if (e.is_constant()) return Parts{e, 0};
  int64_t rest = e.node()->constant, factor = 0;
  std::vector<Term> rests, factors;
  for (const Term& term : e.node()->terms) {
    const auto is_x = [&](const AtomPtr& a) { return equal(*a, x); };
    const auto found = std::find_if(term.atoms.begin(), term.atoms.end(), is_x);
    if (found == term.atoms.end()) {
      rests.push_back(term);
      continue;
    }
    if (std::find_if(found + 1, term.atoms.end(), is_x) != term.atoms.end()) return std::nullopt;
    if (term.atoms.size() == 1) {
      factor = term.factor;
      continue;
    }
    Term other{term.factor, {}};
    for (auto at = term.atoms.begin(); at != term.atoms.end(); ++at)
      if (at != found) other.atoms.push_back(*at);
    factors.push_back(std::move(other));
  }
  return Parts{sum_of(rest, std::move(rests)), sum_of(factor, std::move(factors))};
}

/// The sum of all its numbers, without their signs: no number that comes of adding is larger.
double weight(const Expr& e) {
  if (e.is_constant()) return std::fabs(static_cast<double>(e.value_or(0)));
  double sum = std::fabs(static_cast<double>(e.node()->constant));
  for (const Term& term : e.node()->terms) sum += std::fabs(static_cast<double>(term.factor));
  return sum;
}
using Known = std::optional<Expr>;
/// a + b * c, unless that is too large.
Known sum(const Known& a, const Known& b, const Known& c) {
  constexpr double kLarge = 4e18;
  if (!a || !b || !c || weight(*a) + weight(*b) * weight(*c) > kLarge) return std::nullopt;
  return *a + *b * *c;
}
Known times(const Known& a, const Known& b) { return sum(Expr(0), a, b); }
Known minus(const Known& a, const Known& b) { return sum(a, Expr(-1), b); }

/// a % n becomes a - n * (a // n), but not inside of other atoms: those leave first.
Expr without_remainders(Expr e) {
  for (int turn = 0; turn < 8 && !e.is_constant(); ++turn) {
    AtomPtr found;
    for (const Term& term : e.node()->terms)
      for (const AtomPtr& a : term.atoms)
        if (a->kind == Atom::Kind::kMod) found = a;
    if (!found) return e;
    const auto parts = isolate(e, *found);
    if (!parts) return e;
    const Expr &a = found->operands[0], &n = found->operands[1];
    const Known whole = sum(parts->rest, parts->factor, minus(a, times(n, Expr::floor_div(a, n))));
    if (!whole) return e;
    e = *whole;
  }
  return e;
}

/// Of x = a // n an atom a // m beside it, so that x is a quotient of that, too.
AtomPtr divided_before(const Expr& beside, const Atom& x) {
  const int64_t n = x.operands[1].value_or(0);
  if (beside.is_constant() || n < 1) return nullptr;
  for (const Term& term : beside.node()->terms)
    for (const AtomPtr& other : term.atoms) {
      if (other->kind != Atom::Kind::kFloorDiv || !(other->operands[0] == x.operands[0])) continue;
      if (const int64_t m = other->operands[1].value_or(0); m > 1 && m < n && n % m == 0) return other;
    }
  return nullptr;
}

int64_t ceil_of(int64_t a, int64_t b) { return a / b + (a % b > 0); }

}  // namespace

Prover::Prover(const std::vector<Condition>& conditions) : next_(kFirst) {
  for (const Condition& condition : conditions) assume(condition);
  // what is known of a symbol is known of those that it equals
  const Solution solution(conditions);
  if (solution.empty()) return;
  for (const Condition& c : conditions) assume({solution.of(c.left), c.relation, solution.of(c.right)});
}

Expr Prover::variable(const std::vector<Expr>& most) {
  const Expr made = Expr::symbol(next_++);
  for (const Expr& bound : most) assume_not_negative(bound - made);
  return made;
}

void Prover::assume(const Condition& condition) {
  const Expr more = condition.right - condition.left;
  switch (condition.relation) {
    case Relation::kEq:
      assume_not_negative(more);
      return assume_not_negative(-more);
    case Relation::kLe:
      return assume_not_negative(more);
    case Relation::kLt:
      return assume_not_negative(more - 1);
    case Relation::kNe:  // a size that is not zero is positive
      if (condition.right == Expr(0) && condition.left.lower_bound(least_).value_or(-1) >= 0)
        return assume_not_negative(condition.left - 1);
      if (condition.left == Expr(0) && condition.right.lower_bound(least_).value_or(-1) >= 0)
        return assume_not_negative(condition.right - 1);
      return;
  }
}

void Prover::assume_not_negative(const Expr& given) {
  const Expr e = without_remainders(given);
  if (e.is_constant()) return;
  facts_.push_back({e, least_});
  in_use_.push_back(false);
  // factor * a * b - n >= 0 with n > 0: none of a and b is zero; a alone is at least n / factor. What is taken away
  // besides (a variable) makes it no less.
  const ExprNode& node = *e.node();
  const Term* positive = nullptr;
  for (const Term& term : node.terms) {
    const bool is_plain = std::all_of(term.atoms.begin(), term.atoms.end(),
                                      [](const AtomPtr& a) { return a->kind == Atom::Kind::kSymbol; });
    if (!is_plain || (term.factor > 0 && positive)) return;
    if (term.factor > 0) positive = &term;
  }
  if (!positive || node.constant >= 0) return;
  const int64_t alone = positive->atoms.size() == 1 ? ceil_of(-node.constant, positive->factor) : 1;
  for (const AtomPtr& a : positive->atoms) {
    if (a->symbol >= kFirst) continue;
    if (least_.size() <= a->symbol) least_.resize(a->symbol + 1);
    least_[a->symbol] = std::max(least_[a->symbol], alone);
  }
}

void Prover::back_to(const Mark& mark) {
  if (facts_.size() > mark.facts) least_ = std::move(facts_[mark.facts].before);
  facts_.resize(mark.facts);
  in_use_.resize(mark.facts);
  next_ = mark.next;
}

bool Prover::never_negative(const Expr& given) {
  const Expr e = without_extremes(given);
  if (e.is_constant()) return e.value_or(-1) >= 0;
  fuel_ = kFuel;
  return prove(e, kDepth) || by_products(e);
}

/// By facts about products, which say nothing of one symbol alone: s0 * s1 == s2 * s3, where a tensor is looked at with
/// other sizes.
bool Prover::by_products(const Expr& e) {
  const auto same = [](const Term& a, const Term& b) {
    return std::equal(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
                      [](const AtomPtr& one, const AtomPtr& other) { return equal(*one, *other); });
  };
  for (const Fact& fact : facts_) {
    int64_t times_fact = 0;
    for (const Term& part : fact.e.node()->terms)
      for (const Term& term : e.node()->terms)
        if (part.atoms.size() > 1 && term.factor % part.factor == 0 && same(part, term))
          times_fact = std::max(times_fact, term.factor / part.factor);
    if (times_fact > 0 && prove(sum(e, Expr(-times_fact), fact.e), kDepth)) return true;
  }
  return false;
}

/// max(s0, 1) is s0 where s0 is known to be positive: torch's strides are products of such. They meet the sizes only
/// when they look like them.
Expr Prover::without_extremes(const Expr& e) const {
  using Kind = Atom::Kind;
  const auto holds_one = [](const Expr& of, const auto& self) -> bool {
    if (of.is_constant()) return false;
    for (const Term& term : of.node()->terms)
      for (const AtomPtr& a : term.atoms) {
        if (a->kind == Kind::kMin || a->kind == Kind::kMax) return true;
        for (const Expr& operand : a->operands)
          if (self(operand, self)) return true;
      }
    return false;
  };
  if (!holds_one(e, holds_one)) return e;
  const auto made_of = [&](const AtomPtr& a) -> Expr {
    if (a->kind == Kind::kSymbol) return sum_of(0, {Term{1, {a}}});
    std::vector<Expr> operands;
    for (const Expr& operand : a->operands) operands.push_back(without_extremes(operand));
    if (a->kind == Kind::kFloorDiv) return Expr::floor_div(operands[0], operands[1]);
    if (a->kind == Kind::kMod) return Expr::mod(operands[0], operands[1]);
    const bool most = a->kind == Kind::kMax;
    Expr best = operands[0];
    for (size_t k = 1; k < operands.size(); ++k) {
      const Expr &one = best, &other = operands[k];
      if (is_known(most ? other - one : one - other))
        best = other;
      else if (!is_known(most ? one - other : other - one))
        best = most ? Expr::max(one, other) : Expr::min(one, other);
    }
    return best;
  };
  Known made = Expr(e.node()->constant);
  for (const Term& term : e.node()->terms) {
    Known product = Expr(term.factor);
    for (const AtomPtr& a : term.atoms) product = times(product, made_of(a));
    made = sum(made, Expr(1), product);
  }
  return made.value_or(e);
}

/// The byte after its last element.
static Expr end_of(const TensorType& type) {
  Expr last = type.offset;
  for (size_t d = 0; d < type.sizes.size(); ++d) last = last + (type.sizes[d] - 1) * type.strides[d];
  return (last + 1) * static_cast<int64_t>(item_size(type.dtype));
}

std::optional<bool> Prover::decide(const Condition& question) {
  const auto& [a, relation, b] = question;
  const auto less = [&](const Expr& x, const Expr& y) { return is_positive(y - x); };
  const auto at_most = [&](const Expr& x, const Expr& y) { return never_negative(y - x); };
  const auto either = [](bool yes, bool no) {
    return yes ? std::optional(true) : no ? std::optional(false) : std::nullopt;
  };
  switch (relation) {
    case Relation::kEq:
      return either(a == b || (at_most(a, b) && at_most(b, a)), less(a, b) || less(b, a));
    case Relation::kNe:
      return either(less(a, b) || less(b, a), a == b || (at_most(a, b) && at_most(b, a)));
    case Relation::kLt:
      return either(less(a, b), at_most(b, a));
    case Relation::kLe:
      return either(at_most(a, b), less(b, a));
  }
  return std::nullopt;
}

bool Prover::lies_inside(const TensorType& view, const TensorType& of) {
  for (const Expr& size : view.sizes)
    if (size == Expr(0)) return true;
  const Mark before = mark();
  for (const Expr& size : view.sizes) assume_not_negative(size - 1);  // else there is nothing to look at
  const auto fine = [&](const Expr& e) { return never_negative(e); };
  const auto some = [&](const Expr& e) { return is_positive(e); };
  const bool inside = std::all_of(view.strides.begin(), view.strides.end(), fine) && fine(view.offset) &&
                      (std::all_of(of.sizes.begin(), of.sizes.end(), some) || some(numel(of.sizes))) &&
                      fine(end_of(of) - end_of(view));
  back_to(before);
  return inside;
}

std::vector<Condition> Prover::to_lie_inside(const TensorType& view, const TensorType& of) {
  std::vector<Condition> list;
  for (const auto* all : {&view.sizes, &view.strides, &of.sizes})
    for (const Expr& e : *all)
      if (!never_negative(e)) list.push_back({0, Relation::kLe, e});
  if (!never_negative(view.offset)) list.push_back({0, Relation::kLe, view.offset});
  // one without elements needs no memory, and has none
  const auto memory = [](const TensorType& t) { return Expr::min(numel(t.sizes), 1) * end_of(t); };
  list.push_back({memory(view), Relation::kLe, memory(of)});
  return list;
}

/// Whether it shows at once, perhaps by one of the facts.
bool Prover::is_known(const Expr& e) const {
  return simple(e) || std::any_of(facts_.begin(), facts_.end(), [&](const Fact& fact) {
           const Known more = minus(e, fact.e);
           return more && simple(*more);
         });
}

/// Whether it shows at once: all factors are positive, where each size is counted from the least it can be.
bool Prover::simple(const Expr& e) const {
  if (e.lower_bound(least_).value_or(-1) >= 0) return true;
  if (e.is_constant() || least_.empty()) return false;
  Known moved = Expr(e.node()->constant);
  for (const Term& term : e.node()->terms) {
    Known product = Expr(term.factor);
    for (const AtomPtr& a : term.atoms) {
      const bool known = a->kind == Atom::Kind::kSymbol && a->symbol < least_.size();
      product = times(product, sum_of(known ? least_[a->symbol] : 0, {Term{1, {a}}}));
    }
    moved = sum(moved, Expr(1), product);
  }
  return moved && moved->lower_bound({}).value_or(-1) >= 0;
}

bool Prover::prove(const std::optional<Expr>& given, int depth) {
  if (!given) return false;
  const Expr e = without_remainders(*given);
  if (simple(e)) return true;
  if (e.is_constant() || depth == 0 || --fuel_ < 0) return false;
  const AtomPtr x = first_to_leave(e);
  const auto parts = isolate(e, *x);
  if (!parts) return false;
  const bool shown = simple(parts->factor), falls = !shown && simple(-parts->factor);
  const bool rises = shown || (!falls && prove(parts->factor, depth - 1));
  if (!rises && !falls && !prove(-parts->factor, depth - 1)) return false;
  return by_facts(parts->rest, parts->factor, rises, *x, depth) ||
         by_itself(parts->rest, parts->factor, rises, *x, depth);
}

/// rest + factor * x, by what was assumed of x: f * x + r >= 0 leads to |f| times that.
bool Prover::by_facts(const Expr& rest, const Expr& factor, bool rises, const Atom& x, int depth) {
  for (size_t k = facts_.size(); k-- > 0;) {
    if (in_use_[k]) continue;
    const auto fact = isolate(facts_[k].e, x);
    const int64_t f = fact ? fact->factor.value_or(0) : 0;
    if (f == 0 || f == INT64_MIN || (f > 0) != rises) continue;
    in_use_[k] = true;
    const bool proved = prove(sum(times(Expr(std::abs(f)), rest), f > 0 ? -factor : factor, fact->rest), depth - 1);
    in_use_[k] = false;
    if (proved) return true;
  }
  return false;
}

/// The same of x = a // n, by what was assumed of the youngest variable in a: i // 4 is at most s - 1 where i is at
/// most 4 * s - 1.
bool Prover::by_bounds(const Expr& rest, const Expr& factor, bool rises, const Expr& a, const Expr& n, int depth) {
  if (a.is_constant()) return false;
  const AtomPtr v = first_to_leave(a);
  const auto parts = v->kind == Atom::Kind::kSymbol ? isolate(a, *v) : std::nullopt;
  if (!parts || parts->factor.value_or(0) == 0) return false;
  const bool above = rises == (parts->factor.value_or(0) < 0);  // v is replaced by what it is never above
  for (size_t k = facts_.size(); k-- > 0;) {
    const auto fact = isolate(facts_[k].e, *v);
    if (!fact || fact->factor != Expr(above ? -1 : 1)) continue;
    const Known edge = sum(parts->rest, parts->factor, above ? fact->rest : -fact->rest);
    if (edge && prove(sum(rest, factor, Expr::floor_div(*edge, n)), depth - 1)) return true;
  }
  return false;
}

/// The same of x = a // n, where n is positive.
bool Prover::by_division(const Expr& rest, const Expr& factor, bool rises, const Expr& a, const Expr& n, int depth) {
  // alone it is known exactly: a // n <= r when a < (r + 1) * n, a // n >= -r when a >= -r * n
  if (factor == Expr(1)) return prove(sum(a, rest, n), depth - 1);
  if (factor == Expr(-1)) return prove(minus(sum(n - 1, rest, n), a), depth - 1);
  if (by_bounds(rest, factor, rises, a, n, depth)) return true;
  const Known edge = rises ? minus(a, n - 1) : a;  // n * x is never below it, or never above
  const bool divides = Expr::mod(factor, n) == Expr(0);
  return prove(divides ? sum(rest, Expr::floor_div(factor, n), edge) : sum(times(n, rest), factor, edge), depth - 1);
}

/// The same, by what x is.
bool Prover::by_itself(const Expr& rest, const Expr& factor, bool rises, const Atom& x, int depth) {
  switch (x.kind) {
    case Atom::Kind::kSymbol:
      return rises && prove(sum(rest, factor, x.symbol < least_.size() ? least_[x.symbol] : 0), depth - 1);
    case Atom::Kind::kMin:
    case Atom::Kind::kMax: {
      const auto holds = [&](const Expr& operand) { return prove(sum(rest, factor, operand), depth - 1); };
      return (x.kind == Atom::Kind::kMin) == rises ? std::all_of(x.operands.begin(), x.operands.end(), holds)
                                                   : std::any_of(x.operands.begin(), x.operands.end(), holds);
    }
    case Atom::Kind::kFloorDiv: {
      const Expr &a = x.operands[0], &n = x.operands[1];
      if (!prove(n - 1, depth - 1)) return false;
      if (const auto part = divided_before(rest, x)) {
        const int64_t by = n.value_or(1) / part->operands[1].value_or(1);
        if (by_division(rest, factor, rises, sum_of(0, {Term{1, {part}}}), by, depth)) return true;
      }
      return by_division(rest, factor, rises, a, n, depth) || (rises && simple(a) && prove(rest, depth - 1));
    }
    case Atom::Kind::kMod:
      break;  // multiplied with itself
  }
  return false;
}

}  // namespace magneto::types
