// aten/backward_node.cpp
#include "aten/backward_node_internal.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "aten/again_internal.h"
#include "aten/chain_internal.h"
#include "aten/convert_internal.h"
#include "aten/onward_internal.h"
#include "aten/program.h"
#include "aten/trace.h"
#include "base/check.h"
#include "graph/settle.h"

namespace magneto::aten {

namespace autograd = torch::autograd;
using autograd::variable_list;
using magneto::autograd::Halves;
using magneto::autograd::Partition;
using magneto::autograd::partition_again;
using magneto::autograd::Saved;

namespace {

// The node that this thread is about to run for the last time.
thread_local const MagnetoBackward* running_last = nullptr;

// More choices of gradients than a program ever sees get the whole backward; of tangents, torch's own formulas.
constexpr size_t kMostBackwards = 16, kMostOfSomeTangents = 256;
constexpr size_t kOftenAsked = 3;

bool any(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }
bool meet(const std::vector<bool>& a, const std::vector<bool>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (a[i] && b[i]) return true;
  return false;
}
bool all(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), false) == flags.end(); }

// Gradients without memory of their own: wrapper subclasses, the batches of is_grads_batched.
bool are_foreign(const variable_list& gradients) {
  constexpr c10::DispatchKeySet kForeign =
      at::kFunctorchWrappedTensors | c10::DispatchKeySet({c10::DispatchKey::Batched, c10::DispatchKey::Python});
  return std::any_of(gradients.begin(), gradients.end(), [&](const at::Tensor& gradient) {
    return gradient.defined() && gradient.key_set().has_any(kForeign);
  });
}

// The program counts these versions up by so much, and has done so before: it begins where it began then. What it saves
// has the versions that it had, and a write of the caller is seen later.
class VersionsAsTheyWere {
 public:
  explicit VersionsAsTheyWere(std::span<std::pair<c10::VariableVersion, uint32_t>> counted) {
    for (const auto& [counter, times] : counted) before_.emplace_back(counter, counter.current_version());
    for (auto& [counter, times] : counted)  // some inputs have one counter
      counter.set_version(std::max(counter.current_version(), times) - times);
  }
  ~VersionsAsTheyWere() {
    for (auto& [counter, version] : before_) counter.set_version(version);
  }
  VersionsAsTheyWere(const VersionsAsTheyWere&) = delete;

 private:
  std::vector<std::pair<c10::VariableVersion, uint32_t>> before_;
};

// The node of a tensor of the caller's. One of several views (unbind) that was written to has none any more, and torch
// raises who asks: not us, whom nobody sees. What was computed from it before goes where it went.
NodePtr history_of(const at::Tensor& tensor) {
  try {
    return tensor.grad_fn();
  } catch (const c10::Error&) {
    return autograd::impl::get_autograd_meta(tensor)->grad_fn_;
  }
}

/// Whether its gradient went to `edge` until detach_().
bool is_cut_off(const at::Tensor& tensor, const autograd::Edge& edge) {
  return edge.is_valid() && !history_of(tensor) && autograd::impl::try_get_grad_accumulator(tensor) != edge.function;
}

void add_conditions(const std::vector<types::Condition>& some, std::vector<types::Condition>& to) {
  for (const types::Condition& condition : some)
    if (std::find(to.begin(), to.end(), condition) == to.end()) to.push_back(condition);
}

[[noreturn]] void refuse_again(const std::string& what, const std::string& cure) {
  TORCH_CHECK(false, "magneto: the gradient of a compiled function ",
              c10::GradMode::is_enabled() ? "is to be differentiated itself (create_graph=True)"
                                          : "can be had from torch's own formulas only",
              ", and ", what, ". Cure: ", cure);
}

}  // namespace

NodePtr make_backward_node(std::shared_ptr<const TrainingPlan> plan, MagnetoBackward** node) {
  NodePtr made = make_autograd_node<MagnetoBackward>(std::move(plan));
  *node = static_cast<MagnetoBackward*>(made.get());
  return made;
}

// ---- the plan ------------------------------------------------------------------------------------------------------

Backward TrainingPlan::make_backward(const JointOf& asked, const std::vector<bool>& gives) const {
  Backward made;
  const auto none = [&](std::string reason) {
    made.reason = std::move(reason);
    return made;
  };
  graph::Graph graph, first = joint.graph;
  if (all(asked.through) && asked.blocked.empty()) {
    graph = joint.graph;
    made.reached_by = joint.reached_by;
  } else {
    // What is known of the sizes here or there is known in both: equal values have equal types.
    Joint recorded = make_joint(*program, examples, asked);
    add_conditions(joint.graph.conditions, recorded.graph.conditions);
    FunctionalJoint some = make_functional_joint(examples, std::move(recorded));
    if (!some.reason.empty()) return none(some.reason);
    add_conditions(some.graph.conditions, first.conditions);
    first = graph::settle(std::move(first));
    for (const types::Condition& condition : some.conditions)
      if (std::find(joint.conditions.begin(), joint.conditions.end(), condition) == joint.conditions.end())
        made.conditions.push_back(condition);
    for (const Symbols::Counted& counted : some.counted)
      if (std::find(joint.counted.begin(), joint.counted.end(), counted) == joint.counted.end())
        return none("its gradient counts with a float that changes");
    graph = std::move(some.graph);
    made.reached_by = std::move(some.reached_by);
  }
  for (size_t g = 0; g < gives.size(); ++g)
    if (!gives[g])
      graph.outputs[joint.halves.outputs + (g < wanted.size() ? wanted[g] : examples.size() + g - wanted.size())] = {};
  Partition part = partition_again(graph, joint.halves, first, saved);
  if (!part.reason.empty()) return none(part.reason);
  std::vector<at::Tensor> constants;
  for (const size_t c : part.backward_constants) constants.push_back(program->constants()[c]);
  for (const Saved& one : part.saved) made.reads.push_back(one.is_read);
  made.tangents = std::move(part.tangents);
  made.passed = find_passed(part.backward, made.tangents);
  made.shared = find_shared(part.backward);
  made.run = compile(std::move(part.backward), std::move(constants), "backward");
  return made;
}

