#include "types/prove.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace magneto::types {
namespace {

const Expr s0 = Expr::symbol(0), s1 = Expr::symbol(1), s2 = Expr::symbol(2);

TEST(Prove, SizesAreNeverNegative) {
  Prover p;
  EXPECT_TRUE(p.never_negative(s0 * s1 + 2));
  EXPECT_TRUE(p.never_negative(s0 - Expr::floor_div(s0, 2)));
  EXPECT_TRUE(p.never_negative(Expr::max(s0, s1) - s1));
  EXPECT_TRUE(p.never_negative(s1 - Expr::min(s0, s1)));
  EXPECT_TRUE(p.never_negative(s0 - Expr::mod(s0, 8)));
  EXPECT_TRUE(p.never_negative(7 - Expr::mod(s0, 8)));
  EXPECT_FALSE(p.never_negative(s0 - 1));
  EXPECT_FALSE(p.never_negative(s0 - s1));
  EXPECT_FALSE(p.never_negative(6 - Expr::mod(s0, 8)));
  EXPECT_FALSE(p.never_negative(s0 * s1 - s0));
  EXPECT_FALSE(p.never_negative(Expr::floor_div(s0, s1)));  // by zero
}

TEST(Prove, RelationsHoldForAllValuesOrForNone) {
  const Expr n = Expr::symbol(0), m = Expr::symbol(1);
  Prover p({{2, Relation::kLe, n}});
  EXPECT_EQ(p.decide({Expr::max(n, 1) * m, Relation::kEq, n * m}), true);
  EXPECT_EQ(p.decide({Expr::max(n, 1) * m, Relation::kNe, n * m}), false);
  EXPECT_EQ(p.decide({n, Relation::kEq, 1}), false);
  EXPECT_EQ(p.decide({n, Relation::kEq, 2}), std::nullopt);
  EXPECT_EQ(p.decide({1, Relation::kLt, n}), true);
  EXPECT_EQ(p.decide({n, Relation::kLe, 1}), false);
  EXPECT_EQ(p.decide({n, Relation::kLt, m}), std::nullopt);
}

TEST(Prove, WhatStandsInsideOfADivisionAndBesideIt) {
  Prover p;
  const Expr blocks = Expr::ceil_div(s0, 512), bytes = 288 * blocks, rounded = 64 * Expr::ceil_div(bytes, 64);
  EXPECT_TRUE(p.never_negative(rounded - bytes));
  EXPECT_TRUE(p.never_negative(2 * rounded - (rounded + bytes)));
  EXPECT_FALSE(p.never_negative(bytes - rounded));
  EXPECT_TRUE(p.never_negative(64 * Expr::ceil_div(s0, 4096) - 4 * Expr::ceil_div(s0, 256)));
  EXPECT_FALSE(p.never_negative(63 * Expr::ceil_div(s0, 4096) - 4 * Expr::ceil_div(s0, 256)));
}

TEST(Prove, StridesOfTorchAreProductsOfSizes) {
  const TensorType square{Dtype::kF32, {}, {s2, s1, s1}, contiguous_strides({s2, s1, s1}), 0};
  const Expr many = Expr::max(s1, 1), last = (s2 - 1) * many * many + (s1 - 1) * many + (s1 - 1);
  Prover p;
  EXPECT_FALSE(p.never_negative(s2 * s1 * s1 - 1 - last));
  p.assume({1, Relation::kLe, s1});
  EXPECT_TRUE(p.never_negative(s2 * s1 * s1 - 1 - last));
  EXPECT_TRUE(p.never_negative(last + 1 - s2 * s1 * s1));
  EXPECT_FALSE(p.never_negative(s2 * s1 * s1 - 2 - last));
  EXPECT_TRUE(p.never_negative(64 * Expr::ceil_div(4 * s1 * s0, 64) - 4 * many * s0));
  EXPECT_TRUE(p.lies_inside(square, square));
}

TEST(Prove, APartOfATensorThatIsHalfAsLong) {
  Prover p({{2, Relation::kLe, s0}, {1, Relation::kLe, s1}});
  EXPECT_TRUE(p.never_negative(s0 * s1 - Expr::floor_div(s0, 2) * s1));
  EXPECT_FALSE(p.never_negative(Expr::floor_div(s0, 2) * s1 - s0));
  const TensorType whole{Dtype::kF32, {}, {s0, s1}, {s1, 1}, 0};
  const TensorType half{Dtype::kF32, {}, {Expr::floor_div(s0, 2), s1}, {s1, 1}, 0};
  EXPECT_TRUE(p.lies_inside(half, whole));
  EXPECT_FALSE(p.lies_inside(whole, half));
}

TEST(Prove, StridesOfSizesThatAreQuotients) {
  Prover p({{2, Relation::kLe, s0}});
  const Expr half = Expr::floor_div(s0, 2), less = half - 1;
  for (const Expr& n : {half, less, 8 - s1}) {
    const TensorType square{Dtype::kF32, {}, {n, n}, contiguous_strides({n, n}), 0};
    const auto before = p.mark();
    p.assume_not_negative(n - 1);
    EXPECT_TRUE(p.never_negative(n * n - 1 - ((n - 1) * square.strides[0] + (n - 1)))) << to_string(n);
    EXPECT_FALSE(p.never_negative(n * n - 2 - ((n - 1) * square.strides[0] + (n - 1)))) << to_string(n);
    p.back_to(before);
  }
}

TEST(Prove, WhatIsNotKnownCanBeAsked) {
  Prover p({{Expr::floor_div(s0, 2), Relation::kEq, 3}});
  const TensorType whole{Dtype::kF32, {}, {s0}, {1}, 0}, part{Dtype::kF32, {}, {s1}, {3}, 1};
  EXPECT_FALSE(p.lies_inside(part, whole));
  const auto holds = [&](int64_t size, int64_t count) {
    const std::vector<Condition> list = p.to_lie_inside(part, whole);
    return std::all_of(list.begin(), list.end(), [&](const Condition& c) { return c.holds(std::vector{size, count}); });
  };
  EXPECT_TRUE(holds(8, 3));
  EXPECT_FALSE(holds(7, 3));
  EXPECT_TRUE(holds(2, 1));
  EXPECT_FALSE(holds(1, 1));
  EXPECT_TRUE(holds(1, 0));
  EXPECT_TRUE(holds(0, 0));
  EXPECT_FALSE(holds(0, 1));
}

TEST(Prove, WhatIsKnownOfAnEqualSymbol) {
  Prover p({{2, Relation::kLe, s1}, {3, Relation::kLe, s0}, {s0, Relation::kEq, s1}});
  EXPECT_TRUE(p.never_negative(4 * s1 * s1 - 12 * s1));
  EXPECT_FALSE(p.never_negative(4 * s1 * s1 - 16 * s1));
}

TEST(Prove, OtherSizesOfTheSameMemory) {
  const Expr s3 = Expr::symbol(3);
  const TensorType one{Dtype::kF32, {}, {s0, s1}, {s1, 1}, 0}, other{Dtype::kF32, {}, {s3, s2}, {s2, 1}, 0};
  Prover p;
  EXPECT_FALSE(p.lies_inside(other, one));
  p.assume({s0 * s1, Relation::kEq, s2 * s3});
  EXPECT_TRUE(p.never_negative(4 * s0 * s1 - 4 * s2 * s3 + s0));
  EXPECT_FALSE(p.never_negative(4 * s0 * s1 - 5 * s2 * s3));
  EXPECT_TRUE(p.lies_inside(other, one));
  EXPECT_TRUE(p.lies_inside(one, other));
}

TEST(Prove, QuotientsOfAnAxisThatWasFolded) {
  Prover p({{1, Relation::kLe, s0}});
  const Expr i0 = p.variable({4 * s0 - 1}), i1 = p.variable({3}), i2 = p.variable({79});
  const auto div = [](const Expr& a, int64_t n) { return Expr::floor_div(a, n); };
  const Expr row = div((div(i0, 4) * 80 + i2) * 4 + i1, 2);
  EXPECT_TRUE(p.never_negative(160 * s0 - 1 - row));
  EXPECT_FALSE(p.never_negative(160 * s0 - 2 - row));
  const Expr place = div(row * 2 + div(Expr::mod(i0, 4), 2), 4);
  EXPECT_TRUE(p.never_negative(s0 - 1 - div(place, 80)));
  EXPECT_TRUE(p.never_negative(79 - Expr::mod(place, 80)));
  EXPECT_FALSE(p.never_negative(s0 - 2 - div(place, 80)));
}

TEST(Prove, ConditionsAreKnown) {
  Prover p({{1, Relation::kLe, s1}, {s0, Relation::kLe, 64}, {s2, Relation::kEq, 2 * s0}});
  EXPECT_TRUE(p.never_negative(s0 * s1 - s0));
  EXPECT_TRUE(p.never_negative(64 - s0));
  EXPECT_TRUE(p.never_negative(128 - s2));
  EXPECT_FALSE(p.never_negative(127 - s2));
  EXPECT_TRUE(p.never_negative(Expr::floor_div(s2, 2) - s0));
  EXPECT_TRUE(Prover({{s0, Relation::kNe, 0}}).is_positive(s0));
  EXPECT_TRUE(Prover({{Expr::mod(s0, 4), Relation::kEq, 0}}).never_negative(4 * Expr::floor_div(s0, 4) - s0));
  EXPECT_FALSE(Prover({{Expr::mod(s0, 4), Relation::kEq, 0}}).never_negative(8 * Expr::floor_div(s0, 8) - s0));
}

TEST(Prove, ALoopKnowsThatItsRangeIsNotEmpty) {
  Prover p;
  const auto before = p.mark();
  const Expr i = p.variable({s0 * s1 - 1});
  EXPECT_TRUE(p.is_positive(s0));
  EXPECT_TRUE(p.is_positive(s1));
  EXPECT_TRUE(p.never_negative(s0 - 1 - Expr::floor_div(i, s1)));
  EXPECT_TRUE(p.never_negative(s1 - 1 - Expr::mod(i, s1)));
  EXPECT_FALSE(p.never_negative(s0 - 2 - Expr::floor_div(i, s1)));
  p.back_to(before);
  EXPECT_FALSE(p.is_positive(s0));
}

TEST(Prove, BlocksOfAnAxisThatWasCut) {
  Prover p;
  const Expr b = p.variable({Expr::ceil_div(s0, 32) - 1});
  const Expr i = p.variable({Expr(31), s0 - 1 - 32 * b}), at = 32 * b + i;
  EXPECT_TRUE(p.never_negative(s0 - 1 - at));
  EXPECT_TRUE(p.never_negative(31 - (at - 32 * b)));
  EXPECT_FALSE(p.never_negative(s0 - 2 - at));
  const Expr j = p.variable({Expr(63)});
  EXPECT_TRUE(p.never_negative(64 * s0 - 1 - (64 * at + j)));
}

TEST(Prove, NumbersNearTheirEndProveNothing) {
  Prover p;
  const Expr i = p.variable({Expr(INT64_MAX / 2)}), j = p.variable({Expr(INT64_MAX / 2)});
  EXPECT_FALSE(p.never_negative(7 - 8 * i - 8 * j));
  EXPECT_FALSE(p.never_negative(-(1ll << 40) * Expr::floor_div(i * (1ll << 30), 3)));
}

// What is proved holds for all values that were allowed.
TEST(Prove, RandomQuestionsAreNeverAnsweredWrong) {
  std::mt19937 random(7);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int proved = 0;
  constexpr size_t kFirst = Prover::kFirstVariable;
  std::vector<int64_t> values(kFirst + 2);
  for (int turn = 0; turn < 3000; ++turn) {
    Prover p({{1, Relation::kLe, s1}});
    const Expr top = upto(2) ? s0 - 1 : Expr(upto(9));
    const Expr i = p.variable({top});
    const std::vector<Expr> most = {Expr(3), s1 * 4 - 1 - i};
    const Expr j = p.variable(most);
    const std::function<Expr(int)> made = [&](int depth) -> Expr {
      if (depth == 0 || upto(4) == 0) {
        const Expr leaves[] = {s0, s1, i, j, Expr(upto(5) - 2), i, j};
        return leaves[upto(7)];
      }
      const Expr a = made(depth - 1), b = made(depth - 1);
      switch (upto(8)) {
        case 0:
          return Expr::floor_div(a, 1 + upto(5));
        case 1:
          return Expr::mod(a, 1 + upto(5));
        case 2:
          return Expr::min(a, b);
        case 3:
          return Expr::max(a, b);
        case 4:
          return a * b;
        case 5:
          return Expr::mod(a, s1);
        case 6:
          return a - b;
        default:
          return a + b;
      }
    };
    const Expr e = upto(3) ? made(3) : made(2) - made(2) + upto(4);
    if (!p.never_negative(e)) continue;
    ++proved;
    for (values[0] = 0; values[0] < 7; ++values[0])
      for (values[1] = 1; values[1] < 4; ++values[1])
        for (int64_t a = 0; a <= top.evaluate(values); ++a) {
          values[kFirst] = a;
          values[kFirst + 1] = 0;
          for (int64_t b = 0; b <= std::min(most[0].evaluate(values), most[1].evaluate(values)); ++b) {
            values[kFirst + 1] = b;
            ASSERT_GE(e.evaluate(values), 0) << to_string(e) << " with s0 = " << values[0] << ", s1 = " << values[1]
                                             << ", i = " << a << ", j = " << b;
          }
        }
  }
  EXPECT_GT(proved, 300);
}

}  // namespace
}  // namespace magneto::types
