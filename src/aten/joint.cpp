// aten/joint.cpp
#include "aten/joint.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "aten/boxed_internal.h"
#include "aten/custom_function_internal.h"
#include "aten/data_of.h"
#include "aten/operators_internal.h"
#include "aten/program.h"
#include "aten/state_internal.h"
#include "aten/symbols.h"
#include "aten/trace.h"
#include "base/text.h"
#include "graph/text.h"
#include "types/overlap.h"

namespace magneto::aten {

using base::concat;
using graph::Graph;
using graph::ValueId;

namespace {

struct Impossible {
  std::string reason;
};
template <class... Pieces>
[[noreturn]] void impossible(const Pieces&... pieces) {
  throw Impossible{concat(pieces...)};
}

// The operators of this thread go to our trace; one that it was in waits meanwhile.
class InTrace {
 public:
  explicit InTrace(Trace& trace) : trace_(trace), before_(current_trace()) {
    if (before_) before_->leave();
    trace_.enter();
  }
  ~InTrace() {
    trace_.leave();
    if (before_) before_->enter();
  }
  InTrace(const InTrace&) = delete;

 private:
  Trace& trace_;
  Trace* const before_;
};

// Nobody packs what autograd saves of tensors without data.
class NoSavedTensorHooks {
 public:
  NoSavedTensorHooks() : before_(at::SavedTensorDefaultHooks::set_tracing(true)) {}
  ~NoSavedTensorHooks() { at::SavedTensorDefaultHooks::set_tracing(before_); }
  NoSavedTensorHooks(const NoSavedTensorHooks&) = delete;

 private:
  const bool before_;
};

// Numbers that are like none that a formula asks for: what holds for them holds for all but a few.
constexpr double kAnyFloat = 0.5772156649015329, kOtherFloat = 0.6434105462883380;
constexpr int64_t kAnyInt = 1009;

// The values of the symbols, from the sizes of the examples. Symbols that are floats are told to `reals`; they and
// numbers that are no sizes may be anything. `used`: the symbols that take part in sizes; others may be 0 and 1, too.
std::vector<int64_t> hints_of(const Program& program, std::span<const at::Tensor> examples, double any_float,
                              std::vector<uint32_t>& reals, std::vector<uint32_t>& used) {
  const Graph& graph = program.graph();
  std::vector<uint32_t> numbers, offsets;
  for (const graph::Value& value : graph.values()) value.type.offset.collect_symbols(offsets);
  for (const graph::Value& value : graph.values())
    for (const auto* list : {&value.type.sizes, &value.type.strides})
      for (const types::Expr& expr : *list) expr.collect_symbols(used);
  for (const graph::Node& node : graph.nodes())
    for (const graph::Arg& arg : node.args) {
      if (const auto* one = std::get_if<types::Expr>(&arg)) one->collect_symbols(numbers);
      if (const auto* real = std::get_if<graph::Real>(&arg)) reals.push_back(real->symbol);
      if (const auto* list = std::get_if<types::Sizes>(&arg))
        for (const types::Expr& expr : *list) expr.collect_symbols(used);
    }
  uint32_t count = 0;
  for (const uint32_t symbol : used) count = std::max(count, symbol + 1);
  for (const auto* list : {&reals, &numbers, &offsets})
    for (const uint32_t symbol : *list) count = std::max(count, symbol + 1);
  std::vector<int64_t> hints(count);
  std::vector<bool> known(count);
  const auto learn = [&](const types::Expr& expr, int64_t value) {
    std::vector<uint32_t> here;
    expr.collect_symbols(here);
    if (here.size() != 1 || !(expr == types::Expr::symbol(here[0]))) return;
    hints.at(here[0]) = value;
    known.at(here[0]) = true;
  };
  for (size_t i = 0; i < examples.size(); ++i) {
    const types::TensorType& type = graph.value(graph.inputs()[i]).type;
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      learn(type.sizes[d], examples[i].size(static_cast<int64_t>(d)));
      learn(type.strides[d], examples[i].stride(static_cast<int64_t>(d)));
    }
    learn(type.offset, examples[i].storage_offset());
  }
  for (const auto* list : {&used, &offsets})
    for (const uint32_t symbol : *list)
      if (!known[symbol] && symbol < program.hints().size()) {  // the caller of the program tells it
        hints[symbol] = program.hints()[symbol];
        known[symbol] = true;
      }
  for (const auto* list : {&used, &offsets})
    for (const uint32_t symbol : *list)
      if (!known[symbol]) impossible("s", symbol, " is a number that no input tells");
  for (const uint32_t symbol : numbers)
    if (!known[symbol]) hints[symbol] = kAnyInt;
  used.insert(used.end(), numbers.begin(), numbers.end());
  for (const uint32_t symbol : reals) hints[symbol] = std::bit_cast<int64_t>(any_float);
  return hints;
}

class Joining {
  /// Whether the inputs tell all of its symbols. The others are numbers that only the caller's guards know.
  bool is_known(const types::Condition& condition) const {
    std::vector<uint32_t> symbols;
    condition.left.collect_symbols(symbols);
    condition.right.collect_symbols(symbols);
    return std::all_of(symbols.begin(), symbols.end(),
                       [&](uint32_t symbol) { return symbol < made_.hints.size() && made_.hints[symbol] > 0; });
  }

