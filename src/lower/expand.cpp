// Before:  %3 = aten::_softmax(%0, -1, false)
// After:   %1 = amax(%0)   %2 = sub(%0, %1)   %3 = exp(%2)   %4 = sum(%3)   %5 = div(%3, %4)
// An expansion writes at the end of the new graph; when it fails, what it added is cut off again.
#include "lower/expand.h"

#include "base/check.h"
#include "ops/expander.h"
#include "ops/op.h"

namespace magneto::lower {

namespace {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::ValueId;

class Expansion {
 public:
  Expansion(const Graph& from, types::Dtype default_dtype) : from_(from), default_dtype_(default_dtype) {}

  Graph run() {
    renamed_.resize(from_.values().size());
    for (const ValueId id : from_.inputs())
      renamed_[id.index()] = made_.add_input(from_.value(id).type, from_.value(id).name);
    for (const ValueId id : from_.constants()) {
      renamed_[id.index()] = made_.add_constant(from_.value(id).type);
      made_.value(renamed_[id.index()]).name = from_.value(id).name;
    }
    made_.conditions = from_.conditions;
    for (const Node& node : from_.nodes()) {
      Node copy = node;
      copy.place = made_.add_place(from_.places().at(node.place));
      for (Arg& arg : copy.args) {
        if (auto* one = std::get_if<ValueId>(&arg)) *one = renamed(*one);
        if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
          for (ValueId& id : *list) id = renamed(id);
      }
      std::vector<types::TensorType> types;
      for (const ValueId id : node.outputs) types.push_back(id.valid() ? from_.value(id).type : types::TensorType{});
      const std::vector<ValueId> outputs = place(std::move(copy), types, node.outputs);
      for (size_t k = 0; k < outputs.size(); ++k)
        if (node.outputs[k].valid()) renamed_[node.outputs[k].index()] = outputs[k];
    }
    for (const ValueId id : from_.outputs) made_.outputs.push_back(renamed(id));
    for (const graph::Store& store : from_.stores) made_.stores.push_back({renamed(store.value), renamed(store.into)});
    return graph::renumber(made_);
  }

 private:
  ValueId renamed(ValueId id) const { return id.valid() ? renamed_[id.index()] : id; }

  /// Adds the node or what it expands to; the values of its results, which have these types.
  std::vector<ValueId> place(Node node, const std::vector<types::TensorType>& types,
                             const std::vector<ValueId>& wanted) {
    const ops::Op* op = ops::find(node.op);
    if (op && op->expand) {
      const ops::Call call{node.args, &made_, default_dtype_};
      const size_t nodes = made_.nodes().size();
      ops::Expander expander(made_, call, node, types);
      const std::vector<ValueId> results = op->expand(expander);
      if (!expander.failed && gives(results, wanted)) {
        std::vector<Node> added(made_.nodes().begin() + static_cast<ptrdiff_t>(nodes), made_.nodes().end());
        made_.truncate(nodes);
        std::vector<ValueId> now(made_.values().size());
        for (Node& one : added) again(std::move(one), now);
        std::vector<ValueId> final;
        for (size_t k = 0; k < results.size(); ++k)
          final.push_back(wanted[k].valid() ? result(current(results[k], now), types[k], node) : ValueId());
        return final;
      }
      made_.truncate(nodes);
    }
    node.outputs.clear();
    for (size_t k = 0; k < types.size(); ++k)
      node.outputs.push_back(wanted[k].valid() ? made_.add_value(types[k]) : ValueId());
    std::vector<ValueId> outputs = node.outputs;
    made_.add_node(std::move(node));
    return outputs;
  }

  /// A kernel may give a result that its mask does not ask for; the expansion has none.
  static bool gives(const std::vector<ValueId>& results, const std::vector<ValueId>& wanted) {
    if (results.size() != wanted.size()) return false;
    for (size_t k = 0; k < wanted.size(); ++k)
      if (wanted[k].valid() && !results[k].valid()) return false;
    return true;
  }

  static ValueId current(ValueId id, const std::vector<ValueId>& now) {
    return id.valid() && id.index() < now.size() && now[id.index()].valid() ? now[id.index()] : id;
  }

  /// A node that an expansion added may have one of its own.
  void again(Node node, std::vector<ValueId>& now) {
    for (Arg& arg : node.args) {
      if (auto* one = std::get_if<ValueId>(&arg)) *one = current(*one, now);
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
        for (ValueId& id : *list) id = current(id, now);
    }
    std::vector<types::TensorType> types;
    for (const ValueId id : node.outputs) types.push_back(id.valid() ? made_.value(id).type : types::TensorType{});
    const std::vector<ValueId> old = node.outputs, made = place(std::move(node), types, old);
    for (size_t k = 0; k < old.size(); ++k)
      if (old[k].valid()) now[old[k].index()] = made[k];
  }

  /// A value of exactly this type: it was computed for this purpose, so its layout is ours to choose, unless something
  /// else has it, too.
  ValueId result(ValueId id, const types::TensorType& type, const Node& like) {
    types::TensorType& own = made_.value(id).type;
    base::check(own.sizes == type.sizes && own.dtype == type.dtype, "expand: ", like.op, " gives ", to_string(own),
                " instead of ", to_string(type));
    if (own == type) return id;
    const ops::Op* maker = made_.value(id).maker.valid() ? ops::find(made_.node(made_.value(id).maker).op) : nullptr;
    if (maker && !maker->view && maker->body) {
      own = type;
      return id;
    }
    const ops::Call none{{}, &made_, default_dtype_};
    return ops::Expander(made_, none, like, {}).laid_out(id, type);
  }

  const Graph& from_;
  const types::Dtype default_dtype_;
  Graph made_;
  std::vector<ValueId> renamed_;
};

}  // namespace

Graph expand(const Graph& graph, types::Dtype default_dtype) { return Expansion(graph, default_dtype).run(); }

}  // namespace magneto::lower
