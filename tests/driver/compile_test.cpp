// Graphs to plans, and what the verifiers do about what is not right.
#include "driver/compile.h"

#include <gtest/gtest.h>

#include "base/violation.h"
#include "driver/notes.h"
#include "graph/text.h"

namespace magneto::driver {
namespace {

std::unique_ptr<Compilation> compiled(const std::string& text) {
  Passes passes;
  return compile(graph::parse("graph {\n" + text + "}\n"), {}, passes);
}

std::string violation(const std::string& text) {
  try {
    compiled(text);
  } catch (const base::Violation& found) {
    return found.what();
  }
  return "";
}

TEST(Compile, WhatIsNotProvedIsACallWithItsReason) {
  // A table without rows has no place that could stand for an index out of range.
  const std::string embedding =
      "  in %0: f32[s0, 8]\n  in %1: i64[4]\n"
      "  %2: f32[4, 8] = aten::embedding(%0, %1, -1, false, false)\n  %3: f32[4, 8] = aten::relu(%2)\n  out %3\n";
  Passes passes;
  const auto made = compile(graph::parse("graph {\n" + embedding + "}\n"), {}, passes);
  EXPECT_NE(plan::print(made->plan).find("call \"aten::embedding\""), std::string::npos) << plan::print(made->plan);
  const base::CodeNote note = describe(*made, passes);
  ASSERT_EQ(note.calls.size(), 1u);
  EXPECT_EQ(note.calls[0].reason,
            "not known to stay inside of its memory: v0[checked(v1[i], s0), j]: 0 <= checked(v1[i], s0) < s0 is not "
            "proved");
  EXPECT_EQ(note.kernels.size(), 1u);

  const auto known = compiled("  where 1 <= s0\n" + embedding);
  EXPECT_TRUE(known->unproved.empty());
  EXPECT_EQ(plan::print(known->plan).find("call"), std::string::npos) << plan::print(known->plan);
}

TEST(Compile, TheTimeOfVerifiersIsNoted) {
  Passes passes;
  compile(graph::parse("graph {\n  in %0: f32[4]\n  %1: f32[4] = aten::relu(%0)\n  out %1\n}\n"), {}, passes);
  size_t lines = 0;
  for (const PassTime& time : passes.times()) lines += time.name == "verify";
  EXPECT_EQ(lines, 1u);
}

TEST(Compile, AViewThatLiesElsewhereIsAViolation) {
  const std::string mm = "  %2: f32[4, 4] = aten::mm(%1, %1)\n  out %2\n";
  EXPECT_EQ(violation("  in %0: f32[8, 4]\n  %1: f32[4, 4]{4, 1}+16 = aten::slice.Tensor(%0, 0, 4, 8, 1)\n" + mm), "");
  EXPECT_EQ(
      violation("  in %0: f32[8, 4]\n  %1: f32[4, 4]{4, 1}+20 = aten::slice.Tensor(%0, 0, 4, 8, 1)\n" + mm),
      "functionalise: %1 of node 0 (aten::slice.Tensor) is f32[4, 4]{4, 1}+20, which should be f32[4, 4]{4, 1}+16");
}

}  // namespace
}  // namespace magneto::driver