 public:
  Joining(const Program& program, std::span<const at::Tensor> examples, double any_float = kAnyFloat)
      : from_(program.graph()), symbols_(std::make_shared<Symbols>()), trace_(symbols_, from_) {
    std::vector<uint32_t> reals, sizes;
    made_.hints = hints_of(program, examples, any_float, reals, sizes);
    const auto contains = [](const std::vector<uint32_t>& list, size_t symbol) {
      return std::find(list.begin(), list.end(), symbol) != list.end();
    };
    for (size_t s = 0; s < made_.hints.size(); ++s) {
      if (contains(reals, s)) {
        symbols_->add_real(any_float);
        continue;
      }
      const types::Expr symbol = symbols_->add(made_.hints[s]);
      if (contains(sizes, s)) symbols_->admit(symbol);
    }
    for (const types::Condition& condition : from_.conditions) {
      if (!is_known(condition)) continue;
      if (!condition.holds(made_.hints)) impossible("numbers for which ", types::to_string(condition));
      symbols_->decide(condition);
    }
    // What formulas count of floats they are lent, before any of them does: each backward of a program has the same
    // symbols.
    for (const graph::Node& node : from_.nodes())
      for (size_t a = 0; a < node.args.size(); ++a)
        if (const auto* real = std::get_if<graph::Real>(&node.args[a]);
            real && operator_named(node.op).arguments[a] == ArgKind::kFloat)
          symbols_->count(*real, {Count::kInverseOfRest});
    made_.hints = symbols_->hints();
    made_.inputs = examples.size();
    made_.input_values = from_.inputs();
    made_.outputs = from_.outputs.size();
    tensors_.resize(from_.values().size());
    made_.joint_values.resize(from_.values().size());
    read_.resize(from_.values().size());
    const auto note = [&](ValueId id) {
      if (id.valid()) read_[id.index()] = true;
    };
    for (const graph::Node& node : from_.nodes()) graph::for_each_read(node, note);
    for (const ValueId output : from_.outputs) note(output);
    for (size_t i = 0; i < examples.size(); ++i) {
      const ValueId id = from_.inputs()[i];
      at::Tensor made = trace_.stand_in(from_.value(id).type, from_.value(id).name);
      if (examples[i].requires_grad()) made.set_requires_grad(true);
      tensors_[id.index()] = inputs_.emplace_back(std::move(made));
    }
    for (size_t c = 0; c < from_.constants().size(); ++c) {
      tensors_[from_.constants()[c].index()] = program.constants()[c];
      trace_.add_constant(program.constants()[c]);
    }
  }

  Joint run(const JointOf& asked) {
    const Recording here(trace_);
    repeat_all(asked.pieces);
    if (asked.pieces) {
      find_cuts();
      return std::move(made_);
    }
    std::vector<at::Tensor> gradients = run_backward(asked);
    finish(gradients);
    return std::move(made_);
  }

  /// Throws what eager's backward throws. `stops`: the plan's. Inputs that count their versions together may have
  /// others here: torch makes the history of a view again where another look at its memory has changed.
  void fail(const Since& since, std::span<const Joint::Stop> stops) {
    namespace autograd = torch::autograd;
    const Recording here(trace_);
    const auto has_own_counter = [&](size_t i) { return since.shares.empty() || since.shares.at(i) == i; };
    for (size_t i = 0; i < inputs_.size(); ++i)
      autograd::impl::set_version_counter(inputs_[i], has_own_counter(i)
                                                          ? c10::VariableVersion(since.began.at(i))
                                                          : autograd::impl::version_counter(inputs_[since.shares[i]]));
    repeat_all(/*pieces=*/false);
    made_.stops.assign(stops.begin(), stops.end());
    for (const Since::Walk& walk : since.earlier)
      if (Work work = start(walk); !work.captures.empty()) execute(work, /*keep_graph=*/false);
    Work work = start(since.now);
    const auto change = [](const at::Tensor& tensor, uint32_t times) {
      for (; times > 0; --times) tensor.unsafeGetTensorImpl()->bump_version();
    };
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (has_own_counter(i)) change(inputs_[i], since.inputs.at(i));
    for (size_t r = 0; r < roots_.size(); ++r)
      if (!outside_[r]) change(roots_[r], since.roots.at(r));
    for (size_t s = 0; s < since.stops.size(); ++s) {
      const at::Tensor& tensor = tensors_[made_.stops.at(s).value.index()];
      if (since.stops[s] && !since.stops[s]->function)
        tensor.detach_();
      else if (since.stops[s])
        autograd::impl::set_gradient_edge(tensor, *since.stops[s]);  // errors say the name of what made it
    }
    if (!work.captures.empty()) execute(work);
  }

 private:
  struct Recording {
    explicit Recording(Trace& trace) : here(trace) {}
    InTrace here;
    NoSavedTensorHooks unpacked;
    c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};  // casts stand in the graph
  };

  void repeat_all(bool pieces) {
    for (size_t n = 0; n < from_.nodes().size(); ++n) {
      trace_.repeat_node(n);
      trace_.set_checkpoint(from_.nodes()[n].checkpoint);
      sequence_numbers_.push_back(at::sequence_number::peek());
      repeat(n, pieces);
      made_.ends.push_back(trace_.graph().nodes().size());
      made_.is_same.push_back(differentiated(from_.nodes()[n]).name == from_.nodes()[n].op);
    }
    trace_.repeat_node(from_.nodes().size());
    trace_.set_checkpoint(0);
    find_roots();
    find_stops();
    find_older();
  }

