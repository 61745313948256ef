// Graphs to plans, and what the verifiers do about what is not right.
#include "driver/compile.h"

#include <gtest/gtest.h>

#include "base/violation.h"
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

TEST(Compile, AnOutputBesideItsMemoryIsAViolation) {
  EXPECT_EQ(violation("  in %0: f32[16]\n  %1: f32[16] = aten::relu(%0)\n"
                      "  %2: f32[8]{2}+2 = aten::as_strided(%1, [8], [2], 2)\n  out %2\n"),
            "assemble: an output of type f32[8]{2}+2 does not lie in v1, f32[16]");
}

}  // namespace
}  // namespace magneto::driver
