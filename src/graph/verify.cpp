#include "graph/verify.h"

#include <algorithm>

#include "base/text.h"
#include "graph/text.h"

namespace magneto::graph {

namespace {

using base::concat;
using Symbols = std::vector<uint32_t>;

class Verifier {
 public:
  Verifier(const Graph& graph, bool is_part) : graph_(graph), is_part_(is_part), made_(graph.values().size()) {}

  std::vector<std::string> run() {
    for (const ValueId id : graph_.inputs()) outside(id, "input");
    for (const ValueId id : graph_.constants()) outside(id, "constant");
    for (const types::Condition& condition : graph_.conditions) {
      symbols_of(condition.left, concat("condition ", to_string(condition)));
      symbols_of(condition.right, concat("condition ", to_string(condition)));
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) node(i);
    for (const ValueId id : graph_.outputs)
      if (id.valid()) read(id, "an output");
    for (size_t i = 0; i < graph_.stores.size(); ++i) store(i);
    return std::move(broken_);
  }

 private:
  template <class... Pieces>
  void say(const Pieces&... pieces) {
    broken_.push_back(concat(pieces...));
  }

  bool in_range(ValueId id, std::string_view reader) {
    if (id.index() < made_.size()) return true;
    say("%", id.index(), ", used by ", reader, ", does not exist; there are ", made_.size(), " values");
    return false;
  }

  void outside(ValueId id, std::string_view kind) {
    if (!in_range(id, kind)) return;
    if (made_[id.index()]) say("%", id.index(), " is listed twice as input or constant");
    if (graph_.value(id).maker.valid()) say(kind, " %", id.index(), " has a maker");
    made_[id.index()] = true;
    if (kind == "input") bind_symbols(graph_.value(id).type, bound_);
    type_of(id);
  }

  void type_of(ValueId id) {
    const types::TensorType& type = graph_.value(id).type;
    if (type.sizes.size() != type.strides.size())
      say("%", id.index(), " has ", type.sizes.size(), " sizes and ", type.strides.size(), " strides");
    for (const types::Expr& size : type.sizes)
      if (size.is_constant() && size.value_or(0) < 0) say("%", id.index(), " has the size ", size.value_or(0));
    const std::string who = concat("%", id.index());
    for (const types::Expr& e : type.sizes) symbols_of(e, who);
    for (const types::Expr& e : type.strides) symbols_of(e, who);
    symbols_of(type.offset, who);
  }

  void symbols_of(const types::Expr& e, std::string_view user) {
    if (e.is_constant() || is_part_) return;
    Symbols used;
    e.collect_symbols(used);
    for (const uint32_t symbol : used) {
      if (std::find(bound_.begin(), bound_.end(), symbol) != bound_.end()) continue;
      say("s", symbol, ", used by ", user, ", is no size of an input");
      bound_.push_back(symbol);  // once is enough
    }
  }

  void read(ValueId id, std::string_view reader) {
    if (in_range(id, reader) && !made_[id.index()]) say("%", id.index(), " is read by ", reader, " before it is made");
  }

  void store(size_t index) {
    const Store& store = graph_.stores[index];
    read(store.value, "a store");
    read(store.into, "a store");
    if (!broken_.empty()) return;
    const auto& inputs = graph_.inputs();
    if (std::find(inputs.begin(), inputs.end(), outside_of(graph_, store.into)) == inputs.end())
      return say("%", store.into.index(), " is stored to, but it is no input and no view of one");
    const types::TensorType &from = graph_.value(store.value).type, &to = graph_.value(store.into).type;
    if (from.sizes != to.sizes || from.dtype != to.dtype)
      say("a store gives ", to_string(from), " to %", store.into.index(), ", which is ", to_string(to));
    for (size_t other = 0; other < index; ++other)
      if (graph_.stores[other].into == store.into) say("%", store.into.index(), " is stored to twice");
  }

  void node(size_t index) {
    const Node& node = graph_.nodes()[index];
    const std::string who = concat("node ", index, " (", node.op, ")");
    if (node.op.empty()) say("node ", index, " has no operator");
    if (node.place >= graph_.places().size())
      say(who, " has place ", node.place, "; there are ", graph_.places().size());
    std::vector<ValueId> reads;
    for_each_read(node, [&](ValueId id) {
      read(id, who);
      reads.push_back(id);
    });
    for (const Arg& arg : node.args) {
      if (const auto* one = std::get_if<types::Expr>(&arg)) symbols_of(*one, who);
      if (const auto* list = std::get_if<types::Sizes>(&arg))
        for (const types::Expr& e : *list) symbols_of(e, who);
    }
    for (const ValueId id : node.outputs) {
      if (!id.valid() || !in_range(id, who)) continue;
      if (graph_.value(id).maker == NodeId(index)) {
        if (made_[id.index()] && std::count(node.outputs.begin(), node.outputs.end(), id) < 2)
          say("%", id.index(), " is made by ", who, ", but it existed before");
        made_[id.index()] = true;
        type_of(id);
      } else if (std::find(reads.begin(), reads.end(), id) == reads.end()) {
        say("%", id.index(), " is a result of ", who, ", which neither makes nor reads it");
      }
    }
  }

  const Graph& graph_;
  const bool is_part_;
  std::vector<bool> made_;
  Symbols bound_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> verify(const Graph& graph, bool is_part) { return Verifier(graph, is_part).run(); }

}  // namespace magneto::graph
