// aten/training.cpp
#include "aten/training.h"

#include <ATen/Functions.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <set>
#include <unordered_set>

#include "aten/backward_node_internal.h"
#include "aten/chain_internal.h"
#include "aten/convert_internal.h"
#include "aten/kernels.h"
#include "aten/operators_internal.h"
#include "aten/output_node_internal.h"
#include "aten/program.h"
#include "base/check.h"
#include "base/text.h"
#include "ops/op.h"

namespace magneto::aten {

using autograd::Partition;
using autograd::Saved;
using graph::Graph;
using graph::ValueId;
using Root = FunctionalJoint::Root;

namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// The graph cannot tell what a write to one input does to another.
bool overlap(std::span<const at::Tensor> inputs, const std::vector<size_t>& stored) {
  for (const size_t written : stored)
    for (size_t i = 0; i < inputs.size(); ++i)
      if (i != written && storage_of(inputs[i]) == storage_of(inputs[written])) return true;
  return false;
}

class Training final : public Executable {
 public:
  Training(std::shared_ptr<const TrainingPlan> plan, std::vector<std::unique_ptr<Program>> views)
      : plan_(std::move(plan)), views_(std::move(views)) {}

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override;
  bool writes_inputs() const override { return plan_->program->writes_inputs(); }
  const TrainingFacts& facts() const { return plan_->facts; }

 private:
  /// `is_done` once the forward ran: it cannot be taken back then.
  Failure run_with_node(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs,
                        bool& is_done) const;
  bool must_run_plainly(std::span<const at::Tensor> inputs, std::span<const int64_t> symbols) const;
  void keep(MagnetoBackward& node, const std::vector<at::Tensor>& inputs, const Tensors& results) const;
  std::vector<NodePtr> make_sets(const NodePtr& whole, const torch::autograd::edge_list& edges,
                                 const std::vector<at::Tensor>& roots) const;
  void link_stops(MagnetoBackward& node, const Tensors& outputs, std::span<const NodePtr> bottoms) const;

  const std::shared_ptr<const TrainingPlan> plan_;
  const std::vector<std::unique_ptr<Program>> views_;  ///< of each root; nullptr: no output is a view of it
};

// Somebody wants to see every tensor that is saved or every node, or a tensor is not what the plan was made for.
bool Training::must_run_plainly(std::span<const at::Tensor> inputs, std::span<const int64_t> symbols) const {
  if (torch::autograd::AnomalyMode::is_enabled() || at::SavedTensorDefaultHooks::get_hooks() ||
      c10::InferenceMode::is_enabled())
    return true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad() && !plan_->traced_grad[i]) return true;
    if (torch::autograd::isFwGradDefined(inputs[i])) return true;
  }
  for (const types::Condition& condition : plan_->joint.conditions)
    if (!condition.holds(symbols)) return true;
  return overlap(inputs, plan_->joint.stored);
}

Executable::Failure Training::run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols,
                                  Tensors& outputs) const {
  std::vector<int64_t> extended;
  for (const Symbols::Counted& counted : plan_->joint.counted) {
    if (extended.empty()) extended.assign(symbols.begin(), symbols.end());
    if (extended.size() <= counted.result) extended.resize(counted.result + 1);
    extended[counted.result] = std::bit_cast<int64_t>(counted.count.of(std::bit_cast<double>(symbols[counted.of])));
  }
  if (!extended.empty()) symbols = extended;
  if (must_run_plainly(inputs, symbols)) return plan_->program->run(inputs, symbols, outputs);
  bool is_done = false;
  try {
    return run_with_node(inputs, symbols, outputs, is_done);
  } catch (...) {  // an inference tensor cannot be saved
    return {std::current_exception(), 0, is_done};
  }
}

