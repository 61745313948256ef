// aten/halves.cpp
#include "aten/halves_internal.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "aten/custom_function.h"
#include "aten/operators_internal.h"
#include "aten/program.h"
#include "autograd/functionalise.h"
#include "autograd/verify_functional.h"
#include "base/text.h"
#include "base/violation.h"
#include "graph/settle.h"
#include "types/overlap.h"

namespace magneto::aten {

using autograd::Alias;
using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

class Arranging {
 public:
  Arranging(std::span<const at::Tensor> examples, Joint& joint) : examples_(examples), joint_(joint) {}

  FunctionalJoint run() {
    const auto dtype = to_dtype(c10::get_default_dtype_as_scalartype()).value_or(types::Dtype::kF32);
    const auto start = std::chrono::steady_clock::now();
    joint_.graph = graph::settle(std::move(joint_.graph));
    values_ = autograd::functionalise(joint_.graph, dtype);
    made_.functionalise_ms = milliseconds_since(start);
    if (!values_.reason.empty()) return none(values_.reason);
    const std::vector<std::string> broken = autograd::verify_functional(joint_.graph, values_, dtype);
    if (!broken.empty() && !joint_.graph.conditions.empty())
      return none(base::concat("not proved for all sizes: ", broken.front()));
    if (!broken.empty()) throw base::Violation(base::concat("functionalise: ", broken.front()));
    made_.conditions = joint_.conditions;
    made_.counted = joint_.counted;
    made_.root_at = joint_.root_at;
    made_.stops = joint_.stops;
    made_.computed_from = joint_.computed_from;
    made_.beside = joint_.beside;
    made_.nodes = joint_.nodes;
    made_.reached_by = joint_.reached_by;
    place_held();
    place_roots();
    if (made_.reason.empty()) place_outputs();
    if (made_.reason.empty()) check_stores();
    if (!made_.reason.empty()) return std::move(made_);
    arrange();
    return std::move(made_);
  }

 private:
  FunctionalJoint none(std::string reason) {
    made_.reason = std::move(reason);
    return std::move(made_);
  }

  void place_held() {
    std::unordered_map<ValueId, ValueId> recorded;
    for (size_t i = 0; i < joint_.inputs; ++i) recorded[joint_.graph.inputs()[i]] = joint_.input_values[i];
    for (size_t v = joint_.joint_values.size(); v-- > 0;)
      if (joint_.joint_values[v].valid()) recorded[joint_.joint_values[v]] = ValueId(v);
    std::vector<size_t> node_of;  // of each recorded node: that of the program
    for (size_t n = 0; n < joint_.ends.size(); ++n) node_of.resize(joint_.ends[n], n);
    for (const autograd::Held& held : values_.held) {
      if (held.node >= node_of.size()) break;
      const auto tensor = recorded.find(held.recorded);
      if (tensor == recorded.end() || held.node + 1 != joint_.ends[node_of[held.node]]) continue;
      const FunctionalJoint::Held found{held.value, tensor->second, node_of[held.node] + 1};
      // of two values in one node, the last counts
      auto same_node = made_.held.end();
      while (same_node != made_.held.begin() && std::prev(same_node)->complete == found.complete) --same_node;
      made_.held.erase(
          std::remove_if(same_node, made_.held.end(),
                         [&](const FunctionalJoint::Held& earlier) { return earlier.recorded == found.recorded; }),
          made_.held.end());
      made_.held.push_back(found);
    }
    for (size_t m = 0; m < node_of.size(); ++m) {
      made_.program_node.resize(values_.ends[m], node_of[m]);
      made_.is_other.resize(values_.ends[m], !joint_.is_same[node_of[m]]);
    }
    made_.has_history = joint_.has_history;
  }

