// What it costs to compile, stage by stage, without torch and Python: graph text to machine code.
//
//     cmake --build build/tests --target bench_compile && VIRTUAL_ENV=... build/tests/tests/bench_compile [name ...]
//
// With --code, the generated text is written to name.ll.
//
// A column is a graph, a line a stage; milliseconds, the median of a few runs. What must hold: twelve equal layers cost
// at most twice one layer in code generation, and chains and trees are linear in their operators.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>

#include "autograd/functionalise.h"
#include "base/text.h"
#include "codegen/llvm/print.h"
#include "codegen/machine.h"
#include "driver/assemble.h"
#include "driver/passes.h"
#include "graph/text.h"
#include "graphs.h"
#include "lower/expand.h"
#include "lower/lower.h"
#include "toolchain/llvm.h"

namespace magneto::bench {
namespace {

graph::Graph layers(int count) {
  Maker m;
  const int64_t batch = 8, tokens = 128, width = 768, heads = 12, each = width / heads, rows = batch * tokens;
  ValueId x = m.in({batch, tokens, width});
  const auto linear = [&](ValueId a, int64_t from, int64_t to) {
    const ValueId w = m.call("aten::t", {m.in({to, from})}), b = m.in({to});
    const ValueId flat = m.call("aten::view", {a, list({rows, from})});
    const ValueId y = m.call("aten::addmm", {b, flat, w, Expr(1), Expr(1)});
    return m.call("aten::view", {y, list({batch, tokens, to})});
  };
  const auto norm = [&](ValueId a) {
    return m.call("aten::native_layer_norm", {a, list({width}), m.in({width}), m.in({width}), 1e-12});
  };
  const auto split = [&](ValueId a) {
    return m.call("aten::transpose.int",
                  {m.call("aten::view", {a, list({batch, tokens, heads, each})}), Expr(1), Expr(2)});
  };
  for (int k = 0; k < count; ++k) {
    const ValueId q = split(linear(x, width, width)), key = split(linear(x, width, width)),
                  v = split(linear(x, width, width));
    const ValueId attended =
        m.call("aten::_scaled_dot_product_flash_attention_for_cpu", {q, key, v, 0.0, false, {}, {}});
    const ValueId merged = m.call(
        "aten::view", {m.call("aten::transpose.int", {attended, Expr(1), Expr(2)}), list({batch, tokens, width})});
    x = norm(m.call("aten::add.Tensor", {linear(merged, width, width), x, Expr(1)}));
    const ValueId inner = m.call("aten::gelu", {linear(x, width, 4 * width), std::string("none")});
    x = norm(m.call("aten::add.Tensor", {linear(inner, 4 * width, width), x, Expr(1)}));
  }
  m.out(x);
  return m.graph;
}

ValueId some_op(Maker& m, ValueId a, ValueId b, int k) {
  switch (k % 5) {
    case 0:
      return m.call("aten::mul.Tensor", {a, b});
    case 1:
      return m.call("aten::add.Tensor", {a, b, Expr(1)});
    case 2:
      return m.call("aten::tanh", {a});
    case 3:
      return m.call("aten::sub.Tensor", {a, b, Expr(1)});
    default:
      return m.call("aten::relu", {a});
  }
}

graph::Graph chain(int count) {
  Maker m;
  const ValueId first = m.in({1024, 1024});
  ValueId x = first;
  for (int k = 0; k < count; ++k) x = some_op(m, x, first, k);
  m.out(x);
  return m.graph;
}

/// Pairs of neighbours are joined until one is left.
graph::Graph tree(int count) {
  Maker m;
  std::vector<ValueId> level;
  for (int k = 0; k < count / 2; ++k) level.push_back(m.call("aten::exp", {m.in({64, 64})}));
  while (level.size() > 1) {
    std::vector<ValueId> next;
    for (size_t k = 0; k + 1 < level.size(); k += 2)
      next.push_back(m.call("aten::add.Tensor", {level[k], level[k + 1], Expr(1)}));
    if (level.size() % 2) next.push_back(level.back());
    level = std::move(next);
  }
  m.out(level.front());
  return m.graph;
}

/// Every value has several readers, which stand all over the graph.
graph::Graph dag(int count) {
  Maker m;
  std::vector<ValueId> values = {m.in({1024, 1024}), m.in({1024, 1024})};
  uint32_t random = 1;
  for (int k = 0; k < count; ++k) {
    random = random * 1664525 + 1013904223;
    const size_t near = values.size() - 1 - std::min<size_t>(values.size() - 1, (random >> 16) % 8);
    values.push_back(some_op(m, values.back(), values[near], k));
  }
  m.out(values.back());
  return m.graph;
}

/// As an optimiser has them: the same few operators for every one of many parameters.
graph::Graph many_outputs(int count) {
  Maker m;
  for (int k = 0; k < count / 5; ++k) {
    const ValueId p = m.in({256, 256}), g = m.in({256, 256});
    ValueId x = m.call("aten::mul.Tensor", {p, g});
    x = m.call("aten::add.Tensor", {x, g, Expr(1)});
    x = m.call("aten::sqrt", {m.call("aten::abs", {x})});
    m.out(m.call("aten::div.Tensor", {p, x}));
  }
  return m.graph;
}

using Times = std::vector<std::pair<std::string, double>>;

Times compile(const std::string& text, const toolchain::Llvm* llvm, std::string& counts, std::string& code) {
  Times times;
  auto last = std::chrono::steady_clock::now();
  const auto done = [&](const std::string& name) {
    const auto now = std::chrono::steady_clock::now();
    times.emplace_back(name, std::chrono::duration<double, std::milli>(now - last).count());
    last = std::chrono::steady_clock::now();
  };
  const graph::Graph graph = graph::parse(text);
  done("parse");
  const autograd::Functional functional = autograd::functionalise(graph);
  base::check(functional.reason.empty(), functional.reason);
  done("functionalise");
  const graph::Graph expanded = lower::expand(functional.graph);
  done("expand");
  lower::Lowered lowered = lower::lower(expanded);
  done("lower");
  driver::Passes passes;
  passes.verifies = false;
  driver::schedule(lowered.program, passes, {});
  for (const driver::PassTime& pass : passes.times()) times.emplace_back(pass.name, 1e3 * pass.seconds);
  last = std::chrono::steady_clock::now();
  const driver::Assembled made = driver::assemble(lowered.program);
  done("assemble");
  const codegen::Machine machine = codegen::host_machine();
  code = codegen::llvm::print(made.units, machine);
  done("print");
  if (llvm) {
    const std::string object = llvm->compile(code, codegen::llvm_features(machine));
    done("llvm");
    std::vector<std::string> names;
    for (const codegen::Unit& unit : made.units) names.push_back(unit.name);
    const auto loaded = llvm->link(object, names);
    done("link");
  }
  double sum = 0;
  for (const auto& [name, time] : times) sum += time;
  times.emplace_back("all", sum);
  counts = base::concat(graph.nodes().size(), " nodes, ", made.plan.steps.size(), " steps, ", made.units.size(),
                        " kernels, ", lowered.program.terms(), " terms, ", code.size() / 1024, " KB");
  return times;
}

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list[list.size() / 2];
}

int run(std::vector<std::string> wanted) {
  const bool writes = std::erase(wanted, "--code") > 0;
  const std::vector<std::pair<std::string, std::function<graph::Graph()>>> graphs = {
      {"layers1", [] { return layers(1); }},          {"layers2", [] { return layers(2); }},
      {"layers12", [] { return layers(12); }},        {"chain1000", [] { return chain(1000); }},
      {"chain5000", [] { return chain(5000); }},      {"tree1000", [] { return tree(1000); }},
      {"tree5000", [] { return tree(5000); }},        {"dag1000", [] { return dag(1000); }},
      {"dag5000", [] { return dag(5000); }},          {"many1000", [] { return many_outputs(1000); }},
      {"many5000", [] { return many_outputs(5000); }}};
  const std::string path = toolchain::find_llvmlite(site_packages());
  const std::unique_ptr<toolchain::Llvm> llvm = path.empty() ? nullptr : std::make_unique<toolchain::Llvm>(path);
  std::vector<std::string> names, stages;
  std::map<std::string, std::map<std::string, double>> table;
  for (const auto& [name, make] : graphs) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    const std::string text = graph::print(make());
    std::map<std::string, std::vector<double>> all;
    std::string counts, code;
    for (int turn = 0; turn < 5; ++turn) {
      stages.clear();
      for (const auto& [stage, time] : compile(text, llvm.get(), counts, code)) {
        all[stage].push_back(time);
        stages.push_back(stage);
      }
    }
    for (auto& [stage, list] : all) table[name][stage] = median(list);
    names.push_back(name);
    if (writes) std::ofstream(name + ".ll") << code;
    std::printf("%-10s %s\n", name.c_str(), counts.c_str());
    std::fflush(stdout);
  }
  std::printf("\n%-14s", "ms");
  for (const std::string& name : names) std::printf("%10s", name.c_str());
  for (const std::string& stage : stages) {
    std::printf("\n%-14s", stage.c_str());
    for (const std::string& name : names) std::printf("%10.2f", table[name][stage]);
  }
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace magneto::bench

int main(int count, char** arguments) { return magneto::bench::run({arguments + 1, arguments + count}); }
