#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "aten/operators_internal.h"
#include "aten/undo.h"

namespace magneto::aten {

using BelowAutograd = c10::impl::ExcludeDispatchKeyGuard;

/// Some values of its arguments are errors.
static bool may_refuse(const Operator& op) { return op.way == Way::kAtOnce || op.divides || op.is_foreign; }

// A view shares the memory of any argument that its schema marks.
Undo::Plan undo_plan(const graph::Graph& graph) {
  constexpr size_t kNone = SIZE_MAX;
  Undo::Plan plan;
  std::vector<size_t> of_input(graph.values().size(), kNone), written;
  for (size_t i = 0; i < graph.inputs().size(); ++i) of_input[graph.inputs()[i].index()] = i;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const graph::Node& node = graph.nodes()[n];
    const Operator& op = operator_named(node.op);
    size_t shares = kNone;
    for (size_t a = 0; a < node.args.size(); ++a) {
      const auto meet = [&](graph::ValueId value) {
        if (!value.valid() || of_input[value.index()] == kNone) return;
        if (op.aliases[a]) shares = of_input[value.index()];
        if (op.writes[a]) written.push_back(of_input[value.index()]);
      };
      if (const auto* one = std::get_if<graph::ValueId>(&node.args[a])) meet(*one);
      if (const auto* list = std::get_if<std::vector<graph::ValueId>>(&node.args[a]))
        for (const graph::ValueId value : *list) meet(value);
    }
    if (shares != kNone)
      for (const graph::ValueId output : node.outputs)
        if (output.valid()) of_input[output.index()] = shares;
    if (!may_refuse(op)) continue;
    plan.last_refusal = n;
    for (const size_t input : written)
      if (std::find(plan.inputs.begin(), plan.inputs.end(), input) == plan.inputs.end()) plan.inputs.push_back(input);
    written.clear();
  }
  plan.is_complete = written.empty();
  return plan;
}

Undo::Undo(const Plan& plan, std::span<const at::Tensor> inputs) {
  const BelowAutograd below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  for (const size_t i : plan.inputs) {
    const at::Tensor& tensor = inputs[i];
    kept_.push_back({.tensor = tensor,
                     .elements = tensor.clone(),
                     .detached = tensor.alias(),
                     .history = {tensor.grad_fn(), static_cast<uint32_t>(tensor.output_nr())},
                     .version = tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version())});
  }
}

bool Undo::take_back() {
  for (const Kept& kept : kept_) {
    const at::Tensor &now = kept.tensor, &before = kept.detached;
    if (now.sizes() != before.sizes() || now.strides() != before.strides() || !now.is_alias_of(before) ||
        now.storage_offset() != before.storage_offset() || (now.is_view() && now.grad_fn() != kept.history.function))
      return false;
  }
  const BelowAutograd below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  for (const Kept& kept : kept_) {
    at::Tensor into = kept.detached, elements = kept.elements;
    for (int64_t d = 0; d < into.dim(); ++d)  // an expanded one: a place is written to once
      if (into.stride(d) == 0 && into.size(d) > 1) into = into.narrow(d, 0, 1), elements = elements.narrow(d, 0, 1);
    into.copy_(elements);
    if (kept.tensor.is_inference()) continue;
    c10::VariableVersion counter = torch::autograd::impl::version_counter(kept.tensor);  // shared with the tensor
    counter.set_version(static_cast<int64_t>(kept.version));
    if (kept.tensor.grad_fn() != kept.history.function)
      torch::autograd::impl::set_gradient_edge(kept.tensor, kept.history);
  }
  return true;
}

}  // namespace magneto::aten