  void place_roots() {
    const auto& inputs = values_.graph.inputs();
    const auto& constants = values_.graph.constants();
    for (size_t r = 0; r < joint_.roots; ++r) {
      const Alias& alias = values_.outputs[joint_.outputs + r];
      FunctionalJoint::Root root{.tangent = joint_.tangent_of[r],
                                 .value = values_.graph.outputs[joint_.outputs + r],
                                 .recorded = joint_.root_values[r]};
      // A tensor whose shape was changed in place is a look at memory, but nobody else looks at it.
      const bool alone = std::none_of(values_.outputs.begin() + static_cast<ptrdiff_t>(joint_.outputs),
                                      values_.outputs.begin() + static_cast<ptrdiff_t>(joint_.outputs + r),
                                      [&](const Alias& other) { return other.of == alias.of; });
      if (alias.kind == Alias::Kind::kView && (!alone || values_.graph.comes_from_outside(alias.of))) {
        made_.reason = "an output whose memory is not its own";
        return;
      }
      if (alias.kind != Alias::Kind::kItself) {
        root.index = forward_outputs_.size();
        forward_outputs_.push_back(root.value);
      } else if (const auto at = std::lower_bound(inputs.begin(), inputs.end(), alias.of);
                 at != inputs.end() && *at == alias.of) {
        root.from = FunctionalJoint::Root::From::kInput;
        root.index = static_cast<size_t>(at - inputs.begin());
      } else {
        root.from = FunctionalJoint::Root::From::kConstant;
        root.index =
            static_cast<size_t>(std::lower_bound(constants.begin(), constants.end(), alias.of) - constants.begin());
      }
      if (root.from != FunctionalJoint::Root::From::kForward && root.tangent != Joint::kNone) {
        made_.reason = "an output with a gradient is an input";
        return;
      }
      made_.roots.push_back(root);
    }
  }

  // The views that leave, as graphs of their own, one over each root. Those that are older than the last write to the
  // root's memory have the whole way down to it for themselves: `owner`.
  void place_outputs() {
    std::map<std::pair<ValueId, ValueId>, ValueId> renamed;  // of a value and its owner
    std::set<std::tuple<size_t, ValueId, size_t>> nodes;     // a node of the graph of values, its owner, the root
    std::unordered_set<ValueId> older;
    for (const FunctionalJoint::Root& root : made_.roots)
      renamed[{root.value, {}}] = made_.views.emplace_back().add_input(values_.graph.value(root.value).type, "");
    std::vector<std::vector<ValueId>> wanted(made_.roots.size());
    const auto owner_of = [&](ValueId id) { return older.count(id) ? id : ValueId(); };
    for (size_t o = 0; o < joint_.outputs; ++o) {
      FunctionalJoint::Output output{.root = joint_.root_of[o]};
      if (output.root != Joint::kNone && values_.graph.outputs[o] != made_.roots[output.root].value) {
        if (values_.outputs[o].kind != Alias::Kind::kView) {
          made_.reason = "an output that is neither a tensor of its own nor a view";
          return;
        }
        output.view = wanted[output.root].size();
        wanted[output.root].push_back(values_.graph.outputs[o]);
        const ValueId bottom = made_.roots[output.root].value;
        std::vector<ValueId> way;
        for (ValueId id = values_.graph.outputs[o]; id != bottom;) {
          const graph::NodeId maker = values_.graph.value(id).maker;
          if (!maker.valid()) {
            made_.reason = "an output is a view of memory that the graph does not hold";
            return;
          }
          way.push_back(id);
          // Its gradient is divided among elements that share a place, and not every look at memory was recorded so.
          const Node& node = values_.graph.node(maker);
          id = std::get<ValueId>(node.args.at(0));
          if (node.op == "aten::as_strided" && !types::has_distinct_elements(values_.graph.value(id).type)) {
            made_.reason = "an output looks by strides at elements that share memory";
            return;
          }
        }
        const std::vector<bool>& is_older = joint_.is_older[o];
        for (size_t k = 0; k < way.size(); ++k)
          if (k < is_older.size() && is_older[is_older.size() == way.size() ? k : 0]) older.insert(way[k]);
        ValueId owner;
        for (const ValueId id : way) {
          if (!owner.valid()) owner = owner_of(id);
          nodes.emplace(values_.graph.value(id).maker.index(), owner, output.root);
        }
      }
      made_.outputs.push_back(output);
    }
    for (const auto& [n, owner, root] : nodes) {
      Graph& views = made_.views[root];
      Node view = values_.graph.nodes()[n];
      const ValueId below = std::get<ValueId>(view.args[0]);
      const ValueId bottom = made_.roots[root].value;
      view.args[0] = renamed.at({below, below == bottom ? ValueId() : owner.valid() ? owner : owner_of(below)});
      view.place = views.add_place(values_.graph.places().at(view.place));
      for (ValueId& id : view.outputs) {
        const ValueId made = views.add_value(values_.graph.value(id).type);
        renamed[{id, owner}] = made;
        id = made;
      }
      views.add_node(std::move(view));
    }
    for (size_t r = 0; r < wanted.size(); ++r)
      for (const ValueId id : wanted[r]) made_.views[r].outputs.push_back(renamed.at({id, owner_of(id)}));
  }

