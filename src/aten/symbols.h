// aten/symbols.h: sizes that are not fixed, as torch's own symbolic integers.
//
// A symbol stands for a size (or a Python int) that may be another one at the next call. While a graph is recorded it
// has a value all the same, its hint: a question about sizes (are they equal, is one larger) is answered by the
// expressions where they decide it, else by the hints, and then the answer becomes a condition that must hold at each
// later call. So nothing is ever assumed silently, and code that wants a plain number gets one: the symbol is that
// number from then on.
//
// A Python float may be a symbol, too: one whose value is the bits of a double. Torch may pass it on, and ask whether
// it is some number; whoever wants more of it fixes it. Its conditions are bits, so 0.0 is not -0.0, and a NaN is
// itself. They are kept apart from those of sizes, which are numbers that are never negative.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "types/expr.h"

namespace magneto::aten {

/// What torch counts of a double before an operator gets it.
struct Count {
  /// 1 - x, x / by, f32(x), sqrt(x), 1 / (1 - x)
  enum Kind : uint8_t { kItself, kRest, kQuotient, kRounded, kRoot, kInverseOfRest } kind = kItself;
  double by = 1;
  double of(double number) const;
  friend bool operator==(const Count&, const Count&) = default;
};
std::string to_string(const Count& count, const std::string& number);

class Symbols : public std::enable_shared_from_this<Symbols> {
 public:
  types::Expr add(int64_t hint);
  graph::Real add_real(double hint);
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

  struct RealCondition {
    uint32_t symbol;
    enum Relation : uint8_t {
      kIs,
      kIsNot,
      kWithin,
      kOrdered,
      kAtLeast,
      kAtMost
    } relation;  ///< has these bits, not; see below
    int64_t bits;
    friend bool operator==(const RealCondition&, const RealCondition&) = default;
  };
  double hint(graph::Real real) const;
  bool equal(graph::Real real, double number);  ///< as == is for doubles
  double fix(graph::Real real);
  bool bound(graph::Real real, double most);  ///< it is at most that far from 0, or not finite; false: it is not so now
  bool order(graph::Real real);               ///< it is no NaN; false: it is one now
  bool keep_between(graph::Real real, double least, double most);  ///< both included; false: it is not, or NaN

  /// A double in the place of a float, for code of torch's that takes doubles and passes them on. It is a number of its
  /// own in each precision. Nothing: there is none like it.
  std::optional<double> lend(graph::Real real);
  /// The float that this double was lent for, or the one that is counted of it. It has been met then.
  std::optional<graph::Real> lent(double number);
  /// Floats that are counted of others: symbols of their own.
  struct Counted {
    uint32_t result;
    uint32_t of;
    Count count;
    friend bool operator==(const Counted&, const Counted&) = default;
  };
  const std::vector<Counted>& counted() const { return counted_; }
  /// The symbol of such a float. From then on it is known, whoever it is lent to.
  graph::Real count(graph::Real real, const Count& count);
  /// Those that nobody has met since they were lent last: torch counted with them, or looked at them. They are fixed.
  bool fix_unmet();
  /// What is lent to a function: floats between two numbers, both included, for others mean something else to it.
  /// `sizes` are those of its tensors, by which it may divide.
  struct Terms {
    double least, most;
    bool may_be_ignored = false;
    std::vector<int64_t> sizes = {};
  };
  /// As long as one lives, whoever wants the value of a float is lent one.
  class Lending {
   public:
    Lending(Symbols& symbols, std::optional<Terms> terms)
        : symbols_(symbols), before_(std::exchange(symbols.terms_, std::move(terms))) {}
    ~Lending() { symbols_.terms_ = std::move(before_); }
    Lending(const Lending&) = delete;

   private:
    Symbols& symbols_;
    std::optional<Terms> before_;
  };
  bool lends() const { return terms_.has_value(); }

  const std::vector<RealCondition>& real_conditions() const { return real_conditions_; }

  /// A symbolic number that torch's Python door wrapped into a tensor (x * n). It keeps the number where only Python
  /// finds it, so Python is asked.
  using Unwrap = std::optional<graph::Arg> (*)(const at::Tensor& wrapped);
  static void set_unwrap(Unwrap unwrap);
  std::optional<graph::Arg> wrapped(const at::Tensor& tensor) const;
  /// A symbolic float that was in Python's hands comes back as a node around the object that is ours.
  using Inner = c10::SymNode (*)(c10::SymNodeImpl& node);
  static void set_inner(Inner inner);
  /// The same, made here.
  at::Tensor wrap(graph::Real real);
  at::Tensor wrap(types::Expr number);

  /// A constant is a plain number.
  c10::SymInt to_torch(const types::Expr& expr);
  /// Nothing: a symbolic integer that is not ours.
  static std::optional<types::Expr> from_torch(const c10::SymInt& number);
  c10::SymFloat to_torch(graph::Real real);
  /// A graph::Real or a double; nothing: a symbolic float that is not ours.
  static std::optional<graph::Arg> from_torch(const c10::SymFloat& number);

 private:
  void require(types::Condition condition);
  void require(RealCondition condition);
  std::vector<int64_t> hints_;
  std::vector<int64_t> least_;  ///< 2 for the symbols that were admitted
  std::vector<types::Condition> conditions_;
  std::unordered_multimap<size_t, size_t> by_hash_;  ///< places in conditions_
  std::vector<RealCondition> real_conditions_;
  std::vector<Counted> counted_;
  struct Loan {
    graph::Real real;
    double mark;
    bool met = false;
  };
  std::vector<Loan> loans_;
  struct Lent {
    size_t loan;
    Count count;
  };
  std::unordered_map<int64_t, Lent> lent_;  ///< by their bits
  std::optional<Terms> terms_;
  std::vector<std::pair<at::Tensor, graph::Arg>> wraps_;
};

}  // namespace magneto::aten