  // ---- forward -----------------------------------------------------------------------------------------------------

  /// The operator whose gradient can be told: the one that was recorded, or its equal.
  const Operator& differentiated(const graph::Node& node) const {
    const Operator& op = operator_named(node.op);
    if (!op.declared || op.declared->same_as.empty()) return op;
    const std::string name(op.declared->same_as);
    const Operator& equal = operator_named(name);
    for (size_t r = equal.returns; r < node.outputs.size(); ++r)
      if (node.outputs[r].valid() && read_[node.outputs[r].index()]) return op;
    return equal;
  }

  bool writes_to_data(const graph::Node& node, const Operator& op) const {
    for (size_t a = 0; a < node.args.size(); ++a) {
      const auto* into = std::get_if<ValueId>(&node.args[a]);
      if (!op.writes[a] || !into || !into->valid()) continue;
      bool is_data = false;
      root(*into, nullptr, nullptr, nullptr, &is_data);
      if (is_data) return true;
    }
    return false;
  }

  /// Its gradient is Python code, which is not run on tensors without data.
  static bool is_differentiated_in_python(const graph::Node& node, const Operator& op, const torch::jit::Stack& stack) {
    if (!op.is_foreign || !node.grad || !has_python_gradient(above(op))) return false;
    bool any = false;
    for (const c10::IValue& argument : stack)
      each_tensor(argument, [&](const at::Tensor& tensor, int) { any = any || tensor.requires_grad(); });
    return any;
  }

