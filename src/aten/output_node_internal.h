// aten/output_node_internal.h: where there are several outputs, the nodes around MagnetoBackward that give eager's
// edges.
//
// A user of eager sees which nodes the engine comes to: hooks of those are called, and no others. And one sees the
// whole gradient of an output that others were computed from (a stop, joint.h): by hooks, by retain_grad, by
// autograd.grad(out, h). So the roots that one operator made have a node, and each set of inputs that are reached from
// the same roots has one:
//
//     h = tanh(x)                out's node ------> h's node
//     out = sin(h) * w             |    \             |
//                                  |     `--------> node of {x}
//                                  `--------------> node of {w}
//
// An output's node hands the gradients that came to it to the nodes of sets. The first of these that runs once all have
// come runs the one backward of the program, for all of them. As long as nobody looks at a stop, that is all: between
// the nodes of outputs, nothing goes along the edges. Where somebody looks at h, the last node before h runs as much of
// the backward as it takes to tell what comes to h from the others. That goes along the edge, through hooks and into
// whatever captures it, and what h's node then gets is the whole gradient of h: the backward goes on from there.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "aten/backward_node_internal.h"

namespace magneto::aten {

class OutputNode final : public torch::autograd::Node {
 public:
  /// `along` says for each of its first edges which of the tangents goes there, to the nodes of sets. The other edges
  /// are those of the stops that it was computed from directly.
  OutputNode(NodePtr whole, std::shared_ptr<const TrainingPlan> plan, std::vector<size_t> tangents,
             std::vector<size_t> along)
      : whole_(std::move(whole)), plan_(std::move(plan)), tangents_(std::move(tangents)), along_(std::move(along)) {}
  ~OutputNode() override;

  std::string name() const override { return "MagnetoBackward"; }
  void release_variables() override;
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& gradients,
                                                  torch::autograd::SwapSavedVariables& saved) override;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  MagnetoBackward& whole() const { return static_cast<MagnetoBackward&>(*whole_); }
  torch::autograd::variable_list hand_on(const torch::autograd::variable_list& gradients) const;

  const NodePtr whole_;
  const std::shared_ptr<const TrainingPlan> plan_;
  const std::vector<size_t> tangents_, along_;
  bool released_ = false;  ///< guarded by mutex_
};

class SetNode final : public torch::autograd::Node {
 public:
  SetNode(NodePtr whole, std::shared_ptr<const TrainingPlan> plan, size_t set)
      : whole_(std::move(whole)), plan_(std::move(plan)), set_(set) {}
  ~SetNode() override { whole().forget(this); }

  std::string name() const override { return "MagnetoBackward"; }
  void will_release_variables() override;
  void release_variables() override;
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& tangents,
                                                  torch::autograd::SwapSavedVariables& saved) override;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

 private:
  MagnetoBackward& whole() const { return static_cast<MagnetoBackward&>(*whole_); }

  const NodePtr whole_;
  const std::shared_ptr<const TrainingPlan> plan_;
  const size_t set_;
  std::atomic<bool> is_last_run_ = false;  ///< the engine will let go what was saved
  mutable at::Tensor parcel_;              ///< of a backward that compiled autograd prepares
};

NodePtr make_output_node(NodePtr whole, std::shared_ptr<const TrainingPlan> plan, std::vector<size_t> tangents,
                         std::vector<size_t> along);
NodePtr make_set_node(NodePtr whole, std::shared_ptr<const TrainingPlan> plan, size_t set);

}  // namespace magneto::aten