Executable::Failure Training::run_with_node(std::span<at::Tensor> inputs, std::span<const int64_t> symbols,
                                            Tensors& outputs, bool& is_done) const {
  const FunctionalJoint& joint = plan_->joint;

  NodePtr owner;
  MagnetoBackward* node = nullptr;
  torch::autograd::edge_list edges;  // to the inputs
  // also where no gradient comes back, as from a norm that counts: the outputs have a history in eager, too
  bool differentiable = false;
  for (size_t i = 0; i < inputs.size(); ++i)
    differentiable = differentiable || (plan_->traced_grad[i] && inputs[i].requires_grad());
  if (differentiable) {
    owner = make_backward_node(plan_, &node);
    edges.reserve(plan_->wanted.size());
    for (const size_t i : plan_->wanted)
      edges.push_back(inputs[i].requires_grad() ? torch::autograd::impl::gradient_edge(inputs[i])
                                                : torch::autograd::Edge());
    if (!joint.has_output_nodes()) node->set_next_edges(std::move(edges));
    node->symbols.assign(symbols.begin(), symbols.end());
    node->originals.reserve(inputs.size());
    for (const at::Tensor& input : inputs) node->originals.emplace_back(input);
    node->watched.reserve(inputs.size() + joint.roots.size());
    for (const at::Tensor& input : inputs) node->watched.emplace_back(input);
    if (!plan_->random_on.empty()) node->generator_states = generator_states(plan_->random_on);
  }

  // The inputs that are needed after the forward; the others go with their last reader.
  std::vector<at::Tensor> needed(inputs.size());
  if (node)
    for (const Saved& saved : plan_->saved)
      if (saved.from == Saved::From::kInput) needed[saved.index] = inputs[saved.index];
  for (const Root& root : joint.roots)
    if (root.from == Root::From::kInput) needed[root.index] = inputs[root.index];
  c10::SmallVector<uint32_t, 8> versions;
  for (const size_t counted : plan_->counted) {
    needed[counted] = inputs[counted];
    versions.push_back(inputs[counted].is_inference() ? 0 : static_cast<uint32_t>(inputs[counted]._version()));
  }

  c10::SmallVector<at::Tensor, 16> results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    const Failure failure = plan_->forward->run(inputs, symbols, results);
    if (failure.error) return failure;
    is_done = true;
  }

  const Graph& graph = plan_->program->graph();
  for (size_t k = 0; k < plan_->counted.size(); ++k) {
    const size_t counted = plan_->counted[k];
    if (needed[counted].is_inference()) continue;
    const uint32_t wanted = versions[k] + plan_->versions[graph.inputs()[counted].index()];
    while (needed[counted]._version() < wanted) needed[counted].unsafeGetTensorImpl()->bump_version();
    if (node)
      node->watched[counted].version = node->originals[counted].version =
          static_cast<uint32_t>(needed[counted]._version());
  }
  if (node && !plan_->counted.empty()) node->find_shared_counters();
  std::vector<at::Tensor> roots(joint.roots.size());
  for (size_t r = 0; r < roots.size(); ++r) {
    const Root& root = joint.roots[r];
    if (root.from == Root::From::kInput) {
      roots[r] = needed[root.index];
    } else if (root.from == Root::From::kConstant) {
      roots[r] = plan_->program->constants()[root.index];
    } else {
      roots[r] = results[root.index];
      for (uint32_t c = plan_->versions[root.recorded.index()]; c > 0; --c)
        roots[r].unsafeGetTensorImpl()->bump_version();
    }
  }
  // Of each root, the node at the bottom of its views. A node needs its edges before another has one to it: roots and
  // their views come in the order in which they need one another, those without a gradient first.
  std::vector<NodePtr> nodes(roots.size());
  std::vector<c10::SmallVector<at::Tensor, 2>> views(roots.size());
  const auto output = [&](size_t o) {
    const auto& [r, view] = joint.outputs[o];
    if (r == Joint::kNone) return at::Tensor();
    return view == Joint::kNone ? roots[r] : views[r][view];
  };
  const auto is_made = [&](size_t r) { return joint.roots[r].tangent == Joint::kNone || nodes[r]; };
  const auto make_views = [&](size_t r) -> Failure {
    if (!views_[r]) return {};
    at::Tensor root = roots[r];
    Failure failure = views_[r]->run({&root, 1}, symbols, views[r]);
    failure.changed = true;
    return failure;
  };
  for (size_t r = 0; r < roots.size(); ++r)
    if (joint.roots[r].tangent == Joint::kNone) {
      if (const Failure failure = make_views(r); failure.error) return failure;
      if (node && joint.has_output_nodes() && roots[r].requires_grad())
        nodes[r] = torch::autograd::impl::gradient_edge(roots[r]).function;
    }
  std::vector<NodePtr> sets;
  if (node && joint.has_output_nodes()) sets = make_sets(owner, edges, roots);
  for (const NodePtr& set : sets) node->sets.push_back(set.get());
  const auto make_all_views = [&](const std::vector<size_t>& tangents) -> Failure {
    for (const size_t t : tangents)
      if (const Failure failure = make_views(joint.root_at[t]); failure.error) return failure;
    return {};
  };
  for (const std::vector<size_t>& made : joint.nodes) {
    if (node) {
      torch::autograd::edge_list below;
      std::vector<size_t> along;
      for (size_t s = 0; s < sets.size(); ++s)
        for (size_t k = 0; sets[s] && k < made.size(); ++k) {
          const std::vector<size_t>& from = plan_->sets[s].tangents;
          const auto at = std::find(from.begin(), from.end(), made[k]);
          if (at == from.end()) continue;
          below.emplace_back(sets[s], static_cast<uint32_t>(at - from.begin()));
          along.push_back(k);
        }
      for (const size_t s : joint.computed_from[made[0]])
        below.push_back(torch::autograd::impl::gradient_edge(output(joint.stops[s].output)));
      for (const size_t o : joint.beside[made[0]])
        if (is_made(joint.outputs[o].root) && output(o).requires_grad()) {
          node->beside.push_back({made[0], o, below.size()});
          below.push_back(torch::autograd::impl::gradient_edge(output(o)));
        }
      const NodePtr one = make_output_node(owner, plan_, made, std::move(along));
      one->set_next_edges(std::move(below));
      for (const size_t t : made) {
        nodes[joint.root_at[t]] = one;
        torch::autograd::set_history(roots[joint.root_at[t]], one);
      }
    }
    if (const Failure failure = make_all_views(made); failure.error) return failure;
  }
  if (!joint.has_output_nodes()) {
    if (node) torch::autograd::set_history(roots[joint.root_at[0]], owner);
    if (const Failure failure = make_all_views({0}); failure.error) return failure;
  }
  if (node) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
    if (!joint.has_output_nodes()) torch::autograd::fire_node_creation_hooks(owner);
    for (const NodePtr& set : sets)
      if (set) torch::autograd::fire_node_creation_hooks(set);
