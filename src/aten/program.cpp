// aten/program.cpp
#include "aten/program.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <string>

#include "aten/boxed_internal.h"
#include "aten/convert_internal.h"
#include "aten/custom_function_internal.h"
#include "aten/data_of.h"
#include "aten/generators_internal.h"
#include "aten/undo.h"
#include "base/check.h"

namespace magneto::aten {

using graph::ValueId;

namespace {

struct Step {
  const Operator* op = nullptr;
  std::vector<Slot> slots;
  std::vector<ValueId> outputs;  ///< invalid: undefined, or nobody reads it
  std::vector<ValueId> drops;    ///< not read later, but too late to move
  bool grad = true;
  bool changes = false;  ///< writes to memory of an input
  bool looks = false;    ///< at what came back: its sizes may be no rule's (probe_internal.h)
  std::shared_ptr<const FunctionCode> function = {};  ///< of a custom autograd.Function
};

// Grad mode of the steps; the caller's comes back at the end, also when a step throws.
class GradModeOfSteps {
 public:
  GradModeOfSteps() : before_(c10::GradMode::is_enabled()), now_(before_) {}
  ~GradModeOfSteps() { set(before_); }
  void set(bool enabled) {
    if (enabled != now_) c10::GradMode::set_enabled(enabled);
    now_ = enabled;
  }

 private:
  const bool before_;
  bool now_;
};

}  // namespace

struct Program::Body {
  Body(graph::Graph program, std::vector<at::Tensor> tensors)
      : graph(std::move(program)), constants(std::move(tensors)), undo(undo_plan(graph)) {
    base::check(constants.size() == graph.constants().size(), "program: ", constants.size(), " tensors for ",
                graph.constants().size(), " constants");
    for (const graph::Node& node : graph.nodes()) steps.push_back(make_step(node));
    find_probed();
    find_last_readers();
    find_moved_outputs();
    find_changes();
  }

  static Step make_step(const graph::Node& node) {
    const Operator& op = operator_named(node.op);
    Step step{.op = &op, .slots = make_slots(op, node.args), .outputs = node.outputs, .drops = {}, .grad = node.grad};
    if (node.op == CustomFunction::kOperator) step.function = std::make_shared<FunctionCode>(node);
    return step;
  }

  void find_probed() {
    for (Step& step : steps) {
      if (step.op->is_foreign || step.op->writes_anything || step.op->way == Way::kView) continue;
      for (const ValueId id : step.outputs)
        if (id.valid())
          for (const types::Expr& size : graph.value(id).type.sizes) step.looks = step.looks || !size.is_constant();
    }
  }

  void find_last_readers() {
    std::vector<bool> wanted(graph.values().size());
    for (ValueId output : graph.outputs)
      if (output.valid()) wanted[output.index()] = true;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      for (ValueId& output : step->outputs)
        if (output.valid() && !wanted[output.index()]) output = ValueId();
      for (size_t a = step->slots.size(); a-- > 0;) {
        Slot& slot = step->slots[a];
        for (size_t v = slot.values.size(); v-- > 0;) {
          if (!slot.values[v].valid()) continue;
          const bool last = !wanted[slot.values[v].index()];
          wanted[slot.values[v].index()] = true;
          // A kernel that returns its argument returns a reference to it: it must outlive the stack.
          if (last && step->op->writes[a])
            step->drops.push_back(slot.values[v]);
          else
            slot.last[v] = last;
        }
      }
    }
  }

  // An output may be an input or a constant, or stand twice.
  void find_moved_outputs() {
    std::vector<bool> kept(graph.values().size());
    for (ValueId input : graph.inputs()) kept[input.index()] = true;
    for (ValueId constant : graph.constants()) kept[constant.index()] = true;
    output_moves.assign(graph.outputs.size(), false);
    for (size_t o = graph.outputs.size(); o-- > 0;) {
      const ValueId output = graph.outputs[o];
      if (!output.valid() || kept[output.index()]) continue;
      output_moves[o] = kept[output.index()] = true;  // the last to be taken moves it
    }
  }

  static OutputView made_view(const Step& step, const graph::Node& node) {
    if (!node.grad) return OutputView::kNoGrad;
    const auto& returns = step.op->handle.schema().returns();
    const bool is_list = returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType;
    return is_list ? OutputView::kOneOfMany : OutputView::kPlain;
  }

