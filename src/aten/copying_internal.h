// aten/copying_internal.h: nodes of one graph in another.
#pragma once
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

/// Copies nodes into another graph. What is read must have a name there.
class Copying {
 public:
  explicit Copying(const graph::Graph& from) : from_(from) {}

  void add_input(graph::ValueId id) { renamed[id] = graph.add_input(from_.value(id).type, from_.value(id).name); }
  void add_constant(graph::ValueId id) { renamed[id] = graph.add_constant(from_.value(id).type); }
  void add_node(graph::Node node) { add_node(std::move(node), renamed); }
  /// Reads and makes what has these names.
  void add_node(graph::Node node, std::unordered_map<graph::ValueId, graph::ValueId>& names) {
    for (graph::Arg& arg : node.args) {
      if (auto* one = std::get_if<graph::ValueId>(&arg); one && one->valid()) *one = names.at(*one);
      if (auto* list = std::get_if<std::vector<graph::ValueId>>(&arg))
        for (graph::ValueId& id : *list)
          if (id.valid()) id = names.at(id);
    }
    for (graph::ValueId& id : node.outputs) {
      if (!id.valid()) continue;
      if (!names.count(id)) names[id] = graph.add_value(from_.value(id).type);
      id = names.at(id);
    }
    node.place = graph.add_place(from_.places().at(node.place));
    graph.add_node(std::move(node));
  }
  /// In the place of a node that makes this value; nothing for what is there already.
  void add_zeros(graph::ValueId id) {
    if (!id.valid() || renamed.count(id)) return;
    const types::TensorType& type = from_.value(id).type;
    const graph::ValueId made = renamed[id] = graph.add_value(type);
    const auto add = [&](std::string op, std::vector<graph::Arg> args) {
      graph.add_node({.op = std::move(op), .args = std::move(args), .outputs = {made}, .grad = false});
    };
    add("aten::empty_strided", {type.sizes, type.strides, type.dtype, graph::Arg(), type.device, graph::Arg()});
    add("aten::zero_", {made});
  }

  graph::Graph graph;
  std::unordered_map<graph::ValueId, graph::ValueId> renamed;

 private:
  const graph::Graph& from_;
};

}  // namespace magneto::aten