#endif
    keep(*node, needed, results);
    for (const at::Tensor& root : roots) node->watched.emplace_back(root);
  }
  for (size_t o = 0; o < joint.outputs.size(); ++o) outputs.push_back(output(o));
  if (!node) return {};
  const size_t first = outputs.size() - joint.outputs.size();
  for (const size_t o : plan_->written_views) node->written_views.emplace_back(outputs[first + o]);
  link_stops(*node, outputs, nodes);
  return {};
}

// They are older than the nodes of outputs, so that the engine runs these first.
std::vector<NodePtr> Training::make_sets(const NodePtr& whole, const torch::autograd::edge_list& edges,
                                         const std::vector<at::Tensor>& roots) const {
  std::vector<NodePtr> made;
  for (size_t s = 0; s < plan_->sets.size(); ++s) {
    const TrainingPlan::Set& set = plan_->sets[s];
    torch::autograd::edge_list own;
    for (const size_t g : set.gives) own.push_back(edges[g]);
    NodePtr& node = made.emplace_back();
    if (std::none_of(own.begin(), own.end(), [](const auto& edge) { return edge.is_valid(); })) continue;
    node = make_set_node(whole, plan_, s);
    node->set_next_edges(std::move(own));
    for (const size_t t : set.tangents) node->add_input_metadata(roots[plan_->joint.root_at[t]]);
  }
  return made;
}

void Training::link_stops(MagnetoBackward& node, const Tensors& outputs, std::span<const NodePtr> bottoms) const {
  const FunctionalJoint& joint = plan_->joint;
  if (!joint.has_output_nodes()) return;
  for (const size_t r : joint.root_at) node.outputs.push_back(bottoms[r].get());
  const size_t first = outputs.size() - joint.outputs.size();
  for (const Joint::Stop& stop : joint.stops) {
    const at::Tensor& tensor = outputs[first + stop.output];
    const size_t root = joint.outputs[stop.output].root;
    MagnetoBackward::Stop& made =
        node.stops.emplace_back(MagnetoBackward::Stop{.original = MagnetoBackward::Original(tensor), .nodes = {}});
    made.input_nr = static_cast<uint32_t>(tensor.output_nr());
    torch::autograd::Node* below = torch::autograd::impl::gradient_edge(tensor).function.get();
    for (; below && below != bottoms[root].get();
         below = below->num_outputs() ? below->next_edge(0).function.get() : nullptr)
      made.nodes.push_back(below);
    if (below && joint.roots[root].tangent != Joint::kNone) made.nodes.push_back(below);
  }
}

