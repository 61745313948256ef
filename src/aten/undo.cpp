#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "aten/operators_internal.h"
#include "aten/undo.h"

namespace magneto::aten {

using BelowAutograd = c10::impl::ExcludeDispatchKeyGuard;

/// Some values of its arguments are errors.
static bool may_refuse(const Operator& op) {
  return op.way == Way::kAtOnce || op.way == Way::kReadsData || op.divides || op.is_foreign;
}

namespace {

constexpr size_t kNone = SIZE_MAX;

/// Of each value: the input whose memory it shows, or kNone, and whether by strides, which may leave the input itself.
struct Shown {
  std::vector<size_t> of_input;
  std::vector<bool> by_strides;
};

template <class Meet>
void each_value(const graph::Arg& arg, const Meet& meet) {
  if (const auto* one = std::get_if<graph::ValueId>(&arg)) meet(*one);
  if (const auto* list = std::get_if<std::vector<graph::ValueId>>(&arg))
    for (const graph::ValueId value : *list) meet(value);
}

// A view shares the memory of any argument that its schema marks.
Shown shown_memory(const graph::Graph& graph) {
  Shown made{std::vector<size_t>(graph.values().size(), kNone), std::vector<bool>(graph.values().size())};
  for (size_t i = 0; i < graph.inputs().size(); ++i) made.of_input[graph.inputs()[i].index()] = i;
  for (const graph::Node& node : graph.nodes()) {
    const Operator& op = operator_named(node.op);
    size_t shares = kNone;
    bool strides = op.declared && (op.declared->by_strides || op.declared->functional == "aten::as_strided");
    for (size_t a = 0; a < node.args.size(); ++a)
      each_value(node.args[a], [&](graph::ValueId value) {
        if (!value.valid() || made.of_input[value.index()] == kNone || !op.aliases[a]) return;
        shares = made.of_input[value.index()];
        strides = strides || made.by_strides[value.index()];
      });
    for (const graph::ValueId output : node.outputs) {
      if (!output.valid() || shares == kNone) continue;
      made.of_input[output.index()] = shares;
      made.by_strides[output.index()] = strides;
    }
  }
  return made;
}

}  // namespace

std::vector<bool> inputs_shown_by_strides(const graph::Graph& graph) {
  const Shown shown = shown_memory(graph);
  std::vector<bool> some(graph.inputs().size());
  for (size_t v = 0; v < shown.of_input.size(); ++v)
    if (shown.by_strides[v]) some[shown.of_input[v]] = true;
  return some;
}

Undo::Plan undo_plan(const graph::Graph& graph) {
  Undo::Plan plan;
  const Shown shown = shown_memory(graph);
  std::vector<Undo::Plan::Input> written;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const graph::Node& node = graph.nodes()[n];
    const Operator& op = operator_named(node.op);
    for (size_t a = 0; a < node.args.size(); ++a)
      each_value(node.args[a], [&](graph::ValueId value) {
        if (value.valid() && op.writes[a] && shown.of_input[value.index()] != kNone)
          written.push_back({shown.of_input[value.index()], shown.by_strides[value.index()]});
      });
    if (!may_refuse(op)) continue;
    plan.last_refusal = n;
    for (const Undo::Plan::Input& input : written) {
      const auto known = std::find_if(plan.inputs.begin(), plan.inputs.end(),
                                      [&](const Undo::Plan::Input& other) { return other.index == input.index; });
      if (known == plan.inputs.end())
        plan.inputs.push_back(input);
      else
        known->whole_storage = known->whole_storage || input.whole_storage;
    }
    written.clear();
  }
  plan.is_complete = written.empty();
  return plan;
}

bool Reversible::look(const graph::Graph& graph, const std::vector<bool>* part) {
  constexpr int64_t kFew = 1 << 16;
  if (graph.nodes().size() < nodes_) *this = {};  // some were forgotten
  shows_.resize(graph.values().size());
  const auto shown = [&](graph::ValueId value) {
    return !value.valid() || !graph.comes_from_outside(value) ? (value.valid() ? shows_[value.index()] : value) : value;
  };
  for (; nodes_ < graph.nodes().size(); ++nodes_) {
    const graph::Node& node = graph.nodes()[nodes_];
    const Operator& op = operator_named(node.op);
    const bool is_done = !part || (*part)[nodes_];
    is_final_ = is_final_ || (op.is_foreign && is_done);
    graph::ValueId of;
    for (size_t a = 0; a < node.args.size(); ++a)
      each_value(node.args[a], [&](graph::ValueId value) {
        const graph::ValueId input = shown(value);
        if (!input.valid()) return;
        if (op.aliases[a]) of = input;
        if (!op.writes[a] || !is_done) return;
        is_final_ = is_final_ || (op.way == Way::kRestride && value == input);
        if (std::find(written_.begin(), written_.end(), input) == written_.end()) written_.push_back(input);
        int64_t elements = 1;
        for (const types::Expr& size : graph.value(value).type.sizes) elements *= size.value_or(kFew);
        elements_ += elements;
      });
    for (const graph::ValueId output : node.outputs)
      if (output.valid() && of.valid()) shows_[output.index()] = of;
  }
  return !is_final_ && elements_ <= kFew;
}

/// All of a tensor's storage, as one row.
static at::Tensor whole_storage(const at::Tensor& tensor) {
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.as_strided({count}, {1}, 0);
}

/// A tensor with each place of its memory once: an expanded one has several elements in one.
static at::Tensor distinct_places(at::Tensor tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  return tensor;
}

/// Nothing: torch tells none. Such a view is one of several results, and what it looks at was written to.
static std::optional<torch::autograd::Edge> history_of(const at::Tensor& tensor) {
  try {
    return torch::autograd::Edge(tensor.grad_fn(), static_cast<uint32_t>(tensor.output_nr()));
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

Undo::Undo(const Plan& plan, std::span<const at::Tensor> inputs) {
  const BelowAutograd below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  for (const Plan::Input& input : plan.inputs) {
    const at::Tensor& tensor = inputs[input.index];
    const at::Tensor detached = tensor.alias();
    const at::Tensor memory = input.whole_storage ? whole_storage(detached) : distinct_places(detached);
    kept_.push_back({.tensor = tensor,
                     .memory = memory,
                     .content = memory.clone(),
                     .detached = detached,
                     .history = history_of(tensor),
                     .version = tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version())});
  }
}

bool Undo::keeps_views() const {
  return std::any_of(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.tensor.is_view(); });
}

bool Undo::take_back() {
  for (const Kept& kept : kept_) {
    const at::Tensor &now = kept.tensor, &before = kept.detached;
    if (now.sizes() != before.sizes() || now.strides() != before.strides() || !now.is_alias_of(before) ||
        now.storage_offset() != before.storage_offset() || (now.is_view() && history_of(now) != kept.history))
      return false;
  }
  const BelowAutograd below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  for (const Kept& kept : kept_) {
    kept.memory.copy_(kept.content);
    if (kept.tensor.is_inference()) continue;
    c10::VariableVersion counter = torch::autograd::impl::version_counter(kept.tensor);  // shared with the tensor
    counter.set_version(static_cast<int64_t>(kept.version));
    if (kept.history && history_of(kept.tensor) != kept.history)
      torch::autograd::impl::set_gradient_edge(kept.tensor, *kept.history);
  }
  return true;
}

}  // namespace magneto::aten
