// aten/custom_function.cpp
#include "aten/custom_function.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>

#include "aten/backward_node_internal.h"
#include "aten/boxed_internal.h"
#include "aten/custom_function_internal.h"
#include "aten/program.h"
#include "base/check.h"
#include "graph/text.h"

namespace magneto::aten {

namespace autograd = torch::autograd;
using autograd::variable_list;
using graph::ValueId;

namespace {

constexpr const char* kOnce = "trying to differentiate twice a function that was marked with @once_differentiable";

// What is not checked is read as it is then, whoever has written to it. A result is held without its history, which
// holds the node; while it lives, it has the history that it has then.
struct Saved {
  autograd::SavedVariable variable = {};
  at::Tensor tensor = {};
  bool is_checked = false;
  std::optional<uint32_t> result = {};
  c10::weak_intrusive_ptr<c10::TensorImpl> alive{c10::intrusive_ptr<c10::TensorImpl>()};
};

class FunctionNode final : public autograd::Node {
 public:
  FunctionNode(std::shared_ptr<const FunctionCode> code, FunctionCode::Numbers numbers)
      : code_(std::move(code)), numbers_(std::move(numbers)) {}

  std::string name() const override { return code_->told().name + "Backward"; }

  /// When the results have their history.
  void keep(const std::vector<at::Tensor>& saved, const std::vector<at::Tensor>& results,
            const std::vector<at::Tensor>& outputs, bool is_joint) {
    for (size_t s = 0; s < saved.size(); ++s) {
      const auto result = std::find_if(results.begin(), results.end(),
                                       [&](const at::Tensor& tensor) { return tensor.is_same(saved[s]); });
      Saved& kept = saved_.emplace_back();
      const auto place = static_cast<size_t>(result - results.begin());
      if (result != results.end()) kept.result = static_cast<uint32_t>(place);
      const at::Tensor& tensor = kept.result ? outputs[place] : saved[s];
      kept.is_checked = code_->told().checked.at(s);
      if (kept.is_checked) {
        kept.variable = autograd::SavedVariable(tensor, kept.result.has_value());
      } else if (is_joint) {  // so that the partition knows
        const c10::AutoGradMode no_history(false);
        kept.tensor = at::_unsafe_view_symint(tensor, tensor.sym_sizes());
      } else {
        kept.tensor = kept.result ? tensor.variable_data() : tensor;
        if (kept.result) kept.alive = tensor.getIntrusivePtr();
      }
    }
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Saved& saved : saved_)
      if (saved.is_checked) saved.variable.reset_data();
  }

  void compiled_args(autograd::CompiledNodeArgs& args) const override {
    args.collect(code_->text());
    for (const int64_t value : numbers_.values) args.collect(static_cast<uint64_t>(value));
    for (const Saved& saved : saved_)
      if (saved.is_checked)
        args.collect(saved.variable, saved.result.has_value());
      else
        args.collect(saved.tensor);
  }

  variable_list apply_with_saved(const variable_list& gradients, autograd::SwapSavedVariables& swap) override {
    for (Saved& saved : saved_)
      if (saved.is_checked)
        swap.before(saved.variable);
      else
        swap.before(saved.tensor);
    variable_list results = apply(variable_list(gradients));
    for (Saved& saved : saved_)
      if (saved.is_checked)
        swap.after(saved.variable);
      else
        swap.after(saved.tensor);
    return results;
  }