const Backward& TrainingPlan::full() const {
  std::call_once(full_made_, [&] { full_.run = compile(facts.backward, full_constants_, "backward"); });
  return full_;
}

void TrainingPlan::set_full(Backward full, std::vector<at::Tensor> constants) {
  full_ = std::move(full);
  full_.passed = find_passed(facts.backward, full_.tangents);
  full_.shared = find_shared(facts.backward);
  full_constants_ = std::move(constants);
}

const Backward* TrainingPlan::backward(const std::vector<bool>& through, const std::vector<bool>& gives,
                                       std::span<const int64_t> symbols, bool exactly) const {
  // To leave out gradients is only faster; to leave out tangents is what eager does: 0 * inf is not 0.
  const auto more = [&] { return all(through) ? &full() : nullptr; };
  if (all(through) && all(gives)) return more();
  std::unique_lock<std::mutex> lock(mutex_);
  const auto known = others_.find({through, gives});
  const size_t most = all(through) ? kMostBackwards : kMostOfSomeTangents;
  if (known != others_.end() ? known->second.is_made : others_.size() >= most && !exactly)
    return known != others_.end() && known->second.backward.is_for(symbols) ? &known->second.backward : more();
  if (!exactly && all(through) && ++others_[{through, gives}].asked < kOftenAsked) return more();
  lock.unlock();  // this runs torch's engine
  Backward made = make_backward({.through = through}, gives);
  lock.lock();
  Other& other = others_[{through, gives}];
  if (!other.is_made) {
    other.backward = std::move(made);
    other.is_made = true;
  }
  return other.backward.is_for(symbols) ? &other.backward : more();
}

const Backward& TrainingPlan::part(const Part& part) const {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const auto known = parts_.find(part); known != parts_.end()) return known->second;
  lock.unlock();
  std::vector<bool> gives(wanted.size(), part.inputs);
  gives.insert(gives.end(), part.stops.begin(), part.stops.end());
  Backward made = make_backward({.through = part.through, .blocked = part.looked}, gives);
  lock.lock();
  return parts_.emplace(part, std::move(made)).first->second;
}

void TrainingPlan::check(const Since& since) const {
  std::vector<bool> what;
  for (const auto* list : {&since.inputs, &since.roots})
    for (const uint32_t times : *list) what.push_back(times > 0);
  for (const uint32_t first : since.shares)
    for (uint32_t bit = 0; bit < 16; ++bit) what.push_back((first >> bit) & 1U);
  for (const auto& edge : since.stops) what.push_back(edge && !edge->function);
  const auto add = [&](const Since::Walk& walk) {
    for (const auto* list : {&walk.through, &walk.gives, &walk.to_stops})
      what.insert(what.end(), list->begin(), list->end());
  };
  add(since.now);
  for (const Since::Walk& walk : since.earlier) add(walk);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (harmless_.count(what)) return;
  }
  const std::string error = backward_error(*program, examples, since, joint.stops);
  TORCH_CHECK(error.empty(), error);
  const std::lock_guard<std::mutex> lock(mutex_);
  harmless_.insert(std::move(what));
}

const TrainingPlan::Again& TrainingPlan::again(const There& there) const {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const auto known = again_.find(there); known != again_.end()) return known->second;
  lock.unlock();  // this runs torch's engine
  Again made = make_again(*this, there);
  lock.lock();
  return again_.emplace(there, std::move(made)).first->second;
}

// ---- the node ------------------------------------------------------------------------------------------------------

void MagnetoBackward::will_release_variables() { running_last = this; }

// Eager lets go what an operator saved when that operator has run, and it does not run a second time. An operator runs
// when a gradient comes through one of the tangents it depends on.
bool MagnetoBackward::is_over(size_t k) const {
  const auto& readers = plan_->readers[k];
  return std::all_of(readers.begin(), readers.end(), [&](const auto& reader) { return meet(reader, kept[k].spent); });
}

void MagnetoBackward::check_again(const Backward& backward, const std::vector<bool>& through) const {
  for (size_t k = 0; k < kept.size(); ++k) {
    if (!backward.reads[k] || kept[k].spent.empty()) continue;
    for (const std::vector<bool>& reader : plan_->readers[k])
      TORCH_CHECK(!meet(reader, through) || !meet(reader, kept[k].spent), autograd::ERR_BACKWARD_TWICE);
  }
}

// Who ends it holds no lock: the history of what was saved may lead to this node's own outputs.
MagnetoBackward::Kept MagnetoBackward::Kept::let_go() {
  Kept gone;
  gone.variable = std::move(variable);
  gone.tensor = std::move(tensor);
  is_gone = true;
  return gone;
}

void MagnetoBackward::release_variables() {
  std::vector<Kept> gone;
  std::vector<Original> gone_originals;
  std::vector<at::Tensor> gone_states;
  std::lock_guard<std::mutex> lock(mutex_);
  if (is_waited_for_) return;
  // Nodes of outputs may have run parts of their own; when all did, all is over.
  const bool all_over = outputs.empty() ? through_.empty() : released_outputs_ == plan_->joint.nodes.size();
  for (size_t k = 0; k < kept.size(); ++k) {
    if (!all_over && (through_.empty() || !used_[k])) continue;
    kept[k].spent.resize(through_.size());
    for (size_t t = 0; t < through_.size(); ++t) kept[k].spent[t] = kept[k].spent[t] || through_[t];
    if (!all_over && !is_over(k)) continue;
    gone.push_back(kept[k].let_go());
  }
  if (all_over || used_full_) {
    gone_states.swap(generator_states);
    gone_originals.swap(originals);
  }
  if (ran_) over_.insert(*ran_);
  forget_run();
}

