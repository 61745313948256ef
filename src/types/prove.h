// types/prove.h: whether an integer expression is never negative, for all values that its symbols may have.
//
//   Prover prover({{s0, kLe, 64}});
//   const Expr i = prover.variable({s0 - 1});      an axis: 0 <= i < s0
//   prover.never_negative(63 - i)                  true: i is at most s0 - 1, and that at most 63
//
// "No" means "not known": whoever asks must do without.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "types/expr.h"
#include "types/tensor_type.h"

namespace magneto::types {

struct Atom;

class Prover {
 public:
  static constexpr uint32_t kFirstVariable = 1u << 16;  ///< variables are symbols from here on

  /// The conditions hold; symbols are never negative.
  explicit Prover(const std::vector<Condition>& conditions = {});

  /// A new symbol, any number from 0 to the least of `most`. That there is such a number is known from then on: within
  /// a loop, its range is not empty.
  Expr variable(const std::vector<Expr>& most);
  void assume(const Condition& condition);
  void assume_not_negative(const Expr& e);

  bool never_negative(const Expr& e);
  bool is_positive(const Expr& e) { return e.is_constant() ? e.value_or(0) > 0 : never_negative(e - 1); }
  /// Whether it holds for all values; nothing: not known.
  std::optional<bool> decide(const Condition& question);
  /// Whether every element of `view` is in the memory of a tensor of type `of`, from the begin of its storage to its
  /// last element.
  bool lies_inside(const TensorType& view, const TensorType& of);
  /// What must hold so that it does, as far as it is not known: for who can ask when sizes are numbers.
  std::vector<Condition> to_lie_inside(const TensorType& view, const TensorType& of);

  /// What was assumed since `mark` is forgotten.
  struct Mark {
    size_t facts;
    uint32_t next;
  };
  Mark mark() const { return {facts_.size(), next_}; }
  void back_to(const Mark& mark);

 private:
  struct Fact {
    Expr e;                       ///< never negative
    std::vector<int64_t> before;  ///< what was known of the symbols without it
  };

  bool simple(const Expr& e) const;
  bool is_known(const Expr& e) const;
  Expr without_extremes(const Expr& e) const;
  bool prove(const std::optional<Expr>& e, int depth);
  bool by_products(const Expr& e);
  bool by_facts(const Expr& rest, const Expr& factor, bool rises, const Atom& x, int depth);
  bool by_bounds(const Expr& rest, const Expr& factor, bool rises, const Expr& a, const Expr& n, int depth);
  bool by_division(const Expr& rest, const Expr& factor, bool rises, const Expr& a, const Expr& n, int depth);
  bool by_itself(const Expr& rest, const Expr& factor, bool rises, const Atom& x, int depth);

  std::vector<Fact> facts_;
  std::vector<bool> in_use_;    ///< by fact: on the way to what is being proved
  std::vector<int64_t> least_;  ///< by symbol: it is at least that
  uint32_t next_ = 0;           ///< the next variable
  int fuel_ = 0;
};

}  // namespace magneto::types
