#include "types/fit.h"

#include <gtest/gtest.h>

namespace magneto::types {
namespace {

const Expr s0 = Expr::symbol(0), s1 = Expr::symbol(1);

/// What fits an expression, when it is seen at a few places around s0 = 10, s1 = 7.
std::optional<Expr> refit(const Expr& expr, std::vector<Expr> known = {}) {
  Points points = {{10, 7}};
  for (const int64_t to : {11, 12, 13, 14, 15, 18, 21, 9, 5, 4, 3, 2}) points.push_back({to, 7});
  for (const int64_t to : {8, 9, 10, 11, 12, 15, 6, 4, 3, 2}) points.push_back({10, to});
  for (const auto& point : {std::pair<int64_t, int64_t>{11, 8}, {12, 10}, {8, 10}})
    points.push_back({point.first, point.second});
  std::vector<int64_t> seen;
  for (const auto& point : points) seen.push_back(expr.evaluate(point));
  const std::vector<uint32_t> symbols = {0, 1};
  return fit(points, seen, symbols, known);
}

TEST(Fit, FindsWhatWasSeen) {
  for (const Expr& expr :
       {Expr(3), s0, 2 * s0 + 3, s0 + s1 - 4, 3 * s0 - 2 * s1, Expr::floor_div(s0, 2) + 1,
        Expr::floor_div(3 * s0 + 5, 4), Expr::floor_div(s1 - 1, 3), s0 * s1 + s0 + 2 * s1, s0 * s0 - 3 * s0 + 1,
        Expr::floor_div(s0 * (s0 - 1), 2), Expr::floor_div(s0, 2) * (Expr::floor_div(s1, 3) + 2)}) {
    const auto found = refit(expr);
    ASSERT_TRUE(found) << to_string(expr);
    for (int64_t a = 2; a < 40; ++a)
      for (int64_t b = 2; b < 40; ++b) {
        const int64_t at[] = {a, b};
        ASSERT_EQ(found->evaluate(at), expr.evaluate(at)) << to_string(expr) << " is not " << to_string(*found);
      }
  }
}

TEST(Fit, PrefersWhatIsKnown) {
  const Expr frames = Expr::floor_div(s0 - 8, 4) + 1;
  EXPECT_EQ(refit(frames, {s1, frames}), frames);
  EXPECT_EQ(refit(Expr::min(s0, s1), {s0, s1}), Expr::min(s0, s1));
  EXPECT_EQ(refit(Expr::min(s0, 4), {s0, 4}), Expr::min(s0, 4));
  EXPECT_EQ(refit(frames * s1, {frames, s1}), frames * s1);
}

TEST(Fit, CountsOnWithWhatIsKnown) {
  const Expr even = 2 * Expr::floor_div(3 * s0, 2);
  for (const Expr& expr : {even + 2, 3 * even - 1, Expr::floor_div(even - 1, 3) + 1}) {
    const auto found = refit(expr, {even});
    ASSERT_TRUE(found) << to_string(expr);
    for (int64_t n = 2; n < 60; ++n) {
      const int64_t at[] = {n, 7};
      EXPECT_EQ(found->evaluate(at), expr.evaluate(at)) << to_string(expr) << " is not " << to_string(*found);
    }
  }
}

// A product of two sizes looks like a sum as long as only one of them is moved.
TEST(Fit, WantsToSeeTwoSymbolsMoved) {
  const Points points = {{10, 7}, {11, 7}, {12, 7}, {9, 7}, {10, 8}, {10, 9}, {10, 6}};
  std::vector<int64_t> seen;
  for (const auto& point : points) seen.push_back(point[0] * point[1]);
  const std::vector<uint32_t> symbols = {0, 1};
  EXPECT_FALSE(fit(points, seen, symbols, {}));
}

TEST(Fit, SaysNothingOfOthers) {
  EXPECT_FALSE(refit(Expr::mod(s0, 5)));
  EXPECT_FALSE(refit(s0 * s0 * s0));
  EXPECT_FALSE(refit(Expr::min(s0, 4) * s0 + Expr::max(s0, 12)));  // a triangle with its corner cut off
  EXPECT_FALSE(fit({}, {}, {}, {}));
}

// Where two symbols are equal by what an operator demands, one stands for both.
TEST(Fit, OneSymbolStandsForAnother) {
  Points points;
  std::vector<int64_t> seen;
  for (int64_t n = 5; n < 12; ++n) {
    points.push_back({n, n});
    seen.push_back(2 * n + 1);
  }
  const std::vector<uint32_t> symbols = {0};
  EXPECT_EQ(fit(points, seen, symbols, {}), 2 * s0 + 1);
}

}  // namespace
}  // namespace magneto::types