 protected:
  variable_list apply(variable_list&& gradients) override {
    std::vector<at::Tensor> inputs;
    bool any_history = false;
    for (size_t k = 0; k < gradients.size(); ++k) {
      const at::Tensor given = gradients[k].defined() ? gradients[k] : input_metadata(k).zeros_like();
      any_history = any_history || given.requires_grad();
      inputs.push_back(given.contiguous());  // as when the backward was rehearsed: what it asked about strides holds
    }
    gradients.clear();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const Saved& saved : saved_) inputs.push_back(unpack(saved));
    }
    const bool once = code_->told().once_differentiable;
    std::vector<at::Tensor> made = code_->run(std::move(inputs), numbers_, c10::GradMode::is_enabled() && !once);
    if (!once || !c10::GradMode::is_enabled() || !any_history) return made;
    for (at::Tensor& gradient : made)
      if (gradient.defined()) gradient = gradient.detach().set_requires_grad(true);
    return autograd::DelayedError(kOnce, static_cast<int64_t>(made.size())).apply(std::move(made));
  }

 private:
  at::Tensor unpack(const Saved& saved) {
    if (saved.is_checked) return saved.variable.unpack(saved.result ? getptr() : nullptr);
    if (!saved.result || !c10::GradMode::is_enabled()) return saved.tensor;
    if (auto alive = saved.alive.lock()) return at::Tensor(std::move(alive));
    at::Tensor tensor = saved.tensor.detach();
    autograd::impl::set_gradient_edge(tensor, {getptr(), *saved.result});
    return tensor;
  }

  const std::shared_ptr<const FunctionCode> code_;
  const FunctionCode::Numbers numbers_;
  std::vector<Saved> saved_;
};

std::vector<at::Tensor> tensors_of(const c10::IValue& list) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& item : list.toListRef()) tensors.push_back(item.toTensor());
  return tensors;
}

// For whoever runs it without gradients.
void pass_results(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const size_t begin = stack->size() - (CustomFunction::kNumbers + CustomFunction::kMostReals);
  c10::IValue results = std::move((*stack)[begin + CustomFunction::kResults]);
  stack->resize(begin);
  stack->push_back(std::move(results));
}

}  // namespace

namespace {

// What is known of each value of a backward.
class Linearity {
 public:
  Linearity(const graph::Graph& graph, size_t gradients) : graph_(graph), of_(graph.values().size(), kFixed) {
    for (size_t i = 0; i < gradients; ++i) of_[graph.inputs()[i].index()] = kLinear;
    root_.resize(of_.size());
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = v;
  }

