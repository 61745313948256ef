// A gradient that is differentiated itself needs torch's own autograd graph, so the program is repeated. But some of
// its inputs may be gone by then, or hold other numbers. Eager does not need them: its operators saved what they read,
// and the rest of the numbers plays no part. So the program runs on tensors of the right sizes, whatever they hold, and
// each tensor that the backward reads gets its numbers as soon as its operator has run: from what the forward saved, as
// the backward itself would compute them.
//
//     y = (x * 2).exp()        x is gone; y was saved
//     t = zeros * 2            wrong, and nobody reads it
//     u = t.exp(); u <- y      ExpBackward saved u
//
// What no gradient goes through does not run on such tensors: 7 // k would divide by zero.
#include "aten/again_internal.h"

#include <algorithm>

#include "aten/chain_internal.h"
#include "aten/operators_internal.h"
#include "aten/program.h"
#include "autograd/partition.h"
#include "ops/op.h"

namespace magneto::aten {

namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using magneto::autograd::Partition;
using magneto::autograd::partition_again;
using magneto::autograd::Saved;

class Repeating {
 public:
  Repeating(const TrainingPlan& plan, const TrainingPlan::There& there, const FunctionalJoint& joint)
      : plan_(plan),
        there_(there),
        joint_(joint),
        graph_(joint.graph),
        inputs_(plan.examples.size()),
        forward_(joint.halves.forward_nodes),
        held_at_(graph_.values().size(), Joint::kNone),
        saved_copy_(graph_.values().size()),
        stops_at_(graph_.values().size()) {
    // No numbers are given to an input of the caller.
    std::vector<ValueId> of_the_caller;
    for (size_t i = 0; i < inputs_; ++i)
      if (there_.inputs[i]) of_the_caller.push_back(plan_.program->graph().inputs()[i]);
    for (size_t h = joint_.held.size(); h-- > 0;)
      if (!std::binary_search(of_the_caller.begin(), of_the_caller.end(), joint_.held[h].recorded))
        held_at_[joint_.held[h].value.index()] = h;
    if (&joint == &plan.joint)
      for (const Saved& saved : plan.saved) {
        const graph::NodeId maker = graph_.value(saved.value).maker;
        if (maker.valid() && graph_.node(maker).op == "aten::clone")
          saved_copy_[std::get<ValueId>(graph_.node(maker).args.at(0)).index()] = saved.value;
      }
    for (size_t s = 0; s < joint_.stops.size(); ++s) stops_at_[root_of(s).value.index()].push_back(s);
  }

  /// For whatever gradients are asked for.
  TrainingPlan::Again run() {
    made_.lacks.resize(inputs_ + joint_.stops.size());
    find_required(std::vector<bool>(inputs_, true));
    std::vector<bool> may_know(graph_.values().size(), true);
    if (choose(may_know) && !recall(known_).empty()) {
      for (const ValueId id : std::vector<ValueId>(known_)) may_know[id.index()] = recall({id}).empty();
      if (choose(may_know))
        if (const std::string reason = recall(known_); !reason.empty()) made_.reason = reason;
    }
    if (made_.reason.empty()) build();
    return std::move(made_);
  }

  /// For those that are asked for, which may need less. Who differentiates them may come to more, and is refused there,
  /// as in eager: it saved what is not there any more.
  std::optional<TrainingPlan::Again> run_for_some() {
    made_.lacks.resize(inputs_ + joint_.stops.size());
    find_required(there_.gives);
    if (!choose(std::vector<bool>(graph_.values().size(), true)) || !recall(known_).empty()) return std::nullopt;
    for (size_t i = 0; i < inputs_; ++i)
      if (is_wrong_[graph_.inputs()[i].index()]) spoilt_.push_back(plan_.program->graph().inputs()[i]);
    for (const FunctionalJoint::Held& held : joint_.held)
      if (is_wrong_[held.value.index()] && held_at_[held.value.index()] != Joint::kNone)
        spoilt_.push_back(held.recorded);
    std::sort(spoilt_.begin(), spoilt_.end());
    spoilt_.erase(std::unique(spoilt_.begin(), spoilt_.end()), spoilt_.end());
    build();
    return std::move(made_);
  }

