#include "types/solve.h"

#include <gtest/gtest.h>

namespace magneto::types {
namespace {

const Expr s0 = Expr::symbol(0), s1 = Expr::symbol(1), s2 = Expr::symbol(2), s3 = Expr::symbol(3);

TEST(Solve, ASymbolIsANumber) {
  const Solution solution({{s0 - 1, Relation::kEq, 1}, {2, Relation::kLe, s1}});
  EXPECT_EQ(solution.of(s0 - 1), Expr(1));
  EXPECT_EQ(solution.of(s0 * s1 + Expr::max(s0, s1)), 2 * s1 + Expr::max(2, s1));
  EXPECT_TRUE(Solution({{2, Relation::kLe, s1}, {s0, Relation::kNe, 3}}).empty());
}

TEST(Solve, ASymbolIsAnExpression) {
  const Solution solution({{s2, Relation::kEq, s1 + s3}});
  EXPECT_EQ(solution.of(s2 - s1), solution.of(s3));
  const Solution difference({{s0 - s1, Relation::kEq, 1}});
  EXPECT_EQ(difference.of(s0 - s1), Expr(1));
}

TEST(Solve, OneEqualityNeedsAnother) {
  const Condition product{s0 * s1, Relation::kEq, s2}, number{s1, Relation::kEq, 3}, six{s2, Relation::kEq, 6};
  for (const auto& conditions : std::vector<std::vector<Condition>>{
           {product, number, six}, {six, product, number}, {number, six, product}, {product, six, number}}) {
    const Solution solution(conditions);
    EXPECT_EQ(solution.of(s0), Expr(2));
    EXPECT_EQ(solution.of(s2), Expr(6));
  }
}

TEST(Solve, WhatCannotBeSolvedStays) {
  const Condition half{Expr::floor_div(s0, 2), Relation::kEq, 1}, odd{2 * s0, Relation::kEq, 3};
  EXPECT_TRUE(Solution({half}).empty());
  EXPECT_FALSE(Solution({half}).implies(half));
  EXPECT_TRUE(Solution({odd}).empty());
  const Condition twice{2 * s0, Relation::kEq, 4};
  EXPECT_TRUE(Solution({twice}).implies(twice));
}

}  // namespace
}  // namespace magneto::types