  // Which steps a second attempt could not repeat. A view shares the memory of any argument that its schema marks.
  void find_changes() {
    constexpr size_t kNone = SIZE_MAX;
    std::vector<size_t> of_input(graph.values().size(), kNone), root(graph.values().size());
    std::vector<size_t> counter(graph.values().size());  // the value that counts the versions
    std::vector<int> counted(graph.values().size());
    std::vector<OutputView> view(graph.values().size());
    for (size_t v = 0; v < root.size(); ++v) root[v] = counter[v] = v;
    for (size_t i = 0; i < graph.inputs().size(); ++i) of_input[graph.inputs()[i].index()] = i;
    for (size_t s = 0; s < steps.size(); ++s) {
      Step& step = steps[s];
      if (step.function) {  // the same tensors, with another history
        const auto& results = step.slots[CustomFunction::kResults].values;
        for (size_t k = 0; k < results.size(); ++k)
          root[graph.nodes()[s].outputs[k].index()] = root[results[k].index()];
        for (size_t k = 0; k < results.size(); ++k)
          counter[graph.nodes()[s].outputs[k].index()] = counter[results[k].index()];
        continue;
      }
      size_t shares = kNone, counts = kNone;  // the tensor that is no view, and who counts its versions
      const std::string& name = graph.nodes()[s].op;
      OutputView gives = name == kDataOf          ? OutputView::kData
                         : name == "aten::detach" ? OutputView::kNone
                                                  : made_view(step, graph.nodes()[s]);
      for (size_t a = 0; a < step.slots.size(); ++a)
        for (ValueId value : step.slots[a].values) {
          if (!value.valid()) continue;
          const size_t memory = root[value.index()];
          if (step.op->aliases[a]) {
            shares = memory;
            counts = counter[value.index()];
            if (gives == OutputView::kPlain && view[value.index()] != OutputView::kNone) gives = view[value.index()];
            if (view[value.index()] == OutputView::kData) gives = OutputView::kData;
          }
          if (!step.op->writes[a]) continue;
          if (step.op->aliases[a]) gives = view[value.index()];
          if (of_input[memory] != kNone) step.changes = writes_inputs = true;
          const c10::AliasInfo* alias = step.op->handle.schema().arguments()[a].alias_info();
          if ((alias && alias->isWrite() && !step.op->factory) || step.op->bumps_versions)
            ++counted[counter[value.index()]];
        }
      if (shares != kNone)
        for (ValueId output : graph.nodes()[s].outputs)
          if (output.valid()) {
            root[output.index()] = shares;
            counter[output.index()] = name == kDataOf ? output.index() : counts;
            view[output.index()] = gives;
          }
    }
    for (const ValueId output : graph.outputs)
      output_views.push_back(output.valid() ? view[output.index()] : OutputView::kNone);
    for (const ValueId input : graph.inputs()) bumps.push_back(counted[input.index()]);
    for (const ValueId output : graph.outputs)
      output_bumps.push_back(
          output.valid() && of_input[counter[output.index()]] == kNone ? counted[counter[output.index()]] : 0);
  }

  graph::Graph graph;
  std::vector<at::Tensor> constants;
  std::vector<Step> steps;
  std::vector<bool> output_moves;
  std::vector<int64_t> hints;
  std::vector<int> bumps, output_bumps;
  std::vector<OutputView> output_views;
  bool writes_inputs = false;
  bool as_typed = false;
  const Undo::Plan undo;
};

namespace {

void store(const Step& step, torch::jit::Stack& stack, std::vector<at::Tensor>& values) {
  size_t output = 0;
  for_each_result(stack, [&](at::Tensor&& tensor) {
    const ValueId id = step.outputs[output++];
    if (id.valid()) values[id.index()] = std::move(tensor);
  });
}

void look_at(const Step& step, const graph::Graph& graph, const std::vector<at::Tensor>& values,
             std::span<const int64_t> symbols) {
  for (const ValueId id : step.outputs)
    if (id.valid())
      base::check(values[id.index()].sizes() == extents_of(graph.value(id).type, symbols).sizes,
                  "program: ", step.op->name, " gave a tensor of other sizes than were expected");
}

void lay_out(at::Tensor& tensor, const types::TensorType& type, std::span<const int64_t> symbols) {
  const auto [sizes, strides] = extents_of(type, symbols);
  const at::ScalarType dtype = to_scalar_type(type.dtype);
  if (!tensor.defined() || tensor.sizes() != sizes) return;
  if (tensor.scalar_type() == dtype && tensor.storage_offset() == 0 && tensor.strides() == strides) return;
  at::Tensor copy = at::empty_strided(sizes, strides, tensor.options().dtype(dtype));
  tensor = copy.copy_(tensor);
}

}  // namespace

