// An operator may have saved its own result. Whoever unpacks it gets a tensor whose history is the operator's node, and
// saves it once more, for gradients of a higher order: so the node itself must lead on, not only the edges to it.
//
//     before:  ... --> node made again --> x
//     after:   ... --> node made again --> onward --> x               what came for other results of the operator
//                            `- - - - - - - ^  `----> caller's node   what came for the result that the caller has
#include "aten/onward_internal.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <map>
#include <mutex>

namespace magneto::aten {

namespace autograd = torch::autograd;
using autograd::variable_list;

namespace {

/// What came, until the engine comes to the node after.
class Waiting {
 public:
  void put(variable_list gradients) {
    const std::lock_guard<std::mutex> lock(mutex_);
    of_run_[autograd::get_current_graph_task_id()] = std::move(gradients);
  }
  variable_list take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = of_run_.extract(autograd::get_current_graph_task_id());
    return found ? std::move(found.mapped()) : variable_list();
  }

 private:
  std::mutex mutex_;
  std::map<int, variable_list> of_run_;  ///< of the engine
};

struct Taking final : autograd::FunctionPreHook {
  Taking(std::shared_ptr<Waiting> into, std::vector<uint32_t> some)
      : waiting(std::move(into)), inputs(std::move(some)) {}
  variable_list operator()(const variable_list& gradients) override {
    variable_list rest = gradients, taken;
    for (const uint32_t input : inputs)
      taken.push_back(input == kNoInput ? at::Tensor() : std::exchange(rest.at(input), at::Tensor()));
    waiting->put(std::move(taken));
    return rest;
  }
  const std::shared_ptr<Waiting> waiting;
  const std::vector<uint32_t> inputs;
};

class Onward final : public autograd::Node {
 public:
  explicit Onward(std::shared_ptr<Waiting> waiting) : waiting_(std::move(waiting)) {}
  std::string name() const override { return "MagnetoBackward"; }

 protected:
  variable_list apply(variable_list&& gradients) override {
    variable_list results = std::move(gradients), taken = waiting_->take();
    results.insert(results.end(), taken.begin(), taken.end());
    results.resize(num_outputs());
    return results;
  }

 private:
  const std::shared_ptr<Waiting> waiting_;
};

/// Gives on what comes; two leaves get no memory in common.
class Identity final : public autograd::Node {
 public:
  std::string name() const override { return "MagnetoBackward"; }
  void compiled_args(autograd::CompiledNodeArgs&) const override {}
  variable_list apply_with_saved(const variable_list& gradients, autograd::SwapSavedVariables&) override {
    return gradients;
  }

 protected:
  variable_list apply(variable_list&& gradients) override {
    variable_list results = std::move(gradients);
    // A leaf takes over a tensor that nobody else holds, though others hold its memory.
    const auto* next = next_edge(0).function.get();
    if (c10::GradMode::is_enabled() || !dynamic_cast<const autograd::AccumulateGrad*>(next)) return results;
    for (at::Tensor& gradient : results)
      if (gradient.defined() && gradient.has_storage() && gradient.storage().use_count() > 1)
        gradient = gradient.clone();
    return results;
  }
};

}  // namespace

// Not a view: torch makes the history of a view again when its memory has counted a write, t_() of another view
// included.
at::Tensor after_identity(const at::Tensor& tensor) {
  at::Tensor made = tensor.detach();
  const NodePtr node = make_autograd_node<Identity>();
  node->set_next_edges({autograd::impl::gradient_edge(tensor)});
  autograd::impl::set_gradient_edge(made, {node, node->add_input_metadata(made)});
  return made;
}

void repeat_edges_inside(autograd::Node& node) {
  auto* slices = dynamic_cast<autograd::CopySlices*>(&node);
  if (!slices || !slices->fn) return;
  for (size_t i = 1; i < slices->num_outputs(); ++i) slices->fn->next_edges()[i] = slices->next_edge(i);
}

void lead_on(autograd::Node& made_again, const std::vector<std::pair<uint32_t, autograd::Edge>>& onward) {
  auto waiting = std::make_shared<Waiting>();
  const NodePtr node = make_autograd_node<Onward>(waiting);
  autograd::edge_list next;
  for (autograd::Edge& edge : made_again.next_edges()) {
    if (!edge.is_valid()) continue;
    const autograd::InputMetadata& like = edge.function->input_metadata(edge.input_nr);
    const uint32_t place =
        node->add_input_metadata(at::zeros({}, like.options()).expand_symint(like.shape_as_dim_vector()));
    next.push_back(std::exchange(edge, autograd::Edge(node, place)));
  }
  repeat_edges_inside(made_again);
  std::vector<uint32_t> inputs;
  for (const auto& [input, edge] : onward) {
    inputs.push_back(input);
    next.push_back(edge);
  }
  node->set_next_edges(std::move(next));
  made_again.add_pre_hook(std::make_unique<Taking>(std::move(waiting), std::move(inputs)));
}

}  // namespace magneto::aten