 private:
  static bool is_view(const Node& node) {
    const ops::Op* op = ops::find(node.op);
    return op && op->view;
  }
  ValueId viewed(ValueId id) const {
    while (graph_.value(id).maker.valid() && is_view(graph_.node(graph_.value(id).maker)))
      id = std::get<ValueId>(graph_.node(graph_.value(id).maker).args.at(0));
    return id;
  }
  const FunctionalJoint::Root& root_of(size_t stop) const {
    return joint_.roots[joint_.outputs[joint_.stops[stop].output].root];
  }
  bool is_forward(ValueId id) const {
    const graph::NodeId maker = graph_.value(id).maker;
    return !maker.valid() || maker.index() < forward_;
  }
  template <class Flags>
  static bool any_of(const std::vector<ValueId>& ids, const Flags& flags) {
    return std::any_of(ids.begin(), ids.end(), [&](ValueId id) { return id.valid() && flags[id.index()]; });
  }

  // What the operators of the forward saved, for the gradients that these tangents bring to these inputs: required. And
  // all that it was computed from.
  void find_required(const std::vector<bool>& gives) {
    is_required_.assign(graph_.values().size(), false);
    is_behind_ = is_required_;
    // Of values: those that depend on one of these tangents, and on another one only, which do not come.
    std::vector<bool> depends(graph_.values().size()), is_missing(graph_.values().size());
    std::vector<bool> leads(graph_.values().size()), is_gradient(graph_.nodes().size());
    for (size_t t = 0; t < there_.through.size(); ++t)
      (there_.through[t] ? depends : is_missing)[graph_.inputs()[inputs_ + t].index()] = true;
    for (size_t n = forward_; n < graph_.nodes().size(); ++n) {
      bool misses = false;
      graph::for_each_read(graph_.nodes()[n], [&](ValueId id) {
        is_gradient[n] = is_gradient[n] || depends[id.index()];
        misses = misses || is_missing[id.index()];
      });
      for (const ValueId id : graph_.nodes()[n].outputs)
        if (id.valid() && (is_gradient[n] || misses)) (is_gradient[n] ? depends : is_missing)[id.index()] = true;
    }
    for (size_t o = joint_.halves.outputs; o < graph_.outputs.size(); ++o)
      if (const size_t g = o - joint_.halves.outputs; graph_.outputs[o].valid() && (g >= gives.size() || gives[g]))
        leads[graph_.outputs[o].index()] = true;
    for (size_t n = graph_.nodes().size(); n-- > forward_;) {
      const Node& node = graph_.nodes()[n];
      if (!any_of(node.outputs, leads)) continue;
      const bool is_needed = is_gradient[n] || any_of(node.outputs, is_behind_);
      graph::for_each_read(node, [&](ValueId id) {
        leads[id.index()] = true;
        if (!is_needed || is_missing[id.index()]) return;
        is_behind_[id.index()] = true;
        if (is_forward(id)) is_required_[id.index()] = true;
      });
    }
    for (size_t n = forward_; n-- > 0;)
      if (any_of(graph_.nodes()[n].outputs, is_behind_))
        graph::for_each_read(graph_.nodes()[n], [&](ValueId id) { is_behind_[id.index()] = true; });
  }

