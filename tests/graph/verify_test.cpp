#include "graph/verify.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/text.h"

namespace magneto::graph {
namespace {

types::TensorType f32(types::Sizes sizes) {
  types::Sizes strides = types::contiguous_strides(sizes);
  return {types::Dtype::kF32, {}, std::move(sizes), std::move(strides), 0};
}

// x, y = relu(x), out y
struct Sound {
  Graph graph;
  ValueId x = graph.add_input(f32({2}), "x");
  ValueId y = graph.add_value(f32({2}));
  NodeId relu = graph.add_node({.op = "aten::relu", .args = {x}, .outputs = {y}});
  Sound() { graph.outputs = {y}; }
};

void expect_broken(const Graph& graph, std::string_view sentence) {
  const auto broken = verify(graph);
  ASSERT_EQ(broken.size(), 1u) << (broken.size() > 1 ? broken[1] : "");
  EXPECT_EQ(broken[0], sentence);
}

TEST(Verify, ASoundGraphBreaksNothing) { EXPECT_TRUE(verify(Sound().graph).empty()); }

TEST(Verify, AValueIsReadBeforeItIsMade) {
  Sound s;
  const ValueId late = s.graph.add_value(f32({2}));
  s.graph.add_node({.op = "aten::neg", .args = {late}, .outputs = {}});
  s.graph.add_node({.op = "aten::neg", .args = {s.x}, .outputs = {late}});
  expect_broken(s.graph, "%2 is read by node 1 (aten::neg) before it is made");
}

TEST(Verify, AValueInAListIsReadBeforeItIsMade) {
  Sound s;
  const ValueId late = s.graph.add_value(f32({2}));
  s.graph.add_node({.op = "aten::cat", .args = {std::vector<ValueId>{s.x, ValueId(), late}}, .outputs = {}});
  expect_broken(s.graph, "%2 is read by node 1 (aten::cat) before it is made");
}

TEST(Verify, AValueIsMadeTwice) {
  Sound s;
  s.graph.add_node({.op = "aten::neg", .args = {s.x}, .outputs = {s.y}});
  expect_broken(s.graph, "%1 is a result of node 1 (aten::neg), which neither makes nor reads it");
}

TEST(Verify, AnInPlaceOperatorMayReturnItsArgument) {
  Sound s;
  s.graph.add_node({.op = "aten::neg_", .args = {s.y}, .outputs = {s.y}});
  s.graph.add_node({.op = "aten::neg_", .args = {s.x}, .outputs = {s.x}});
  EXPECT_TRUE(verify(s.graph).empty());
  EXPECT_EQ(s.graph.value(s.y).maker, s.relu);
  EXPECT_FALSE(s.graph.value(s.x).maker.valid());
}

TEST(Verify, AnIdIsOutOfRange) {
  Sound s;
  s.graph.add_node({.op = "aten::neg", .args = {ValueId(9)}, .outputs = {}});
  expect_broken(s.graph, "%9, used by node 1 (aten::neg), does not exist; there are 2 values");
  Sound t;
  t.graph.outputs = {ValueId(7)};
  expect_broken(t.graph, "%7, used by an output, does not exist; there are 2 values");
}

TEST(Verify, AnOutputIsNeverMade) {
  Sound s;
  s.graph.outputs.push_back(s.graph.add_value(f32({})));
  expect_broken(s.graph, "%2 is read by an output before it is made");
}

TEST(Verify, ATypeHasAStrideForEachSize) {
  Sound s;
  s.graph.value(s.y).type.strides.clear();
  expect_broken(s.graph, "%1 has 1 sizes and 0 strides");
}

TEST(Verify, ASizeIsNegative) {
  Sound s;
  s.graph.value(s.y).type.sizes = {-1};
  expect_broken(s.graph, "%1 has the size -1");
}

TEST(Verify, APlaceDoesNotExist) {
  Sound s;
  s.graph.add_node({.op = "aten::neg", .args = {s.x}, .outputs = {}, .place = 4});
  expect_broken(s.graph, "node 1 (aten::neg) has place 4; there are 1");
}

TEST(Verify, AnOperatorHasNoName) {
  Sound s;
  s.graph.add_node({.op = "", .args = {}, .outputs = {}});
  expect_broken(s.graph, "node 1 has no operator");
}

TEST(Verify, ASymbolIsUnbound) {
  const types::Expr s0 = types::Expr::symbol(0);
  Sound s;
  s.graph.value(s.y).type = f32({s0});
  expect_broken(s.graph, "s0, used by %1, is no size of an input");
  Sound t;
  t.graph.add_node({.op = "aten::zeros", .args = {types::Sizes{s0 + 1}}, .outputs = {}});
  expect_broken(t.graph, "s0, used by node 1 (aten::zeros), is no size of an input");
  Sound u;
  u.graph.conditions = {{s0, types::Relation::kLe, 3}};
  expect_broken(u.graph, "s0, used by condition s0 <= 3, is no size of an input");
  Sound v;
  v.graph.add_input(f32({s0 * 2}), "z");  // s0 cannot be read off 2*s0 without arithmetic
  expect_broken(v.graph, "s0, used by %2, is no size of an input");
}

TEST(Compact, DropsWhatNothingReadsAndSaysWhatRemains) {
  const Graph graph = parse(R"(graph {
  in %0: f32[2]                                             # a
  in %1: f32[2]                                             # b
  in %6: f32[2]                                             # c
  const %2: f32[]
  const %3: f32[]
  %5: f32[2] = aten::add.Tensor(%6, %3, 1)
  out %5
}
)");
  std::vector<size_t> inputs, constants;
  EXPECT_EQ(print(compact(graph, &inputs, &constants)), R"(graph {
  in %0: f32[2]                                             # c
  const %1: f32[]
  %2: f32[2] = aten::add.Tensor(%0, %1, 1)
  out %2
}
)");
  EXPECT_EQ(inputs, std::vector<size_t>{2});
  EXPECT_EQ(constants, std::vector<size_t>{1});
}

TEST(Compact, KeepsTheInputThatTellsASymbol) {
  const Graph graph =
      parse("graph {\n in %0: f32[s0]\n in %1: f32[s0, s1]\n %2: f32[s0] = aten::zeros([s0])\n out %2\n}");
  std::vector<size_t> inputs;
  compact(graph, &inputs);
  EXPECT_EQ(inputs, std::vector<size_t>{0});
}

TEST(Compact, AValueThatNothingMakesIsAFault) {
  Sound s;
  s.graph.truncate(0);
  EXPECT_FALSE(s.graph.value(s.y).maker.valid());
  EXPECT_THROW(compact(s.graph, nullptr), base::Fault);
}

TEST(Graph, APlaceIsFoundAgainWhileItStaysTheSame) {
  Graph graph;
  EXPECT_EQ(graph.add_place({}), 0u);
  EXPECT_EQ(graph.add_place({"a.py", 1, "f"}), 1u);
  EXPECT_EQ(graph.add_place({"a.py", 1, "f"}), 1u);
  EXPECT_EQ(graph.add_place({"a.py", 2, "f"}), 2u);
}

}  // namespace
}  // namespace magneto::graph