void Training::keep(MagnetoBackward& node, const std::vector<at::Tensor>& inputs, const Tensors& results) const {
  const size_t own = plan_->joint.halves.outputs;
  node.kept.resize(plan_->saved.size());
  for (size_t k = 0; k < plan_->saved.size(); ++k) {
    const Saved& saved = plan_->saved[k];
    MagnetoBackward::Kept& kept = node.kept[k];
    kept.is_variable = saved.is_checked || saved.from == Saved::From::kExtra;
    if (!kept.is_variable) {
      kept.tensor = (saved.from == Saved::From::kInput ? inputs[saved.index] : results[saved.index]).detach();
    } else if (saved.from == Saved::From::kInput) {
      kept.variable = torch::autograd::SavedVariable(inputs[saved.index], /*is_output=*/false);
    } else if (saved.from == Saved::From::kOutput) {
      kept.is_output = results[saved.index].grad_fn() != nullptr;
      kept.variable = torch::autograd::SavedVariable(results[saved.index], kept.is_output);
    } else if (saved.shares != Saved::kNone) {
      at::Tensor tensor = results[own + saved.index];
      torch::autograd::impl::set_version_counter(tensor, torch::autograd::impl::version_counter(results[saved.shares]));
      kept.variable = torch::autograd::SavedVariable(tensor, /*is_output=*/false);
    } else {
      kept.is_variable = false;
      kept.tensor = results[own + saved.index];
    }
  }
}

// Inputs as make_joint looks at them, without the caller's memory.
std::vector<at::Tensor> without_data(std::span<const at::Tensor> examples) {
  c10::AutoGradMode grad_mode(true);
  std::vector<at::Tensor> made;
  for (const at::Tensor& example : examples) {
    const auto options = example.options().device(c10::kMeta).requires_grad(false);
    at::Tensor empty = at::empty_strided(example.sizes(), example.strides(), options);
    if (example.storage_offset() != 0) {
      const int64_t end = example.storage_offset() + static_cast<int64_t>(empty.storage().nbytes() / empty.itemsize());
      empty.set_(at::empty({end}, options).storage(), example.storage_offset(), example.sizes(), example.strides());
    }
    if (example.requires_grad()) empty.set_requires_grad(true);
    if (!example.is_leaf()) empty = empty.alias();
    made.push_back(std::move(empty));
  }
  return made;
}

