// aten/output_node.cpp
#include "aten/output_node_internal.h"

#include <utility>

namespace magneto::aten {

namespace autograd = torch::autograd;
using autograd::variable_list;

namespace {

// The node that this thread is about to run for the last time.
thread_local const SetNode* running_last = nullptr;

}  // namespace

NodePtr make_output_node(NodePtr whole, std::shared_ptr<const TrainingPlan> plan, std::vector<size_t> tangents,
                         std::vector<size_t> along) {
  return make_autograd_node<OutputNode>(std::move(whole), std::move(plan), std::move(tangents), std::move(along));
}

NodePtr make_set_node(NodePtr whole, std::shared_ptr<const TrainingPlan> plan, size_t set) {
  return make_autograd_node<SetNode>(std::move(whole), std::move(plan), set);
}

OutputNode::~OutputNode() { whole().forget(this); }

void OutputNode::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!std::exchange(released_, true)) whole().release_output();
}

variable_list OutputNode::hand_on(const variable_list& gradients) const {
  variable_list results(num_outputs());
  for (size_t e = 0; e < along_.size(); ++e) results[e] = gradients[along_[e]];
  return results;
}

variable_list OutputNode::apply(variable_list&& gradients) {
  variable_list results = hand_on(gradients);
  const std::vector<size_t>& computed_from = plan_->joint.computed_from[tangents_[0]];
  if (plan_->sets.size() < 2 && plan_->joint.stops.empty()) return results;
  if (!computed_from.empty()) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t k = 0; k < tangents_.size(); ++k)
      if (released_ && gradients[k].defined()) whole().check_output_again(tangents_[k]);
  }
  const variable_list at_stops = whole().arrive(tangents_, gradients);
  for (size_t e = 0; e < computed_from.size(); ++e) results[along_.size() + e] = at_stops[computed_from[e]];
  return results;
}

void SetNode::will_release_variables() {
  running_last = this;
  is_last_run_ = true;
}

// Also called for a node that ends, while another set of the same backward may still be asked.
void SetNode::release_variables() {
  if (is_last_run_.exchange(false)) whole().release_variables();
}

variable_list SetNode::apply(variable_list&& tangents) {
  const bool last = std::exchange(running_last, nullptr) == this;
  return whole().give(set_, std::move(tangents), last);
}

}  // namespace magneto::aten