  void repeat(size_t n, bool pieces) {
    const graph::Node& node = from_.nodes()[n];
    const Operator& op = differentiated(node);
    if (const std::string effect = hidden_effect(op); !effect.empty()) impossible(effect);
    if (writes_to_data(node, op)) impossible("x.data is written to: a gradient that needs x has the new numbers");
    torch::jit::Stack stack;
    for (size_t a = 0; a < node.args.size(); ++a)
      stack.push_back(boxed(node.args[a], op.arguments[a], tensors_, *symbols_));
    const bool in_python = is_differentiated_in_python(node, op, stack);
    if (in_python && !pieces) impossible(node.op, Joint::kPythonGradient);
    // Eager makes the history of a view again, of its strides, and that of its root ends here; that of another tensor
    // stays, and is about the shape that it had.
    if (const bool restrides = op.way == Way::kRestride && !node.grad && !stack.empty() && stack[0].isTensor();
        restrides && stack[0].toTensor().requires_grad())
      impossible(node.op, " changes a tensor that needs a gradient, without gradients");
    if (node.op == CustomFunction::kOperator) {
      attach(n, stack, pieces);
    } else {
      c10::AutoGradMode grad_mode(node.grad);
      std::optional<c10::impl::ExcludeDispatchKeyGuard> below_autograd;
      if (op.factory || in_python) below_autograd.emplace(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
      op.handle.callBoxed(stack);
    }
    if (in_python) stand_alone(n, stack);
    size_t output = 0;
    bool has_history = op.writes_anything && op.returns == 0;  // it may
    const auto keep = [&](const at::Tensor& tensor) {
      has_history = has_history || tensor.requires_grad();
      const ValueId id = node.outputs.at(output++);
      if (id.valid() != tensor.defined()) impossible(node.op, " gives other tensors than when it was recorded");
      if (!id.valid()) return;
      if (node.op != op.name && !read_[id.index()]) return;
      tensors_[id.index()] = tensor;
      const auto value = trace_.find(tensor);
      if (!value || !(trace_.graph().value(*value).type == from_.value(id).type))
        impossible(node.op, " gives ",
                   value ? types::to_string(trace_.graph().value(*value).type) : std::string("a foreign tensor"),
                   " instead of ", types::to_string(from_.value(id).type));
      made_.joint_values[id.index()] = *value;
    };
    for (const c10::IValue& result : stack) {
      if (result.isTensor())
        keep(result.toTensor());
      else if (result.isTensorList())
        for (const c10::IValue& item : result.toListRef()) keep(item.toTensor());
    }
    made_.has_history.push_back(has_history);
  }

  /// It reads a result, or a view of one, as that is when the backward runs, whoever has written to it since.
  bool holds_result(const graph::Node& node, const std::vector<bool>& checked) const {
    const auto& results = std::get<std::vector<ValueId>>(node.args[CustomFunction::kResults]);
    const auto& saved = std::get<std::vector<ValueId>>(node.args[CustomFunction::kSaved]);
    for (size_t s = 0; s < saved.size(); ++s)
      for (const ValueId result : results)
        if (!checked.at(s) && memory(saved[s]) == memory(result)) return true;
    return false;
  }

  /// The results of a custom function get its history; a copy does where the function gave a view.
  /// The program made again and the node that the caller has each get a part of what comes to it (backward_node): where
  /// the sum of what it gives for them may be something else than what it gives for the sum, it stays outside.
  void attach(size_t n, torch::jit::Stack& stack, bool pieces) {
    const graph::Node& node = from_.nodes()[n];
    const auto code = std::make_shared<FunctionCode>(node);
    const bool linear = is_linear(code->told().backward, node.outputs.size());
    if (!linear || holds_result(node, code->told().checked)) {
      if (!pieces) impossible(code->told().name, linear ? Joint::kHoldsResult : Joint::kNotLinear);
      made_.cuts.insert(made_.cuts.end(), {n, n + 1});
    }
    const auto list = [&](size_t argument) {
      std::vector<at::Tensor> tensors;
      for (const ValueId id : std::get<std::vector<ValueId>>(node.args[argument]))
        tensors.push_back(tensors_[id.index()]);
      return tensors;
    };
    std::vector<at::Tensor> results = list(CustomFunction::kResults);
    {
      const c10::AutoGradMode no_history(false);
      for (at::Tensor& result : results)
        if (result.is_view()) result = result.clone();
    }
    const c10::AutoGradMode grad_mode(node.grad);
    stack.clear();
    stack.emplace_back(c10::List<at::Tensor>(code->attach(std::move(results), list(CustomFunction::kInputs),
                                                          list(CustomFunction::kSaved),
                                                          code->numbers_of(node, symbols_), /*is_joint=*/true)));
  }

  /// A piece of its own. What comes out may have any history.
  void stand_alone(size_t n, const torch::jit::Stack& results) {
    made_.cuts.insert(made_.cuts.end(), {n, n + 1});
    for (const c10::IValue& result : results)
      each_tensor(result, [&](const at::Tensor& tensor, int) {
        if (tensor.defined() && tensor.is_leaf() && torch::autograd::isDifferentiableType(tensor.scalar_type()))
          tensor.set_requires_grad(true);
      });
  }

  // ---- roots -------------------------------------------------------------------------------------------------------

  // The recorded tensor of which this one is a view, or itself. `by_strides`: on the way, memory is looked at by
  // strides that are taken of a view. Eager's gradient of that knows the view's place in memory; the middle lays it on
  // the root. `is_detached`: on the way, the memory goes on and the history does not; `hides_detach`: above that, or
  // above a view without a gradient, memory is looked at by strides, which the middle lays on the root.
  ValueId root(ValueId id, bool* by_strides = nullptr, bool* is_detached = nullptr, bool* hides_detach = nullptr,
               bool* is_data = nullptr) const {
    bool counts = false, is_told = false;
    for (;;) {
      const graph::NodeId maker = from_.value(id).maker;
      if (!maker.valid()) return id;
      const graph::Node& node = from_.node(maker);
      const Operator& op = operator_named(node.op);
      // The same tensor object, which looks otherwise now: a view where it was one.
      if (op.way == Way::kRestride && !is_view(from_, viewed(node))) return id;
      // _unsafe_view shares memory, too, but autograd does not know: what is written to its result is no part of the
      // history of its argument.
      if (op.way != Way::kView && op.way != Way::kRestride) return id;
      if (by_strides && counts) *by_strides = true;
      counts = counts || node.op == "aten::as_strided" || node.op == "aten::as_strided_";
      if (is_data && node.op == kDataOf) *is_data = true;
      if (is_detached && ends_history(node.op)) *is_detached = true;
      is_told = is_told || (node.op == "aten::_reshape_alias" && node.grad);
      if (hides_detach && ((ends_history(node.op) && counts) || (is_told && !node.grad))) *hides_detach = true;
      id = viewed(node);
    }
  }

  /// The recorded tensor that came to this memory first.
  ValueId memory(ValueId id) const {
    for (;;) {
      const graph::NodeId maker = from_.value(id = root(id)).maker;
      if (!maker.valid() || operator_named(from_.node(maker).op).way != Way::kRestride) return id;
      id = viewed(from_.node(maker));
    }
  }

  /// What a custom function gave, where that was a view.
  bool is_view_of_function(ValueId id) const {
    const graph::NodeId maker = from_.value(id).maker;
    if (!maker.valid() || from_.node(maker).op != CustomFunction::kOperator) return false;
    const graph::Node& node = from_.node(maker);
    const auto place =
        static_cast<size_t>(std::find(node.outputs.begin(), node.outputs.end(), id) - node.outputs.begin());
    return is_view(from_, std::get<std::vector<ValueId>>(node.args[CustomFunction::kResults]).at(place));
  }

  static ValueId viewed(const graph::Node& view) {
    const ValueId below = viewed_by(view);
    if (!below.valid()) impossible(view.op, " is a view of several tensors");
    return below;
  }

  void find_roots() {
    check_inputs();
    std::unordered_map<ValueId, size_t> known;
    std::vector<bool> differentiable;
    for (const ValueId output : from_.outputs) {
      if (!output.valid()) {
        made_.root_of.push_back(Joint::kNone);
        continue;
      }
      bool by_strides = false, is_detached = false, hides_detach = false;
      const ValueId id = root(output, &by_strides, &is_detached, &hides_detach);
      if (is_view_of_function(id))
        impossible("a custom autograd.Function gives a view, which is an output of the graph");
      const auto [place, is_new] = known.emplace(id, roots_.size());
      if (is_new) {
        roots_.push_back(tensors_[id.index()]);
        made_.root_values.push_back(id);
        differentiable.push_back(false);
        outside_.push_back(from_.comes_from_outside(id));
      }
      made_.root_of.push_back(place->second);
      if (hides_detach && roots_[place->second].requires_grad())
        impossible("as_strided of a tensor without the history that its memory has");
      if (!tensors_[output.index()].requires_grad()) continue;
      if (by_strides) impossible("as_strided of a view has a gradient that depends on the view");
      if (is_detached || !roots_[place->second].requires_grad())
        impossible("an output has a history that its memory does not have");
      differentiable[place->second] = !outside_[place->second];
    }
    made_.roots = roots_.size();
    made_.tangent_of.assign(roots_.size(), Joint::kNone);
    for (size_t r = 0; r < roots_.size(); ++r) {
      if (!differentiable[r]) continue;
      made_.tangent_of[r] = made_.root_at.size();
      made_.root_at.push_back(r);
    }
    if (made_.root_at.empty()) impossible(Joint::kNoGradient);
  }

  // ---- outputs on the way to others --------------------------------------------------------------------------------

  /// Every node that can be reached from these edges.
  static std::unordered_set<torch::autograd::Node*> nodes_below(const torch::autograd::edge_list& edges) {
    std::vector<torch::autograd::Node*> waiting;
    std::unordered_set<torch::autograd::Node*> seen;
    const auto meet = [&](const torch::autograd::Edge& edge) {
      if (edge.function && seen.insert(edge.function.get()).second) waiting.push_back(edge.function.get());
    };
    for (const auto& edge : edges) meet(edge);
    while (!waiting.empty()) {
      torch::autograd::Node* node = waiting.back();
      waiting.pop_back();
      for (const auto& edge : node->next_edges()) meet(edge);
    }
    return seen;
  }

  void find_stops() {
    namespace autograd = torch::autograd;
    std::unordered_map<autograd::Edge, size_t> outputs, stops;
    for (size_t o = 0; o < from_.outputs.size(); ++o) {
      if (!from_.outputs[o].valid()) continue;
      const at::Tensor& tensor = tensors_[from_.outputs[o].index()];
      if (tensor.grad_fn()) outputs.emplace(autograd::impl::gradient_edge(tensor), o);
    }
    // Views that leave are made again on their roots: the gradient of the roots is what is computed here.
    autograd::edge_list roots;
    for (const size_t r : made_.root_at) roots.push_back(autograd::impl::gradient_edge(roots_[r]));
    const auto seen = nodes_below(roots);
    std::vector<bool> on_the_way(from_.outputs.size());
    for (autograd::Node* node : seen)
      for (const autograd::Edge& edge : node->next_edges())
        if (const auto at = outputs.find(edge); at != outputs.end()) on_the_way[at->second] = true;
    for (const auto& [edge, output] : outputs)
      if (on_the_way[output]) stops.emplace(edge, 0);
    find_beside(seen, outputs);
    if (stops.empty()) {
      if (made_.root_at.size() < 2 && made_.beside[0].empty()) return;
      made_.computed_from.resize(made_.root_at.size());
      return find_order();
    }
    const auto written = last_writes();
    for (size_t o = 0; o < on_the_way.size(); ++o) {
      if (!on_the_way[o]) continue;
      const ValueId value = from_.outputs[o];
      const auto last = written.find(memory(value));
      const size_t made = from_.value(value).maker.index() + 1;
      const size_t complete = last == written.end() ? made : std::max(made, last->second);
      made_.stops.push_back(
          {.output = o, .value = value, .history_complete = history_complete(value, complete), .complete = complete});
    }
    std::stable_sort(made_.stops.begin(), made_.stops.end(), [&](const Joint::Stop& a, const Joint::Stop& b) {
      return height(tensors_[a.value.index()]) < height(tensors_[b.value.index()]);
    });
    for (size_t s = 0; s < made_.stops.size(); ++s)
      stops[autograd::impl::gradient_edge(tensors_[made_.stops[s].value.index()])] = s;
    find_behind({seen.begin(), seen.end()}, stops);
    find_order();
  }

  /// The count of nodes after which its history is what it is in the end. What is written without gradients changes
  /// none but those of views, which torch makes again.
  size_t history_complete(ValueId value, size_t complete) const {
    if (is_view(from_, value)) return complete;
    const uint64_t number = tensors_[value.index()].grad_fn()->sequence_nr();
    const auto next = std::upper_bound(sequence_numbers_.begin(), sequence_numbers_.end(), number);
    return std::clamp(static_cast<size_t>(next - sequence_numbers_.begin()), from_.value(value).maker.index() + 1,
                      complete);
  }

  /// Which outputs stand beside the way of a gradient: another result of their operator lies on it.
  void find_beside(const std::unordered_set<torch::autograd::Node*>& seen,
                   const std::unordered_map<torch::autograd::Edge, size_t>& outputs) {
    made_.beside.resize(made_.root_at.size());
    std::unordered_map<const torch::autograd::Node*, std::vector<torch::autograd::Edge>> results;
    for (const auto& [edge, output] : outputs)
      if (edge.function->num_inputs() > 1 && seen.count(edge.function.get()))
        results[edge.function.get()].push_back(edge);
    if (results.empty()) return;
    for (size_t t = 0; t < made_.root_at.size(); ++t) {
      const torch::autograd::Edge own = torch::autograd::impl::gradient_edge(roots_[made_.root_at[t]]);
      std::vector<size_t>& found = made_.beside[t];
      for (const torch::autograd::Node* node : nodes_below({own})) {
        const auto here = results.find(node);
        if (here == results.end() || node == own.function.get()) continue;
        size_t first = outputs.at(here->second.front());  // its results have one node
        for (const torch::autograd::Edge& edge : here->second) first = std::min(first, outputs.at(edge));
        found.push_back(first);
      }
      std::sort(found.begin(), found.end());
    }
  }

  /// Larger than that of every tensor it was computed from.
  static uint64_t height(const at::Tensor& tensor) { return tensor.grad_fn()->topological_nr(); }

  /// From the inputs up: which stops a node leads to before any other stop.
  void find_behind(std::vector<torch::autograd::Node*> nodes,
                   const std::unordered_map<torch::autograd::Edge, size_t>& stops) {
    std::sort(nodes.begin(), nodes.end(),
              [](const auto* a, const auto* b) { return a->topological_nr() < b->topological_nr(); });
    const size_t words = (made_.stops.size() + 63) / 64;
    std::unordered_map<const torch::autograd::Node*, std::vector<uint64_t>> below;
    for (const torch::autograd::Node* node : nodes) {
      std::vector<uint64_t> all(words);
      for (const torch::autograd::Edge& edge : node->next_edges()) {
        if (!edge.function) continue;
        if (const auto stop = stops.find(edge); stop != stops.end())
          all[stop->second / 64] |= uint64_t{1} << (stop->second % 64);
        else if (const auto found = below.find(edge.function.get()); found != below.end())
          for (size_t w = 0; w < words; ++w) all[w] |= found->second[w];
      }
      below.emplace(node, std::move(all));
    }
    const auto list = [&](const at::Tensor& tensor) {
      const std::vector<uint64_t>& all = below.at(tensor.grad_fn().get());
      std::vector<size_t> some;
      for (size_t s = 0; s < made_.stops.size(); ++s)
        if (all[s / 64] >> (s % 64) & 1) some.push_back(s);
      return some;
    };
    for (Joint::Stop& stop : made_.stops) stop.computed_from = list(tensors_[stop.value.index()]);
    for (const size_t r : made_.root_at) made_.computed_from.push_back(list(roots_[r]));
  }

  void find_order() {
    const auto when = [&](size_t root) -> uint64_t {  // a piece begins with results of operators of other libraries
      const auto& node = roots_[root].grad_fn();
      return node ? node->sequence_nr() : 0;
    };
    std::vector<size_t> order;
    for (size_t t = 0; t < made_.root_at.size(); ++t) order.push_back(t);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return when(made_.root_at[a]) < when(made_.root_at[b]); });
    const torch::autograd::Node* last = nullptr;
    for (const size_t t : order) {
      const torch::autograd::Node* maker = roots_[made_.root_at[t]].grad_fn().get();
      if (!maker || maker != std::exchange(last, maker)) made_.nodes.emplace_back();
      made_.nodes.back().push_back(t);
    }
    for (size_t t = 0; t < made_.root_at.size(); ++t)
      for (const size_t s : made_.computed_from[t]) {
        const size_t below = made_.root_of[made_.stops[s].output];
        if (made_.tangent_of[below] != Joint::kNone && when(below) >= when(made_.root_at[t]))
          impossible("an output was computed from memory that depends on it");
      }
  }

  void find_older() {
    const auto written = last_writes();
    for (const ValueId output : from_.outputs) {
      std::vector<bool>& older = made_.is_older.emplace_back();
      if (!output.valid()) continue;
      const ValueId bottom = root(output);
      const auto last = written.find(memory(output));
      for (ValueId id = output; id != bottom; id = viewed(from_.node(from_.value(id).maker)))
        older.push_back(last != written.end() && from_.value(id).maker.index() + 1 < last->second);
    }
  }

  void find_cuts() {
    for (const Joint::Stop& stop : made_.stops) made_.cuts.push_back(stop.complete);
    std::sort(made_.cuts.begin(), made_.cuts.end());
    made_.cuts.erase(std::unique(made_.cuts.begin(), made_.cuts.end()), made_.cuts.end());
    std::erase(made_.cuts, from_.nodes().size());
    std::erase(made_.cuts, size_t{0});
    for (const at::Tensor& tensor : tensors_) made_.requires_grad.push_back(tensor.defined() && tensor.requires_grad());
  }

  /// Of each memory that is written to: the count of nodes up to the last that does.
  std::unordered_map<ValueId, size_t> last_writes() const {
    std::unordered_map<ValueId, size_t> last;
    for (size_t n = 0; n < from_.nodes().size(); ++n) {
      const graph::Node& node = from_.nodes()[n];
      const Operator& op = operator_named(node.op);
      for (size_t a = 0; op.writes_anything && a < node.args.size(); ++a)
        if (const auto* written = std::get_if<ValueId>(&node.args[a]); op.writes[a] && written && written->valid())
          last[memory(*written)] = n + 1;
    }
    return last;
  }

  void check_inputs() const {
    for (const at::Tensor& input : inputs_)
      if (!input.is_leaf()) impossible("an input gets a history because it is written to");
  }

  // ---- backward ----------------------------------------------------------------------------------------------------

  void check_nodes(const torch::autograd::edge_list& from) const {
    for (torch::autograd::Node* node : nodes_below(from)) {
      if (std::string_view(typeid(*node).name()).find("PyNode") != std::string_view::npos)
        impossible(node->name(), " is written in Python");
      // A view that was made without gradients of a tensor that needs them. Eager's engine runs what was computed from
      // it, and that may raise.
      const auto& edges = node->next_edges();
      if (std::any_of(edges.begin(), edges.end(), [](const auto& edge) { return edge.is_valid(); })) continue;
      const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
      if (!leaf || std::none_of(inputs_.begin(), inputs_.end(),
                                [&](const at::Tensor& input) { return input.is_same(leaf->variable); }))
        impossible("a gradient leads to no input");
    }
  }

  // Takes what comes to a tensor, and lets only its own tangent through.
  struct Blocked final : torch::autograd::FunctionPreHook {
    Blocked(size_t place, at::Tensor* into, at::Tensor own) : input(place), taken(into), tangent(std::move(own)) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
      torch::autograd::variable_list rest = gradients;
      *taken = std::exchange(rest.at(input), tangent);
      return rest;
    }
    const size_t input;
    at::Tensor* const taken;
    const at::Tensor tangent;
  };

  void find_reached(const JointOf& asked) {
    namespace autograd = torch::autograd;
    made_.reached_by.assign(inputs_.size(), std::vector<bool>(made_.root_at.size()));
    for (size_t t = 0; t < made_.root_at.size(); ++t) {
      if (!asked.through.empty() && !asked.through.at(t)) continue;
      const auto below = nodes_below({autograd::impl::gradient_edge(roots_[made_.root_at[t]])});
      for (size_t i = 0; i < inputs_.size(); ++i)
        made_.reached_by[i][t] =
            inputs_[i].requires_grad() && below.count(autograd::impl::gradient_edge(inputs_[i]).function.get());
    }
  }

  struct Work {
    torch::autograd::edge_list roots, captures;
    torch::autograd::variable_list tangents, gradients;
    std::vector<size_t> wanted;  ///< inputs with a gradient, in the order of captures
    bool keep_graph = true;
    std::exception_ptr error;
  };

  /// `gives`: inputs whose gradients are wanted; empty: all that need one.
  Work start(const JointOf& asked, const std::vector<bool>& gives) {
    namespace autograd = torch::autograd;
    Work work;
    for (size_t t = 0; t < made_.root_at.size(); ++t) {
      const at::Tensor& root = roots_[made_.root_at[t]];
      types::TensorType type = trace_.graph().value(*trace_.find(root)).type;
      type.offset = 0;
      type.strides = types::dense_strides(type);  // a root may lie on itself, its gradient does not
      at::Tensor tangent = trace_.stand_in(std::move(type), "tangent");
      if (!asked.through.empty() && !asked.through.at(t)) continue;
      work.roots.push_back(autograd::impl::gradient_edge(root));
      work.tangents.push_back(std::move(tangent));
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].requires_grad() || (!gives.empty() && !gives.at(i))) continue;
      work.wanted.push_back(i);
      work.captures.push_back(autograd::impl::gradient_edge(inputs_[i]));
    }
    return work;
  }

  Work start(const Since::Walk& walk) {
    Work work = start({.through = walk.through}, walk.gives);
    for (size_t s = 0; s < walk.to_stops.size(); ++s)
      if (walk.to_stops[s])
        work.captures.push_back(torch::autograd::impl::gradient_edge(tensors_[made_.stops.at(s).value.index()]));
    return work;
  }

  static void execute(Work& work, bool keep_graph = true) {
    work.keep_graph = keep_graph;
    run_waiting(
        [](void* argument) {
          auto& job = *static_cast<Work*>(argument);
          try {
            job.gradients = torch::autograd::Engine::get_default_engine().execute(
                job.roots, job.tangents, job.keep_graph, /*create_graph=*/false, /*accumulate_grad=*/false,
                job.captures);
          } catch (...) {
            job.error = std::current_exception();
          }
        },
        &work);
    if (work.error) std::rethrow_exception(work.error);
  }

  /// The gradients of the inputs, then those of the stops where some are blocked.
  std::vector<at::Tensor> run_backward(const JointOf& asked) {
    namespace autograd = torch::autograd;
    check_inputs();
    forward_nodes_ = made_.forward_nodes = trace_.graph().nodes().size();
    Work work = start(asked, {});
    find_reached(asked);
    check_nodes(work.roots);
    std::vector<at::Tensor> at_stops(asked.blocked.size());
    for (size_t s = 0; s < asked.blocked.size(); ++s) {
      if (!asked.blocked[s]) continue;
      const autograd::Edge edge = autograd::impl::gradient_edge(tensors_[made_.stops.at(s).value.index()]);
      const auto own = std::find(work.roots.begin(), work.roots.end(), edge);
      edge.function->add_tensor_pre_hook(std::make_unique<Blocked>(
          edge.input_nr, &at_stops[s],
          own == work.roots.end() ? at::Tensor() : work.tangents[static_cast<size_t>(own - work.roots.begin())]));
    }
    execute(work);
    std::vector<at::Tensor> gradients(inputs_.size());
    for (size_t w = 0; w < work.wanted.size(); ++w) gradients[work.wanted[w]] = std::move(work.gradients.at(w));
    gradients.insert(gradients.end(), at_stops.begin(), at_stops.end());
    return gradients;
  }

  // ---- the graph ---------------------------------------------------------------------------------------------------

  ValueId value_of(const at::Tensor& tensor) const {
    if (!tensor.defined()) return {};
    const auto value = trace_.find(tensor);
    if (!value) impossible("a tensor that the joint trace does not know");
    return *value;
  }

  bool is_read(graph::Real real) const {
    const auto is_it = [&](const graph::Arg& arg) {
      const auto* one = std::get_if<graph::Real>(&arg);
      return one && *one == real;
    };
    const auto& nodes = made_.graph.nodes();
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const graph::Node& node) { return std::any_of(node.args.begin(), node.args.end(), is_it); });
  }

  void finish(const std::vector<at::Tensor>& gradients) {
    std::vector<ValueId> outputs;
    for (const ValueId output : from_.outputs)
      outputs.push_back(value_of(output.valid() ? tensors_[output.index()] : at::Tensor()));
    for (const at::Tensor& root : roots_) outputs.push_back(value_of(root));
    for (const at::Tensor& gradient : gradients) outputs.push_back(value_of(gradient));
    if (!trace_.take_unclaimed().empty()) impossible("the backward reads a tensor from nowhere");
    made_.graph = trace_.graph();
    made_.graph.outputs = std::move(outputs);
    made_.graph.conditions = symbols_->conditions();
    for (const types::Condition& condition : symbols_->conditions()) {
      if (std::find(from_.conditions.begin(), from_.conditions.end(), condition) != from_.conditions.end()) continue;
      if (condition.relation == types::Relation::kEq && condition.right == types::Expr(kAnyInt))
        impossible("its gradient depends on the value of a number that changes");
      made_.conditions.push_back(condition);
    }
    for (const Symbols::RealCondition& condition : symbols_->real_conditions()) {
      using Condition = Symbols::RealCondition;
      if (condition.relation == Condition::kWithin || condition.relation == Condition::kOrdered)
        continue;  // the forward's, which its guards look after
      if (condition.relation == Condition::kIs) impossible("its gradient depends on the value of a float that changes");
      if (condition.relation == Condition::kAtLeast) {  // bits of doubles that are not below zero are in their order
        const auto symbol = types::Expr::symbol(condition.symbol);
        const auto infinity = std::bit_cast<int64_t>(std::numeric_limits<double>::infinity());
        made_.conditions.push_back({condition.bits, types::Relation::kLe, symbol});
        made_.conditions.push_back({symbol, types::Relation::kLe, infinity});  // those above it are NaN
        continue;
      }
      if (condition.relation == Condition::kAtMost) {  // of one that is not below zero
        made_.conditions.push_back({types::Expr::symbol(condition.symbol), types::Relation::kLe, condition.bits});
        continue;
      }
      made_.conditions.push_back({types::Expr::symbol(condition.symbol), types::Relation::kNe, condition.bits});
    }
    for (const Symbols::Counted& counted : symbols_->counted())
      if (is_read(graph::Real{counted.result})) made_.counted.push_back(counted);
    for (size_t n = forward_nodes_; n < made_.graph.nodes().size(); ++n) {
      const graph::Node& node = made_.graph.nodes()[n];
      const Operator& op = operator_named(node.op);
      if (const std::string effect = hidden_effect(op); !effect.empty()) impossible(effect);
      if (op.random) impossible("the backward draws random numbers (", node.op, ")");
    }
  }

  const Graph& from_;
  std::shared_ptr<Symbols> symbols_;
  Trace trace_;
  Joint made_;
  size_t forward_nodes_ = 0;
  std::vector<uint64_t> sequence_numbers_;  // of each node of the program: what torch gave to the next function
  std::vector<at::Tensor> tensors_;         // of each value of the program
  std::vector<bool> read_;                  // whether somebody reads it
  std::vector<at::Tensor> inputs_, roots_;
  std::vector<bool> outside_;  // of each root: an input or a constant
};

}  // namespace

