#include "graph/settle.h"

#include "types/solve.h"

namespace magneto::graph {

Graph settle(Graph graph) {
  const types::Solution solution(graph.conditions);
  if (solution.empty()) return graph;
  const auto settle_all = [&](std::vector<types::Expr>& list) {
    for (types::Expr& e : list) e = solution.of(e);
  };
  for (size_t v = 0; v < graph.values().size(); ++v) {
    types::TensorType& type = graph.value(ValueId(v)).type;
    settle_all(type.sizes);
    settle_all(type.strides);
    type.offset = solution.of(type.offset);
  }
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    for (Arg& arg : graph.node(NodeId(n)).args) {
      if (auto* one = std::get_if<types::Expr>(&arg)) *one = solution.of(*one);
      if (auto* list = std::get_if<std::vector<types::Expr>>(&arg)) settle_all(*list);
    }
  return graph;
}

}  // namespace magneto::graph