std::vector<at::Tensor> MagnetoBackward::take_inputs(const Backward& backward, bool last, std::vector<Kept>& gone) {
  at::AutoDispatchBelowADInplaceOrView below;
  std::vector<at::Tensor> inputs;
  for (size_t k = 0; k < kept.size(); ++k) {
    if (!backward.reads[k]) continue;
    Kept& one = kept[k];
    TORCH_CHECK(!one.is_gone, autograd::ERR_BACKWARD_TWICE);
    inputs.push_back(one.is_variable ? one.variable.unpack(one.is_output ? getptr() : nullptr) : one.tensor);
    if (!last || plan_->readers[k].size() != 1 || !meet(plan_->readers[k][0], through_)) continue;
    gone.push_back(one.let_go());  // nobody asks again, and it may go with its last reader
  }
  return inputs;
}

std::vector<at::Tensor> MagnetoBackward::saved_for(const Backward& backward) {
  std::vector<Kept> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  return take_inputs(backward, /*last=*/false, gone);
}

// In the layout that the backward was made for: a gradient may come as anything that has the right sizes.
at::Tensor MagnetoBackward::laid_out(const at::Tensor& tangent, const types::TensorType& type) const {
  const auto [sizes, strides] = extents_of(type, symbols);
  const auto options = at::TensorOptions().dtype(to_scalar_type(type.dtype)).device(to_torch(type.device));
  if (!tangent.defined()) return at::empty_strided(sizes, strides, options).zero_();
  if (tangent.layout() != c10::kStrided) return laid_out(tangent.to_dense(), type);
  bool same = tangent.storage_offset() == 0 && tangent.scalar_type() == to_scalar_type(type.dtype) &&
              !tangent.is_conj() && !tangent.is_neg() && !tangent._is_zerotensor();
  for (size_t d = 0; d < sizes.size(); ++d) same = same && (sizes[d] == 1 || strides[d] == tangent.stride(d));
  return same ? tangent : at::empty_strided(sizes, strides, options).copy_(tangent);
}

Since::Walk MagnetoBackward::walk(const std::vector<bool>& through, const std::vector<bool>& gives) const {
  Since::Walk made{through, std::vector<bool>(plan_->examples.size())};
  for (size_t g = 0; g < gives.size(); ++g) made.gives[plan_->wanted[g]] = gives[g];
  return made;
}

// Sets of inputs may ask one after the other in one run of the engine.
void MagnetoBackward::note(const Since::Walk& walk, const Backward* backward) {
  const int task = autograd::get_current_graph_task_id();
  if (std::exchange(ran_in_, task) != task) forget_run();
  const auto join = [](std::vector<bool>& all, const std::vector<bool>& some) {
    all.resize(some.size());
    for (size_t i = 0; i < some.size(); ++i) all[i] = all[i] || some[i];
  };
  if (!ran_) ran_.emplace();
  join(ran_->through, walk.through);
  join(ran_->gives, walk.gives);
  if (!backward) return;
  join(through_, walk.through);
  join(used_, backward->reads);
  used_full_ = used_full_ || plan_->is_full(backward);
}

void MagnetoBackward::forget_run() {
  used_.clear();
  through_.clear();
  used_full_ = false;
  ran_.reset();
}

void MagnetoBackward::find_shared_counters() {
  if (std::none_of(watched.begin(), watched.end(), [](const Watched& one) { return one.since() > 0; })) return;
  std::map<const void*, uint32_t> first;
  for (Watched& one : watched) {
    const auto index = static_cast<uint32_t>(&one - watched.data());
    shares.push_back(first.try_emplace(one.identity(), index).first->second);
    one.version += one.since();
  }
}

std::optional<Since> MagnetoBackward::changes(const std::vector<bool>& through, const std::vector<bool>& gives) {
  // Of a stop that is alive: where its gradient goes now.
  const auto edge_of = [](const Stop& stop) -> std::optional<autograd::Edge> {
    const auto alive = stop.original.tensor.lock();
    if (!alive) return std::nullopt;
    const at::Tensor tensor(alive);
    return autograd::Edge(history_of(tensor), static_cast<uint32_t>(tensor.output_nr()));
  };
  const auto is_detached = [&](const Stop& stop) {
    const auto edge = edge_of(stop);
    return edge && !edge->function;
  };
  Since since{.shares = shares, .now = walk(through, gives)};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    since.earlier.assign(over_.begin(), over_.end());
  }
  if (since.earlier.empty() && shares.empty() &&
      std::none_of(watched.begin(), watched.end(), [](const Watched& one) { return one.since() > 0; }) &&
      std::none_of(stops.begin(), stops.end(), is_detached))
    return std::nullopt;
  const graph::Graph& graph = plan_->program->graph();
  const size_t inputs = graph.inputs().size();
  for (size_t w = 0; w < watched.size(); ++w) {
    (w < inputs ? since.inputs : since.roots).push_back(watched[w].since());
    if (w >= inputs) continue;
    const uint32_t written = plan_->versions[graph.inputs()[w].index()];  // by the program itself
    since.began.push_back(std::max(watched[w].version, written) - written);
  }
  for (const Stop& stop : stops) {
    std::optional<autograd::Edge> edge = edge_of(stop);
    if (edge && edge->function && !stop.nodes.empty() && edge->function.get() == stop.nodes.front()) edge.reset();
    since.stops.push_back(std::move(edge));
  }
  return since;
}

