// What functionalise could get wrong, done to what it made.
#include "autograd/verify_functional.h"

#include <gtest/gtest.h>

#include "graph/text.h"

namespace magneto::autograd {
namespace {

using graph::ValueId;

const char* const kRecorded = R"(graph {
  in %0: f32[4, 3]
  in %1: f32[3]
  %2: f32[3]{1}+6 = aten::select.int(%0, 0, 2)
  %2 = aten::mul_.Tensor(%2, %1)
  %3: f32[4, 3] = aten::relu(%0)
  %4: f32[3, 4]{1, 3} = aten::t(%3)
  %5: f32[4, 3] = aten::bernoulli.p(%3, 0.5, none)
  out %4, %0, %2, %5
}
)";

std::string lines(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& line : list) text += line + "\n";
  return text;
}

struct Made {
  graph::Graph recorded = graph::parse(kRecorded);
  Functional made = functionalise(recorded);
  std::string broken() const { return lines(verify_functional(recorded, made)); }
  ValueId out(size_t k) const { return made.graph.outputs[k]; }
  types::TensorType& type(ValueId id) { return made.graph.value(id).type; }
};

TEST(VerifyFunctional, WhatFunctionaliseMakesIsSound) {
  const Made m;
  ASSERT_EQ(m.made.reason, "");
  EXPECT_EQ(m.broken(), "") << graph::print(m.made.graph);
}

TEST(VerifyFunctional, NoOperatorWrites) {
  const auto broken = verify_functional(
      graph::parse("graph {\n  in %0: f32[3]\n  %1: f32[3] = aten::neg(%0)\n  %1 = aten::relu_(%1)\n  out %1\n}\n"));
  EXPECT_EQ(lines(broken), "node 1 (aten::relu_) writes %1\n");
}

TEST(VerifyFunctional, ViewsLieWhereTheTableSays) {
  const auto check = [](const std::string& type) {
    return lines(verify_functional(
        graph::parse("graph {\n  in %0: f32[4, 3]\n  %1: " + type + " = aten::select.int(%0, 0, 2)\n  out %1\n}\n")));
  };
  EXPECT_EQ(check("f32[3]{1}+6"), "");
  EXPECT_EQ(check("f32[3]{1}+3"), "%1 of node 0 (aten::select.int) is f32[3]{1}+3, which should be f32[3]{1}+6\n");
  EXPECT_EQ(check("f32[3]{2}+6"), "%1 of node 0 (aten::select.int) is f32[3]{2}+6, which should be f32[3]{1}+6\n");
  EXPECT_EQ(check("f32[4]{1}+6"), "%1 of node 0 (aten::select.int) is f32[4]{1}+6, which should be f32[3]{1}+6\n");
}

TEST(VerifyFunctional, StridesLeadNowhereWhereASizeIsAtMostOne) {
  const auto check = [](const std::string& condition) {
    return lines(verify_functional(graph::parse(
        "graph {\n  in %0: f32[1, s1]{s1, 1}\n  where 2 <= s0\n  where " + condition +
        "\n  %1: f32[(s0 + 2) // 3, s1]{s1, 1} = aten::expand(%0, [(s0 + 2) // 3, s1], false)\n  out %1\n}\n")));
  };
  EXPECT_EQ(check("s0 < 3"), "");
  EXPECT_EQ(
      check("2 <= s1"),
      "%1 of node 0 (aten::expand) is f32[(s0 + 2) // 3, s1]{s1, 1}, which should be f32[(s0 + 2) // 3, s1]{0, 1}\n");
}

TEST(VerifyFunctional, ResultsHaveTheirSizesAndDtypes) {
  const auto check = [](const std::string& type) {
    return lines(verify_functional(
        graph::parse("graph {\n  in %0: f32[4, 3]\n  %1: " + type + " = aten::relu(%0)\n  out %1\n}\n")));
  };
  EXPECT_EQ(check("f32[4, 3]{1, 4}"), "");  // its memory is ours to lay out
  EXPECT_EQ(check("f32[3, 4]"), "%1 of node 0 (aten::relu) is f32[3, 4], which should be f32[4, 3]\n");
  EXPECT_EQ(check("f16[4, 3]"), "");  // a loop casts what it stores
  EXPECT_EQ(check("c64[4, 3]"), "%1 of node 0 (aten::relu) is c64[4, 3], which should be f32[4, 3]\n");
}

