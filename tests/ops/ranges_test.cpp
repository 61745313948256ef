#include "ops/ranges.h"

#include <gtest/gtest.h>

#include "graph/text.h"

namespace magneto::ops {
namespace {

/// Of the last value that the nodes make.
std::optional<bool> truth(const std::string& nodes) {
  const graph::Graph made = graph::parse("graph {\n  in %0: f32[]\n" + nodes + "\n}\n");
  return known_truth(made, made.nodes().back().outputs.back());
}

const std::string kRand = "  %1: f32[] = aten::rand([], none, none, cpu, false)\n";

TEST(Ranges, ARandomNumberLiesBetweenZeroAndOne) {
  EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::lt.Scalar(%1, 0.0)"), false);
  EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::lt.Scalar(%1, 0)"), false);
  EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::ge.Scalar(%1, 0.0)"), true);
  EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::gt.Scalar(%1, 1.0)"), false);
  EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::le.Scalar(%1, 1.5)"), true);
}

TEST(Ranges, NothingIsKnownInside) {
  for (const char* op : {"lt", "le", "gt", "ge"})
    EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::" + op + ".Scalar(%1, 0.5)"), std::nullopt) << op;
  EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::lt.Scalar(%1, 1.0)"), std::nullopt) << "half types round up";
  EXPECT_EQ(truth(kRand + "  %2: bool[] = aten::le.Scalar(%1, 0.0)"), std::nullopt);
  EXPECT_EQ(truth("  %1: bool[] = aten::lt.Scalar(%0, 0.0)"), std::nullopt) << "an input";
}

TEST(Ranges, NorOfWhatIsWrittenTo) {
  EXPECT_EQ(truth(kRand + "  %1 = aten::neg_(%1)\n  %2: bool[] = aten::lt.Scalar(%1, 0.0)"), std::nullopt);
}

}  // namespace
}  // namespace magneto::ops
