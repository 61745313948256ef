// aten/backward_node_internal.h: the node that stands for a whole program in torch's autograd graph.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstring>
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
#include "aten/history.h"
#include "aten/passed_internal.h"
#include "aten/training.h"
#include "autograd/partition.h"

namespace magneto::aten {

/// Nodes that others own. One that ends takes itself out of the list. It ends wherever its last holder does: the lock
/// is the list's own, and the thread that has it may end nodes.
class Nodes {
 public:
  void push_back(const torch::autograd::Node* node) { nodes_.push_back(node); }
  size_t size() const { return nodes_.size(); }
  bool empty() const { return nodes_.empty(); }
  /// nullptr: it is no more.
  const torch::autograd::Node* operator[](size_t k) const {
    const auto held = hold();
    return nodes_[k];
  }
  void forget(const torch::autograd::Node* node) {
    const auto held = hold();
    std::replace(nodes_.begin(), nodes_.end(), node, static_cast<const torch::autograd::Node*>(nullptr));
  }
  /// None ends in another thread meanwhile.
  std::unique_lock<std::recursive_mutex> hold() const { return std::unique_lock(mutex_); }

 private:
  mutable std::recursive_mutex mutex_;
  std::vector<const torch::autograd::Node*> nodes_;
};

/// A backward that is ready to run: for all gradients through all tangents, or for some.
struct Backward {
  std::shared_ptr<Executable> run;                ///< nullptr: there is none for this choice
  std::vector<bool> reads;                        ///< of each saved value: it is an input
  std::vector<size_t> tangents;                   ///< the inputs after the saved values
  std::vector<std::vector<bool>> reached_by;      ///< Joint::reached_by
  std::vector<Passed> passed = {};                ///< gradients that are tangents, or views of them
  SharedGradients shared = {};                    ///< gradients in one memory
  std::string reason = {};                        ///< why there is none
  std::vector<types::Condition> conditions = {};  ///< for sizes that these hold for; those of the forward hold anyway
  bool is_for(std::span<const int64_t> symbols) const {
    const auto holds = [&](const types::Condition& one) { return one.holds(symbols); };
    return run && std::all_of(conditions.begin(), conditions.end(), holds);
  }
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
  std::vector<size_t> wanted;               ///< inputs that the engine comes to, in the order of the node's edges
  std::vector<types::TensorType> tangents;  ///< types of the tangents
  std::vector<uint32_t> versions;           ///< of each value of the program's graph: how often it is written to
  std::vector<size_t>
      counted;  ///< inputs whose version eager counts: stored to, or looked at otherwise by t_() of a view
  std::vector<c10::Device> random_on;      ///< devices whose generators the program draws from
  std::vector<size_t> beside;              ///< outputs that stand beside the way of a gradient (Joint::beside)
  std::vector<size_t> written_views;       ///< outputs that are views of a differentiable root that was written to
  std::vector<graph::ValueId> made_again;  ///< of the program: its differentiable roots, what is beside, written views
  std::vector<at::Tensor> examples;        ///< inputs without data
  TrainingFacts facts;
  CompileGraph compile;

  /// Inputs that are reached with the same tangents. Where the outputs have nodes of their own, each set has one, too:
  /// the engine comes to an input exactly where it does in eager.
  struct Set {
    std::vector<size_t> tangents;
    std::vector<size_t> gives;  ///< among `wanted`
  };
  std::vector<Set> sets;
  /// Of each tangent: all stops that its root was computed from, also by way of others.
  std::vector<std::vector<bool>> reaches;
  std::vector<std::vector<size_t>> before;  ///< of each stop: the tangents whose gradients come to it directly

  /// The backward through these tangents, for these gradients. Made when it is first asked for. `exactly`: one that
  /// reads nothing else, else one that gives more will do. nullptr: torch's own formulas are to be asked.
  const Backward* backward(const std::vector<bool>& through, const std::vector<bool>& gives,
                           std::span<const int64_t> symbols, bool exactly) const;
  /// Throws what eager's backward would throw.
  void check(const Since& since) const;
  const Backward& full() const;
  bool is_full(const Backward* backward) const { return backward == &full_; }
  /// What is known of it without computing anything; `run` comes when it is first asked for.
  void set_full(Backward full, std::vector<at::Tensor> constants);

