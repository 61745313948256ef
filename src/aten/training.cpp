// aten/training.cpp
#include "aten/training.h"

#include <ATen/Functions.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "aten/backward_node_internal.h"
#include "aten/convert_internal.h"
#include "aten/operators_internal.h"
#include "aten/program.h"
#include "base/check.h"
#include "base/text.h"

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
  explicit Training(std::shared_ptr<const TrainingPlan> plan, std::unique_ptr<Program> views)
      : plan_(std::move(plan)), views_(std::move(views)) {}

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override;
  bool writes_inputs() const override { return plan_->program->writes_inputs(); }
  const TrainingFacts& facts() const { return plan_->facts; }

 private:
  bool must_run_plainly(std::span<const at::Tensor> inputs, std::span<const int64_t> symbols) const;
  void keep(MagnetoBackward& node, const std::vector<at::Tensor>& inputs, const Tensors& results) const;

  const std::shared_ptr<const TrainingPlan> plan_;
  const std::unique_ptr<Program> views_;  ///< nullptr: no output is a view
};

// Somebody wants to see every tensor that is saved or every node, or a tensor is not what the plan was made for.
bool Training::must_run_plainly(std::span<const at::Tensor> inputs, std::span<const int64_t> symbols) const {
  if (torch::autograd::AnomalyMode::is_enabled() || at::SavedTensorDefaultHooks::get_hooks()) return true;
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
  if (must_run_plainly(inputs, symbols)) return plan_->program->run(inputs, symbols, outputs);
  const FunctionalJoint& joint = plan_->joint;

  NodePtr owner;
  MagnetoBackward* node = nullptr;
  const bool differentiable =
      std::any_of(plan_->wanted.begin(), plan_->wanted.end(), [&](size_t i) { return inputs[i].requires_grad(); });
  if (differentiable) {
    owner = make_backward_node(plan_, &node);
    torch::autograd::edge_list edges;
    edges.reserve(plan_->wanted.size());
    for (const size_t i : plan_->wanted)
      edges.push_back(inputs[i].requires_grad() ? torch::autograd::impl::gradient_edge(inputs[i])
                                                : torch::autograd::Edge());
    node->set_next_edges(std::move(edges));
    node->symbols.assign(symbols.begin(), symbols.end());
    node->originals.reserve(inputs.size());
    for (const at::Tensor& input : inputs)
      node->originals.push_back(
          {c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(input.getIntrusivePtr()),
           input.is_inference() ? 0 : static_cast<uint32_t>(input._version())});
    if (!plan_->random_on.empty()) node->generator_states = generator_states(plan_->random_on);
  }

  // The inputs that are needed behind the forward; the others go with their last reader.
  std::vector<at::Tensor> needed(inputs.size());
  if (node)
    for (const Saved& saved : plan_->saved)
      if (saved.from == Saved::From::kInput) needed[saved.index] = inputs[saved.index];
  for (const Root& root : joint.roots)
    if (root.from == Root::From::kInput) needed[root.index] = inputs[root.index];
  for (const size_t stored : joint.stored) needed[stored] = inputs[stored];

  c10::SmallVector<at::Tensor, 16> results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    const Failure failure = plan_->forward->run(inputs, symbols, results);
    if (failure.error) return failure;
  }

  const Graph& graph = plan_->program->graph();
  for (const size_t stored : joint.stored) {
    const uint32_t count = plan_->versions[graph.inputs()[stored].index()];
    if (!needed[stored].is_inference())
      for (uint32_t c = 0; c < count; ++c) needed[stored].unsafeGetTensorImpl()->bump_version();
    if (node) node->originals[stored].version += count;
  }
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
  if (node) {
    for (const size_t r : joint.root_at) torch::autograd::set_history(roots[r], owner);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
    torch::autograd::fire_node_creation_hooks(owner);
#endif
    keep(*node, needed, results);
  }
  results.clear();

  c10::SmallVector<at::Tensor, 8> views;
  if (views_) {
    std::vector<at::Tensor> below = roots;
    Failure failure = views_->run(below, symbols, views);
    if (failure.error) {
      failure.changed = true;
      return failure;
    }
  }
  for (const FunctionalJoint::Output& output : joint.outputs) {
    if (output.root == Joint::kNone)
      outputs.emplace_back();
    else
      outputs.push_back(output.view == Joint::kNone ? roots[output.root] : views[output.view]);
  }
  return {};
}