  // Which numbers must be given to tensors of the program, so that all that is required is right. False: it cannot be.
  bool choose(const std::vector<bool>& may_know) {
    made_.reason.clear();
    known_.clear();
    into_.clear();
    std::vector<bool> is_asked(graph_.values().size());
    is_wrong_.assign(graph_.values().size(), false);
    const auto ask = [&](ValueId id) { is_asked[id.index()] = is_asked[viewed(id).index()] = true; };
    for (size_t v = is_required_.size(); v-- > 0;) {
      if (is_required_[v]) is_asked[viewed(ValueId(v)).index()] = true;
      // What no tensor of the program holds (the copy that an operator saves of what it is about to write to) is made
      // once more, of what it was made of.
      const graph::NodeId maker = graph_.value(ValueId(v)).maker;
      if (is_asked[v] && held_at_[v] == Joint::kNone && maker.valid() && maker.index() < forward_)
        graph::for_each_read(graph_.node(maker), ask);
    }
    const auto know = [&](ValueId id, size_t place) {
      if (!is_asked[id.index()] || !may_know[id.index()]) return false;
      known_.push_back(id);
      into_.push_back(place);
      return true;
    };
    for (size_t i = 0; i < inputs_; ++i) {
      const ValueId id = graph_.inputs()[i];
      is_wrong_[id.index()] = !there_.inputs[i] && !know(id, i);
    }
    const auto lack = [&](const std::string& what) {
      if (made_.reason.empty()) made_.reason = what;
    };
    reads_wrong_.assign(plan_.program->graph().nodes().size(), false);
    reads_right_ = reads_wrong_;
    for (size_t n = 0; n < forward_; ++n) {
      const Node& node = graph_.nodes()[n];
      bool reads_wrong = false;
      graph::for_each_read(node, [&](ValueId id) { reads_wrong = reads_wrong || is_wrong_[id.index()]; });
      if (!is_view(node)) (reads_wrong ? reads_wrong_ : reads_right_)[joint_.program_node[n]] = true;
      if (reads_wrong && joint_.is_other[n] && any_of(node.outputs, is_behind_))
        lack(node.op + " saves other tensors than its equal");
      for (const ValueId id : node.outputs) {
        if (!id.valid()) continue;
        bool wrong = reads_wrong;
        if (wrong && held_at_[id.index()] != Joint::kNone) wrong = !know(id, Joint::kNone);
        if (wrong && is_required_[id.index()]) lack(node.op + " gave numbers that were not saved");
        is_wrong_[id.index()] = wrong;
        for (const size_t stop : stops_at_[id.index()]) {
          if (!there_.looked[stop] || there_.stops[stop] || root_that_is_there(plan_, there_, stop) != Joint::kNone)
            continue;
          if (know(id, inputs_ + stop)) continue;
          is_wrong_[id.index()] = true;
          if (is_required_[id.index()]) lack("an output is no more what it was");
        }
      }
    }
    for (size_t i = 0; i < inputs_; ++i) {
      const ValueId id = graph_.inputs()[i];
      if (is_required_[id.index()] && is_wrong_[id.index()]) lack("an input is no more what it was");
    }
    if (made_.reason.empty()) return true;
    for (size_t i = 0; i < inputs_; ++i) made_.lacks[i] = !there_.inputs[i] && is_behind_[graph_.inputs()[i].index()];
    for (size_t s = 0; s < joint_.stops.size(); ++s)
      made_.lacks[inputs_ + s] = there_.looked[s] && !there_.stops[s] && is_behind_[root_of(s).value.index()] &&
                                 root_that_is_there(plan_, there_, s) == Joint::kNone;
    return false;
  }

  // Computes them from what was saved. The reason why not.
  std::string recall(const std::vector<ValueId>& known) {
    if (known.empty()) return {};
    Graph graph = graph_;
    graph.outputs.resize(joint_.halves.outputs);
    for (const ValueId id : known)
      graph.outputs.push_back(saved_copy_[id.index()].valid() ? saved_copy_[id.index()] : id);
    part_ = partition_again(graph, joint_.halves, plan_.joint.graph, plan_.saved);
    return part_.reason;
  }

