#include "ops/ranges.h"

#include <algorithm>
#include <string_view>

namespace magneto::ops {

namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

bool mentions(const Node& node, ValueId value) {
  return std::any_of(node.args.begin(), node.args.end(), [&](const graph::Arg& arg) {
    if (const auto* one = std::get_if<ValueId>(&arg)) return *one == value;
    const auto* list = std::get_if<std::vector<ValueId>>(&arg);
    return list && std::find(list->begin(), list->end(), value) != list->end();
  });
}

/// Nobody reads, writes or views it from this node on, but `but`.
bool is_untouched(const Graph& graph, ValueId value, size_t from, size_t but) {
  for (size_t n = from; n < graph.nodes().size(); ++n)
    if (n != but && mentions(graph.nodes()[n], value)) return false;
  return true;
}

// Elements lie between 0 and 1; half types may round one of them up to 1.
bool is_uniform(const Node& node) { return node.op == "aten::rand" || node.op == "aten::rand_like"; }

std::optional<double> number(const Node& node, size_t argument) {
  if (argument >= node.args.size()) return std::nullopt;
  if (const auto* real = std::get_if<double>(&node.args[argument])) return *real;
  const auto* whole = std::get_if<types::Expr>(&node.args[argument]);
  const auto constant = whole ? whole->constant() : std::nullopt;
  return constant ? std::optional(static_cast<double>(*constant)) : std::nullopt;
}

std::optional<bool> compared(std::string_view op, double with) {
  const bool is_below = with<0, is_least = with <= 0, is_above = with> 1, is_most = with >= 1;
  if (op == "aten::lt.Scalar") return is_least ? std::optional(false) : is_above ? std::optional(true) : std::nullopt;
  if (op == "aten::ge.Scalar") return is_least ? std::optional(true) : is_above ? std::optional(false) : std::nullopt;
  if (op == "aten::le.Scalar") return is_below ? std::optional(false) : is_most ? std::optional(true) : std::nullopt;
  if (op == "aten::gt.Scalar") return is_below ? std::optional(true) : is_most ? std::optional(false) : std::nullopt;
  return std::nullopt;
}

}  // namespace

std::optional<bool> known_truth(const Graph& graph, ValueId value) {
  const graph::NodeId maker = graph.value(value).maker;
  if (!maker.valid()) return std::nullopt;
  const Node& comparison = graph.node(maker);
  const auto* operand = comparison.args.size() == 2 ? std::get_if<ValueId>(&comparison.args[0]) : nullptr;
  const auto with = number(comparison, 1);
  if (!operand || !operand->valid() || !with) return std::nullopt;
  const graph::NodeId source = graph.value(*operand).maker;
  if (!source.valid() || !is_uniform(graph.node(source))) return std::nullopt;
  if (!is_untouched(graph, value, maker.index() + 1, SIZE_MAX)) return std::nullopt;
  if (!is_untouched(graph, *operand, source.index() + 1, maker.index())) return std::nullopt;
  return compared(comparison.op, *with);
}

}  // namespace magneto::ops
