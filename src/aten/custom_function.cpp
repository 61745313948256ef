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
