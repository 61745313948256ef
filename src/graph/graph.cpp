#include "graph/graph.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace magneto::graph {

ValueId Graph::add_value(types::TensorType type) {
  values_.push_back({std::move(type), NodeId(), ""});
  return ValueId(values_.size() - 1);
}

ValueId Graph::add_input(types::TensorType type, std::string name) {
  const ValueId id = add_value(std::move(type));
  values_.back().name = std::move(name);
  inputs_.push_back(id);
  return id;
}

ValueId Graph::add_constant(types::TensorType type) {
  const ValueId id = add_value(std::move(type));
  constants_.push_back(id);
  return id;
}

bool Graph::comes_from_outside(ValueId id) const {
  // both lists grow with the values, so they are sorted
  return std::binary_search(inputs_.begin(), inputs_.end(), id) ||
         std::binary_search(constants_.begin(), constants_.end(), id);
}

ValueId outside_of(const Graph& graph, ValueId id) {
  while (id.valid() && graph.value(id).maker.valid()) {
    const Node& maker = graph.node(graph.value(id).maker);
    const auto* below = maker.args.empty() ? nullptr : std::get_if<ValueId>(&maker.args[0]);
    id = below ? *below : ValueId();
  }
  return id;
}

NodeId Graph::add_node(Node node) {
  const NodeId id(nodes_.size());
  for (const ValueId output : node.outputs) {
    if (!output.valid() || output.index() >= values_.size()) continue;  // the verifier tells
    Value& made = values_[output.index()];
    if (!made.maker.valid() && !comes_from_outside(output)) made.maker = id;
  }
  nodes_.push_back(std::move(node));
  return id;
}

uint32_t Graph::add_place(Place place) {
  if (place == places_.front()) return 0;
  if (places_.back() != place) places_.push_back(std::move(place));
  return static_cast<uint32_t>(places_.size() - 1);
}

void Graph::truncate(size_t nodes) {
  if (nodes >= nodes_.size()) return;
  for (size_t i = nodes; i < nodes_.size(); ++i)
    for (const ValueId output : nodes_[i].outputs)
      if (output.valid() && values_[output.index()].maker == NodeId(i)) values_[output.index()].maker = NodeId();
  nodes_.resize(nodes);
}

void for_each_read(const Node& node, const std::function<void(ValueId)>& visit) {
  for (const Arg& arg : node.args) {
    if (const auto* one = std::get_if<ValueId>(&arg)) {
      if (one->valid()) visit(*one);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      for (const ValueId id : *list)
        if (id.valid()) visit(id);
    }
  }
}

namespace {

using Symbols = std::vector<uint32_t>;

void collect(const types::Sizes& list, Symbols& into) {
  for (const types::Expr& e : list) e.collect_symbols(into);
}

void collect(const types::TensorType& type, Symbols& into) {
  collect(type.sizes, into);
  collect(type.strides, into);
  type.offset.collect_symbols(into);
}

bool contains(const Symbols& symbols, uint32_t symbol) {
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

/// Which inputs remain: those that something reads, and those without which the value of a symbol would be unknown.
std::vector<bool> inputs_to_keep(const Graph& graph, const std::vector<bool>& read) {
  std::vector<bool> keep(graph.inputs().size());
  Symbols needed, bound;
  for (size_t i = 0; i < keep.size(); ++i) keep[i] = read[graph.inputs()[i].index()];
  for (size_t i = 0; i < graph.values().size(); ++i)
    if (read[i] || graph.values()[i].maker.valid()) collect(graph.values()[i].type, needed);
  for (const Node& node : graph.nodes())
    for (const Arg& arg : node.args) {
      if (const auto* one = std::get_if<types::Expr>(&arg)) one->collect_symbols(needed);
      if (const auto* list = std::get_if<types::Sizes>(&arg)) collect(*list, needed);
    }
  for (const types::Condition& condition : graph.conditions) {
    condition.left.collect_symbols(needed);
    condition.right.collect_symbols(needed);
  }
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) bind_symbols(graph.value(graph.inputs()[i]).type, bound);
  for (size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) continue;
    Symbols here;
    bind_symbols(graph.value(graph.inputs()[i]).type, here);
    for (const uint32_t symbol : here)
      if (contains(needed, symbol) && !contains(bound, symbol)) keep[i] = true;
    if (keep[i]) bound.insert(bound.end(), here.begin(), here.end());
  }
  return keep;
}

}  // namespace