// A float that changes where an operator takes nothing but a double: its formula gets one, and could count with it.
static bool lends_doubles(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const graph::Node& node) {
    for (size_t a = 0; a < node.args.size(); ++a)
      if (std::holds_alternative<graph::Real>(node.args[a]) && operator_named(node.op).arguments[a] == ArgKind::kFloat)
        return true;
    return false;
  });
}

Joint make_joint(const Program& program, std::span<const at::Tensor> examples, const JointOf& asked) {
  Joint none;
  try {
    if (c10::InferenceMode::is_enabled()) impossible("inference mode");
    if (torch::autograd::AnomalyMode::is_enabled()) impossible("anomaly mode");
    Joint made = Joining(program, examples).run(asked);
    if (!asked.pieces && lends_doubles(program.graph()) &&
        graph::print(Joining(program, examples, kOtherFloat).run(asked).graph) != graph::print(made.graph))
      impossible("its gradient counts with a float that changes");
    return made;
  } catch (const Impossible& why) {
    none.reason = why.reason;
  } catch (const c10::Error& error) {
    none.reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    none.reason = error.what();
  }
  if (none.reason.empty()) none.reason = "an error without words";
  return none;
}

std::string backward_error(const Program& program, std::span<const at::Tensor> examples, const Since& since,
                           std::span<const Joint::Stop> stops) {
  try {
    Joining(program, examples).fail(since, stops);
  } catch (const Impossible&) {  // it was possible when the plan was made
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

}  // namespace magneto::aten