  /// A backward where somebody looks at some stops (JointOf::blocked).
  struct Part {
    std::vector<bool> looked, through;
    std::vector<bool> stops;  ///< whose gradients are wanted, after those of the inputs; as far as they are known here
    bool inputs = false;      ///< their gradients are wanted
    friend auto operator<=>(const Part&, const Part&) = default;
  };
  const Backward& part(const Part& part) const;

  /// What is there of a call for a backward that is to be differentiated.
  struct There {
    std::vector<bool> looked, through;  ///< stops that somebody looks at, tangents that came
    std::vector<bool> inputs, stops;    ///< those that are what they were
    std::vector<bool> gives;            ///< of each input: whether its gradient is asked for; empty: all are
    friend auto operator<=>(const There&, const There&) = default;
  };
  /// The program from the inputs and from the stops that are looked at, which are further inputs, to its differentiable
  /// roots. In the place of what is not there stand tensors without numbers: eager does not have them either, but what
  /// its operators saved, and so do we.
  struct Again {
    std::unique_ptr<Program> program;  ///< its last inputs: those of `known` that are for tensors in the middle
    Backward known;                    ///< numbers, from what was saved; `run` is nullptr where none are needed
    /// Of each of these: which input of the program (stops are counted after them) they are; kNone: further ones.
    std::vector<size_t> into;
    /// The last outputs: tensors with other numbers than they had. No gradient that is asked for depends on them, but
    /// that of a gradient may.
    size_t spoilt = 0;
    std::vector<bool> lacks;  ///< inputs, then stops: those whose numbers would be needed
    std::string reason;       ///< not empty: there is none
  };
  const Again& again(const There& there) const;

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
  mutable std::map<There, Again> again_;
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
    /// Two tensors with the same one count together. torch shows no pointer; a counter is nothing else.
    const void* identity() const {
      static_assert(sizeof(counter) == sizeof(void*));
      const void* pointer = nullptr;
      std::memcpy(&pointer, &counter, sizeof(pointer));
      return pointer;
    }
    c10::VariableVersion counter;
    uint32_t version;
  };
  c10::SmallVector<Watched, 8> watched;
  std::vector<uint32_t> shares;              ///< as in Since
  std::vector<Original> originals;           ///< the inputs, for a backward that is to be differentiated
  std::vector<at::Tensor> generator_states;  ///< of plan.random_on, before the forward

  struct Stop {
    Original original;
    /// Its own node and those below, to that of its root: alive as long as the node of an output that was computed from
    /// it.
    std::vector<torch::autograd::Node*> nodes;
    uint32_t input_nr = 0;  ///< of its own node
  };
  std::vector<Stop> stops;
  /// Where the outputs have nodes of their own: that of each tangent, and that of each set. This one is no part of the
  /// graph then, they share it.
  Nodes outputs, sets;

  /// An edge of the node of that tangent to an output that stands beside its way.
  struct Beside {
    size_t tangent = 0, output = 0, edge = 0;
  };
  std::vector<Beside> beside;
  std::vector<Original> written_views;  ///< those of the plan

  /// What was saved, in the order of the plan. Inputs and outputs as autograd keeps them, others as they are.
  struct Kept {
    torch::autograd::SavedVariable variable;
    at::Tensor tensor;
    bool is_variable = false, is_output = false, is_gone = false;
    std::vector<bool> spent;  ///< tangents through which a backward read it for the last time

    Kept let_go();
  };
  std::vector<Kept> kept;

