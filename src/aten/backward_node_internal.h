// aten/backward_node_internal.h: the one node that stands for a whole program in torch's autograd graph.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "aten/halves_internal.h"
#include "aten/training.h"
#include "autograd/partition.h"

namespace magneto::aten {

using NodePtr = decltype(torch::autograd::Edge::function);

/// A backward that is ready to run: for all gradients through all tangents, or for some.
struct Backward {
  std::shared_ptr<Executable> run;  ///< nullptr: there is none for this choice
  std::vector<bool> reads;          ///< of each saved value: it is an input
  std::vector<size_t> tangents;     ///< the inputs behind the saved values
  std::vector<std::vector<bool>> depends;
  std::vector<bool> gives;  ///< of each gradient
};

/// Everything about the training of one program that does not change from call to call.
class TrainingPlan {
 public:
  std::shared_ptr<Program> program;
  std::shared_ptr<Executable> forward;
  FunctionalJoint joint;
  std::vector<autograd::Saved> saved;
  std::vector<bool> traced_grad;            ///< of each input: it needed a gradient
  std::vector<size_t> wanted;               ///< inputs with a gradient, in the order of the node's edges
  std::vector<types::TensorType> tangents;  ///< types of the tangents
  std::vector<uint32_t> versions;           ///< of each value of the program's graph: how often it is written to
  std::vector<c10::Device> random_on;       ///< devices whose generators the program draws from
  std::unique_ptr<Program> roots_again;     ///< the program with its differentiable roots as outputs
  std::vector<at::Tensor> examples;         ///< inputs without data
  TrainingFacts facts;
  CompileGraph compile;

  /// The backward through these tangents, for these gradients. Made when it is first asked for.
  const Backward& backward(const std::vector<bool>& through, const std::vector<bool>& gives) const;
  void set_full(Backward full) { full_ = std::move(full); }
  const Backward& full() const { return full_; }

 private:
  Backward make_backward(const std::vector<bool>& through, const std::vector<bool>& gives) const;
  struct Other {
    Backward backward;
    bool is_made = false;
    size_t asked = 0;
  };
  Backward full_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::vector<bool>, std::vector<bool>>, Other> others_;  ///< never moves, never shrinks
};

class MagnetoBackward : public torch::autograd::Node {
 public:
  explicit MagnetoBackward(std::shared_ptr<const TrainingPlan> plan) : plan_(std::move(plan)) {}

  std::string name() const override { return "MagnetoBackward"; }
  void will_release_variables() override;
  void release_variables() override;

  /// What the backward may need of a call.
  struct Original {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    uint32_t version = 0;
  };
  std::vector<int64_t> symbols;
  std::vector<Original> originals;           ///< the inputs, for a backward that is to be differentiated
  std::vector<at::Tensor> generator_states;  ///< of plan.random_on, before the forward

  /// What was saved, in the order of the plan. Inputs and outputs as autograd keeps them, others as they are.
  struct Kept {
    torch::autograd::SavedVariable variable;
    at::Tensor tensor;
    bool is_variable = false, is_output = false, is_gone = false;
  };
  std::vector<Kept> kept;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

 private:
  torch::autograd::variable_list apply_again(const torch::autograd::variable_list& tangents);
  std::vector<at::Tensor> take_inputs(const Backward& backward, bool last);
  at::Tensor laid_out(const at::Tensor& tangent, const types::TensorType& type) const;

  const std::shared_ptr<const TrainingPlan> plan_;
  const Backward* used_ = nullptr;  ///< by the last run; guarded by mutex_
};

NodePtr make_backward_node(std::shared_ptr<const TrainingPlan> plan, MagnetoBackward** node);

/// The states of the generators of these devices; undefined where they cannot be had.
std::vector<at::Tensor> generator_states(const std::vector<c10::Device>& devices);

}  // namespace magneto::aten
