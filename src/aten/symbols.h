// aten/symbols.h: sizes that are not fixed, as torch's own symbolic integers.
//
// A symbol stands for a size (or a Python int) that may be another one at the next call. While a graph is recorded it
// has a value all the same, its hint: a question about sizes (are they equal, is one larger) is answered by the
// expressions where they decide it, else by the hints, and then the answer becomes a condition that must hold at each
// later call. So nothing is ever assumed silently, and code that wants a plain number gets one: the symbol is that
// number from then on.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "types/expr.h"

namespace magneto::aten {

class Symbols : public std::enable_shared_from_this<Symbols> {
 public:
  types::Expr add(int64_t hint);
  /// Lets an expression take part in sizes. Its symbols are at least 2 from now on: sizes 0 and 1 behave differently,
  /// and are never symbols. False: one of them is smaller now.
  bool admit(const types::Expr& expr);
  int64_t hint(const types::Expr& expr) const { return expr.evaluate(hints_); }
  const std::vector<int64_t>& hints() const { return hints_; }

  /// Whether the relation holds; where only the hints tell, it is a condition from now on (or its opposite is).
  bool decide(const types::Condition& question);
  bool equal(const types::Expr& a, const types::Expr& b) { return decide({a, types::Relation::kEq, b}); }
  bool less(const types::Expr& a, const types::Expr& b) { return decide({a, types::Relation::kLt, b}); }
  /// The expression is this number from now on.
  int64_t fix(const types::Expr& expr);

  const std::vector<types::Condition>& conditions() const { return conditions_; }

  /// A symbolic integer that torch's Python door wrapped into a tensor (x * n). It keeps the number where only Python
  /// finds it, so Python is asked.
  using Unwrap = std::optional<types::Expr> (*)(const at::Tensor& wrapped);
  static void set_unwrap(Unwrap unwrap);
  std::optional<types::Expr> wrapped(const at::Tensor& tensor) const;

  /// A constant is a plain number.
  c10::SymInt to_torch(const types::Expr& expr);
  /// Nothing: a symbolic integer that is not ours.
  static std::optional<types::Expr> from_torch(const c10::SymInt& number);

 private:
  void require(types::Condition condition);
  std::vector<int64_t> hints_;
  std::vector<int64_t> least_;  ///< 2 for the symbols that were admitted
  std::vector<types::Condition> conditions_;
  std::unordered_multimap<size_t, size_t> by_hash_;  ///< places in conditions_
};

}  // namespace magneto::aten