  bool run() {
    for (const graph::Node& node : graph_.nodes()) visit(node);
    return std::all_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](ValueId id) { return !id.valid() || at(id) != kOther; });
  }

 private:
  /// kZero is both of the next two.
  enum Kind : uint8_t { kZero, kFixed, kLinear, kOther };

  Kind& at(ValueId id) { return of_[root_[id.index()]]; }
  Kind kind(const graph::Arg& arg) {
    if (const auto* id = std::get_if<ValueId>(&arg)) return id->valid() ? at(*id) : kZero;
    if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      Kind all = kZero;
      for (const ValueId id : *list) all = sum(all, id.valid() ? at(id) : kZero);
      return all;
    }
    const auto* real = std::get_if<double>(&arg);
    const auto* whole = std::get_if<types::Expr>(&arg);
    const auto* truth = std::get_if<bool>(&arg);
    return (real && *real == 0) || (whole && *whole == types::Expr(0)) || (truth && !*truth) ? kZero : kFixed;
  }
  static Kind sum(Kind a, Kind b) {
    if (a == kZero) return b;
    return b == kZero || a == b ? a : kOther;
  }
  static Kind product(Kind a, Kind b) {
    if (a == kZero || b == kZero) return kZero;
    if (a == kOther || b == kOther || (a == kLinear && b == kLinear)) return kOther;
    return a == kLinear || b == kLinear ? kLinear : kFixed;
  }

  static bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  /// Of its result, or of what it writes.
  Kind result(const graph::Node& node, std::string_view base) {
    const auto given = [&](size_t a) { return a < node.args.size() ? kind(node.args[a]) : kZero; };
    bool varies = false;  // an argument that is no number
    for (const graph::Arg& arg : node.args)
      if (std::holds_alternative<ValueId>(arg) || std::holds_alternative<std::vector<ValueId>>(arg))
        varies = varies || kind(arg) == kLinear || kind(arg) == kOther;
    if (is_any(base, {"zeros", "zeros_like", "new_zeros", "zero"})) return kZero;
    if (!varies) return kFixed;
    // Linear in its first argument, where the others do not depend on what comes.
    const auto first_alone = [&] {
      for (size_t a = 1; a < node.args.size(); ++a)
        if (const Kind other = kind(node.args[a]); other == kLinear || other == kOther) return kOther;
      return given(0);
    };
    if (is_any(base, {"add", "sub", "rsub", "cat", "stack"}))
      return base == "cat" || base == "stack" ? given(0) : sum(given(0), given(1));
    if (is_any(base, {"mul", "mm", "bmm", "mv", "dot", "matmul"})) return product(given(0), given(1));
    if (base == "div") return given(1) == kFixed ? given(0) : kOther;
    if (base == "where") return given(0) == kFixed ? sum(given(1), given(2)) : kOther;
    if (is_any(base, {"masked_fill", "index_put"})) return given(1) == kFixed ? sum(given(0), given(2)) : kOther;
    if (is_any(base,
               {"copy", "index_add", "scatter_add", "scatter", "index_copy", "select_scatter", "slice_scatter"})) {
      const size_t source = base == "copy" || base.ends_with("_scatter") ? 1 : 3;
      for (size_t a = 1; a < source; ++a)
        if (const Kind other = kind(node.args[a]); other == kLinear || other == kOther) return kOther;
      return sum(given(0), given(source));
    }
    if (base == "fill") return given(1);
    // Whatever torch's own formulas call by such a name is linear in the gradient, which comes first.
    const bool is_formula = base.ends_with("_backward") || base.ends_with("_backward_data");
    if (is_formula || is_any(base, {"neg",
                                    "clone",
                                    "_to_copy",
                                    "contiguous",
                                    "sum",
                                    "mean",
                                    "cumsum",
                                    "flip",
                                    "roll",
                                    "index_select",
                                    "gather",
                                    "index",
                                    "constant_pad_nd",
                                    "tril",
                                    "triu",
                                    "repeat",
                                    "_unsafe_view",
                                    "lift_fresh_copy",
                                    "pixel_shuffle",
                                    "pixel_unshuffle",
                                    "im2col",
                                    "col2im",
                                    "_conj_physical"}))
      return first_alone();
    return kOther;
  }

  void visit(const graph::Node& node) {
    if (node.op == CustomFunction::kOperator) {
      const auto& results = std::get<std::vector<ValueId>>(node.args[CustomFunction::kResults]);
      for (size_t k = 0; k < results.size(); ++k) root_[node.outputs[k].index()] = root_[results[k].index()];
      return;
    }
    const Operator& op = operator_named(node.op);
    const size_t colons = node.op.find("::");
    std::string_view base = std::string_view(node.op).substr(colons == std::string::npos ? 0 : colons + 2);
    base = base.substr(0, base.find('.'));
    if (op.writes_anything && base.ends_with('_')) base.remove_suffix(1);
    if (op.way == Way::kView || op.way == Way::kRestride) {
      const ValueId of = viewed_by(node);
      for (const ValueId id : node.outputs)
        if (id.valid() && of.valid())
          root_[id.index()] = root_[of.index()];
        else if (id.valid())
          at(id) = kOther;
      return;
    }
    const Kind made = result(node, base);
    if (op.writes_anything) {
      for (size_t a = 0; a < node.args.size(); ++a) {
        const auto* into = std::get_if<ValueId>(&node.args[a]);
        if (!op.writes[a] || !into || !into->valid()) continue;
        at(*into) = a == 0 ? sum(at(*into), made) : kOther;  // elements that are not written to stay
        for (const ValueId id : node.outputs)
          if (id.valid()) root_[id.index()] = root_[into->index()];
      }
      return;
    }
    for (const ValueId id : node.outputs)
      if (id.valid()) at(id) = made;
  }

  const graph::Graph& graph_;
  std::vector<Kind> of_;
  std::vector<size_t> root_;
};

}  // namespace

bool is_linear(const graph::Graph& backward, size_t gradients) { return Linearity(backward, gradients).run(); }

