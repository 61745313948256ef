#include "types/expr.h"

#include <gtest/gtest.h>

#include <random>

#include "base/check.h"

namespace magneto::types {
namespace {

const Expr s0 = Expr::symbol(0), s1 = Expr::symbol(1), s2 = Expr::symbol(2);

TEST(Expr, EqualExpressionsCompareEqualWhateverTheirOrder) {
  EXPECT_EQ(s0 * 2 + 1, 1 + s0 + s0);
  EXPECT_EQ((s0 + 1) * (s1 + 2), s1 * s0 + 2 * s0 + s1 + 2);
  EXPECT_EQ((s0 * 2 + 1).hash(), (1 + s0 + s0).hash());
  EXPECT_NE(s0, s1);
  EXPECT_EQ(s0 - s0, Expr(0));
  EXPECT_TRUE((s0 - s0).is_constant());
}

TEST(Expr, ConstantsFoldAsInPython) {
  EXPECT_EQ(Expr::floor_div(-7, 2), Expr(-4));
  EXPECT_EQ(Expr::floor_div(7, -2), Expr(-4));
  EXPECT_EQ(Expr::mod(-7, 2), Expr(1));
  EXPECT_EQ(Expr::mod(7, -2), Expr(-1));
  EXPECT_EQ(Expr::ceil_div(7, 2), Expr(4));
  EXPECT_EQ(Expr::min(3, -1), Expr(-1));
  EXPECT_EQ(Expr::max(3, -1), Expr(3));
}

TEST(Expr, MultiplesLeaveADivision) {
  EXPECT_EQ(Expr::floor_div(s0 * 6, 3), s0 * 2);
  EXPECT_EQ(Expr::floor_div(s0 * s1, s1), s0);
  EXPECT_EQ(Expr::mod(s0 * 6 + 7, 3), Expr(1));
  EXPECT_EQ(Expr::mod(s0 * s1, s1), Expr(0));
  EXPECT_EQ(Expr::floor_div(4 * s0 + s1 + 9, 4), s0 + 2 + Expr::floor_div(s1 + 1, 4));
  EXPECT_EQ(Expr::floor_div(2 * s0, 2 * s1), Expr::floor_div(s0, s1));
  EXPECT_EQ(Expr::floor_div(Expr::floor_div(s0, 2), 3), Expr::floor_div(s0, 6));
}

TEST(Expr, SymbolsAreNeverNegative) {
  EXPECT_EQ(Expr::max(s0, 0), s0);
  EXPECT_EQ(Expr::min(s0, 0), Expr(0));
  EXPECT_EQ(Expr::max(s0 + 1, 1), s0 + 1);
  EXPECT_EQ(Expr::max(s0, s0 + s1), s0 + s1);
  EXPECT_EQ(Expr::max(Expr::max(s0, 1), s1), Expr::max(s1, Expr::max(1, s0)));
  EXPECT_FALSE(Expr::max(s0, 1).is_constant());
  EXPECT_EQ(Expr::max(s0, 3).lower_bound(), 3);
}

TEST(Expr, PrintsAsOneWouldWriteIt) {
  EXPECT_EQ(to_string(2 * s0 + 1), "2*s0 + 1");
  EXPECT_EQ(to_string(Expr::floor_div(s0, 2)), "s0 // 2");
  EXPECT_EQ(to_string(Expr::max(s0, 3)), "max(s0, 3)");
  EXPECT_EQ(to_string(1 - s0 - 2 * s1), "-s0 - 2*s1 + 1");
  EXPECT_EQ(to_string(2 * Expr::floor_div(s0 + 1, 3) * s1), "2*s1*((s0 + 1) // 3)");
  EXPECT_EQ(to_string(Condition{s0, Relation::kLe, 4}), "s0 <= 4");
}

TEST(Expr, RefusesWhatIsNoExpression) {
  for (const char* text : {"", "s", "x0", "2*", "(s0", "max(", "max()", "s0 s1", "1.5", "--", "99999999999999999999"})
    EXPECT_FALSE(parse_expr(text)) << text;
  EXPECT_EQ(parse_expr("-9223372036854775808"), Expr(INT64_MIN));
}

TEST(Expr, DivisionByZeroIsAFaultOnlyWhenEvaluated) {
  const Expr e = Expr::floor_div(s0, s1);
  EXPECT_EQ(e.evaluate(std::vector<int64_t>{7, 2}), 3);
  EXPECT_THROW(e.evaluate(std::vector<int64_t>{7, 0}), base::Fault);
  EXPECT_THROW(Expr::mod(s0, 0).evaluate(std::vector<int64_t>{1}), base::Fault);
  EXPECT_THROW(s2.evaluate(std::vector<int64_t>{1}), base::Fault);
}

// A random expression, and beside it the number that plain arithmetic gives for it.
struct Pair {
  Expr expr;
  std::optional<int64_t> number;
};
Pair random_pair(std::mt19937& random, const std::vector<int64_t>& symbols, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (depth == 0 || pick(5) == 0) {
    if (pick(2)) {
      const int i = pick(static_cast<int>(symbols.size()));
      return {Expr::symbol(static_cast<uint32_t>(i)), symbols[static_cast<size_t>(i)]};
    }
    const int64_t n = pick(13) - 4;
    return {n, n};
  }
  const Pair a = random_pair(random, symbols, depth - 1), b = random_pair(random, symbols, depth - 1);
  const bool known = a.number && b.number;
  const int64_t x = a.number.value_or(0), y = b.number.value_or(0);
  const auto floor_div = [](int64_t p, int64_t q) { return p / q - ((p % q != 0 && ((p < 0) != (q < 0))) ? 1 : 0); };
  std::optional<int64_t> number;
  switch (pick(7)) {
    case 0:
      if (known) number = x + y;
      return {a.expr + b.expr, number};
    case 1:
      if (known) number = x - y;
      return {a.expr - b.expr, number};
    case 2:
      if (known) number = x * y;
      return {a.expr * b.expr, number};
    case 3:
      if (known && y) number = floor_div(x, y);
      return {Expr::floor_div(a.expr, b.expr), number};
    case 4:
      if (known && y) number = x - y * floor_div(x, y);
      return {Expr::mod(a.expr, b.expr), number};
    case 5:
      if (known) number = std::min(x, y);
      return {Expr::min(a.expr, b.expr), number};
    default:
      if (known) number = std::max(x, y);
      return {Expr::max(a.expr, b.expr), number};
  }
}

TEST(Expr, ANumberThatNeedsMoreThan64BitsIsNone) {
  const Expr s = Expr::symbol(0);
  const std::vector<int64_t> small = {3}, large = {int64_t{1} << 40}, least = {INT64_MIN}, none = {0};
  EXPECT_EQ((s * s + 1).evaluate_exactly(small), 10);
  EXPECT_EQ((s * s + 1).evaluate_exactly(large), std::nullopt);
  EXPECT_EQ((s + INT64_MAX).evaluate_exactly(small), std::nullopt);
  EXPECT_EQ((-s).evaluate_exactly(least), std::nullopt);
  EXPECT_EQ(Expr::floor_div(s * s, 7).evaluate_exactly(large), std::nullopt);
  EXPECT_EQ(Expr::floor_div(s, 7).evaluate_exactly(large), (int64_t{1} << 40) / 7);
  EXPECT_EQ(Expr::floor_div(7, s).evaluate_exactly(none), std::nullopt);
}

TEST(Expr, TheNormBoundsTheNumbersOfSumsAndProducts) {
  const Expr s = Expr::symbol(0), t = Expr::symbol(1);
  EXPECT_EQ((2 * s - 3).norm(), 5u);
  EXPECT_LE(((2 * s - 3) * (s + 4 * t - 1)).norm(), 30u);
  EXPECT_EQ((s + INT64_MIN).norm(), (uint64_t{1} << 63) + 1);
}

TEST(Expr, RandomExpressionsEvaluateAndRoundTrip) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::vector<int64_t> symbols = {static_cast<int64_t>(random() % 9), static_cast<int64_t>(random() % 5),
                                          static_cast<int64_t>(random() % 100)};
    const Pair pair = random_pair(random, symbols, 4);
    const std::string text = to_string(pair.expr);
    const auto back = parse_expr(text);
    ASSERT_TRUE(back) << text;
    EXPECT_EQ(*back, pair.expr) << text << " came back as " << to_string(*back);
    EXPECT_EQ(back->hash(), pair.expr.hash());
    if (!pair.number) continue;  // a division by zero on the way: nothing is promised
    EXPECT_EQ(pair.expr.evaluate(symbols), *pair.number) << text;
    if (const auto exact = pair.expr.evaluate_exactly(symbols)) {
      EXPECT_EQ(*exact, *pair.number) << text;
    }
    if (const auto low = pair.expr.lower_bound()) {
      EXPECT_LE(*low, *pair.number) << text;
    }
  }
}

}  // namespace
}  // namespace magneto::types