variable_list MagnetoBackward::apply(variable_list&& tangents) {
  const bool last = std::exchange(running_last, nullptr) == this;
  std::vector<bool> gives(plan_->wanted.size());
  for (size_t g = 0; g < gives.size(); ++g) gives[g] = task_should_compute_output(g);
  return gradients({}, std::move(tangents), gives, last);
}

variable_list MagnetoBackward::gradients(std::vector<bool> looked, variable_list tangents,
                                         const std::vector<bool>& gives, bool last) {
  const size_t count = plan_->wanted.size();
  std::vector<bool> through(tangents.size());
  for (size_t t = 0; t < tangents.size(); ++t) through[t] = tangents[t].defined();
  if (!any(through) || !any(gives)) return variable_list(count);
  const std::optional<Since> since = changes(through, gives);
  if (since) plan_->check(*since);
  variable_list results;
  const Backward* known = nullptr;
  if (!must_repeat(looked, tangents))
    known = any(looked) ? &plan_->part({looked, through, std::vector<bool>(stops.size()), true})
                        : plan_->backward(through, gives, symbols, /*exactly=*/since.has_value());
  if (!known || !known->is_for(symbols)) {
    check_originals();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      note(walk(through, gives), nullptr);
    }
    results = repeat(looked, tangents, gives);
    results.resize(count);
    return results;
  }
  const Backward& backward = *known;
  std::vector<at::Tensor> inputs;
  {
    std::vector<Kept> gone;
    std::lock_guard<std::mutex> lock(mutex_);
    check_again(backward, through);
    note(walk(through, gives), &backward);
    inputs = take_inputs(backward, last, gone);
  }
  variable_list made = run(backward, std::move(inputs), std::move(tangents));
  results.resize(count);
  for (size_t g = 0; g < count; ++g)
    if (gives[g] && meet(backward.reached_by[plan_->wanted[g]], through)) results[g] = made[plan_->wanted[g]];
  return results;
}

variable_list MagnetoBackward::run(const Backward& backward, std::vector<at::Tensor> inputs, variable_list tangents) {
  TORCH_INTERNAL_ASSERT(backward.run, backward.reason);
  at::AutoDispatchBelowADInplaceOrView below;
  for (const size_t t : backward.tangents) inputs.push_back(laid_out(tangents[t], plan_->tangents[t]));
  std::vector<std::pair<size_t, at::Tensor>> handed_on;
  for (const Passed& passed : backward.passed) {
    const at::Tensor& read = inputs[inputs.size() - backward.tangents.size() + passed.input];
    if (at::Tensor made = hand_on(passed, tangents[passed.tangent], read, symbols); made.defined())
      handed_on.emplace_back(passed.gradient, std::move(made));
  }
  tangents.clear();  // they go with their last readers, too
  c10::SmallVector<at::Tensor, 8> gradients;
  const Executable::Failure failure = backward.run->run(inputs, symbols, gradients);
  if (failure.error) std::rethrow_exception(failure.error);
  for (auto& [gradient, made] : handed_on) gradients[gradient] = std::move(made);
  for (const std::vector<size_t>& views : backward.shared.views) {
    std::vector<size_t> leaves;
    for (const size_t gradient : views)
      if (may_be_leaf(gradient)) leaves.push_back(gradient);
    if (leaves.size() == views.size() && !leaves.empty()) leaves.pop_back();  // one of them may have the memory
    for (const size_t gradient : leaves)
      if (gradients[gradient].defined()) gradients[gradient] = gradients[gradient].clone();
  }
  for (const auto& [gradient, first] : backward.shared.same) gradients[gradient] = gradients[first];
  return {gradients.begin(), gradients.end()};
}

// ---- outputs that were computed from others ------------------------------------------------------------------------

// Somebody sees the gradients that come to a stop: now, or when they are differentiated themselves.
bool MagnetoBackward::is_looked_at(size_t stop) const {
  // Itself, or what it is a view of: the way to that leads through its node.
  const auto leads_to = [&](const Stop& other) {
    const auto& nodes = stops[stop].nodes;
    return !other.original.tensor.expired() && !other.nodes.empty() &&
           std::find(nodes.begin(), nodes.end(), other.nodes.front()) != nodes.end();
  };
  if (c10::GradMode::is_enabled() && std::any_of(stops.begin(), stops.end(), leads_to)) return true;
  const auto* chosen = autograd::get_current_graph_task_exec_info();
  return std::any_of(stops[stop].nodes.begin(), stops[stop].nodes.end(), [&](autograd::Node* node) {
    if (!node->tensor_pre_hooks().empty() || !node->retains_grad_hooks().empty() || !node->pre_hooks().empty() ||
        !node->post_hooks().empty())
      return true;
    if (!chosen || chosen->empty()) return false;
    const auto known = chosen->find(node);
    return known != chosen->end() && known->second.captures_;
  });
}

// This run of the engine comes to this node, sooner or later, or has been there.
bool MagnetoBackward::is_awaited(const autograd::Node* of) {
  const auto* there = autograd::get_current_graph_task_nodes_in_graph();
  auto* node = const_cast<autograd::Node*>(of);
  if (!node || (there && !there->count(node))) return false;
  const auto* chosen = autograd::get_current_graph_task_exec_info();
  if (!chosen || chosen->empty()) return true;
  const auto known = chosen->find(node);
  return known != chosen->end() && known->second.should_execute();
}

MagnetoBackward::Look& MagnetoBackward::look() {
  const auto [place, is_new] = looks_.try_emplace(autograd::get_current_graph_task_id());
  Look& look = place->second;
  if (is_new) {
    look.looked.resize(stops.size());
    look.arrived.resize(outputs.size());
    look.tangents.resize(outputs.size());
    look.came.resize(outputs.size());
    look.served.resize(sets.size());
  }
  return look;
}