void bind_symbols(const types::TensorType& type, std::vector<uint32_t>& into) {
  const auto bind = [&](const types::Expr& e) {
    Symbols here;
    e.collect_symbols(here);
    if (here.size() == 1 && e == types::Expr::symbol(here[0]) && !contains(into, here[0])) into.push_back(here[0]);
  };
  for (const types::Expr& size : type.sizes) bind(size);
  for (const types::Expr& stride : type.strides) bind(stride);
  bind(type.offset);
}

static Graph compact(const Graph& graph, std::vector<size_t>* kept_inputs, std::vector<size_t>* kept_constants,
                     bool keep_all) {
  std::vector<bool> read(graph.values().size());
  const auto mark = [&](ValueId id) {
    base::check(id.index() < read.size(), "compact: %", id.index(), " is read, but there are ", read.size(), " values");
    read[id.index()] = true;
  };
  for (const Node& node : graph.nodes()) for_each_read(node, mark);
  for (const ValueId id : graph.outputs)
    if (id.valid()) mark(id);
  for (const Store& store : graph.stores) {
    mark(store.value);
    mark(store.into);
  }

  Graph result;
  std::vector<ValueId> renamed(graph.values().size());
  const std::vector<bool> keep =
      keep_all ? std::vector<bool>(graph.inputs().size(), true) : inputs_to_keep(graph, read);
  if (kept_inputs) kept_inputs->clear();
  if (kept_constants) kept_constants->clear();
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId id = graph.inputs()[i];
    if (!keep[i]) continue;
    renamed[id.index()] = result.add_input(graph.value(id).type, graph.value(id).name);
    if (kept_inputs) kept_inputs->push_back(i);
  }
  for (size_t i = 0; i < graph.constants().size(); ++i) {
    const ValueId id = graph.constants()[i];
    if (!read[id.index()] && !keep_all) continue;
    renamed[id.index()] = result.add_constant(graph.value(id).type);
    result.value(renamed[id.index()]).name = graph.value(id).name;
    if (kept_constants) kept_constants->push_back(i);
  }
  const auto rename = [&](ValueId id) {
    if (!id.valid()) return id;
    base::check(renamed[id.index()].valid(), "compact: %", id.index(), " is read before anything makes it");
    return renamed[id.index()];
  };
  for (const Node& node : graph.nodes()) {
    Node copy = node;
    for (Arg& arg : copy.args) {
      if (auto* one = std::get_if<ValueId>(&arg)) *one = rename(*one);
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
        for (ValueId& id : *list) id = rename(id);
    }
    for (ValueId& id : copy.outputs) {
      if (!id.valid()) continue;
      if (!renamed[id.index()].valid()) {
        renamed[id.index()] = result.add_value(graph.value(id).type);
        result.value(renamed[id.index()]).name = graph.value(id).name;
      }
      id = renamed[id.index()];
    }
    copy.place = result.add_place(graph.places().at(node.place));
    result.add_node(std::move(copy));
  }
  for (const ValueId id : graph.outputs) result.outputs.push_back(rename(id));
  for (const Store& store : graph.stores) result.stores.push_back({rename(store.value), rename(store.into)});
  result.conditions = graph.conditions;
  return result;
}

Graph compact(const Graph& graph, std::vector<size_t>* kept_inputs, std::vector<size_t>* kept_constants) {
  return compact(graph, kept_inputs, kept_constants, false);
}
Graph renumber(const Graph& graph) { return compact(graph, nullptr, nullptr, true); }

static void evaluate_all(std::vector<types::Expr>& exprs, std::span<const int64_t> symbols) {
  for (types::Expr& expr : exprs) expr = expr.evaluate(symbols);
}

Arg evaluate(Arg arg, std::span<const int64_t> symbols) {
  if (auto* one = std::get_if<types::Expr>(&arg)) *one = one->evaluate(symbols);
  if (auto* list = std::get_if<std::vector<types::Expr>>(&arg)) evaluate_all(*list, symbols);
  if (const auto* real = std::get_if<Real>(&arg)) {
    base::check(real->symbol < symbols.size(), "evaluate: s", real->symbol, " has no value");
    return std::bit_cast<double>(symbols[real->symbol]);
  }
  return arg;
}

Graph evaluate(const Graph& graph, std::span<const int64_t> symbols) {
  Graph result = graph;
  result.conditions.clear();
  for (size_t v = 0; v < graph.values().size(); ++v) {
    types::TensorType& type = result.value(ValueId(v)).type;
    evaluate_all(type.sizes, symbols);
    evaluate_all(type.strides, symbols);
    type.offset = type.offset.evaluate(symbols);
  }
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    for (Arg& arg : result.node(NodeId(n)).args) arg = evaluate(std::move(arg), symbols);
  return result;
}

}  // namespace magneto::graph
