// Expressions as text, with Python's precedence: sums of products of symbols, numbers, parentheses, //, %, min and max.
// A division that stands in a product or a sum is printed in parentheses, so that nobody needs to know the precedence.
#include <cctype>

#include "base/text.h"
#include "types/expr.h"
#include "types/expr_internal.h"

namespace magneto::types {

namespace {

bool is_bare(const Expr& e) {  // prints as one word
  if (e.is_constant()) return e.value_or(0) >= 0;
  const ExprNode& node = *e.node();
  if (node.constant != 0 || node.terms.size() != 1) return false;
  const Term& term = node.terms[0];
  if (term.factor != 1 || term.atoms.size() != 1) return false;
  const Atom::Kind kind = term.atoms[0]->kind;
  return kind != Atom::Kind::kFloorDiv && kind != Atom::Kind::kMod;
}

std::string bracketed(const Expr& e) { return is_bare(e) ? to_string(e) : base::concat("(", to_string(e), ")"); }

std::string print(const Atom& a, bool alone) {
  switch (a.kind) {
    case Atom::Kind::kSymbol:
      return base::concat("s", a.symbol);
    case Atom::Kind::kFloorDiv:
    case Atom::Kind::kMod: {
      const std::string text =
          base::concat(bracketed(a.operands[0]), a.kind == Atom::Kind::kMod ? " % " : " // ", bracketed(a.operands[1]));
      return alone ? text : base::concat("(", text, ")");
    }
    case Atom::Kind::kMin:
    case Atom::Kind::kMax: {
      std::string text = a.kind == Atom::Kind::kMin ? "min(" : "max(";
      // a number reads better after the symbols: max(s0, 3)
      std::string number;
      bool first = true;
      for (const Expr& operand : a.operands) {
        if (operand.is_constant()) {
          number = to_string(operand);
          continue;
        }
        text += base::concat(first ? "" : ", ", to_string(operand));
        first = false;
      }
      if (!number.empty()) text += base::concat(", ", number);
      return text + ")";
    }
  }
  return "";
}

uint64_t magnitude(int64_t value) { return value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value); }

/// Recursive descent. A failed step leaves `ok` false and the rest of the text unused.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest(text) {}
  std::string_view rest;
  bool ok = true;

  Expr sum() {
    Expr value = product();
    while (ok) {
      const std::string_view here = rest;
      if (take("+")) {
        value = value + product();
      } else if (take("-")) {
        value = value - product();
      } else {
        break;
      }
      if (!ok) {  // what follows is no operand: the sign is not ours (as in f32[2]{1}+4)
        rest = here;
        break;
      }
    }
    return value;
  }

 private:
  void skip() {
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  }
  bool take(std::string_view word) {
    const std::string_view here = rest;
    skip();
    if (rest.substr(0, word.size()) == word) {
      rest.remove_prefix(word.size());
      return true;
    }
    rest = here;
    return false;
  }
  Expr fail() {
    ok = false;
    return 0;
  }
  Expr product() {
    Expr value = factor();
    while (ok) {
      if (take("//"))
        value = Expr::floor_div(value, factor());
      else if (take("*"))
        value = value * factor();
      else if (take("%"))
        value = Expr::mod(value, factor());
      else
        break;
    }
    return value;
  }
  Expr factor() {
    if (++depth_ > 200) return fail();
    Expr value = take("-") ? -factor() : word();
    --depth_;
    return value;
  }
  std::optional<uint64_t> digits() {
    size_t n = 0;
    uint64_t value = 0;
    while (n < rest.size() && std::isdigit(static_cast<unsigned char>(rest[n])))
      value = value * 10 + static_cast<uint64_t>(rest[n++] - '0');
    if (n == 0 || n > 19) return std::nullopt;
    rest.remove_prefix(n);
    return value;
  }
  Expr word() {
    skip();
    if (const auto number = digits()) return static_cast<int64_t>(*number);
    if (take("(")) {
      Expr value = sum();
      return ok && take(")") ? value : fail();
    }
    const bool is_min = take("min(");
    if (is_min || take("max(")) {
      Expr value = sum();
      while (ok && take(",")) value = is_min ? Expr::min(value, sum()) : Expr::max(value, sum());
      return ok && take(")") ? value : fail();
    }
    if (take("s")) {
      const auto index = digits();
      if (!index || *index > UINT32_MAX) return fail();
      return Expr::symbol(static_cast<uint32_t>(*index));
    }
    return fail();
  }
  int depth_ = 0;
};

}  // namespace

std::string to_string(const Expr& expr) {
  if (expr.is_constant()) return std::to_string(expr.value_or(0));
  const ExprNode& node = *expr.node();
  std::string text;
  const bool alone = node.terms.size() == 1 && node.constant == 0;
  for (const Term& term : node.terms) {
    if (text.empty())
      text += term.factor < 0 ? "-" : "";
    else
      text += term.factor < 0 ? " - " : " + ";
    const uint64_t factor = magnitude(term.factor);
    if (factor != 1) text += base::concat(factor, "*");
    for (size_t i = 0; i < term.atoms.size(); ++i) {
      if (i) text += "*";
      text += print(*term.atoms[i], alone && term.factor == 1 && term.atoms.size() == 1);
    }
  }
  if (node.constant != 0) text += base::concat(node.constant < 0 ? " - " : " + ", magnitude(node.constant));
  return text;
}

std::optional<Expr> take_expr(std::string_view& text) {
  Reader reader(text);
  Expr value = reader.sum();
  if (!reader.ok) return std::nullopt;
  text = reader.rest;
  return value;
}

std::optional<Expr> parse_expr(std::string_view text) {
  auto value = take_expr(text);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (!text.empty()) return std::nullopt;
  return value;
}

std::string to_string(const Condition& condition) {
  constexpr std::string_view kSigns[] = {" == ", " != ", " < ", " <= "};
  return base::concat(to_string(condition.left), kSigns[static_cast<size_t>(condition.relation)],
                      to_string(condition.right));
}

}  // namespace magneto::types