  size_t input_of(ValueId id) const {
    const auto& inputs = values_.graph.inputs();
    return static_cast<size_t>(std::lower_bound(inputs.begin(), inputs.end(), id) - inputs.begin());
  }

  void check_stores() {
    for (const graph::Store& store : values_.graph.stores) {
      const size_t input = input_of(graph::outside_of(values_.graph, store.into));
      if (input >= joint_.inputs) {
        made_.reason = "the backward writes to a gradient that it was given";
        return;
      }
      if (examples_[input].requires_grad()) {
        made_.reason = "an input that needs a gradient is written to";
        return;
      }
      if (std::find(made_.stored.begin(), made_.stored.end(), input) == made_.stored.end())
        made_.stored.push_back(input);
    }
  }

  void arrange() {
    made_.graph = std::move(values_.graph);
    std::vector<ValueId> outputs = std::move(forward_outputs_);
    made_.halves = {.inputs = joint_.inputs,
                    .outputs = outputs.size(),
                    .forward_nodes = joint_.forward_nodes ? values_.ends.at(joint_.forward_nodes - 1) : 0,
                    .hints = joint_.hints};
    const auto gradients = made_.graph.outputs.begin() + static_cast<ptrdiff_t>(joint_.outputs + joint_.roots);
    outputs.insert(outputs.end(), gradients, made_.graph.outputs.end());
    made_.graph.outputs = std::move(outputs);
  }

  const std::span<const at::Tensor> examples_;
  Joint& joint_;
  autograd::Functional values_;
  std::vector<ValueId> forward_outputs_;
  FunctionalJoint made_;
};

}  // namespace

FunctionalJoint make_functional_joint(std::span<const at::Tensor> examples, Joint joint) {
  FunctionalJoint made;
  if (!joint.reason.empty())
    made.reason = std::move(joint.reason);
  else
    made = Arranging(examples, joint).run();
  return made;
}

std::vector<uint32_t> count_versions(const Graph& recorded) {
  std::vector<uint32_t> versions(recorded.values().size());
  std::vector<ValueId> below(recorded.values().size());  // what a view is taken of, down to the tensor itself
  for (size_t v = 0; v < below.size(); ++v) below[v] = ValueId(v);
  for (size_t n = 0; n < recorded.nodes().size(); ++n) {
    const Node& node = recorded.nodes()[n];
    if (node.op == CustomFunction::kOperator) {  // the same tensors, with another history
      const auto& results = std::get<std::vector<ValueId>>(node.args[CustomFunction::kResults]);
      for (size_t k = 0; k < results.size(); ++k) below[node.outputs[k].index()] = below[results[k].index()];
    }
    const Operator& op = operator_named(node.op);
    const auto& arguments = op.handle.schema().arguments();
    for (size_t a = 0; a < node.args.size(); ++a) {
      const c10::AliasInfo* alias = arguments[a].alias_info();
      const auto* id = std::get_if<ValueId>(&node.args[a]);
      if (!alias || !id || !id->valid()) continue;
      if (alias->isWrite()) ++versions[below[id->index()].index()];
      for (const ValueId output : node.outputs)
        if (output.valid() && recorded.value(output).maker == graph::NodeId(n))
          below[output.index()] = below[id->index()];
    }
  }
  for (size_t v = 0; v < below.size(); ++v) versions[v] = versions[below[v].index()];
  return versions;
}

}  // namespace magneto::aten
