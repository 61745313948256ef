// The engine keeps expressions in the normal form of expr_internal.h. Sums and products are exact in the ring of 64-bit
// integers. Divisions are simplified only by rules that hold for every value of the symbols for which the division is
// defined: multiples of the divisor leave (k*q + r) // k as q + r // k, common factors cancel, and what is left becomes
// an atom. Symbols are never negative; that bounds many expressions from below, and decides min and max.
#include "types/expr.h"

#include <algorithm>
#include <compare>
#include <numeric>

#include "base/check.h"
#include "types/expr_internal.h"

namespace magneto::types {

namespace {

// Wrapping arithmetic: an overflow is no undefined behaviour, and the ring laws keep the normal form sound.
int64_t add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
int64_t neg(int64_t a) { return static_cast<int64_t>(-static_cast<uint64_t>(a)); }

int64_t floor_div_numbers(int64_t a, int64_t b) {
  if (b == -1) return neg(a);
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
int64_t mod_numbers(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

size_t mix(size_t seed, size_t value) { return seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2)); }

// ---- order -------------------------------------------------------------------------------------------------------

std::strong_ordering order(const Expr& a, const Expr& b);

std::strong_ordering order(const Atom& a, const Atom& b) {
  if (&a == &b) return std::strong_ordering::equal;
  if (a.kind != b.kind) return a.kind <=> b.kind;
  if (a.symbol != b.symbol) return a.symbol <=> b.symbol;
  if (a.operands.size() != b.operands.size()) return a.operands.size() <=> b.operands.size();
  for (size_t i = 0; i < a.operands.size(); ++i)
    if (const auto c = order(a.operands[i], b.operands[i]); c != 0) return c;
  return std::strong_ordering::equal;
}

std::strong_ordering order(const std::vector<AtomPtr>& a, const std::vector<AtomPtr>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (const auto c = order(*a[i], *b[i]); c != 0) return c;
  return a.size() <=> b.size();
}

std::strong_ordering order(const Expr& a, const Expr& b) {
  if (a.is_constant() || b.is_constant()) {
    if (a.is_constant() != b.is_constant()) return a.is_constant() <=> b.is_constant();
    return a.value_or(0) <=> b.value_or(0);
  }
  const ExprNode &x = *a.node(), &y = *b.node();
  if (&x == &y) return std::strong_ordering::equal;
  if (x.terms.size() != y.terms.size()) return x.terms.size() <=> y.terms.size();
  for (size_t i = 0; i < x.terms.size(); ++i) {
    if (const auto c = order(x.terms[i].atoms, y.terms[i].atoms); c != 0) return c;
    if (x.terms[i].factor != y.terms[i].factor) return x.terms[i].factor <=> y.terms[i].factor;
  }
  return x.constant <=> y.constant;
}

bool before(const AtomPtr& a, const AtomPtr& b) { return order(*a, *b) < 0; }

// ---- building ----------------------------------------------------------------------------------------------------

struct Sum {  // a node under construction: terms in any order, repetitions allowed
  int64_t constant = 0;
  std::vector<Term> terms;
};

Sum open(const Expr& e) {
  if (e.is_constant()) return {e.value_or(0), {}};
  return {e.node()->constant, e.node()->terms};
}

Expr close(Sum sum) {
  std::sort(sum.terms.begin(), sum.terms.end(),
            [](const Term& a, const Term& b) { return order(a.atoms, b.atoms) < 0; });
  std::vector<Term> terms;
  for (Term& term : sum.terms) {
    if (!terms.empty() && order(terms.back().atoms, term.atoms) == 0)
      terms.back().factor = add(terms.back().factor, term.factor);
    else
      terms.push_back(std::move(term));
  }
  std::erase_if(terms, [](const Term& term) { return term.factor == 0; });
  if (terms.empty()) return Expr(sum.constant);
  auto node = std::make_shared<ExprNode>();
  node->constant = sum.constant;
  node->terms = std::move(terms);
  size_t hash = mix(0x517cc1b7, static_cast<size_t>(node->constant));
  for (const Term& term : node->terms) {
    hash = mix(hash, static_cast<size_t>(term.factor));
    for (const AtomPtr& atom : term.atoms) hash = mix(hash, atom->hash);
  }
  node->hash = hash;
  return Expr(std::shared_ptr<const ExprNode>(std::move(node)));
}

Expr atom(Atom::Kind kind, uint32_t symbol, std::vector<Expr> operands) {
  auto made = std::make_shared<Atom>();
  made->kind = kind;
  made->symbol = symbol;
  size_t hash = mix(static_cast<size_t>(kind) + 1, symbol);
  for (const Expr& operand : operands) hash = mix(hash, operand.hash());
  made->operands = std::move(operands);
  made->hash = hash;
  return close({0, {Term{1, {std::move(made)}}}});
}

const Atom* as_atom(const Expr& e) {  // the atom that the whole expression is, or nullptr
  const ExprNode* node = e.node();
  if (!node || node->constant != 0 || node->terms.size() != 1) return nullptr;
  const Term& term = node->terms[0];
  return term.factor == 1 && term.atoms.size() == 1 ? term.atoms[0].get() : nullptr;
}

// ---- bounds ------------------------------------------------------------------------------------------------------

using Least = std::vector<int64_t>;

std::optional<int64_t> lowest(const Expr& e, const Least& least);

std::optional<int64_t> lowest(const Atom& a, const Least& least) {
  switch (a.kind) {
    case Atom::Kind::kSymbol:
      return a.symbol < least.size() ? std::max<int64_t>(least[a.symbol], 0) : 0;
    case Atom::Kind::kMod:
      if (lowest(a.operands[1], least).value_or(-1) > 0) return 0;
      return std::nullopt;
    case Atom::Kind::kFloorDiv:
      if (lowest(a.operands[0], least).value_or(-1) >= 0 && lowest(a.operands[1], least).value_or(-1) > 0) return 0;
      return std::nullopt;
    case Atom::Kind::kMin: {
      std::optional<int64_t> low;
      for (const Expr& operand : a.operands) {
        const auto one = lowest(operand, least);
        if (!one) return std::nullopt;
        low = low ? std::min(*low, *one) : *one;
      }
      return low;
    }
    case Atom::Kind::kMax: {
      std::optional<int64_t> low;
      for (const Expr& operand : a.operands)
        if (const auto one = lowest(operand, least)) low = low ? std::max(*low, *one) : *one;
      return low;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> lowest(const Expr& e, const Least& least) {
  if (e.is_constant()) return e.value_or(0);
  int64_t low = e.node()->constant;
  for (const Term& term : e.node()->terms) {
    if (term.factor < 0) return std::nullopt;
    int64_t product = term.factor;
    for (const AtomPtr& a : term.atoms) {
      const auto one = lowest(*a, least);
      if (!one || *one < 0 || __builtin_mul_overflow(product, *one, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(low, product, &low)) return std::nullopt;
  }
  return low;
}

// ---- division ----------------------------------------------------------------------------------------------------

// The term a / b when b divides a, atom by atom.
std::optional<Term> divide(const Term& a, const Term& b) {
  if (b.factor == 0 || (b.factor == -1 ? false : a.factor % b.factor != 0)) return std::nullopt;
  Term quotient{b.factor == -1 ? neg(a.factor) : a.factor / b.factor, {}};
  size_t at = 0;
  for (const AtomPtr& have : a.atoms) {
    if (at < b.atoms.size() && order(*have, *b.atoms[at]) == 0)
      ++at;
    else
      quotient.atoms.push_back(have);
  }
  if (at != b.atoms.size()) return std::nullopt;
  return quotient;
}

void put(Sum& sum, Term term) {
  if (term.atoms.empty())
    sum.constant = add(sum.constant, term.factor);
  else
    sum.terms.push_back(std::move(term));
}

// a == divisor * quotient + rest, where rest holds what the divisor does not divide. The divisor is a single term, or a
// number other than zero; otherwise nothing is divided.
struct Split {
  Expr quotient, rest;
};
Split split(const Expr& a, const Expr& divisor) {
  Term by;
  if (const auto number = divisor.constant()) {
    by.factor = *number;
  } else {
    const ExprNode& node = *divisor.node();
    if (node.constant != 0 || node.terms.size() != 1) return a == divisor ? Split{1, 0} : Split{0, a};
    by = node.terms[0];
  }
  const Sum sum = open(a);
  Sum quotient, rest;
  for (const Term& term : sum.terms) {
    if (auto q = divide(term, by))
      put(quotient, std::move(*q));
    else
      rest.terms.push_back(term);
  }
  if (by.atoms.empty()) {
    quotient.constant = add(quotient.constant, floor_div_numbers(sum.constant, by.factor));
    rest.constant = mod_numbers(sum.constant, by.factor);
  } else {
    rest.constant = sum.constant;
  }
  return {close(std::move(quotient)), close(std::move(rest))};
}

int64_t common_factor(const Expr& e) {  // divides every factor and the constant; >= 0
  if (e.is_constant()) return e.value_or(0) == INT64_MIN ? 1 : std::abs(e.value_or(0));
  int64_t g = e.node()->constant == INT64_MIN ? 1 : e.node()->constant;
  for (const Term& term : e.node()->terms) g = term.factor == INT64_MIN ? 1 : std::gcd(g, term.factor);
  return std::abs(g);
}

Expr scale_down(const Expr& e, int64_t by) {
  Sum sum = open(e);
  sum.constant /= by;
  for (Term& term : sum.terms) term.factor /= by;
  return close(std::move(sum));
}

template <bool is_min>
Expr extreme(const Expr& a, const Expr& b) {
  constexpr Atom::Kind kind = is_min ? Atom::Kind::kMin : Atom::Kind::kMax;
  std::vector<Expr> operands;
  for (const Expr* e : {&a, &b}) {
    const Atom* nested = as_atom(*e);
    if (nested && nested->kind == kind)
      operands.insert(operands.end(), nested->operands.begin(), nested->operands.end());
    else
      operands.push_back(*e);
  }
  std::sort(operands.begin(), operands.end(), [](const Expr& x, const Expr& y) { return order(x, y) < 0; });
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  const auto loses = [](const Expr& x, const Expr& y) {  // y is at least as extreme as x, whatever the symbols
    return lowest(is_min ? x - y : y - x, {}).value_or(-1) >= 0;
  };
  for (size_t i = 0; i < operands.size();) {
    bool lost = false;
    for (size_t j = 0; j < operands.size() && !lost; ++j) lost = j != i && loses(operands[i], operands[j]);
    if (lost)
      operands.erase(operands.begin() + static_cast<ptrdiff_t>(i));
    else
      ++i;
  }
  if (operands.size() == 1) return operands[0];
  return atom(kind, 0, std::move(operands));
}

int64_t evaluate_atom(const Atom& a, std::span<const int64_t> symbols) {
  if (a.kind == Atom::Kind::kSymbol) {
    base::check(a.symbol < symbols.size(), "evaluate: s", a.symbol, " has no value; ", symbols.size(), " are given");
    return symbols[a.symbol];
  }
  int64_t result = a.operands[0].evaluate(symbols);
  for (size_t i = 1; i < a.operands.size(); ++i) {
    const int64_t next = a.operands[i].evaluate(symbols);
    switch (a.kind) {
      case Atom::Kind::kMin:
        result = std::min(result, next);
        break;
      case Atom::Kind::kMax:
        result = std::max(result, next);
        break;
      case Atom::Kind::kFloorDiv:
        base::check(next != 0, "evaluate: ", result, " // 0");
        result = floor_div_numbers(result, next);
        break;
      case Atom::Kind::kMod:
        base::check(next != 0, "evaluate: ", result, " % 0");
        result = mod_numbers(result, next);
        break;
      case Atom::Kind::kSymbol:
        break;
    }
  }
  return result;
}

}  // namespace

Expr sum_of(int64_t constant, std::vector<Term> terms) { return close({constant, std::move(terms)}); }
bool equal(const Atom& a, const Atom& b) { return a.hash == b.hash && order(a, b) == 0; }

// ---- the public face ---------------------------------------------------------------------------------------------

Expr Expr::symbol(uint32_t index) { return atom(Atom::Kind::kSymbol, index, {}); }

std::optional<int64_t> Expr::constant() const {
  if (is_constant()) return value_;
  return std::nullopt;
}

std::optional<int64_t> Expr::lower_bound(const std::vector<int64_t>& least) const { return lowest(*this, least); }

bool operator==(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return a.value_ == b.value_;
  if (a.is_constant() != b.is_constant()) return false;
  if (a.node_ == b.node_) return true;
  return a.node_->hash == b.node_->hash && order(a, b) == 0;
}

Expr operator+(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return add(a.value_, b.value_);
  if (a.is_constant() && a.value_ == 0) return b;
  if (b.is_constant() && b.value_ == 0) return a;
  Sum sum = open(a);
  Sum more = open(b);
  sum.constant = add(sum.constant, more.constant);
  std::move(more.terms.begin(), more.terms.end(), std::back_inserter(sum.terms));
  return close(std::move(sum));
}

Expr operator-(const Expr& a) { return a * Expr(-1); }
Expr operator-(const Expr& a, const Expr& b) { return a + (-b); }

Expr operator*(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return mul(a.value_, b.value_);
  if (a.is_constant() && a.value_ == 1) return b;
  if (b.is_constant() && b.value_ == 1) return a;
  const Sum x = open(a), y = open(b);
  Sum product{mul(x.constant, y.constant), {}};
  for (const Term& term : x.terms) product.terms.push_back({mul(term.factor, y.constant), term.atoms});
  for (const Term& term : y.terms) product.terms.push_back({mul(term.factor, x.constant), term.atoms});
  for (const Term& s : x.terms)
    for (const Term& t : y.terms) {
      Term both{mul(s.factor, t.factor), {}};
      std::merge(s.atoms.begin(), s.atoms.end(), t.atoms.begin(), t.atoms.end(), std::back_inserter(both.atoms),
                 before);
      product.terms.push_back(std::move(both));
    }
  return close(std::move(product));
}

Expr Expr::floor_div(const Expr& a, const Expr& b) {
  if (b.is_constant() && b.value_ == 0) return atom(Atom::Kind::kFloorDiv, 0, {a, b});
  if (a.is_constant() && b.is_constant()) return floor_div_numbers(a.value_, b.value_);
  if (b.is_constant() && b.value_ == 1) return a;
  const Split parts = split(a, b);
  if (parts.rest == Expr(0)) return parts.quotient;
  if (parts.rest.is_constant() && b.is_constant())
    return parts.quotient + floor_div_numbers(parts.rest.value_, b.value_);
  if (const int64_t g = std::gcd(common_factor(parts.rest), common_factor(b)); g > 1)
    return parts.quotient + floor_div(scale_down(parts.rest, g), scale_down(b, g));
  // (x // m) // n == x // (m*n) for positive numbers m and n
  const Atom* inner = as_atom(parts.rest);
  const int64_t n = b.value_or(0);
  int64_t both = 0;
  if (inner && inner->kind == Atom::Kind::kFloorDiv && inner->operands[1].value_or(0) > 0 && n > 0 &&
      !__builtin_mul_overflow(inner->operands[1].value_or(0), n, &both))
    return parts.quotient + floor_div(inner->operands[0], both);
  return parts.quotient + atom(Atom::Kind::kFloorDiv, 0, {parts.rest, b});
}

Expr Expr::mod(const Expr& a, const Expr& b) {
  if (b.is_constant() && b.value_ == 0) return atom(Atom::Kind::kMod, 0, {a, b});
  if (a.is_constant() && b.is_constant()) return mod_numbers(a.value_, b.value_);
  if (b.is_constant() && (b.value_ == 1 || b.value_ == -1)) return 0;
  const Split parts = split(a, b);
  if (parts.rest.is_constant() && (b.is_constant() || parts.rest.value_ == 0)) return parts.rest;
  return atom(Atom::Kind::kMod, 0, {parts.rest, b});
}

Expr Expr::min(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return std::min(a.value_, b.value_);
  return extreme<true>(a, b);
}
Expr Expr::max(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return std::max(a.value_, b.value_);
  return extreme<false>(a, b);
}
Expr Expr::ceil_div(const Expr& a, const Expr& b) { return -floor_div(-a, b); }

int64_t Expr::evaluate(std::span<const int64_t> symbols) const {
  if (is_constant()) return value_;
  int64_t sum = node_->constant;
  for (const Term& term : node_->terms) {
    int64_t product = term.factor;
    for (const AtomPtr& a : term.atoms) product = mul(product, evaluate_atom(*a, symbols));
    sum = add(sum, product);
  }
  return sum;
}

std::optional<int64_t> Expr::evaluate_exactly(std::span<const int64_t> symbols) const {
  if (is_constant()) return value_;
  int64_t sum = node_->constant;
  for (const Term& term : node_->terms) {
    int64_t product = term.factor;
    for (const AtomPtr& a : term.atoms) {
      for (const Expr& operand : a->operands)
        if (!operand.evaluate_exactly(symbols)) return std::nullopt;
      const bool divides = a->kind == Atom::Kind::kFloorDiv || a->kind == Atom::Kind::kMod;
      if (divides && a->operands[1].evaluate(symbols) == 0) return std::nullopt;
      if (divides && a->operands[0].evaluate(symbols) == INT64_MIN) return std::nullopt;  // its quotient may not fit
      if (__builtin_mul_overflow(product, evaluate_atom(*a, symbols), &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

uint64_t Expr::norm() const {
  const auto size = [](int64_t n) { return n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n); };
  if (is_constant()) return size(value_);
  uint64_t sum = size(node_->constant);
  for (const Term& term : node_->terms)
    if (__builtin_add_overflow(sum, size(term.factor), &sum)) return UINT64_MAX;
  return sum;
}

void Expr::collect_symbols(std::vector<uint32_t>& into) const {
  if (is_constant()) return;
  for (const Term& term : node_->terms)
    for (const AtomPtr& a : term.atoms) {
      if (a->kind == Atom::Kind::kSymbol && std::find(into.begin(), into.end(), a->symbol) == into.end())
        into.push_back(a->symbol);
      for (const Expr& operand : a->operands) operand.collect_symbols(into);
    }
}

size_t Expr::hash() const { return is_constant() ? mix(0x2545f491, static_cast<size_t>(value_)) : node_->hash; }

std::optional<bool> known(const Condition& question, const std::vector<int64_t>& least) {
  const Expr difference = question.right - question.left;
  const auto low = difference.lower_bound(least), high = (-difference).lower_bound(least);
  const bool greater = low && *low > 0, at_least = low && *low >= 0;  // right > left, right >= left
  const bool smaller = high && *high > 0, at_most = high && *high >= 0;
  switch (question.relation) {
    case Relation::kEq:
      if (question.left == question.right) return true;
      if (greater || smaller || difference.is_constant()) return false;
      break;
    case Relation::kNe:
      if (question.left == question.right) return false;
      if (greater || smaller || difference.is_constant()) return true;
      break;
    case Relation::kLt:
      if (greater) return true;
      if (at_most) return false;
      break;
    case Relation::kLe:
      if (at_least) return true;
      if (smaller) return false;
      break;
  }
  return std::nullopt;
}

bool Condition::holds(std::span<const int64_t> symbols) const {
  const int64_t a = left.evaluate(symbols), b = right.evaluate(symbols);
  switch (relation) {
    case Relation::kEq:
      return a == b;
    case Relation::kNe:
      return a != b;
    case Relation::kLt:
      return a < b;
    case Relation::kLe:
      return a <= b;
  }
  return false;
}

}  // namespace magneto::types