bool MagnetoBackward::is_all_here(const Look& look) const {
  for (size_t t = 0; t < outputs.size(); ++t)
    if (!look.arrived[t] && is_awaited(outputs[t])) return false;
  return true;
}

bool MagnetoBackward::is_done(const Look& look) const {
  for (size_t s = 0; s < sets.size(); ++s)
    if (!look.served[s] && is_awaited(sets[s])) return false;
  return is_all_here(look);
}

variable_list MagnetoBackward::arrive(const std::vector<size_t>& from, const variable_list& came) {
  TrainingPlan::Part part;
  variable_list tangents, results(stops.size());
  decltype(looks_)::node_type gone;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Look& look = this->look();
    for (size_t k = 0; k < from.size(); ++k) {
      look.arrived[from[k]] = true;
      look.tangents[from[k]] = came[k];
      look.came[from[k]] = came[k].defined() ? came[k].unsafeGetTensorImpl() : nullptr;
    }
    for (size_t s = 0; s < stops.size(); ++s)
      if (plan_->reaches[from[0]][s] && !look.looked[s]) look.looked[s] = is_looked_at(s);
    part.stops.resize(stops.size());
    for (const size_t s : plan_->joint.computed_from[from[0]])
      part.stops[s] = look.looked[s] && std::all_of(plan_->before[s].begin(), plan_->before[s].end(), [&](size_t t) {
                        return look.arrived[t] || !is_awaited(outputs[t]);
                      });
    part.looked = look.looked;
    part.through.resize(outputs.size());
    for (size_t t = 0; t < outputs.size(); ++t)
      for (size_t s = 0; s < stops.size() && !part.through[t]; ++s)
        part.through[t] = part.stops[s] && look.tangents[t].defined() && plan_->reaches[t][s];
    if (any(part.through)) tangents = look.tangents;
    if (is_done(look)) gone = looks_.extract(autograd::get_current_graph_task_id());
  }
  if (!any(part.through)) return results;
  variable_list gradients;
  ptrdiff_t first = static_cast<ptrdiff_t>(plan_->examples.size());
  const Backward* known = must_repeat(part.looked, tangents) ? nullptr : &plan_->part(part);
  if (!known || !known->is_for(symbols)) {
    for (size_t t = 0; t < tangents.size(); ++t)
      if (!part.through[t]) tangents[t].reset();
    const std::vector<bool> all(plan_->wanted.size(), true);
    try {
      gradients = repeat(part.looked, tangents, std::vector<bool>(plan_->wanted.size()));
    } catch (...) {
      if (const std::optional<Since> since = changes(part.through, all)) plan_->check(*since);  // eager's own error
      throw;
    }
    first = static_cast<ptrdiff_t>(plan_->wanted.size());
  } else {
    gradients = run(*known, saved_for(*known), std::move(tangents));
  }
  for (size_t s = 0; s < stops.size(); ++s)
    if (part.stops[s]) results[s] = gradients[static_cast<size_t>(first) + s];
  return results;
}

void MagnetoBackward::check_output_again(size_t tangent) const {
  const std::vector<uint32_t> inputs(plan_->examples.size()), roots(plan_->joint.roots.size());
  Since::Walk to_stops{std::vector<bool>(outputs.size()), std::vector<bool>(inputs.size()),
                       std::vector<bool>(stops.size())};
  to_stops.through[tangent] = true;
  for (const size_t s : plan_->joint.computed_from[tangent]) to_stops.to_stops[s] = true;
  plan_->check({.began = inputs, .inputs = inputs, .roots = roots, .earlier = {to_stops}, .now = to_stops});
}

void MagnetoBackward::release_output() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++released_outputs_;
}

void MagnetoBackward::forget(const autograd::Node* node) {
  outputs.forget(node);
  sets.forget(node);
}

// ---- inputs that are reached from the same outputs -----------------------------------------------------------------

// The sets share what they compute: the first that is asked once all tangents are here computes for all.
variable_list MagnetoBackward::give(size_t set, variable_list tangents, bool last) {
  const TrainingPlan::Set& own = plan_->sets[set];
  variable_list given(plan_->tangents.size());
  for (size_t k = 0; k < own.tangents.size(); ++k) given[own.tangents[k]] = std::move(tangents[k]);
  std::vector<bool> gives(plan_->wanted.size()), looked;
  const auto ask = [&](size_t s) {
    for (size_t k = 0; k < plan_->sets[s].gives.size(); ++k)
      gives[plan_->sets[s].gives[k]] = sets[s]->task_should_compute_output(k);
  };
  const auto chosen = [&](variable_list& all) {
    variable_list results;
    for (const size_t g : own.gives) results.push_back(std::move(all[g]));
    return results;
  };
  ask(set);
  bool for_all = false;
  decltype(looks_)::node_type gone;
  if (sets.size() > 1 || !stops.empty()) {
    std::lock_guard<std::mutex> lock(mutex_);
    Look& look = this->look();
    look.served[set] = true;
    looked = look.looked;
    // A hook on the way may have made something else of it.
    const bool as_it_came = std::all_of(own.tangents.begin(), own.tangents.end(), [&](size_t t) {
      return look.came[t] == (given[t].defined() ? given[t].unsafeGetTensorImpl() : nullptr);
    });
    const bool done = is_done(look), computed = look.is_computed && as_it_came;
    for_all = !done && !look.is_computed && as_it_came && is_all_here(look);
    is_waited_for_ = !done && !for_all && !look.is_computed;
    variable_list known;
    if (computed) known = chosen(look.gradients);
    if (for_all) {
      given = std::move(look.tangents);
      for (size_t s = 0; s < sets.size(); ++s)
        if (!look.served[s] && is_awaited(sets[s])) ask(s);
    }
    if (done) gone = looks_.extract(autograd::get_current_graph_task_id());
    if (computed) return known;
  }
  variable_list all = gradients(std::move(looked), std::move(given), gives, last && !is_waited_for_);
  variable_list results = chosen(all);
  if (for_all) {
    std::lock_guard<std::mutex> lock(mutex_);
    Look& look = this->look();
    look.gradients = std::move(all);
    look.is_computed = true;
  }
  return results;
}

