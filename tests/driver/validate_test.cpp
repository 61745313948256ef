// Stages that change what a program means are named. Graphs are run without torch: lowered and interpreted.
#include "driver/validate.h"

#include <gtest/gtest.h>

#include <cstring>

#include "autograd/functionalise.h"
#include "base/violation.h"
#include "driver/assemble.h"
#include "driver/compile.h"
#include "graph/text.h"
#include "loop/interpret.h"
#include "loop/text.h"
#include "lower/expand.h"

namespace magneto::driver {
namespace {

/// Graphs of operators that have equations, without stores.
class Interpreted final : public Evaluator {
 public:
  void begin() override {}
  std::vector<Sample> run(const graph::Graph& graph, const std::vector<int64_t>& symbols,
                          std::vector<Sample>& inputs) override {
    const lower::Lowered lowered = lower::lower(lower::expand(autograd::functionalise(graph).graph));
    std::vector<std::vector<char>> memory(lowered.program.buffers());
    std::vector<void*> at(lowered.program.buffers());
    for (size_t b = 0; b < memory.size(); ++b) {
      const loop::Buffer& buffer = lowered.program.buffer(loop::BufferId(b));
      memory[b].resize(
          static_cast<size_t>(loop::storage_size(buffer.type, symbols)) * types::item_size(buffer.type.dtype) + 8);
      at[b] = memory[b].data();
    }
    for (size_t k = 0; k < inputs.size(); ++k)
      std::memcpy(at[lowered.inputs[k].index()], inputs[k].memory.data(), inputs[k].memory.size());
    EXPECT_TRUE(loop::interpret(lowered.program, symbols, at));
    std::vector<Sample> made;
    for (const lower::Output& out : lowered.outputs) {
      Sample sample{.type = out.type, .memory = memory[out.buffer.index()]};
      for (types::Expr& e : sample.type.sizes) e = e.evaluate(symbols);
      for (types::Expr& e : sample.type.strides) e = e.evaluate(symbols);
      made.push_back(std::move(sample));
    }
    return made;
  }
  /// Stands for every operator: gives twice its first argument.
  std::vector<Sample> call(const std::string&, const std::string&, const std::vector<Sample>& reads,
                           const std::vector<int64_t>&) override {
    Sample made = reads[0];
    auto* numbers = reinterpret_cast<float*>(made.memory.data());
    for (size_t k = 0; k < made.memory.size() / sizeof(float); ++k) numbers[k] *= 2;
    return {made};
  }
};

const char* const kSoftmax =
    "graph {\n  in %0: f32[s0, 40]\n  in %1: f32[40]\n  where 2 <= s0\n"
    "  %2: f32[s0, 40] = aten::add.Tensor(%0, %1, 1)\n  %3: f32[s0, 40] = aten::_softmax(%2, 1, false)\n"
    "  %4: f32[40] = aten::sum.dim_IntList(%3, [0], false, none)\n  out %3, %4\n}\n";

struct Work {
  explicit Work(const std::string& text) : graph(graph::parse(text)), symbols(small_symbols(graph)) {
    std::vector<types::TensorType> types;
    for (const graph::ValueId id : graph.inputs()) types.push_back(graph.value(id).type);
    validator.emplace(evaluator, random_samples(types, symbols, 3), std::vector<Sample>(), symbols);
  }
  graph::Graph graph;
  std::vector<int64_t> symbols;
  Interpreted evaluator;
  std::optional<Validator> validator;
};

std::string violation(const std::function<void()>& work) {
  try {
    work();
  } catch (const base::Violation& found) {
    return found.what();
  }
  return "";
}

TEST(Validate, EveryStageIsCompared) {
  Work work(kSoftmax);
  Request request;
  request.validator = &*work.validator;
  Passes passes;
  work.validator->graph("recorded", work.graph);
  compile(work.graph, request, passes);
  std::string text;
  for (const std::string& note : work.validator->notes()) text += note + "\n";
  EXPECT_EQ(text,
            "recorded: run\nfunctionalise: the same\nexpand: the same\nlower: the same\nsimplify: the same\n"
            "sink: the same\ninline: the same\nsplit: the same\nfuse: the same\ntile: the same\nassemble: the same\n");
}

TEST(Validate, APassThatChangesTheMeaningIsNamed) {
  Work work(kSoftmax);
  const lower::Lowered lowered = lower::lower(lower::expand(work.graph));
  work.validator->graph("recorded", work.graph);
  work.validator->loops("lower", lowered.program, lowered);
  std::string text = loop::print(lowered.program);
  text.replace(text.find("v0[i, j] + v1[j]"), 16, "v0[i, j] - v1[j]");
  const std::string found = violation([&] { work.validator->loops("inline", loop::parse(text), lowered); });
  EXPECT_TRUE(found.starts_with("inline: output 0 is ")) << found;
  EXPECT_TRUE(found.ends_with("before it: lower")) << found;
}

TEST(Validate, PlacesThatOverlapChangeTheMeaning) {
  Work work(
      "graph {\n  in %0: f32[8]\n  %1: f32[8] = aten::exp(%0)\n  %2: f32[8] = extern::a(%1)\n"
      "  %3: f32[8] = aten::add.Tensor(%2, %1, 1)\n  %4: f32[8] = extern::a(%3)\n"
      "  %5: f32[8] = aten::mul.Tensor(%4, %1)\n  out %5\n}\n");
  const lower::Lowered lowered = lower::lower(lower::expand(work.graph));
  work.validator->loops("lower", lowered.program, lowered);
  loop::Program program = lowered.program;
  Passes passes;
  schedule(program, passes, {});
  Assembled made = assemble(program);
  plan::Signature signature;
  signature.types.resize(made.plan.buffers.size());
  for (size_t b = 0; b < program.buffers(); ++b)
    if (made.places[b].valid()) signature.types[made.places[b].index()] = program.buffer(loop::BufferId(b)).type;
  signature.inputs = {made.places[lowered.inputs[0].index()]};
  signature.outputs = {{made.places[lowered.outputs[0].buffer.index()], lowered.outputs[0].type, false}};
  EXPECT_EQ(violation([&] { work.validator->plan("assemble", made.plan, signature, made.units); }), "");
  for (plan::Buffer& buffer : made.plan.buffers) buffer.at = 0;
  EXPECT_FALSE(plan::verify(made.plan).empty());
  const std::string found = violation([&] { work.validator->plan("memory", made.plan, signature, made.units); });
  EXPECT_TRUE(found.starts_with("memory: output 0 is ")) << found;
}

TEST(Validate, WhatTakesTooLongIsLeftOut) {
  Work work("graph {\n  in %0: f32[40000000]\n  %1: f32[40000000] = aten::exp(%0)\n  out %1\n}\n");
  const lower::Lowered lowered = lower::lower(work.graph);
  work.validator->loops("lower", lowered.program, lowered);
  work.validator->loops("fuse", lowered.program, lowered);
  EXPECT_EQ(work.validator->notes(),
            (std::vector<std::string>{"lower: not compared: interpret: more than 40000000 terms",
                                      "fuse: not compared: loops take too long to interpret"}));
}

TEST(Validate, SmallSizesSatisfyTheConditions) {
  const graph::Graph graph = graph::parse(
      "graph {\n  in %0: f32[s0, s1]\n  in %1: f32[s2]\n  where s2 == 2*s0\n  where s1 % 4 == 0\n  where 3 <= s0\n"
      "  %2: f32[s2] = aten::exp(%1)\n  out %2\n}\n");
  const std::vector<int64_t> symbols = small_symbols(graph);
  ASSERT_EQ(symbols.size(), 3u);
  for (const types::Condition& c : graph.conditions) EXPECT_TRUE(c.holds(symbols)) << to_string(c);
}

}  // namespace
}  // namespace magneto::driver
