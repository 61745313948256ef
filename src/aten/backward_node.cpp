// aten/backward_node.cpp
#include "aten/backward_node_internal.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <algorithm>

#include "aten/convert_internal.h"
#include "aten/program.h"
#include "aten/trace.h"
#include "base/check.h"

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

// More choices of tangents and gradients than a program ever sees get the whole backward.
constexpr size_t kMostBackwards = 16;
constexpr size_t kOftenAsked = 3;

bool all(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), false) == flags.end(); }

// The generators' states of another time; those of now come back at the end.
class GeneratorsAsTheyWere {
 public:
  GeneratorsAsTheyWere(const std::vector<c10::Device>& devices, const std::vector<at::Tensor>& states)
      : devices_(devices), now_(generator_states(devices)) {
    set(states);
  }
  ~GeneratorsAsTheyWere() { set(now_); }
  GeneratorsAsTheyWere(const GeneratorsAsTheyWere&) = delete;

 private:
  void set(const std::vector<at::Tensor>& states) const {
    for (size_t d = 0; d < devices_.size(); ++d) {
      if (!states[d].defined()) continue;
      at::Generator generator = at::globalContext().defaultGenerator(devices_[d]);
      std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(states[d]);
    }
  }
  const std::vector<c10::Device>& devices_;
  const std::vector<at::Tensor> now_;
};

[[noreturn]] void refuse_again(const std::string& what, const std::string& cure) {
  TORCH_CHECK(false,
              "magneto: the gradient of a compiled function is to be differentiated itself (create_graph=True), ",
              "and ", what, ". Cure: ", cure);
}

}  // namespace

std::vector<at::Tensor> generator_states(const std::vector<c10::Device>& devices) {
  std::vector<at::Tensor> states(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    at::Generator generator = at::globalContext().defaultGenerator(devices[d]);
    std::lock_guard<std::mutex> lock(generator.mutex());
    try {
      states[d] = generator.get_state();
    } catch (const c10::Error&) {  // a CUDA graph is being captured
    }
  }
  return states;
}

NodePtr make_backward_node(std::shared_ptr<const TrainingPlan> plan, MagnetoBackward** node) {
  *node = nullptr;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  auto made = c10::make_intrusive<MagnetoBackward>(std::move(plan));
  *node = made.get();
  return made;
#else
  *node = new MagnetoBackward(std::move(plan));
  return NodePtr(*node, autograd::deleteNode);
#endif
}

// ---- the plan ------------------------------------------------------------------------------------------------------

Backward TrainingPlan::make_backward(const std::vector<bool>& through, const std::vector<bool>& gives) const {
  Backward made{.run = nullptr, .reads = {}, .tangents = {}, .depends = {}, .gives = gives};
  FunctionalJoint some;
  if (!all(through)) {
    some = make_functional_joint(examples, make_joint(*program, examples, through));
    if (!some.reason.empty() || !some.conditions.empty()) return made;
  }
  graph::Graph graph = all(through) ? joint.graph : std::move(some.graph);
  for (size_t g = 0; g < wanted.size(); ++g)
    if (!gives[g]) graph.outputs[joint.halves.outputs + wanted[g]] = graph::ValueId();
  for (const Saved& one : saved) {  // the same forward, so the same values
    if (one.value.index() >= graph.values().size()) return made;
    const graph::Value &here = graph.value(one.value), &there = joint.graph.value(one.value);
    if (here.maker != there.maker || !(here.type == there.type)) return made;
  }
  Partition part = partition_again(graph, joint.halves, saved);
  if (!part.reason.empty()) return made;
  std::vector<at::Tensor> constants;
  for (const size_t c : part.backward_constants) constants.push_back(program->constants()[c]);
  for (const Saved& one : part.saved) made.reads.push_back(one.is_read);
  made.tangents = std::move(part.tangents);
  made.depends = std::move(part.depends);
  made.run = compile(std::move(part.backward), std::move(constants));
  return made;
}