// ---- a backward that is to be differentiated -----------------------------------------------------------------------

void MagnetoBackward::check_originals() const {
  TORCH_CHECK(!originals.empty() || plan_->program->graph().inputs().empty(), autograd::ERR_BACKWARD_TWICE);
}

bool MagnetoBackward::is_as_it_was(const Original& of) const {
  auto impl = of.tensor.lock();
  if (!impl) return false;
  const at::Tensor tensor(std::move(impl));
  return tensor.is_inference() || tensor._version() == of.version;
}

at::Tensor MagnetoBackward::original(const Original& of, const std::string& name) const {
  auto impl = of.tensor.lock();
  if (!impl) refuse_again(name + " is gone", "keep a reference to it until then, or leave this function uncompiled");
  if (!is_as_it_was(of)) refuse_again(name + " was changed in place since", "clone it before it is changed");
  return at::Tensor(std::move(impl));
}

bool MagnetoBackward::may_be_leaf(size_t gradient) const {
  if (gradient >= plan_->examples.size()) return false;   // of a stop
  if (originals.empty()) return true;                     // they were let go
  const auto tensor = originals[gradient].tensor.lock();  // a leaf whose gradient is kept is alive
  const auto* meta = tensor ? autograd::impl::get_autograd_meta(at::Tensor(tensor)) : nullptr;
  return meta && !meta->grad_fn_;  // to ask a view may be refused
}

bool MagnetoBackward::is_stored(size_t input) const {
  const std::vector<size_t>& stored = plan_->joint.stored;
  return std::find(stored.begin(), stored.end(), input) != stored.end();
}

TrainingPlan::There MagnetoBackward::there(const std::vector<bool>& looked, const variable_list& tangents,
                                           const std::vector<bool>& gives) const {
  TrainingPlan::There there{.looked = looked, .through = {}, .inputs = {}, .stops = {}, .gives = {}};
  if ((any(looked) || any(gives)) && !all(gives)) {
    there.gives.resize(plan_->examples.size());
    for (size_t g = 0; g < gives.size(); ++g) there.gives[plan_->wanted[g]] = gives[g];
  }
  there.looked.resize(stops.size());
  for (const at::Tensor& tangent : tangents) there.through.push_back(tangent.defined());
  for (const Original& original : originals) there.inputs.push_back(is_as_it_was(original));
  for (const size_t stored : plan_->joint.stored)
    if (stored < there.inputs.size()) there.inputs[stored] = false;
  for (size_t s = 0; s < stops.size(); ++s) there.stops.push_back(!there.looked[s] || is_as_it_was(stops[s].original));
  return there;
}

// A sparse gradient stays one in many of eager's formulas, and whoever asked for it counts on that. Where the program
// cannot be repeated, a dense one has the same numbers.
bool MagnetoBackward::must_repeat(const std::vector<bool>& looked, const variable_list& tangents) const {
  if (c10::GradMode::is_enabled() || are_foreign(tangents)) return true;
  const bool is_any_sparse = std::any_of(tangents.begin(), tangents.end(), [](const at::Tensor& tangent) {
    return tangent.defined() && tangent.layout() != c10::kStrided;
  });
  if (!is_any_sparse || (originals.empty() && !plan_->program->graph().inputs().empty())) return false;
  const auto is_known = [](const at::Tensor& state) { return state.defined(); };
  return std::all_of(generator_states.begin(), generator_states.end(), is_known) &&
         plan_->again(there(looked, tangents)).reason.empty();
}

// A view that is no more, of an output that is still what it was, with the history that it had.
at::Tensor MagnetoBackward::view_again(const at::Tensor& root, graph::ValueId of, graph::ValueId view,
                                       const torch::autograd::Edge& edge) const {
  const graph::Graph& graph = plan_->program->graph();
  const types::TensorType& type = graph.value(view).type;
  const auto [sizes, strides] = extents_of(type, symbols);
  const c10::ScalarType dtype = to_scalar_type(type.dtype);  // view_as_real, view(dtype): another one than the root's
  const auto width = [](c10::ScalarType of_one) { return static_cast<int64_t>(c10::elementSize(of_one)); };
  const int64_t begin = root.storage_offset() - graph.value(of).type.offset.evaluate(symbols);
  const int64_t offset = begin * width(root.scalar_type()) / width(dtype) + type.offset.evaluate(symbols);
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor made = root.scalar_type() == dtype
                        ? root.detach().as_strided(sizes, strides, offset)
                        : at::empty({0}, root.options().dtype(dtype)).set_(root.storage(), offset, sizes, strides);
  autograd::impl::set_gradient_edge(made, edge);
  return made;
}

// The program once more, above autograd, and torch's engine through it, to the inputs and to the stops that somebody
// looks at: for gradients that are to be differentiated, and for those that only torch can compute with. Each stands
// after an identity, so that the engine does not walk from one to another.
bool MagnetoBackward::may_be_read(const Backward& known) {
  if (!known.run) return true;
  try {
    saved_for(known);
    return true;
  } catch (const c10::Error&) {  // it was written to
    return false;
  }
}