graph::Graph without_functions(graph::Graph graph) {
  const auto is_function = [](const graph::Node& node) { return node.op == CustomFunction::kOperator; };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), is_function)) return graph;
  const std::vector<graph::Node> nodes = graph.nodes();
  std::vector<ValueId> names(graph.values().size());
  for (size_t v = 0; v < names.size(); ++v) names[v] = ValueId(v);
  const auto rename = [&](ValueId& id) {
    if (id.valid()) id = names[id.index()];
  };
  graph.truncate(0);
  for (graph::Node node : nodes) {
    for (graph::Arg& arg : node.args) {
      if (auto* one = std::get_if<ValueId>(&arg)) rename(*one);
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg)) std::for_each(list->begin(), list->end(), rename);
    }
    if (!is_function(node)) {
      std::for_each(node.outputs.begin(), node.outputs.end(), rename);
      graph.add_node(std::move(node));
      continue;
    }
    const auto& results = std::get<std::vector<ValueId>>(node.args[CustomFunction::kResults]);
    for (size_t k = 0; k < results.size(); ++k) names[node.outputs[k].index()] = results[k];
  }
  std::for_each(graph.outputs.begin(), graph.outputs.end(), rename);
  return graph::renumber(graph);
}

FunctionCode::FunctionCode(const graph::Node& node) {
  text_ = std::get<std::string>(node.args[CustomFunction::kBackward]);
  told_ = {.name = std::get<std::string>(node.args[CustomFunction::kName]),
           .backward = graph::parse(text_),
           .once_differentiable = std::get<bool>(node.args[CustomFunction::kOnce]),
           .checked = {}};
  if (const auto* checked = std::get_if<std::vector<bool>>(&node.args[CustomFunction::kChecked]))
    told_.checked = *checked;
}

FunctionCode::~FunctionCode() = default;

std::vector<at::Tensor> FunctionCode::attach(std::vector<at::Tensor> results, const std::vector<at::Tensor>& inputs,
                                             const std::vector<at::Tensor>& saved, Numbers numbers,
                                             bool is_joint) const {
  const bool any = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.requires_grad(); });
  if (!any || !c10::GradMode::is_enabled()) return results;
  const NodePtr made = make_autograd_node<FunctionNode>(shared_from_this(), std::move(numbers));
  auto& node = static_cast<FunctionNode&>(*made);
  autograd::edge_list edges;
  for (const at::Tensor& input : inputs) edges.push_back(autograd::impl::gradient_edge(input));
  node.set_next_edges(std::move(edges));
  const std::vector<std::optional<at::Tensor>> raw(results.begin(), results.end());
  const auto no_forward_mode = [](const variable_list&, const variable_list&) -> variable_list {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "magneto: a custom Function in forward mode");
  };
  const auto view_as_self = [](const at::Tensor& tensor) { return tensor.view_as(tensor); };
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  NodePtr attached;
  const auto wrapped = autograd::_wrap_outputs(inputs, {}, {}, raw, made, no_forward_mode, {}, view_as_self,
                                               /*pure_view=*/false, attached);
#else
  const auto wrapped =
      autograd::_wrap_outputs(inputs, {}, {}, raw, made, no_forward_mode, {}, view_as_self, /*pure_view=*/false);
#endif
  std::vector<at::Tensor> outputs;
  for (const auto& output : wrapped) outputs.push_back(output.value());
  node.keep(saved, results, outputs, is_joint);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  autograd::fire_node_creation_hooks(attached);
#endif
  return outputs;
}

void FunctionCode::attach(torch::jit::Stack& stack) const {
  using Argument = CustomFunction::Argument;
  Numbers numbers;
  numbers.values = stack[Argument::kSizes].toIntVector();
  const std::vector<int64_t> reals = stack[Argument::kReals].toIntVector();
  for (size_t r = 0; r < reals.size(); ++r)
    numbers.values.at(static_cast<size_t>(reals[r])) =
        std::bit_cast<int64_t>(stack[Argument::kNumbers + r].toScalar().toDouble());
  const std::vector<at::Tensor> made =
      attach(tensors_of(stack[Argument::kResults]), tensors_of(stack[Argument::kInputs]),
             tensors_of(stack[Argument::kSaved]), std::move(numbers), /*is_joint=*/false);
  stack.clear();
  stack.emplace_back(c10::List<at::Tensor>(made));
}