std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& constants, const std::vector<size_t>& places) {
  std::vector<at::Tensor> some;
  for (const size_t place : places) some.push_back(constants[place]);
  return some;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Joint timed_joint(const Program& program, std::span<const at::Tensor> examples, double* milliseconds) {
  const auto start = std::chrono::steady_clock::now();
  Joint joint = make_joint(program, examples);
  *milliseconds = milliseconds_since(start);
  return joint;
}

// Of each tangent: the stops that its root was computed from, also by way of others.
void close_stops(TrainingPlan& plan) {
  const FunctionalJoint& joint = plan.joint;
  std::vector<std::vector<bool>> of_stop;
  const auto all_stops = [&](const std::vector<size_t>& direct) {
    std::vector<bool> all(joint.stops.size());
    for (const size_t s : direct) {
      all[s] = true;
      for (size_t d = 0; d < s; ++d) all[d] = all[d] || of_stop[s][d];
    }
    return all;
  };
  for (const Joint::Stop& stop : joint.stops) of_stop.push_back(all_stops(stop.computed_from));
  for (const std::vector<size_t>& direct : joint.computed_from) plan.reaches.push_back(all_stops(direct));
  plan.before.resize(joint.stops.size());
  for (size_t t = 0; t < joint.computed_from.size(); ++t)
    for (const size_t s : joint.computed_from[t]) plan.before[s].push_back(t);
}

void collect_sets(TrainingPlan& plan) {
  std::map<std::vector<bool>, size_t> known;
  for (size_t g = 0; g < plan.wanted.size(); ++g) {
    const std::vector<bool>& by = plan.joint.reached_by[plan.wanted[g]];
    const auto [place, is_new] = known.emplace(by, plan.sets.size());
    if (is_new) {
      TrainingPlan::Set& set = plan.sets.emplace_back();
      for (size_t t = 0; t < by.size(); ++t)
        if (by[t]) set.tangents.push_back(t);
    }
    plan.sets[place->second].gives.push_back(g);
  }
}

std::shared_ptr<Executable> make_node(std::shared_ptr<Program> program, std::span<const at::Tensor> examples,
                                      const CompileGraph& compile, Joint as_recorded, double joint_ms,
                                      std::string* reason) {
  auto plan = std::make_shared<TrainingPlan>();
  plan->joint = make_functional_joint(examples, std::move(as_recorded));
  FunctionalJoint& joint = plan->joint;
  const auto stop = [&](std::string why) {
    *reason = std::move(why);
    return nullptr;
  };
  if (!joint.reason.empty()) return stop(joint.reason);
  if (overlap(examples, joint.stored)) return stop("an input that is written to shares its memory with another");

  const auto start = std::chrono::steady_clock::now();
  Partition part = autograd::partition(joint.graph, joint.halves);
  const double partition_ms = milliseconds_since(start);
  if (!part.reason.empty()) return stop(part.reason);

  const Graph& recorded = program->graph();
  plan->compile = compile;
  plan->saved = part.saved;
  plan->readers = part.readers;
  plan->examples = without_data(examples);
  plan->versions = count_versions(recorded);
  for (size_t i = 0; i < recorded.inputs().size(); ++i)
    if (plan->versions[recorded.inputs()[i].index()] > 0) plan->counted.push_back(i);
  plan->random_on = random_devices(recorded);
  for (const at::Tensor& example : examples) plan->traced_grad.push_back(example.requires_grad());
  for (size_t i = 0; i < examples.size(); ++i)
    if (std::find(joint.reached_by[i].begin(), joint.reached_by[i].end(), true) != joint.reached_by[i].end())
      plan->wanted.push_back(i);
  collect_sets(*plan);
  for (size_t t = 0; t < joint.root_at.size(); ++t)
    plan->tangents.push_back(joint.graph.value(joint.graph.inputs()[examples.size() + t]).type);
  for (const size_t r : joint.root_at) plan->made_again.push_back(joint.roots[r].recorded);
  std::set<size_t> beside;
  for (const std::vector<size_t>& of_tangent : joint.beside) beside.insert(of_tangent.begin(), of_tangent.end());
  for (const size_t o : beside) {
    plan->beside.push_back(o);
    plan->made_again.push_back(recorded.outputs[o]);
  }
  for (size_t o = 0; o < joint.outputs.size(); ++o) {
    const auto& [r, view] = joint.outputs[o];
    if (r == Joint::kNone || view == Joint::kNone || joint.roots[r].tangent == Joint::kNone) continue;
    if (plan->versions[joint.roots[r].recorded.index()] == 0) continue;
    plan->written_views.push_back(o);
    plan->made_again.push_back(recorded.outputs[o]);
  }
  plan->facts = {.saved_bytes = part.bytes,
                 .saved = part.saved.size(),
                 .joint_ms = joint_ms,
                 .functionalise_ms = joint.functionalise_ms,
                 .partition_ms = partition_ms,
                 .forward = part.forward,
                 .backward = part.backward};

  close_stops(*plan);
  plan->set_full({.run = nullptr,
                  .reads = std::vector<bool>(part.saved.size(), true),
                  .tangents = std::move(part.tangents),
                  .reached_by = joint.reached_by},
                 chosen(program->constants(), part.backward_constants));
  if (joint.root_at.size() == 1) plan->full();
  plan->forward = compile(std::move(part.forward), chosen(program->constants(), part.forward_constants), "forward");
  plan->program = program;
  std::vector<std::unique_ptr<Program>> views;
  for (Graph& some : joint.views)
    views.push_back(some.outputs.empty() ? nullptr
                                         : std::make_unique<Program>(std::move(some), std::vector<at::Tensor>()));
  return std::make_shared<Training>(std::move(plan), std::move(views));
}

// The program in pieces that end at its stops or are one operator of Joint::kInPieces, each
// with a node of its own. A piece that cannot have one builds torch's autograd graph.
std::shared_ptr<Executable> make_pieces(std::shared_ptr<Program> program, std::span<const at::Tensor> examples,
                                        const CompileGraph& compile) {
  const Joint joint = make_joint(*program, examples, {.pieces = true});
  if (!joint.reason.empty()) return nullptr;
  const Graph& graph = program->graph();
  std::vector<Piece> pieces = cut_into_pieces(*program, joint.cuts);
  std::vector<std::shared_ptr<Executable>> executables;
  for (const Piece& piece : pieces) {
    std::vector<at::Tensor> inputs;
    for (const ValueId id : piece.inputs) {
      const auto at = std::lower_bound(graph.inputs().begin(), graph.inputs().end(), id);
      if (at != graph.inputs().end() && *at == id)
        inputs.push_back(examples[static_cast<size_t>(at - graph.inputs().begin())]);
      else
        inputs.push_back(example_of(graph.value(id).type, joint.hints, joint.requires_grad[id.index()]));
    }
    double joint_ms = 0;
    Joint own = timed_joint(*piece.program, inputs, &joint_ms);
    std::string why;
    std::shared_ptr<Executable> made = make_node(piece.program, inputs, compile, std::move(own), joint_ms, &why);
    executables.push_back(made ? std::move(made) : piece.program);
  }
  return make_chain(std::move(program), std::move(pieces), std::move(executables));
}

}  // namespace

