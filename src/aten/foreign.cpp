// aten/foreign.cpp
#include "aten/foreign_internal.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "aten/state_internal.h"
#include "base/text.h"

namespace magneto::aten {

using graph::ValueId;
using Stack = torch::jit::Stack;

namespace {

// What a kernel of autograd did to the graph, as seen when it has returned.
class Visit {
 public:
  Visit(Trace::State& state, const Operator& op, Above kernel, const Stack& stack)
      : state_(state), op_(op), kernel_(kernel), grad_(c10::GradMode::is_enabled()) {
    given_.assign(stack.end() - static_cast<ptrdiff_t>(op.arguments.size()), stack.end());
    results_at_ = stack.size() - op.arguments.size();
    Lock lock(state_);
    nodes_ = state_.graph.nodes().size();
    reads_ = state_.data_reads;
  }

  void judge(const Stack& stack) {
    Lock lock(state_);
    const size_t now = state_.graph.nodes().size();
    if (state_.data_reads != reads_ || now < nodes_) return;
    if (now > nodes_ && is_the_operator(state_.graph.nodes()[nodes_], stack)) {
      state_.graph.node(graph::NodeId(nodes_)).grad = grad_;
      if (now > nodes_ + 1) {  // what it saved for its gradient: who calls the operator computes that again
        state_.run_recorded();
        state_.forget_nodes(nodes_ + 1);
      }
      return;
    }
    if (kernel_ == Above::kPython) return leave("its kernel is Python code that does more than to call the operator");
    if (!grad_ || !wants_gradient(stack)) return;
    for (size_t n = nodes_; n < now; ++n)
      if (!state_.graph.nodes()[n].grad)
        return leave("it has a gradient of its own, which no graph of operators tells");
    if (now == nodes_) leave("its result has a history that nobody saw");
  }

 private:
  void leave(const char* reason) { state_.note_data_read(base::concat(op_.name, ": ", reason), reason); }

  bool wants_gradient(const Stack& stack) const {
    bool any = false;
    for (size_t r = results_at_; r < stack.size(); ++r)
      each_tensor(stack[r], [&](const at::Tensor& tensor, int) { any = any || tensor.requires_grad(); });
    return any;
  }

  bool is_value(const at::Tensor& tensor, ValueId id) const {
    if (!tensor.defined()) return !id.valid();
    const auto value = state_.find(tensor);
    return value && *value == id;
  }

  bool is_argument(const c10::IValue& given, const graph::Arg& arg, ArgKind kind) const {
    if (const auto* id = std::get_if<ValueId>(&arg); id && given.isTensor()) return is_value(given.toTensor(), *id);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      if (!given.isList() || given.toListRef().size() != list->size()) return false;
      for (size_t i = 0; i < list->size(); ++i) {
        const c10::IValue item = given.toListRef()[i];
        if (!is_value(item.isTensor() ? item.toTensor() : at::Tensor(), (*list)[i])) return false;
      }
      return true;
    }
    if (given.isNone()) return std::holds_alternative<std::monostate>(arg);
    if (given.isTensor()) return is_wrapped_number(given.toTensor()) && number_of(given.toTensor()) == arg;
    const auto same = to_arg(given, kind);
    return same && *same == arg;
  }

  bool is_the_operator(const graph::Node& node, const Stack& stack) const {
    if (node.op != op_.name || node.args.size() != given_.size()) return false;
    for (size_t a = 0; a < given_.size(); ++a)
      if (!is_argument(given_[a], node.args[a], op_.arguments[a])) return false;
    size_t output = 0;
    bool same = true;
    for (size_t r = results_at_; r < stack.size(); ++r)
      each_tensor(stack[r], [&](const at::Tensor& tensor, int) {
        same = same && output < node.outputs.size() && is_value(tensor, node.outputs[output]);
        ++output;
      });
    return same && output == node.outputs.size();
  }

  Trace::State& state_;
  const Operator& op_;
  const Above kernel_;
  const bool grad_;
  Stack given_;
  size_t results_at_ = 0, nodes_ = 0;
  uint64_t reads_ = 0;
};

// An operator of another library, before any kernel of it has run.
void on_foreign_operator(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kForeignKey);
  const c10::DispatchKey next = below.highestPriorityTypeId();
  std::shared_ptr<Trace::State> keep;
  Trace::State* state = nullptr;
  // Another one (autocast, vmap) calls the operator again when it has done its work.
  if (c10::isIncludedInAlias(next, c10::DispatchKey::Autograd) &&
      !c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python))
    state = entered_state(keep);
  const Operator* op = state ? &operator_of(handle) : nullptr;
  const Above kernel = op ? above(*op, next) : Above::kNobody;
  if (kernel <= Above::kTorch) return handle.redispatchBoxed(below, stack);
  if (state->repeats_autograd) {
    // The joint graph: Python code is not run on tensors without data. Where it would give a gradient, there is no
    // joint graph (joint.cpp).
    if (kernel == Above::kPython)
      return handle.redispatchBoxed(below - c10::autograd_dispatch_keyset_with_ADInplaceOrView, stack);
    return handle.redispatchBoxed(below, stack);
  }
  Visit visit(*state, *op, kernel, *stack);
  handle.redispatchBoxed(below, stack);
  visit.judge(*stack);
}

// The names of operators that were defined, in any thread, and not met yet.
struct Newcomers final : c10::OpRegistrationListener {
  void onOperatorRegistered(const c10::OperatorHandle& op) override {
    if (op.operator_name().name.starts_with("aten::") || op.operator_name().name.starts_with("magneto::")) return;
    const std::lock_guard<std::mutex> lock(mutex);
    names.push_back(op.operator_name());
    any = true;
  }
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}

  std::mutex mutex;
  std::vector<c10::OperatorName> names;
  std::atomic<bool> any{false};
};

}  // namespace

void meet_foreign_operators() {
  // Operators stay ours for good: one that is defined again has our kernel already.
  static auto* const newcomers = [] {
    auto listener = std::make_unique<Newcomers>();
    Newcomers* const made = listener.get();
    new auto(c10::Dispatcher::singleton().addRegistrationListener(std::move(listener)));
    return made;
  }();
  static auto* const met = new std::unordered_set<c10::OperatorName>;
  static auto* const registrations = new std::vector<c10::RegistrationHandleRAII>;
  static std::mutex mutex;
  if (!newcomers->any) return;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<c10::OperatorName> names;
  {
    const std::lock_guard<std::mutex> taking(newcomers->mutex);
    names.swap(newcomers->names);
    newcomers->any = false;
  }
  for (c10::OperatorName& name : names)
    if (met->insert(name).second)
      registrations->push_back(c10::Dispatcher::singleton().registerImpl(
          std::move(name), kForeignKey, c10::KernelFunction::makeFromBoxedFunction<&on_foreign_operator>(),
          std::nullopt, nullptr, "magneto"));
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace magneto::aten
