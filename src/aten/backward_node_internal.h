// aten/backward_node_internal.h: the node that stands for a whole program in torch's autograd graph.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "aten/generators_internal.h"
#include "aten/halves_internal.h"
#include "aten/training.h"
#include "autograd/partition.h"

namespace magneto::aten {

using NodePtr = decltype(torch::autograd::Edge::function);

/// A backward that is ready to run: for all gradients through all tangents, or for some.
struct Backward {
  std::shared_ptr<Executable> run;            ///< nullptr: there is none for this choice
  std::vector<bool> reads;                    ///< of each saved value: it is an input
  std::vector<size_t> tangents;               ///< the inputs behind the saved values
  std::vector<std::vector<bool>> reached_by;  ///< Joint::reached_by
  std::string reason = {};                    ///< why there is none
};

/// Everything about the training of one program that does not change from call to call.
class TrainingPlan {
 public:
  std::shared_ptr<Program> program;
  std::shared_ptr<Executable> forward;
  FunctionalJoint joint;
  std::vector<autograd::Saved> saved;
  std::vector<std::vector<std::vector<bool>>> readers;  ///< of saved values: Partition::readers
  std::vector<bool> traced_grad;                        ///< of each input: it needed a gradient
  std::vector<size_t> wanted;                           ///< inputs with a gradient, in the order of the node's edges
  std::vector<size_t> not_by_all;           ///< where there are stops: those that some tangents give no gradient
  std::vector<types::TensorType> tangents;  ///< types of the tangents
  std::vector<uint32_t> versions;           ///< of each value of the program's graph: how often it is written to
  std::vector<size_t>
      counted;  ///< inputs whose version eager counts: stored to, or looked at otherwise by t_() of a view
  std::vector<c10::Device> random_on;    ///< devices whose generators the program draws from
  std::unique_ptr<Program> roots_again;  ///< the program with its differentiable roots as outputs
  std::vector<at::Tensor> examples;      ///< inputs without data
  TrainingFacts facts;
  CompileGraph compile;

  /// Of each tangent: all stops that its root was computed from, also by way of others.
  std::vector<std::vector<bool>> reaches;
  std::vector<std::vector<size_t>> before;  ///< of each stop: the tangents that have it directly behind them

  /// The backward through these tangents, for these gradients. Made when it is first asked for. `exactly`: one that
  /// reads nothing else, else one that gives more will do.
  const Backward& backward(const std::vector<bool>& through, const std::vector<bool>& gives, bool exactly) const;
  /// Throws what eager's backward would throw.
  void check(const Since& since) const;
  /// The inputs that the roots of these tangents were computed from.
  std::vector<bool> needed(const torch::autograd::variable_list& tangents) const;
  const Backward& full() const;
  bool is_full(const Backward* backward) const { return backward == &full_; }
  /// What is known of it without computing anything; `run` comes when it is first asked for.
  void set_full(Backward full, std::vector<at::Tensor> constants);

  /// A backward where somebody looks at some stops (JointOf::blocked).
  struct Part {
    std::vector<bool> looked, through;
    std::vector<bool> stops;  ///< whose gradients are wanted, behind those of the inputs; as far as they are known here
    bool inputs = false;      ///< their gradients are wanted
    friend auto operator<=>(const Part&, const Part&) = default;
  };
  const Backward& part(const Part& part) const;
  /// The program from the inputs and from these stops, which are further inputs, to its differentiable roots.
  const Program& again(const std::vector<bool>& looked) const;

 private:
  Backward make_backward(const JointOf& asked, const std::vector<bool>& gives) const;
  struct Other {
    Backward backward;
    bool is_made = false;
    size_t asked = 0;
  };
  mutable Backward full_;
  std::vector<at::Tensor> full_constants_;
  mutable std::once_flag full_made_;
  mutable std::mutex mutex_;
  // These never move and never shrink.
  mutable std::map<std::pair<std::vector<bool>, std::vector<bool>>, Other> others_;
  mutable std::map<Part, Backward> parts_;
  mutable std::map<std::vector<bool>, std::unique_ptr<Program>> again_;
  mutable std::set<std::vector<bool>> harmless_;  ///< changes that eager does not mind
};

class MagnetoBackward : public torch::autograd::Node {
 public:
  explicit MagnetoBackward(std::shared_ptr<const TrainingPlan> plan) : plan_(std::move(plan)) {}