FunctionCode::Numbers FunctionCode::numbers_of(const graph::Node& node, const std::shared_ptr<Symbols>& symbols) const {
  Numbers numbers;
  for (const types::Expr& size : std::get<types::Sizes>(node.args[CustomFunction::kSizes])) {
    if (!size.is_constant()) return {.symbols = symbols};
    numbers.values.push_back(size.value_or(0));
  }
  const auto& reals = std::get<types::Sizes>(node.args[CustomFunction::kReals]);
  for (size_t r = 0; r < reals.size(); ++r) {
    const auto* number = std::get_if<double>(&node.args[CustomFunction::kNumbers + r]);
    if (!number) return {.symbols = symbols};
    numbers.values.at(static_cast<size_t>(reals[r].value_or(0))) = std::bit_cast<int64_t>(*number);
  }
  return numbers;
}

const Program& FunctionCode::program(bool differentiable) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Program>& made = differentiable ? differentiable_ : plain_;
  if (made) return *made;
  graph::Graph graph = told_.backward;
  for (size_t n = 0; n < graph.nodes().size() && !differentiable; ++n) graph.node(graph::NodeId(n)).grad = false;
  made = std::make_unique<Program>(std::move(graph), std::vector<at::Tensor>());
  return *made;
}

std::vector<at::Tensor> FunctionCode::run(std::vector<at::Tensor> inputs, const Numbers& numbers,
                                          bool differentiable) const {
  if (numbers.symbols) return run_symbolically(std::move(inputs), numbers);
  c10::SmallVector<at::Tensor, 8> outputs;
  const Executable::Failure failure = program(differentiable).run(inputs, numbers.values, outputs);
  if (failure.error) std::rethrow_exception(failure.error);
  return {outputs.begin(), outputs.end()};
}

// In the joint graph, which is not differentiated.
std::vector<at::Tensor> FunctionCode::run_symbolically(std::vector<at::Tensor> inputs, const Numbers& numbers) const {
  const graph::Graph& graph = told_.backward;
  const c10::AutoGradMode no_gradients(false);
  std::vector<at::Tensor> values(graph.values().size());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = std::move(inputs[i]);
  torch::jit::Stack stack;
  for (const graph::Node& node : graph.nodes()) {
    const Operator& op = operator_named(node.op);
    stack.clear();
    if (node.op == CustomFunction::kOperator) {
      const auto& results = std::get<std::vector<ValueId>>(node.args[CustomFunction::kResults]);
      for (size_t k = 0; k < results.size(); ++k) values[node.outputs[k].index()] = values[results[k].index()];
      continue;
    }
    for (size_t a = 0; a < node.args.size(); ++a)
      stack.push_back(boxed(node.args[a], op.arguments[a], values, *numbers.symbols));
    call(op, stack);
    size_t output = 0;
    for_each_result(stack, [&](at::Tensor&& tensor) {
      if (const ValueId id = node.outputs.at(output++); id.valid()) values[id.index()] = std::move(tensor);
    });
  }
  std::vector<at::Tensor> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(id.valid() ? values[id.index()] : at::Tensor());
  return outputs;
}

TORCH_LIBRARY(magneto, library) {
  library.def(
      "function(str name, str backward, bool once_differentiable, bool[] checked, Tensor[] results, Tensor[] inputs, "
      "Tensor[] saved, SymInt[] sizes, int[] reals, Scalar? a, Scalar? b, Scalar? c, Scalar? d) -> Tensor[]");
  library.impl("function", c10::DispatchKey::CompositeExplicitAutograd,
               torch::CppFunction::makeFromBoxedFunction<&pass_results>());
}

}  // namespace magneto::aten
