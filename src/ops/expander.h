// ops/expander.h: what an operator sees while it is written as simpler ones. Calls are added to a graph; the table's
// shape rules give their types. A call without an answer makes the expansion fail, and the operator stays as it is.
//
//   {.name = "aten::square", .expand = [](Expander& e) -> Values { return {e.mul(e.tensor(0), e.tensor(0))}; }}
#pragma once
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "ops/op.h"

namespace magneto::ops {

using Values = std::vector<graph::ValueId>;

class Expander {
 public:
  /// `call` is the operator that is expanded: its arguments are values of `graph`, to which the new calls are added
  /// with the place and the grad mode of `like`.
  Expander(graph::Graph& graph, const Call& call, const graph::Node& like, std::span<const types::TensorType> results)
      : graph(graph), call(call), results(results), like_(like) {}

  graph::Graph& graph;
  const Call& call;
  const std::span<const types::TensorType> results;  ///< types of what the operator gives
  bool failed = false;

  /// The first result.
  graph::ValueId add(std::string_view op, std::vector<graph::Arg> args);
  /// The one result of an operator without a shape rule, which has this type.
  graph::ValueId add(std::string_view op, std::vector<graph::Arg> args, types::TensorType type);

  graph::ValueId tensor(size_t argument) const;  ///< invalid when it is absent
  const types::TensorType& type(graph::ValueId id) const { return graph.value(id).type; }
  bool fail() {
    failed = true;
    return false;
  }

  // ---- the calls that expansions are made of
  graph::ValueId sum_of(graph::Arg a, graph::Arg b) { return add("aten::add.Tensor", {a, b, types::Expr(1)}); }
  graph::ValueId difference(graph::Arg a, graph::Arg b) { return add("aten::sub.Tensor", {a, b, types::Expr(1)}); }
  graph::ValueId product(graph::Arg a, graph::Arg b) { return add("aten::mul.Tensor", {a, b}); }
  graph::ValueId quotient(graph::Arg a, graph::Arg b) { return add("aten::div.Tensor", {a, b}); }
  graph::ValueId apply(std::string_view op, graph::ValueId a) { return add(op, {a}); }
  graph::ValueId sum(graph::ValueId a, const types::Sizes& dims, bool keep = true);
  graph::ValueId greatest(graph::ValueId a, const types::Sizes& dims);  ///< with size 1 left of the dimensions
  graph::ValueId to(types::Dtype dtype, graph::ValueId a);              ///< itself when it has that type
  /// The elements in row-major order as a tensor of these sizes; a copy where memory has another order.
  graph::ValueId view(graph::ValueId a, const types::Sizes& sizes);
  graph::ValueId laid_out(graph::ValueId a, types::TensorType type);  ///< a copy in this layout
  /// Half types as f32, others as they are.
  graph::ValueId widened(graph::ValueId a);

 private:
  const graph::Node& like_;
};

}  // namespace magneto::ops
