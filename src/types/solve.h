// types/solve.h: what equalities of sizes say about their symbols.
//
//   Solution solution({{s0 - 1, kEq, 1}, {s2, kEq, s1 + s3}});
//   solution.of(s0 * s3 + s2)                      2*s3 + s1 + s3
//
// Expressions that are equal under the conditions need not look equal. Passes compare how they look, above all with 1
// (a size that is broadcast), so a graph is settled before them: each symbol that an equality tells is replaced.
#pragma once
#include <optional>
#include <vector>

#include "types/expr.h"

namespace magneto::types {

class Solution {
 public:
  explicit Solution(const std::vector<Condition>& conditions);

  bool empty() const { return empty_; }
  Expr of(const Expr& e) const;  ///< `e` in terms of the symbols that are left
  /// Whether the equality is used up: it holds by itself for whatever the symbols that are left are.
  bool implies(const Condition& equality) const { return of(equality.left) == of(equality.right); }

 private:
  std::vector<std::optional<Expr>> values_;  ///< by symbol, in terms of those without value
  bool empty_ = true;
};

}  // namespace magneto::types
