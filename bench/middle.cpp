// What the middle costs, without torch and Python: symbolic sizes, shape rules, the graph language. The complexity that
// each benchmark prints must be linear (N) in the number of operators.
//
//     cmake --build build/tests --target bench_middle && build/tests/tests/bench_middle
#include <benchmark/benchmark.h>

#include "graph/graph.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "ops/op.h"
#include "types/expr.h"

namespace magneto {
namespace {

using types::Expr;

graph::Graph chain(int64_t length) {
  graph::Graph graph;
  types::TensorType type{
      .dtype = types::Dtype::kF32, .device = {}, .sizes = {Expr::symbol(0), 768}, .strides = {768, 1}, .offset = 0};
  graph::ValueId value = graph.add_input(type, "x");
  for (int64_t i = 0; i < length; ++i) {
    const graph::ValueId next = graph.add_value(type);
    graph.add_node({.op = "aten::add.Tensor", .args = {value, Expr(1), Expr(1)}, .outputs = {next}});
    value = next;
  }
  graph.outputs = {value};
  return graph;
}

void sizes_multiply(benchmark::State& state) {
  const Expr a = Expr::symbol(0) * 3 + 1, b = Expr::symbol(1) + Expr::symbol(0);
  for (auto _ : state) benchmark::DoNotOptimize(Expr::floor_div(a * b, 2));
}
BENCHMARK(sizes_multiply);

void fixed_sizes_multiply(benchmark::State& state) {
  const Expr a = 12, b = 768;
  for (auto _ : state) benchmark::DoNotOptimize(a * b + 1);
}
BENCHMARK(fixed_sizes_multiply);

void a_shape_rule(benchmark::State& state) {
  const graph::Graph graph = chain(1);
  const ops::Op* op = ops::find("aten::add.Tensor");
  const ops::Call call{.args = graph.nodes()[0].args, .graph = &graph};
  for (auto _ : state) benchmark::DoNotOptimize(op->type(call));
}
BENCHMARK(a_shape_rule);

void print_and_parse(benchmark::State& state) {
  const graph::Graph graph = chain(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(graph::parse(graph::print(graph)));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(print_and_parse)->Range(64, 4096)->Complexity();

void verify_and_compact(benchmark::State& state) {
  const graph::Graph graph = chain(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(graph::verify(graph));
    benchmark::DoNotOptimize(graph::compact(graph, nullptr));
  }
  state.SetComplexityN(state.range(0));
}
BENCHMARK(verify_and_compact)->Range(64, 4096)->Complexity();

}  // namespace
}  // namespace magneto

BENCHMARK_MAIN();