std::shared_ptr<Executable> make_training(std::shared_ptr<Program> program, std::span<const at::Tensor> examples,
                                          const CompileGraph& compile, std::string* reason) {
  std::string unasked;
  if (!reason) reason = &unasked;
  double joint_ms = 0;
  Joint joint = timed_joint(*program, examples, &joint_ms);
  if (std::any_of(std::begin(Joint::kInPieces), std::end(Joint::kInPieces),
                  [&](const char* end) { return joint.reason.ends_with(end); }))
    if (auto pieces = make_pieces(program, examples, compile)) return pieces;
  return make_node(std::move(program), examples, compile, std::move(joint), joint_ms, reason);
}

std::vector<const TrainingFacts*> training_facts(const Executable& executable) {
  std::vector<const TrainingFacts*> facts;
  if (const auto* training = dynamic_cast<const Training*>(&executable)) facts.push_back(&training->facts());
  return facts;
}

/// A loop casts what it stores: of values, x_half *= y_float is one operator. One of torch needs another that casts.
static void cast_results(Graph& graph) {
  const std::vector<graph::Node> nodes = graph.nodes();
  graph.truncate(0);
  for (graph::Node node : nodes) {
    const ops::Op* op = ops::find(node.op);
    const auto results = op && op->body && op->type ? op->type({node.args, &graph, default_dtype()}) : std::nullopt;
    std::vector<graph::Node> casts;
    for (size_t k = 0; results && results->size() == node.outputs.size() && k < results->size(); ++k) {
      const ValueId id = node.outputs[k];
      if (!id.valid() || (*results)[k].kind != ops::Result::Kind::kFresh) continue;
      const types::Dtype dtype = graph.value(id).type.dtype;
      if ((*results)[k].type.dtype == dtype) continue;
      node.outputs[k] = graph.add_value((*results)[k].type);
      casts.push_back({.op = "aten::_to_copy",
                       .args = {node.outputs[k], dtype, {}, {}, {}, false, {}},
                       .outputs = {id},
                       .grad = node.grad,
                       .place = node.place,
                       .checkpoint = node.checkpoint});
    }
    graph.add_node(std::move(node));
    for (graph::Node& cast : casts) graph.add_node(std::move(cast));
  }
}

std::shared_ptr<Executable> compile_by_operators(Graph graph, std::vector<at::Tensor> constants, const char*) {
  cast_results(graph);
  for (const graph::Store& store : std::exchange(graph.stores, {}))
    graph.add_node({.op = "aten::copy_", .args = {store.into, store.value, false}, .outputs = {store.into}});
  return std::make_shared<Program>(std::move(graph), std::move(constants), /*as_typed=*/true);
}

}  // namespace magneto::aten