  // Operators that no gradient goes through only make numbers; on wrong ones they may raise. Those that draw random
  // numbers run, though, as long as another one after them does.
  std::vector<bool> idle_nodes() const {
    const std::vector<Node>& nodes = plan_.program->graph().nodes();
    std::vector<bool> idle(nodes.size());
    bool is_drawn_later = false;
    for (size_t n = nodes.size(); n-- > 0;) {
      const Operator& op = operator_named(nodes[n].op);
      idle[n] = reads_wrong_[n] && !reads_right_[n] && (op.way == Way::kRecord || op.way == Way::kAtOnce) &&
                !op.is_foreign && !joint_.has_history[n] && !(op.random && is_drawn_later);
      is_drawn_later = is_drawn_later || (op.random && !idle[n]);
    }
    return idle;
  }

  void build() {
    std::vector<Entry> entries, known;
    for (size_t s = 0; s < joint_.stops.size(); ++s)
      if (there_.looked[s])
        entries.push_back({.value = joint_.stops[s].value,
                           .history_complete = joint_.stops[s].history_complete,
                           .complete = joint_.stops[s].complete});
    for (size_t k = 0; k < known_.size(); ++k)
      if (into_[k] == Joint::kNone) {
        const FunctionalJoint::Held& held = joint_.held[held_at_[known_[k].index()]];
        known.push_back({.value = held.recorded, .complete = held.complete});
      }
    std::vector<ValueId> outputs = plan_.made_again;
    outputs.insert(outputs.end(), spoilt_.begin(), spoilt_.end());
    made_.program = enter_at(*plan_.program, entries, known, idle_nodes(), outputs);
    made_.spoilt = spoilt_.size();
    made_.into = into_;
    if (known_.empty()) return;
    std::vector<at::Tensor> constants;
    for (const size_t c : part_.backward_constants) constants.push_back(plan_.program->constants()[c]);
    for (const Saved& one : part_.saved) made_.known.reads.push_back(one.is_read);
    made_.known.run = compile_by_operators(std::move(part_.backward), std::move(constants));
  }

  const TrainingPlan& plan_;
  const TrainingPlan::There& there_;
  const FunctionalJoint& joint_;
  const Graph& graph_;
  const size_t inputs_, forward_;
  std::vector<bool> is_required_, is_behind_, is_wrong_;
  std::vector<size_t> held_at_;                  ///< of each value: where in joint_.held
  std::vector<ValueId> saved_copy_;              ///< of each value: one that was saved and has the same numbers
  std::vector<std::vector<size_t>> stops_at_;    ///< of each value: the stops whose root it is
  std::vector<bool> reads_wrong_, reads_right_;  ///< of each node of the program: operators of its do
  std::vector<ValueId> known_;
  std::vector<ValueId> spoilt_;  ///< of the program: what holds other numbers than it held
  std::vector<size_t> into_;     ///< Again::into
  Partition part_;
  TrainingPlan::Again made_;
};

}  // namespace

size_t root_that_is_there(const TrainingPlan& plan, const TrainingPlan::There& there, size_t stop) {
  const auto output = [&](size_t s) -> const FunctionalJoint::Output& {
    return plan.joint.outputs[plan.joint.stops[s].output];
  };
  for (size_t s = 0; s < plan.joint.stops.size(); ++s)
    if (s != stop && there.looked[s] && there.stops[s] && output(s).root == output(stop).root &&
        output(s).view == Joint::kNone)
      return s;
  return Joint::kNone;
}

TrainingPlan::Again make_again(const TrainingPlan& plan, const TrainingPlan::There& there) {
  if (!there.gives.empty()) {
    std::optional<FunctionalJoint> to_stops;
    if (std::find(there.looked.begin(), there.looked.end(), true) != there.looked.end())
      to_stops = make_functional_joint(
          plan.examples, make_joint(*plan.program, plan.examples, {.through = there.through, .blocked = there.looked}));
    if (!to_stops || to_stops->reason.empty())
      if (auto made = Repeating(plan, there, to_stops ? *to_stops : plan.joint).run_for_some()) return std::move(*made);
  }
  return Repeating(plan, there, plan.joint).run();
}

}  // namespace magneto::aten