  std::string name() const override { return "MagnetoBackward"; }
  void will_release_variables() override;
  void release_variables() override;

  /// What the backward may need of a call.
  struct Original {
    explicit Original(const at::Tensor& of)
        : tensor(of.getIntrusivePtr()), version(of.is_inference() ? 0 : static_cast<uint32_t>(of._version())) {}
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    uint32_t version = 0;
  };
  std::vector<int64_t> symbols;
  /// The inputs, then the roots: whose memory the caller has, and may change before the backward.
  struct Watched {
    explicit Watched(const at::Tensor& of)
        : counter(torch::autograd::impl::version_counter(of)),
          version(counter.enabled() ? counter.current_version() : 0) {}
    uint32_t since() const { return counter.enabled() ? counter.current_version() - version : 0; }
    c10::VariableVersion counter;
    uint32_t version;
  };
  c10::SmallVector<Watched, 8> watched;
  std::vector<Original> originals;           ///< the inputs, for a backward that is to be differentiated
  std::vector<at::Tensor> generator_states;  ///< of plan.random_on, before the forward

  struct Stop {
    Original original;
    /// Its own node and those below, to that of its root: alive as long as the node of an output that has it behind.
    std::vector<torch::autograd::Node*> nodes;
  };
  std::vector<Stop> stops;
  std::vector<const torch::autograd::Node*> outputs;  ///< the node of each tangent, where there are stops

  /// What was saved, in the order of the plan. Inputs and outputs as autograd keeps them, others as they are.
  struct Kept {
    torch::autograd::SavedVariable variable;
    at::Tensor tensor;
    bool is_variable = false, is_output = false, is_gone = false;
    std::vector<bool> spent;  ///< tangents through which a backward read it for the last time
  };
  std::vector<Kept> kept;

  // For compiled autograd (parcel.cpp).
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& tangents,
                                                  torch::autograd::SwapSavedVariables& saved) override;
  torch::autograd::variable_list run_once(torch::autograd::variable_list tangents);
  bool is_any_looked_at() const;

  // For the nodes of outputs.
  /// The gradient of this root came. Gives those of the stops, where somebody looks and nothing more can come to them.
  torch::autograd::variable_list arrive(size_t tangent, const at::Tensor& gradient);
  /// Throws what eager throws when a backward runs a second time, where that of this root alone needs anything.
  void check_output_again(size_t tangent) const;
  void release_output();
  void forget_output(size_t tangent);

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

 private:
  /// What is known of one run of the engine.
  struct Look {
    std::vector<bool> looked, arrived;
    torch::autograd::variable_list tangents;
  };
  torch::autograd::variable_list run(const Backward& backward, torch::autograd::variable_list tangents, bool last);
  torch::autograd::variable_list repeat(const std::vector<bool>& looked,
                                        const torch::autograd::variable_list& tangents);
  Since::Walk walk(const std::vector<bool>& through, const std::vector<bool>& gives) const;
  /// What was changed since the forward, or let go; nothing in nearly all calls.
  std::optional<Since> changes(const std::vector<bool>& through, const std::vector<bool>& gives);
  bool is_looked_at(size_t stop) const;
  bool is_awaited(size_t tangent) const;
  void check_originals() const;
  bool is_as_it_was(const Original& of) const;
  at::Tensor original(const Original& of, const std::string& name) const;
  std::vector<at::Tensor> take_inputs(const Backward& backward, bool last);
  void check_again(const Backward& backward, const std::vector<bool>& through) const;
  bool is_over(size_t saved) const;
  at::Tensor laid_out(const at::Tensor& tangent, const types::TensorType& type) const;

  at::Tensor make_parcel();

  const std::shared_ptr<const TrainingPlan> plan_;
  mutable at::Tensor parcel_;  ///< of a backward that compiled autograd prepares
  // Guarded by mutex_.
  const Backward* used_ = nullptr;  ///< by the last run
  std::vector<bool> through_;       ///< in the last run
  std::optional<Since::Walk> ran_;  ///< the last run, until it lets go what it read
  std::set<Since::Walk> over_;      ///< those that did
  std::map<int, Look> looks_;       ///< of each run of the engine that has not come to this node yet
  size_t released_outputs_ = 0;
};

NodePtr make_backward_node(std::shared_ptr<const TrainingPlan> plan, MagnetoBackward** node);

}  // namespace magneto::aten