struct Program::Scratch {
  std::vector<at::Tensor> values;
  torch::jit::Stack stack;
};

// One spare is enough: a second run at the same time (a recursion, another thread) brings its own, and the last to end
// leaves it behind.
class Program::Lent {
 public:
  explicit Lent(const Program& program) : program_(program), scratch_(program.spare_.exchange(nullptr)) {
    if (scratch_) return;
    scratch_ = new Scratch;
    scratch_->values.resize(program.body_->graph.values().size());
  }
  ~Lent() {
    for (at::Tensor& value : scratch_->values) value.reset();
    scratch_->stack.clear();
    delete program_.spare_.exchange(scratch_);
  }
  Lent(const Lent&) = delete;
  Scratch* operator->() { return scratch_; }

 private:
  const Program& program_;
  Scratch* scratch_;
};

Program::Program(graph::Graph graph, std::vector<at::Tensor> constants, bool as_typed)
    : body_(std::make_unique<Body>(std::move(graph), std::move(constants))) {
  body_->as_typed = as_typed;
}

void Program::set_hints(std::span<const int64_t> hints) { body_->hints.assign(hints.begin(), hints.end()); }
const std::vector<int64_t>& Program::hints() const { return body_->hints; }

Program::~Program() { delete spare_.load(); }

Program::Failure Program::run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const {
  const Body& body = *body_;
  std::optional<Undo> undo;
  if (!body.undo.inputs.empty()) undo.emplace(body.undo, inputs);
  Lent scratch(*this);
  std::vector<at::Tensor>& values = scratch->values;
  for (size_t i = 0; i < inputs.size(); ++i) values[body.graph.inputs()[i].index()] = std::move(inputs[i]);
  for (size_t c = 0; c < body.constants.size(); ++c) values[body.graph.constants()[c].index()] = body.constants[c];

  // Casts of autocast stand in the graph.
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  GradModeOfSteps grad_mode;
  torch::jit::Stack& stack = scratch->stack;
  Failure failure;
  Drawn drawn;
  for (const Step& step : body.steps) {
    stack.clear();
    grad_mode.set(step.grad);
    try {
      if (step.op->random)
        for (ValueId id : body.graph.nodes()[failure.node].outputs)
          if (id.valid()) drawn.note(to_torch(body.graph.value(id).type.device));
      for (const Slot& slot : step.slots) push(slot, values, symbols, stack);
      if (step.function)
        step.function->attach(stack);
      else
        call(*step.op, stack);
      store(step, stack, values);
      if (step.looks) look_at(step, body.graph, values, symbols);
      if (body.as_typed && step.op->way != Way::kView && !step.op->writes_anything)
        for (ValueId id : step.outputs)
          if (id.valid()) lay_out(values[id.index()], body.graph.value(id).type, symbols);
      for (ValueId dropped : step.drops) values[dropped.index()] = at::Tensor();
    } catch (...) {
      failure.error = std::current_exception();
      const bool is_kept = undo && failure.node <= body.undo.last_refusal;
      failure.changed = (is_kept ? !undo->take_back() : failure.changed) || !drawn.take_back();
      return failure;
    }
    failure.changed = failure.changed || step.changes;
    ++failure.node;
  }
  for (size_t o = 0; o < body.graph.outputs.size(); ++o)
    outputs.push_back(take(values, body.graph.outputs[o], body.output_moves[o]));
  return {};
}

const graph::Graph& Program::graph() const { return body_->graph; }
const std::vector<at::Tensor>& Program::constants() const { return body_->constants; }
std::string Program::hidden_effect() const {
  for (const Step& step : body_->steps)
    if (std::string effect = aten::hidden_effect(*step.op); !effect.empty()) return effect;
  return "";
}
const std::vector<int>& Program::bumps() const { return body_->bumps; }
const std::vector<int>& Program::output_bumps() const { return body_->output_bumps; }
const std::vector<OutputView>& Program::output_views() const { return body_->output_views; }
bool Program::writes_inputs() const { return body_->writes_inputs; }

}  // namespace magneto::aten