const Backward& TrainingPlan::backward(const std::vector<bool>& through, const std::vector<bool>& gives) const {
  if (all(through) && all(gives)) return full_;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto known = others_.find({through, gives});
  if (known != others_.end() ? known->second.is_made : others_.size() >= kMostBackwards)
    return known != others_.end() && known->second.backward.run ? known->second.backward : full_;
  // To leave out gradients is only faster; to leave out tangents is what eager does: 0 * inf is not 0.
  if (all(through) && ++others_[{through, gives}].asked < kOftenAsked) return full_;
  lock.unlock();  // this runs torch's engine
  Backward made = make_backward(through, gives);
  lock.lock();
  Other& other = others_[{through, gives}];
  if (!other.is_made) {
    other.backward = std::move(made);
    other.is_made = true;
  }
  return other.backward.run ? other.backward : full_;
}

// ---- the node ------------------------------------------------------------------------------------------------------

void MagnetoBackward::will_release_variables() { running_last = this; }

void MagnetoBackward::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t k = 0; k < kept.size(); ++k) {
    if (used_ && !used_->reads[k]) continue;  // eager would keep it: no operator that needs it was run
    kept[k].variable.reset_data();
    kept[k].tensor.reset();
    kept[k].is_gone = true;
  }
  if (!used_ || used_ == &plan_->full()) {
    generator_states.clear();
    originals.clear();
  }
  used_ = nullptr;
}

std::vector<at::Tensor> MagnetoBackward::take_inputs(const Backward& backward, bool last) {
  std::vector<at::Tensor> inputs;
  for (size_t k = 0; k < kept.size(); ++k) {
    if (!backward.reads[k]) continue;
    Kept& one = kept[k];
    TORCH_CHECK(!one.is_gone, autograd::ERR_BACKWARD_TWICE);
    if (one.is_variable)
      inputs.push_back(one.variable.unpack(one.is_output ? getptr() : nullptr));
    else if (last)
      inputs.push_back(std::move(one.tensor)), one.is_gone = true;
    else
      inputs.push_back(one.tensor);
  }
  return inputs;
}

// In the layout that the backward was made for: a gradient may come as anything that has the right sizes.
at::Tensor MagnetoBackward::laid_out(const at::Tensor& tangent, const types::TensorType& type) const {
  c10::SmallVector<int64_t, 6> sizes, strides;
  for (const types::Expr& size : type.sizes) sizes.push_back(size.evaluate(symbols));
  for (const types::Expr& stride : type.strides) strides.push_back(stride.evaluate(symbols));
  const auto options = at::TensorOptions().dtype(to_scalar_type(type.dtype)).device(to_torch(type.device));
  if (!tangent.defined()) return at::empty_strided(sizes, strides, options).zero_();
  if (tangent.layout() != c10::kStrided) return laid_out(tangent.to_dense(), type);
  bool same = tangent.storage_offset() == 0 && tangent.scalar_type() == to_scalar_type(type.dtype) &&
              !tangent.is_conj() && !tangent.is_neg() && !tangent._is_zerotensor();
  for (size_t d = 0; d < sizes.size(); ++d) same = same && (sizes[d] == 1 || strides[d] == tangent.stride(d));
  return same ? tangent : at::empty_strided(sizes, strides, options).copy_(tangent);
}

