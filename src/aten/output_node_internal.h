// aten/output_node_internal.h: the node of one output, where outputs were computed from other outputs.
//
// A user of eager can see the whole gradient of such an output (a stop, joint.h), also what comes to it through the
// others: by hooks, by retain_grad, by autograd.grad(out, h). So each root has a node with eager's edges:
//
//     h = tanh(x)                out's node ------> h's node
//     out = sin(h)                    \               |
//                                      `-> MagnetoBackward -> x
//
// Each hands the gradient that came to it to MagnetoBackward, which is the last and runs the one backward of the
// program. As long as nobody looks at a stop, that is all: between the nodes, nothing goes along the edges. Where
// somebody looks at h, the last node before h runs as much of the backward as it takes to tell what comes to h from
// the others. That goes along the edge, through hooks and into whatever captures it, and what h's node then gets is the
// whole gradient of h: MagnetoBackward goes on from there.
#pragma once
#include <memory>

#include "aten/backward_node_internal.h"

namespace magneto::aten {

class OutputNode final : public torch::autograd::Node {
 public:
  /// Its first edge is that of MagnetoBackward for this tangent, the others are those of the stops directly behind.
  OutputNode(std::shared_ptr<const TrainingPlan> plan, size_t tangent) : plan_(std::move(plan)), tangent_(tangent) {}
  ~OutputNode() override;

  std::string name() const override { return "MagnetoBackward"; }
  void release_variables() override;
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& gradients,
                                                  torch::autograd::SwapSavedVariables& saved) override;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  MagnetoBackward& whole() const { return static_cast<MagnetoBackward&>(*next_edge(0).function); }

  const std::shared_ptr<const TrainingPlan> plan_;
  const size_t tangent_;
  bool released_ = false;  ///< guarded by mutex_
};

NodePtr make_output_node(std::shared_ptr<const TrainingPlan> plan, size_t tangent);

}  // namespace magneto::aten