void Training::keep(MagnetoBackward& node, const std::vector<at::Tensor>& inputs, const Tensors& results) const {
  const size_t own = plan_->joint.halves.outputs;
  node.kept.resize(plan_->saved.size());
  for (size_t k = 0; k < plan_->saved.size(); ++k) {
    const Saved& saved = plan_->saved[k];
    MagnetoBackward::Kept& kept = node.kept[k];
    kept.is_variable = true;
    if (saved.from == Saved::From::kInput) {
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

std::vector<c10::Device> random_devices(const Graph& graph) {
  std::vector<c10::Device> devices;
  for (const graph::Node& node : graph.nodes()) {
    const size_t dot = node.op.find('.');
    const Operator& op = operator_of(c10::Dispatcher::singleton().findSchemaOrThrow(
        node.op.substr(0, dot).c_str(), dot == std::string::npos ? "" : node.op.substr(dot + 1).c_str()));
    if (!op.random) continue;
    for (const ValueId id : node.outputs) {
      if (!id.valid()) continue;
      const c10::Device device = to_torch(graph.value(id).type.device);
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
    }
  }
  return devices;
}

// Inputs as make_joint looks at them, without the caller's memory.
std::vector<at::Tensor> without_data(std::span<const at::Tensor> examples) {
  std::vector<at::Tensor> made;
  for (const at::Tensor& example : examples) {
    at::Tensor empty = at::empty_strided(example.sizes(), example.strides(),
                                         example.options().device(c10::kMeta).requires_grad(false));
    if (example.requires_grad()) empty.set_requires_grad(true);
    made.push_back(std::move(empty));
  }
  return made;
}

std::vector<at::Tensor> chosen(const std::vector<at::Tensor>& constants, const std::vector<size_t>& places) {
  std::vector<at::Tensor> some;
  for (const size_t place : places) some.push_back(constants[place]);
  return some;
}

}  // namespace

std::shared_ptr<Executable> make_training(std::shared_ptr<Program> program, std::span<const at::Tensor> examples,
                                          const CompileGraph& compile, std::string* reason) {
  auto plan = std::make_shared<TrainingPlan>();
  plan->joint = make_functional_joint(*program, examples);
  FunctionalJoint& joint = plan->joint;
  const auto stop = [&](std::string why) {
    if (reason) *reason = std::move(why);
    return nullptr;
  };
  if (!joint.reason.empty()) return stop(joint.reason);
  if (overlap(examples, joint.stored)) return stop("an input that is written to shares its memory with another");

  const auto start = std::chrono::steady_clock::now();
  Partition part = autograd::partition(joint.graph, joint.halves);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  if (!part.reason.empty()) return stop(part.reason);

  const Graph& recorded = program->graph();
  plan->compile = compile;
  plan->saved = part.saved;
  plan->examples = without_data(examples);
  plan->versions = count_versions(recorded);
  plan->random_on = random_devices(recorded);
  for (const at::Tensor& example : examples) plan->traced_grad.push_back(example.requires_grad());
  for (size_t i = 0; i < examples.size(); ++i)
    if (joint.graph.outputs[joint.halves.outputs + i].valid()) plan->wanted.push_back(i);
  for (size_t t = 0; t < joint.root_at.size(); ++t)
    plan->tangents.push_back(joint.graph.value(joint.graph.inputs()[examples.size() + t]).type);
  Graph again = recorded;
  again.outputs.clear();
  for (const size_t r : joint.root_at) again.outputs.push_back(joint.roots[r].recorded);
  plan->roots_again = std::make_unique<Program>(std::move(again), program->constants());
  plan->facts = {.saved_bytes = part.bytes,
                 .saved = part.saved.size(),
                 .joint_ms = joint.joint_ms,
                 .functionalise_ms = joint.functionalise_ms,
                 .partition_ms = taken.count(),
                 .forward = part.forward,
                 .backward = part.backward};

  Backward full{.run = compile(std::move(part.backward), chosen(program->constants(), part.backward_constants)),
                .reads = std::vector<bool>(part.saved.size(), true),
                .depends = std::move(part.depends),
                .gives = std::vector<bool>(plan->wanted.size(), true)};
  plan->forward = compile(std::move(part.forward), chosen(program->constants(), part.forward_constants));
  if (!full.run || !plan->forward) return stop("a half of it could not be compiled");
  plan->set_full(std::move(full));
  plan->program = std::move(program);
  std::unique_ptr<Program> views;
  if (!joint.views.outputs.empty())
    views = std::make_unique<Program>(std::move(joint.views), std::vector<at::Tensor>());
  return std::make_shared<Training>(std::move(plan), std::move(views));
}

const TrainingFacts* training_facts(const Executable& executable) {
  const auto* training = dynamic_cast<const Training*>(&executable);
  return training ? &training->facts() : nullptr;
}

std::shared_ptr<Executable> compile_by_operators(Graph graph, std::vector<at::Tensor> constants) {
  for (const graph::Store& store : std::exchange(graph.stores, {}))
    graph.add_node({.op = "aten::copy_", .args = {store.into, store.value, false}, .outputs = {store.into}});
  return std::make_shared<Program>(std::move(graph), std::move(constants));
}

}  // namespace magneto::aten
