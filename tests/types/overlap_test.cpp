#include "types/overlap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace magneto::types {
namespace {

TensorType type(const char* text) { return parse_tensor_type(text).value(); }
bool distinct(const char* text) { return has_distinct_elements(type(text)); }
Overlap both(const char* a, const char* b) { return overlap(type(a), type(b)); }

TEST(Overlap, ElementsOfFreshTransposedAndStridedTensorsAreDistinct) {
  EXPECT_TRUE(distinct("f32[2, 3]"));
  EXPECT_TRUE(distinct("f32[2, 3]{1, 2}"));
  EXPECT_TRUE(distinct("f32[2, 3]{1, 7}+5"));
  EXPECT_TRUE(distinct("f32[4, 1, 3]{6, 0, 2}"));
  EXPECT_TRUE(distinct("f32[0, 3]{0, 0}"));
  EXPECT_TRUE(distinct("f32[s0, s1]"));
  EXPECT_TRUE(distinct("f32[s0, s1]{1, s0}"));
  EXPECT_TRUE(distinct("f32[s0, 3]{8, 2}"));
}

TEST(Overlap, ExpandedAndUnfoldedTensorsAreNot) {
  EXPECT_FALSE(distinct("f32[2, 3]{0, 1}"));
  EXPECT_FALSE(distinct("f32[2, 3]{1, 1}"));
  EXPECT_FALSE(distinct("f32[3, 3]{2, 1}"));
  EXPECT_FALSE(distinct("f32[2, 3]{4, 2}+1") && distinct("f32[3, 3]{4, 2}"));
  EXPECT_FALSE(distinct("f32[s0, 3]{2, 1}"));
  EXPECT_FALSE(distinct("f32[s0, s1]{s2, 1}"));
}

TEST(Overlap, PartsOfATensor) {
  EXPECT_EQ(both("f32[2, 3]{8, 1}", "f32[2, 3]{8, 1}"), Overlap::kSame);
  EXPECT_EQ(both("f32[1, 3]{8, 1}", "f32[1, 3]{3, 1}"), Overlap::kSame);
  EXPECT_EQ(both("f32[2, 3]{8, 1}", "f32[2, 3]{8, 1}+3"), Overlap::kNone);  // columns
  EXPECT_EQ(both("f32[2, 3]{8, 1}", "f32[2, 3]{8, 1}+2"), Overlap::kUnknown);
  EXPECT_EQ(both("f32[2, 8]{8, 1}", "f32[2, 8]{8, 1}+16"), Overlap::kNone);  // rows
  EXPECT_EQ(both("f32[7]{1}", "f32[7]{1}+1"), Overlap::kUnknown);
  EXPECT_EQ(both("f32[4]{2}", "f32[4]{2}+1"), Overlap::kNone);         // even and odd
  EXPECT_EQ(both("f32[3, 3]", "f32[3, 3]{1, 3}"), Overlap::kUnknown);  // transposed
  EXPECT_EQ(both("f32[4]", "i32[4]"), Overlap::kUnknown);
  EXPECT_EQ(both("f32[s0]{5}", "f32[s0]{5}+3"), Overlap::kNone);
  EXPECT_EQ(both("f32[s0, 2]{8, 1}", "f32[s0, 2]{8, 1}+2"), Overlap::kNone);
  EXPECT_EQ(both("f32[s0]", "f32[s0]{1}+1"), Overlap::kUnknown);
}

TEST(Overlap, DenseStridesAreKeptAndGapsClosed) {
  EXPECT_EQ(dense_strides(type("f32[2, 3]{1, 2}+5")), type("f32[2, 3]{1, 2}").strides);
  EXPECT_EQ(dense_strides(type("f32[2, 3]{1, 4}")), contiguous_strides({2, 3}));
  EXPECT_EQ(dense_strides(type("f32[2, 3]{0, 1}")), contiguous_strides({2, 3}));
}

// Against all places, counted.
TEST(Overlap, ClaimsAreTrueOfRandomTensors) {
  std::mt19937 random(7);
  const auto pick = [&](int below) { return static_cast<int64_t>(random() % static_cast<uint32_t>(below)); };
  const auto make = [&] {
    TensorType made;
    for (int64_t d = pick(4); d > 0; --d) {
      made.sizes.push_back(1 + pick(4));
      made.strides.push_back(pick(13));
    }
    made.offset = pick(12);
    return made;
  };
  const auto places = [](const TensorType& t) {
    std::vector<int64_t> all = {*t.offset.constant()};
    for (size_t d = 0; d < t.sizes.size(); ++d)
      for (size_t k = 0, n = all.size(); k < n; ++k)
        for (int64_t i = 1; i < *t.sizes[d].constant(); ++i) all.push_back(all[k] + i * *t.strides[d].constant());
    return all;
  };
  std::map<Overlap, int> seen;
  for (int n = 0; n < 20000; ++n) {
    const TensorType a = make(), b = make();
    const std::vector<int64_t> at_a = places(a), at_b = places(b);
    const std::set<int64_t> set_a(at_a.begin(), at_a.end());
    EXPECT_EQ(has_distinct_elements(a), set_a.size() == at_a.size()) << to_string(a);
    const bool shares = std::any_of(at_b.begin(), at_b.end(), [&](int64_t p) { return set_a.contains(p); });
    const Overlap claim = overlap(a, b);
    ++seen[claim];
    EXPECT_EQ(claim == Overlap::kNone, !shares) << to_string(a) << " " << to_string(b);
  }
  EXPECT_GT(seen[Overlap::kNone], 100);
  EXPECT_GT(seen[Overlap::kUnknown], 100);
}

}  // namespace
}  // namespace magneto::types
