// Plans, and what does not hold of them.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "text_cases.h"

namespace magneto::plan {
namespace {

std::string lines(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& line : list) text += line + "\n";
  return text;
}

TEST(PlanVerify, WhatDoesNotHold) {
  expect_text_cases(MAGNETO_TEST_DIR "/verified", [](const std::string& input, const std::filesystem::path& path) {
    const Plan plan = parse(input.substr(input.find("plan {")));
    EXPECT_EQ(print(parse(print(plan))), print(plan)) << path;
    return lines(verify(plan));
  });
}

TEST(PlanVerify, ABufferThatDoesNotExist) {
  Plan plan = parse("plan {\n  in x: 4\n  out y: 4\n  run k(x, -> y) points 1\n}\n");
  EXPECT_TRUE(verify(plan).empty());
  plan.steps[0].reads[0] = BufferId(99);
  EXPECT_EQ(lines(verify(plan)), "step k names a buffer that does not exist\n");
  plan.steps[0].reads = {};
  EXPECT_EQ(lines(verify(plan)), "k takes x and neither reads nor writes it\n");
  plan.steps[0].buffers = {BufferId(1)};
  plan.steps[0].reads = {BufferId(0)};
  EXPECT_EQ(lines(verify(plan)), "k touches x, which it does not take\n");
}

// ---- signatures ----------------------------------------------------------------------------------------------------

types::TensorType type(const char* text) { return types::parse_tensor_type(text).value(); }

struct Sample {
  Plan plan = parse(
      "plan {\n  in x: 48\n  temp t: 48 at 0\n  out y: 48\n  out z: 48\n  arena 64\n  run k(x, -> t) points 1\n"
      "  call \"aten::mm\" (t, x) -> (y) \"$0, $1:f32[4, 3]{1, 4}, \\\"a -> $9\\\"\"\n  run l(t, -> z) points 1\n}\n");
  Signature signature;
  Sample() {
    signature.types = {type("f32[3, 4]"), type("f32[3, 4]"), type("f32[3, 4]"), type("f32[3, 4]")};
    signature.inputs = {BufferId(0)};
    signature.outputs = {{BufferId(2), type("f32[4, 3]{1, 4}"), false}, {BufferId(0), type("f32[3, 4]"), true}, {}};
    signature.stores = {{BufferId(3), BufferId(0), type("f32[3, 4]")}};
  }
  std::string broken() const { return lines(verify(plan)) + lines(verify(plan, signature)); }
};

TEST(PlanVerify, ASoundSignature) { EXPECT_EQ(Sample().broken(), ""); }

TEST(PlanVerify, BuffersHoldTheirTypes) {
  Sample s;
  s.signature.types[1] = type("f64[3, 4]");
  EXPECT_EQ(s.broken(), "t has 48 bytes, too few for f64[3, 4]\n");
  s = {};
  s.signature.types[0] = type("f32[3, 4]{4, 1}+1");
  s.signature.outputs[1].type = type("f32[3, 4]{4, 1}+1");
  EXPECT_EQ(s.broken(), "x has 48 bytes, too few for f32[3, 4]{4, 1}+1\n");
  s = {};
  s.signature.types[3] = type("f32[3, 3]{4, 1}+1");
  s.signature.stores = {};
  EXPECT_EQ(s.broken(), "z is made for this run, but begins 1 elements after the begin of its memory\n");
  s = {};
  s.signature.types.pop_back();
  EXPECT_EQ(s.broken(), "there are 3 types for 4 buffers\n");
}

TEST(PlanVerify, OutputsLieInMemoryThatStays) {
  Sample s;
  s.signature.outputs[0].buffer = BufferId(1);
  EXPECT_EQ(s.broken(), "output t is gone when the plan has run\n");
  s = {};
  s.signature.outputs[0].type = type("f32[4, 3]{1, 4}+1");
  EXPECT_EQ(s.broken(), "an output of type f32[4, 3]{1, 4}+1 does not lie in y, f32[3, 4]\n");
  s = {};
  s.signature.outputs[0].is_itself = true;
  EXPECT_EQ(s.broken(), "output y is no input, but is said to be one\n");
  s = {};
  s.signature.outputs[0].buffer = BufferId(17);
  EXPECT_EQ(s.broken(), "an output names a buffer that does not exist\n");
}

TEST(PlanVerify, WhatDependsOnSymbolsIsAsked) {
  Sample s;
  s.plan.buffers[0].bytes = 4 * types::Expr::symbol(0);
  s.signature.types[0] = type("f32[s0]");
  s.signature.outputs[1] = {BufferId(0), type("f32[2]{3}+1"), false};
  s.signature.stores = {};
  s.plan.steps[1].arguments = "$0, $1:f32[3]";
  std::vector<types::Condition> asked;
  EXPECT_EQ(lines(verify(s.plan, s.signature)),
            "an output of type f32[2]{3}+1 does not lie in x, f32[s0]\n"
            "call aten::mm looks at f32[3], which does not lie in x, f32[s0]\n");
  EXPECT_EQ(lines(verify(s.plan, s.signature, &asked)), "");
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_FALSE(asked[0].holds(std::vector<int64_t>{4}));
  EXPECT_TRUE(asked[0].holds(std::vector<int64_t>{5}));
  EXPECT_TRUE(asked[1].holds(std::vector<int64_t>{3}));
  EXPECT_FALSE(asked[1].holds(std::vector<int64_t>{2}));
  s.signature.outputs[0].type = type("f32[4, 3]{1, 4}+1");  // numbers are not asked
  EXPECT_EQ(lines(verify(s.plan, s.signature, &asked)),
            "an output of type f32[4, 3]{1, 4}+1 does not lie in y, f32[3, 4]\n");
}

TEST(PlanVerify, InputsAreTheCallersAndStoresFit) {
  Sample s;
  s.signature.inputs = {BufferId(1)};
  EXPECT_EQ(s.broken(), "input t is not the caller's memory\n");
  s = {};
  s.signature.stores = {{BufferId(3), BufferId(2), type("f32[3, 4]")}};
  EXPECT_EQ(s.broken(), "a store changes y, which is no input\n");
  s = {};
  s.signature.stores = {{BufferId(1), BufferId(0), type("f32[3, 4]")}};
  EXPECT_EQ(s.broken(), "a store takes t, which no step keeps\n");
  s = {};
  s.signature.types[3] = type("f32[12]");
  EXPECT_EQ(s.broken(), "a store puts f32[12] into f32[3, 4] of x\n");
  s.signature.stores[0].type = type("f32[12]{1}+1");
  EXPECT_EQ(s.broken(), "a store changes f32[12]{1}+1, which does not lie in x, f32[3, 4]\n");
}

TEST(PlanVerify, CallsLookAtPartsOfWhatTheyRead) {
  Sample s;
  s.plan.steps[1].arguments = "$0:f32[4, 4], $1";
  EXPECT_EQ(s.broken(), "call aten::mm looks at f32[4, 4], which does not lie in t, f32[3, 4]\n");
  s.plan.steps[1].arguments = "$0, $2";
  EXPECT_EQ(s.broken(), "call aten::mm takes $2, but reads 2 buffers\n");
  s.plan.steps[1].arguments = "$0, $1 -> $, undef, $";
  EXPECT_EQ(s.broken(), "call aten::mm has 1 results, but says -> $, undef, $\n");
  s.plan.steps[1].arguments = "$0, $1 -> $, undef";
  EXPECT_EQ(s.broken(), "");
}

TEST(PlanVerify, SortsKnowTheirTypes) {
  Sample s;
  s.plan.steps[1].name = "magneto::sort";
  s.plan.steps[1].reads = {BufferId(1)};
  s.plan.steps[1].arguments = "f32[3, 4]; f32[3, 4]; along 1";
  EXPECT_EQ(s.broken(), "");
  s.plan.steps[1].arguments = "f32[3, 4]; f32[4, 3]; along 1";
  EXPECT_EQ(s.broken(), "a sort of y does not know its type\n");
}

}  // namespace
}  // namespace magneto::plan
