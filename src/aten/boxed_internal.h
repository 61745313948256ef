// aten/boxed_internal.h: the arguments of an operator, prepared once and boxed at each call.
#pragma once
#include <ATen/core/stack.h>

#include <span>
#include <string>
#include <vector>

#include "aten/operators_internal.h"

namespace magneto::aten {

class Symbols;

/// One argument: a value that never changes, sizes that are known when it runs, or tensors by number.
struct Slot {
  enum class From : uint8_t { kTemplate, kValue, kList, kOptionalList, kSymbolic };
  From from = From::kTemplate;
  ArgKind kind = ArgKind::kOther;
  graph::Arg symbolic;  ///< sizes that are known when it runs
  c10::IValue constant;
  std::vector<graph::ValueId> values;
  std::vector<bool> last;  ///< for each value: nobody reads it later, so it is moved
};
std::vector<Slot> make_slots(const Operator& op, const std::vector<graph::Arg>& args);  ///< one for each of its schema

at::Tensor take(std::span<at::Tensor> values, graph::ValueId id, bool last);
void push(const Slot& slot, std::span<at::Tensor> values, std::span<const int64_t> symbols, torch::jit::Stack& stack);
void call(const Operator& op, torch::jit::Stack& stack);
/// An argument for a symbolic trace: sizes that are symbols stay so. Throws where torch takes nothing but a number.
c10::IValue boxed(const graph::Arg& arg, ArgKind kind, std::span<const at::Tensor> values, Symbols& symbols);

/// Calls `keep` with each tensor among the results, those of lists one after the other.
template <class Keep>
void for_each_result(torch::jit::Stack& stack, const Keep& keep) {
  for (c10::IValue& result : stack) {
    if (result.isTensor())
      keep(std::move(result).toTensor());
    else if (result.isTensorList())
      for (const c10::IValue& item : result.toListRef()) keep(at::Tensor(item.toTensor()));
  }
}

}  // namespace magneto::aten