  // For compiled autograd (parcel.cpp).
  static constexpr size_t kNoSet = static_cast<size_t>(-1);
  at::Tensor make_parcel(size_t set = kNoSet);
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& tangents,
                                                  torch::autograd::SwapSavedVariables& saved) override;
  torch::autograd::variable_list run_once(torch::autograd::variable_list tangents);
  bool is_any_looked_at() const;

  // For the nodes of outputs.
  /// The gradients of these roots came, which one operator made. Gives those of the stops, where somebody looks and
  /// nothing more can come to them.
  torch::autograd::variable_list arrive(const std::vector<size_t>& tangents,
                                        const torch::autograd::variable_list& gradients);
  /// Throws what eager throws when a backward runs a second time, where that of this root alone needs anything.
  void check_output_again(size_t tangent) const;
  void release_output();
  /// A node of an output or of a set ends.
  void forget(const torch::autograd::Node* node);
  /// After the inputs that the program writes to were counted: an input that counts with one of them counted, too.
  void find_shared_counters();
  // For the nodes of sets.
  /// The gradients of a set, with its tangents. `last`: nobody will ask again.
  torch::autograd::variable_list give(size_t set, torch::autograd::variable_list tangents, bool last);

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

 private:
  /// What is known of one run of the engine.
  struct Look {
    std::vector<bool> looked, arrived;  ///< of stops, of tangents
    torch::autograd::variable_list tangents;
    std::vector<const c10::TensorImpl*> came;  ///< which tensors they were
    std::vector<bool> served;                  ///< of sets
    bool is_computed = false;                  ///< for all sets that wait
    torch::autograd::variable_list gradients;  ///< then
  };
  Look& look();
  bool is_all_here(const Look& look) const;
  bool is_done(const Look& look) const;
  /// Of the inputs that are wanted and given.
  torch::autograd::variable_list gradients(std::vector<bool> looked, torch::autograd::variable_list tangents,
                                           const std::vector<bool>& gives, bool last);
  torch::autograd::variable_list run(const Backward& backward, std::vector<at::Tensor> inputs,
                                     torch::autograd::variable_list tangents);
  TrainingPlan::There there(const std::vector<bool>& looked, const torch::autograd::variable_list& tangents,
                            const std::vector<bool>& gives = {}) const;
  bool is_stored(size_t input) const;
  bool may_be_leaf(size_t gradient) const;
  /// Only torch's own formulas give the gradients that are asked for.
  bool must_repeat(const std::vector<bool>& looked, const torch::autograd::variable_list& tangents) const;
  torch::autograd::variable_list repeat(const std::vector<bool>& looked, const torch::autograd::variable_list& tangents,
                                        const std::vector<bool>& gives);
  void lead_to_roots(const torch::autograd::variable_list& results, const Tensors& again,
                     const std::vector<NodePtr>& there_before);
  Since::Walk walk(const std::vector<bool>& through, const std::vector<bool>& gives) const;
  void note(const Since::Walk& walk, const Backward* backward);
  void forget_run();
  /// What was changed since the forward, or let go; nothing in nearly all calls.
  std::optional<Since> changes(const std::vector<bool>& through, const std::vector<bool>& gives);
  bool is_looked_at(size_t stop) const;
  static bool is_awaited(const torch::autograd::Node* node);
  void check_originals() const;
  bool is_as_it_was(const Original& of) const;
  at::Tensor original(const Original& of, const std::string& name) const;
  at::Tensor view_again(const at::Tensor& root, graph::ValueId of, graph::ValueId view,
                        const torch::autograd::Edge& edge) const;
  std::vector<at::Tensor> take_inputs(const Backward& backward, bool last, std::vector<Kept>& gone);
  std::vector<at::Tensor> saved_for(const Backward& backward);  ///< the same, and all of it stays
  bool may_be_read(const Backward& known);                      ///< nothing that it reads was written to
  void check_again(const Backward& backward, const std::vector<bool>& through) const;
  bool is_over(size_t saved) const;
  at::Tensor laid_out(const at::Tensor& tangent, const types::TensorType& type) const;

  const std::shared_ptr<const TrainingPlan> plan_;
  mutable at::Tensor parcel_;  ///< of a backward that compiled autograd prepares
  size_t only_set_ = kNoSet;   ///< of a twin
  // Guarded by mutex_. Of the last run of the engine, until it lets go what it read:
  int ran_in_ = -1;
  std::vector<bool> used_;          ///< saved values that were read
  bool used_full_ = false;          ///< by the whole backward
  std::vector<bool> through_;       ///< tangents that came; empty: no backward of ours ran
  std::optional<Since::Walk> ran_;  ///< where it went
  bool is_waited_for_ = false;      ///< other sets will ask
  std::set<Since::Walk> over_;      ///< runs that let go what they read
  std::map<int, Look> looks_;       ///< of each run of the engine that has not come to the last node yet
  size_t released_outputs_ = 0;
};

NodePtr make_backward_node(std::shared_ptr<const TrainingPlan> plan, MagnetoBackward** node);

}  // namespace magneto::aten
