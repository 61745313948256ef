// types/expr_internal.h: the normal form behind a non-constant Expr.
//
// An expression is a sum: constant + factor * atom * atom + ... The terms are sorted by their atoms and no two have the
// same atoms, the atoms of a term are sorted, no factor is zero. Atoms are what a sum of products cannot hold: symbols,
// floor divisions, remainders, minima and maxima, whose operands are expressions in normal form themselves.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "types/expr.h"

namespace magneto::types {

struct Atom {
  enum class Kind : uint8_t { kSymbol, kFloorDiv, kMod, kMin, kMax };
  Kind kind = Kind::kSymbol;
  uint32_t symbol = 0;
  std::vector<Expr> operands;  ///< two for kFloorDiv and kMod; two or more, sorted, for kMin and kMax
  size_t hash = 0;
};
using AtomPtr = std::shared_ptr<const Atom>;

struct Term {
  int64_t factor = 1;
  std::vector<AtomPtr> atoms;  ///< at least one
};

struct ExprNode {
  int64_t constant = 0;
  std::vector<Term> terms;  ///< at least one
  size_t hash = 0;
};

/// The expression of a sum in any order.
Expr sum_of(int64_t constant, std::vector<Term> terms);
bool equal(const Atom& a, const Atom& b);

}  // namespace magneto::types
