#include "aten/boxed_internal.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <stdexcept>

#include "aten/symbols.h"
#include "base/check.h"

namespace magneto::aten {

using graph::ValueId;

static bool is_symbolic(const graph::Arg& arg) {
  if (const auto* one = std::get_if<types::Expr>(&arg)) return !one->is_constant();
  if (std::holds_alternative<graph::Real>(arg)) return true;
  const auto* list = std::get_if<std::vector<types::Expr>>(&arg);
  return list && std::any_of(list->begin(), list->end(), [](const types::Expr& expr) { return !expr.is_constant(); });
}

static Slot make_slot(const graph::Arg& arg, ArgKind kind) {
  Slot slot;
  if (const auto* value = std::get_if<ValueId>(&arg)) {
    if (value->valid())
      slot.from = Slot::From::kValue, slot.values = {*value};
    else
      slot.constant = at::Tensor();
  } else if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
    slot.from = kind == ArgKind::kOptionalTensors ? Slot::From::kOptionalList : Slot::From::kList;
    slot.values = *list;
  } else if (is_symbolic(arg)) {
    slot.from = Slot::From::kSymbolic;
    slot.kind = kind;
    slot.symbolic = arg;
  } else {
    slot.constant = to_ivalue(arg, kind);
  }
  slot.last.assign(slot.values.size(), false);
  return slot;
}

std::vector<Slot> make_slots(const Operator& op, const std::vector<graph::Arg>& args) {
  base::check(args.size() == op.arguments.size(), "aten: ", op.name, " has ", args.size(), " arguments, its schema ",
              op.arguments.size());
  std::vector<Slot> slots;
  for (size_t a = 0; a < args.size(); ++a) slots.push_back(make_slot(args[a], op.arguments[a]));
  return slots;
}

at::Tensor take(std::span<at::Tensor> values, ValueId id, bool last) {
  if (!id.valid()) return {};
  return last ? std::move(values[id.index()]) : values[id.index()];
}

void push(const Slot& slot, std::span<at::Tensor> values, std::span<const int64_t> symbols, torch::jit::Stack& stack) {
  switch (slot.from) {
    case Slot::From::kSymbolic:
      stack.push_back(to_ivalue(graph::evaluate(slot.symbolic, symbols), slot.kind));
      break;
    case Slot::From::kTemplate:
      stack.push_back(slot.constant);
      break;
    case Slot::From::kValue:
      stack.emplace_back(take(values, slot.values[0], slot.last[0]));
      break;
    case Slot::From::kList: {
      c10::List<at::Tensor> list;
      list.reserve(slot.values.size());
      for (size_t v = 0; v < slot.values.size(); ++v) list.push_back(take(values, slot.values[v], slot.last[v]));
      stack.emplace_back(std::move(list));
      break;
    }
    case Slot::From::kOptionalList: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(slot.values.size());
      for (size_t v = 0; v < slot.values.size(); ++v) {
        if (slot.values[v].valid())
          list.push_back(take(values, slot.values[v], slot.last[v]));
        else
          list.push_back(std::nullopt);
      }
      stack.emplace_back(std::move(list));
      break;
    }
  }
}

void call(const Operator& op, torch::jit::Stack& stack) {
  if (!op.factory) return op.handle.callBoxed(stack);
  c10::impl::ExcludeDispatchKeyGuard below_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  op.handle.callBoxed(stack);
}

c10::IValue boxed(const graph::Arg& arg, ArgKind kind, std::span<const at::Tensor> tensors, Symbols& symbols) {
  if (const auto* value = std::get_if<ValueId>(&arg)) return value->valid() ? tensors[value->index()] : at::Tensor();
  if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
    if (kind != ArgKind::kOptionalTensors) {
      c10::List<at::Tensor> boxed;
      for (const ValueId id : *list) boxed.push_back(id.valid() ? tensors[id.index()] : at::Tensor());
      return boxed;
    }
    c10::List<std::optional<at::Tensor>> boxed;
    for (const ValueId id : *list)
      boxed.push_back(id.valid() ? std::optional<at::Tensor>(tensors[id.index()]) : std::nullopt);
    return boxed;
  }
  if (const auto* one = std::get_if<types::Expr>(&arg); one && !one->is_constant()) {
    if (kind == ArgKind::kInt) return symbols.to_torch(*one);
    if (kind == ArgKind::kNumber) return c10::Scalar(symbols.to_torch(*one));
    if (kind == ArgKind::kTensor) return symbols.wrap(*one);
    throw std::runtime_error("a size where only a number can stand");
  }
  if (const auto* real = std::get_if<graph::Real>(&arg)) {
    if (kind == ArgKind::kTensor) return symbols.wrap(*real);
    if (kind == ArgKind::kNumber) return c10::Scalar(symbols.to_torch(*real));
    // A formula may pass it on. Who counts with it makes other numbers of other values (make_joint).
    if (const auto lent = kind == ArgKind::kFloat ? symbols.lend(*real) : std::nullopt) return *lent;
    throw std::runtime_error("a float that changes where only a number can stand");
  }
  if (const auto* list = std::get_if<types::Sizes>(&arg))
    if (std::any_of(list->begin(), list->end(), [](const types::Expr& expr) { return !expr.is_constant(); })) {
      std::vector<c10::SymInt> numbers;
      for (const types::Expr& expr : *list) numbers.push_back(symbols.to_torch(expr));
      return c10::IValue(c10::SymIntArrayRef(numbers));
    }
  return to_ivalue(arg, kind);
}

}  // namespace magneto::aten