TEST(VerifyFunctional, WhatWasRecordedIsStillThere) {
  Made m;
  m.recorded.outputs.pop_back();
  EXPECT_EQ(m.broken(), "there are 4 outputs; 3 were recorded\n");
  m = {};
  m.recorded.conditions.push_back({types::Expr(1), types::Relation::kLe, types::Expr::symbol(0)});
  EXPECT_EQ(m.broken(), "the conditions are not those that were recorded\n");
  m = {};
  m.recorded.value(ValueId(1)).type.dtype = types::Dtype::kF64;
  EXPECT_EQ(m.broken(), "input 1 is f32[3]; recorded was f64[3]\n");
}

TEST(VerifyFunctional, OutputsLieAsTheyWereRecorded) {
  Made m;
  m.recorded.value(m.recorded.outputs[0]).type.strides = {4, 1};
  EXPECT_EQ(m.broken(), "output 0 is f32[3, 4]{1, 3}; recorded was f32[3, 4]\n");
  m = {};
  m.recorded.value(m.recorded.outputs[2]).type.offset = 3;
  EXPECT_EQ(m.broken(), "output 2 is f32[3]{1}+6; recorded was f32[3]{1}+3\n");
  m = {};
  m.made.graph.outputs[0] = {};
  EXPECT_EQ(m.broken(), "output 0 is undefined\n");
}

TEST(VerifyFunctional, AnInputThatIsWrittenToHasItsStore) {
  Made m;
  m.made.graph.stores.clear();
  EXPECT_EQ(m.broken(), "input 0 is written to, but nothing is stored to it\n");
  m = {};
  m.made.graph.stores.push_back({m.made.graph.inputs()[1], m.made.graph.inputs()[1]});
  EXPECT_EQ(m.broken(), "input 1 is stored to, but nobody writes to it\n");
}

TEST(VerifyFunctional, AliasesAreWhatTheGraphShows) {
  Made m;
  m.made.outputs[2] = {};
  EXPECT_EQ(m.broken(), "output 2 is said to have memory of its own, but is a view of %0\n");
  m = {};
  m.made.outputs[1] = {};
  EXPECT_EQ(m.broken(), "output 1 is the input itself, but is said to be another\n");
  m = {};
  m.made.outputs[2].of = m.made.graph.inputs()[1];
  EXPECT_EQ(m.broken(), "output 2 is said to show %1, but is a view of %0\n");
}

TEST(VerifyFunctional, WhatIsWrittenThroughAViewIsShownByIt) {
  const graph::Graph recorded = graph::parse(R"(graph {
  in %0: f32[4, 3]
  %1: f32[4, 3] = aten::relu(%0)
  %2: f32[3, 4]{1, 3} = aten::t(%1)
  %2 = aten::mul_.Scalar(%2, 2.0)
  out %2, %1
}
)");
  Functional made = functionalise(recorded);
  ASSERT_EQ(made.reason, "");
  EXPECT_EQ(lines(verify_functional(recorded, made)), "") << graph::print(made.graph);
  graph::Graph& graph = made.graph;
  const ValueId copy = graph.add_value(graph.value(graph.outputs[1]).type);
  graph.add_node({.op = "aten::neg", .args = {graph.outputs[1]}, .outputs = {copy}});
  graph.outputs[1] = copy;
  EXPECT_EQ(lines(verify_functional(recorded, made)),
            "output 1 shared its memory with output 0 and does not any more\n");
}

TEST(VerifyFunctional, NoDrawIsLost) {
  Made m;
  m.recorded = graph::parse(kRecorded);
  m.recorded.add_node({.op = "aten::bernoulli.p",
                       .args = {ValueId(3), 0.5, std::monostate()},
                       .outputs = {m.recorded.add_value(m.recorded.value(ValueId(3)).type)}});
  EXPECT_EQ(m.broken(), "aten::bernoulli.p was recorded and is missing, or stands elsewhere\n");
  m.recorded = graph::parse("graph {\n  in %0: f32[4, 3]\n  in %1: f32[3]\n  out %0\n}\n");
  m.made.graph.outputs = {m.made.graph.inputs()[0]};
  m.made.graph.stores = {};
  m.made.outputs = {{Alias::Kind::kItself, m.made.graph.inputs()[0]}};
  EXPECT_EQ(m.broken(), "aten::bernoulli.p draws numbers where nothing was recorded\n");
}

}  // namespace
}  // namespace magneto::autograd