variable_list MagnetoBackward::repeat(const std::vector<bool>& looked, const variable_list& tangents,
                                      const std::vector<bool>& gives) {
  const graph::Graph& graph = plan_->program->graph();
  const auto name = [&](size_t i) {
    const std::string& known = graph.value(graph.inputs()[i]).name;
    return known.empty() ? "input " + std::to_string(i) : known;
  };
  check_originals();
  const TrainingPlan::There there = this->there(looked, tangents);
  const TrainingPlan::Again& for_all = plan_->again(there);
  const bool will_do = all(gives) || (for_all.reason.empty() && may_be_read(for_all.known));
  const TrainingPlan::Again& plan = will_do ? for_all : plan_->again(this->there(looked, tangents, gives));
  if (!plan.reason.empty()) {
    for (size_t i = 0; i < originals.size(); ++i) {
      if (!plan.lacks[i]) continue;
      if (is_stored(i)) refuse_again(name(i) + " was written to by the function", "leave this function uncompiled");
      original(originals[i], name(i));
    }
    for (size_t s = 0; s < stops.size(); ++s)
      if (plan.lacks[originals.size() + s])
        original(stops[s].original, "output " + std::to_string(plan_->joint.stops[s].output));
    refuse_again(plan.reason, "leave this function uncompiled");
  }
  c10::SmallVector<at::Tensor, 8> known;
  if (plan.known.run) {
    at::AutoDispatchBelowADInplaceOrView below;
    std::vector<at::Tensor> saved = saved_for(plan.known);
    const Executable::Failure failure = plan.known.run->run(saved, symbols, known);
    if (failure.error) std::rethrow_exception(failure.error);
  }
  std::vector<size_t> empty;  // inputs without numbers
  // In the place of a tensor that is no more what it was.
  const auto stand_in = [&](graph::ValueId id, size_t place, const autograd::Edge& edge) {
    at::Tensor made;
    {
      at::AutoDispatchBelowADInplaceOrView below;
      made = laid_out({}, graph.value(id).type);
      // Who looks by strides counts from the begin of its memory.
      if (const int64_t offset = graph.value(id).type.offset.evaluate(symbols); offset > 0) {
        const size_t memory = at::detail::computeStorageNbytes(made.sizes(), made.strides(), 1, offset);
        made =
            at::zeros({static_cast<int64_t>(memory)}, made.options()).as_strided(made.sizes(), made.strides(), offset);
      }
      const auto numbers = std::find(plan.into.begin(), plan.into.end(), place);
      if (numbers != plan.into.end()) made.copy_(known[static_cast<size_t>(numbers - plan.into.begin())]);
    }
    if (edge.is_valid()) autograd::impl::set_gradient_edge(made, edge);
    return made;
  };
  std::vector<autograd::Edge> edges(originals.size());
  if (sets.empty())
    for (size_t g = 0; g < num_outputs(); ++g) edges[plan_->wanted[g]] = next_edge(g);
  for (size_t s = 0; s < sets.size(); ++s)
    for (size_t k = 0; sets[s] && k < plan_->sets[s].gives.size(); ++k)
      edges[plan_->wanted[plan_->sets[s].gives[k]]] = sets[s]->next_edge(k);
  std::vector<at::Tensor> inputs;
  // Who detaches a tensor after the call cuts no way of its gradients.
  const auto with_history = [&](const at::Tensor& kept, graph::ValueId id, const autograd::Edge& edge) {
    return is_cut_off(kept, edge) ? view_again(kept, id, id, edge) : kept;
  };
  for (size_t i = 0; i < originals.size(); ++i)
    inputs.push_back(there.inputs[i] ? with_history(original(originals[i], name(i)), graph.inputs()[i], edges[i])
                                     : stand_in(graph.inputs()[i], i, edges[i]));
  std::vector<std::pair<size_t, size_t>> places;  // among the results, among the inputs
  for (size_t g = 0; g < plan_->wanted.size(); ++g)
    if (inputs[plan_->wanted[g]].requires_grad() && gives[g]) places.emplace_back(g, plan_->wanted[g]);
  for (size_t s = 0; s < stops.size(); ++s) {
    if (!there.looked[s]) continue;
    places.emplace_back(plan_->wanted.size() + s, inputs.size());
    const Joint::Stop& stop = plan_->joint.stops[s];
    const auto edge = [&] { return autograd::Edge(stops[s].nodes.front()->getptr(), stops[s].input_nr); };
    const auto whole = [&](size_t of) {
      return original(stops[of].original, "output " + std::to_string(plan_->joint.stops[of].output));
    };
    const FunctionalJoint::Root& of = plan_->joint.roots[plan_->joint.outputs[stop.output].root];
    if (there.stops[s])
      inputs.push_back(with_history(whole(s), stop.value, edge()));
    else if (const size_t root = root_that_is_there(*plan_, there, s); root != Joint::kNone)
      inputs.push_back(view_again(whole(root), plan_->joint.stops[root].value, stop.value, edge()));
    else if (of.from == FunctionalJoint::Root::From::kInput)
      inputs.push_back(view_again(inputs[of.index], graph.inputs()[of.index], stop.value, edge()));
    else if (std::find(plan.into.begin(), plan.into.end(), originals.size() + s) == plan.into.end()) {
      empty.push_back(inputs.size());
      inputs.push_back(stand_in(stop.value, originals.size() + s, edge()));
    } else {
      inputs.push_back(
          view_again(stand_in(of.recorded, originals.size() + s, autograd::Edge()), of.recorded, stop.value, edge()));
    }
  }
  for (at::Tensor& input : inputs)
    if (input.requires_grad()) input = after_identity(input);
  for (size_t k = 0; k < known.size(); ++k)
    if (plan.into[k] == Joint::kNone) inputs.push_back(std::move(known[k]));
  for (const at::Tensor& state : generator_states)
    if (!state.defined()) refuse_again("its random numbers cannot be drawn again", "leave this function uncompiled");

  autograd::edge_list roots, captures;
  for (const auto& [result, input] : places) captures.push_back(autograd::impl::gradient_edge(inputs[input]));
  std::vector<NodePtr> there_before;
  for (const auto* list : {&std::as_const(inputs), &tangents})
    for (const at::Tensor& tensor : *list)
      if (tensor.defined() && tensor.grad_fn()) there_before.push_back(tensor.grad_fn());
  std::vector<std::pair<c10::VariableVersion, uint32_t>> counted;
  for (const size_t i : plan_->counted)
    if (there.inputs[i] && !inputs[i].is_inference())
      counted.emplace_back(autograd::impl::version_counter(inputs[i]), plan_->versions[graph.inputs()[i].index()]);
  c10::SmallVector<at::Tensor, 8> again;
  Executable::Failure failure;
  {
    // The program itself has no part in a transform that the gradients come from.
    c10::impl::ExcludeDispatchKeyGuard outside(c10::DispatchKeySet(
        {c10::DispatchKey::VmapMode, c10::DispatchKey::FuncTorchVmapMode,
         c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
    GeneratorsAsTheyWere generators(plan_->random_on, generator_states);
    const VersionsAsTheyWere versions(counted);
    failure = plan.program->run(inputs, symbols, again);
  }
  if (failure.error) std::rethrow_exception(failure.error);
  variable_list given;
  for (size_t t = 0; t < tangents.size(); ++t) {
    if (!tangents[t].defined()) continue;
    roots.push_back(autograd::impl::gradient_edge(again[t]));
    given.push_back(tangents[t]);
  }
  variable_list results(plan_->wanted.size() + stops.size());
  if (captures.empty()) return results;
  variable_list gradients = autograd::Engine::get_default_engine().execute(roots, given, /*keep_graph=*/true,
                                                                           /*create_graph=*/c10::GradMode::is_enabled(),
                                                                           /*accumulate_grad=*/false, captures);
  for (size_t c = 0; c < places.size(); ++c) results[places[c].first] = std::move(gradients[c]);
  if (!will_do) {  // whoever saved one of them refuses from now on
    for (size_t k = again.size() - plan.spoilt; k < again.size(); ++k) again[k].unsafeGetTensorImpl()->bump_version();
    for (const size_t k : empty) inputs[k].unsafeGetTensorImpl()->bump_version();
    again.resize(again.size() - plan.spoilt);
  }
  if (c10::GradMode::is_enabled()) lead_to_roots(results, again, there_before);
  return results;
}

// Where an operator saved its result and that is a root, its gradient depends on the root: on the one that the caller
// has, whose hooks are called, not on the one that was made again. And who comes to an operator comes to all its
// results: hooks of those that the caller has are called with none.
void MagnetoBackward::lead_to_roots(const variable_list& results, const Tensors& again,
                                    const std::vector<NodePtr>& there_before) {
  std::unordered_map<autograd::Edge, autograd::Edge> onward;
  std::unordered_map<autograd::Node*, std::vector<std::pair<uint32_t, autograd::Edge>>> of_node;
  {
    const auto held = outputs.hold();
    const auto lead = [&](size_t t, const autograd::Node* to, size_t input_nr) {
      if (!to || !again[t].grad_fn() || input_nr >= to->num_inputs()) return;
      const autograd::Edge from = autograd::impl::gradient_edge(again[t]);
      onward[from] = autograd::Edge(const_cast<autograd::Node*>(to)->getptr(), static_cast<uint32_t>(input_nr));
      of_node[from.function.get()].emplace_back(from.input_nr, onward[from]);
    };
    if (!plan_->joint.has_output_nodes()) lead(0, this, 0);
    for (const std::vector<size_t>& made : plan_->joint.nodes)
      for (size_t k = 0; k < made.size() && made[k] < outputs.size(); ++k) lead(made[k], outputs[made[k]], k);
    for (const Beside& one : beside) {
      const autograd::Node* from = outputs[one.tangent];
      const auto at = std::find(plan_->beside.begin(), plan_->beside.end(), one.output) - plan_->beside.begin();
      const NodePtr& made = again[plan_->tangents.size() + static_cast<size_t>(at)].grad_fn();
      if (!from || !made || std::find(there_before.begin(), there_before.end(), made) != there_before.end()) continue;
      auto& edges = of_node[made.get()];
      const std::pair<uint32_t, autograd::Edge> nothing{kNoInput, from->next_edge(one.edge)};
      if (std::find(edges.begin(), edges.end(), nothing) == edges.end()) edges.push_back(nothing);
    }
  }
  // What an operator in place saved of a view that it wrote to is that view.
  for (size_t k = 0; k < written_views.size(); ++k) {
    const at::Tensor& made = again[again.size() - written_views.size() + k];
    const auto view = written_views[k].tensor.lock();
    if (view && is_as_it_was(written_views[k]) && made.grad_fn() && at::Tensor(view).grad_fn())
      onward[autograd::impl::gradient_edge(made)] = autograd::impl::gradient_edge(at::Tensor(view));
  }
  // From the results on, up to what was there before.
  std::unordered_set<const autograd::Node*> seen;
  std::vector<autograd::Node*> waiting;
  for (const NodePtr& node : there_before) seen.insert(node.get());
  const auto meet = [&](const NodePtr& node) {
    if (node && seen.insert(node.get()).second) waiting.push_back(node.get());
  };
  for (const at::Tensor& result : results)
    if (result.defined()) meet(result.grad_fn());
  while (!waiting.empty()) {
    autograd::Node* node = waiting.back();
    waiting.pop_back();
    for (autograd::Edge& edge : node->next_edges()) {
      const auto other = onward.find(edge);
      if (other != onward.end())
        edge = other->second;
      else
        meet(edge.function);
    }
    repeat_edges_inside(*node);
  }
  for (const auto& [node, edges] : of_node) lead_on(*node, edges);
}

}  // namespace magneto::aten
