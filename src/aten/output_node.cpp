// aten/output_node.cpp
#include "aten/output_node_internal.h"

#include <torch/headeronly/version.h>

#include <utility>

namespace magneto::aten {

namespace autograd = torch::autograd;
using autograd::variable_list;

NodePtr make_output_node(std::shared_ptr<const TrainingPlan> plan, size_t tangent) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  return c10::make_intrusive<OutputNode>(std::move(plan), tangent);
#else
  return NodePtr(new OutputNode(std::move(plan), tangent), autograd::deleteNode);
#endif
}

OutputNode::~OutputNode() {
  if (num_outputs() > 0 && next_edge(0).function) whole().forget_output(tangent_);
}

void OutputNode::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!std::exchange(released_, true)) whole().release_output();
}

variable_list OutputNode::apply(variable_list&& gradients) {
  variable_list results(num_outputs());
  const std::vector<size_t>& behind = plan_->joint.behind[tangent_];
  if (!behind.empty()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (released_ && gradients[0].defined()) whole().check_output_again(tangent_);
    }
    const variable_list at_stops = whole().arrive(tangent_, gradients[0]);
    for (size_t e = 0; e < behind.size(); ++e) results[e + 1] = at_stops[behind[e]];
  }
  results[0] = std::move(gradients[0]);
  return results;
}

}  // namespace magneto::aten