variable_list MagnetoBackward::apply(variable_list&& tangents) {
  const bool last = std::exchange(running_last, nullptr) == this;
  const size_t count = plan_->wanted.size();
  std::vector<bool> through(tangents.size()), gives(count);
  for (size_t t = 0; t < tangents.size(); ++t) through[t] = tangents[t].defined();
  if (std::find(through.begin(), through.end(), true) == through.end()) return variable_list(count);
  if (c10::GradMode::is_enabled()) return apply_again(tangents);
  for (size_t g = 0; g < count; ++g) gives[g] = task_should_compute_output(g);
  const Backward& backward = plan_->backward(through, gives);

  std::lock_guard<std::mutex> lock(mutex_);
  at::AutoDispatchBelowADInplaceOrView below;
  std::vector<at::Tensor> inputs = take_inputs(backward, last);
  for (const size_t t : backward.tangents) inputs.push_back(laid_out(tangents[t], plan_->tangents[t]));
  tangents.clear();
  used_ = &backward;
  c10::SmallVector<at::Tensor, 8> gradients;
  const Executable::Failure failure = backward.run->run(inputs, symbols, gradients);
  if (failure.error) std::rethrow_exception(failure.error);
  variable_list results(count);
  for (size_t g = 0; g < count; ++g) {
    const std::vector<bool>& depends = backward.depends[plan_->wanted[g]];
    for (size_t t = 0; t < depends.size(); ++t)
      if (depends[t] && through[t]) results[g] = gradients[plan_->wanted[g]];
  }
  return results;
}

// A backward that is to be differentiated: the program once more, above autograd, and torch's engine through it. Each
// input stands behind a view of itself, so that the engine does not walk from one input to another.
variable_list MagnetoBackward::apply_again(const variable_list& tangents) {
  const graph::Graph& graph = plan_->program->graph();
  const auto name = [&](size_t i) {
    const std::string& known = graph.value(graph.inputs()[i]).name;
    return known.empty() ? "input " + std::to_string(i) : known;
  };
  TORCH_CHECK(!originals.empty() || graph.inputs().empty(), autograd::ERR_BACKWARD_TWICE);
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < originals.size(); ++i) {
    auto impl = originals[i].tensor.lock();
    if (!impl)
      refuse_again(name(i) + " is gone", "keep a reference to it until then, or leave this function uncompiled");
    at::Tensor input(std::move(impl));
    if (plan_->joint.needs_before[i])
      refuse_again(name(i) + " was written to by the function", "leave this function uncompiled");
    if (!input.is_inference() && input._version() != originals[i].version)
      refuse_again(name(i) + " was changed in place since", "clone it before it is changed");
    inputs.push_back(std::move(input));
  }
  for (const size_t stored : plan_->joint.stored) inputs[stored] = inputs[stored].detach().clone();
  for (at::Tensor& input : inputs)
    if (input.requires_grad()) input = input.view_as(input);
  for (const at::Tensor& state : generator_states)
    if (!state.defined()) refuse_again("its random numbers cannot be drawn again", "leave this function uncompiled");

  autograd::edge_list roots, captures;
  std::vector<size_t> captured;
  for (size_t g = 0; g < plan_->wanted.size(); ++g) {
    const at::Tensor& input = inputs[plan_->wanted[g]];
    if (!input.requires_grad() || !task_should_compute_output(g)) continue;
    captures.push_back(autograd::impl::gradient_edge(input));
    captured.push_back(g);
  }
  c10::SmallVector<at::Tensor, 8> again;
  Executable::Failure failure;
  {
    GeneratorsAsTheyWere generators(plan_->random_on, generator_states);
    failure = plan_->roots_again->run(inputs, symbols, again);
  }
  if (failure.error) std::rethrow_exception(failure.error);
  variable_list given;
  for (size_t t = 0; t < tangents.size(); ++t) {
    if (!tangents[t].defined()) continue;
    roots.push_back(autograd::impl::gradient_edge(again[t]));
    given.push_back(tangents[t]);
  }
  variable_list results(plan_->wanted.size());
  if (captures.empty()) return results;
  variable_list gradients = autograd::Engine::get_default_engine().execute(
      roots, given, /*keep_graph=*/true, /*create_graph=*/true, /*accumulate_grad=*/false, captures);
  for (size_t c = 0; c < captured.size(); ++c) results[captured[c]] = std::move(gradients[c]);
  return results;
}

}  // namespace magneto::aten
