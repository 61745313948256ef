// types/expr.h: symbolic integers, the sizes of all three languages. A static size is a constant expression and costs
// no allocation. Expressions are immutable and kept in a normal form (sorted sums of products), so that equal
// expressions compare equal: s0*2 + 1 == 1 + s0 + s0.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace magneto::types {

struct ExprNode;

class Expr {
 public:
  Expr() = default;
  Expr(int64_t value) : value_(value) {}  // NOLINT: a number is an expression
  static Expr symbol(uint32_t index);     ///< s0, s1, ...: integers >= 0 that are known when the graph is called

  bool is_constant() const { return node_ == nullptr; }
  std::optional<int64_t> constant() const;
  int64_t value_or(int64_t otherwise) const { return is_constant() ? value_ : otherwise; }

  friend bool operator==(const Expr& a, const Expr& b);
  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a);
  static Expr floor_div(const Expr& a, const Expr& b);  ///< as Python's //
  static Expr mod(const Expr& a, const Expr& b);        ///< as Python's %
  static Expr min(const Expr& a, const Expr& b);
  static Expr max(const Expr& a, const Expr& b);
  static Expr ceil_div(const Expr& a, const Expr& b);

  /// The number that this is when symbol i has the value symbols[i]. Throws base::Fault on a division by zero.
  int64_t evaluate(std::span<const int64_t> symbols) const;
  /// The same, in integers without bounds; nothing: some number on the way needs more than 64 bits, or a divisor is 0.
  std::optional<int64_t> evaluate_exactly(std::span<const int64_t> symbols) const;
  /// The absolute values of its constant and factors, summed up; UINT64_MAX where they need more bits. A sum has at
  /// most the norms of its parts together, a product their product: as long as that stays below 2^63, none has wrapped.
  uint64_t norm() const;
  void collect_symbols(std::vector<uint32_t>& into) const;
  /// A number that this is never below, when one is known: symbols are never negative, and symbol i is at least
  /// least[i] where that is given.
  std::optional<int64_t> lower_bound(const std::vector<int64_t>& least = {}) const;
  size_t hash() const;

  /// The node behind a non-constant expression; for the printer, the parser and the engine itself.
  const ExprNode* node() const { return node_.get(); }
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}

 private:
  int64_t value_ = 0;
  std::shared_ptr<const ExprNode> node_;
};

std::string to_string(const Expr& expr);                ///< "2*s0 + 1", "s0 // 2", "max(s0, 3)"
std::optional<Expr> parse_expr(std::string_view text);  ///< reads what to_string writes
/// Reads the longest expression at the head of `text` and takes it away; leaves `text` alone when there is none.
std::optional<Expr> take_expr(std::string_view& text);

/// A comparison of two sizes that capture relied on. Becomes a guard.
enum class Relation : uint8_t { kEq, kNe, kLt, kLe };
struct Condition {
  Expr left;
  Relation relation = Relation::kEq;
  Expr right;
  bool holds(std::span<const int64_t> symbols) const;
  friend bool operator==(const Condition&, const Condition&) = default;
};
std::string to_string(const Condition& condition);
/// Whether it holds for all values of the symbols, or for none; nothing: that depends. `least` as in Expr::lower_bound.
std::optional<bool> known(const Condition& question, const std::vector<int64_t>& least);

}  // namespace magneto::types

template <>
struct std::hash<magneto::types::Expr> {
  size_t operator()(const magneto::types::Expr& e) const { return e.hash(); }
};
