// ops/pointwise_internal.h: the common form of elementwise rules: which arguments are operands, which element types are
// accepted, and what the result's is.
#pragma once
#include "ops/rules_internal.h"

namespace magneto::ops {

enum class To : uint8_t {
  kCommon,  ///< what the operands are promoted to
  kFloat,   ///< the same, but integers become the default float
  kBool,
  kReal,  ///< the same, but complex numbers become their parts
};

struct Typed {
  std::vector<Operand> operands;
  Dtype common = Dtype::kF32, result = Dtype::kF32;
};

/// Nothing when an operand is missing or its element type is not accepted (after promotion).
inline std::optional<Typed> typed(const Call& call, std::initializer_list<size_t> arguments, To to, unsigned accepted) {
  auto found = operands(call, arguments);
  if (!found) return std::nullopt;
  auto common = common_dtype(call, *found);
  if (!common || !accepts(accepted, *common)) return std::nullopt;
  if (to == To::kFloat && (*common == Dtype::kBool || types::is_integral(*common))) common = call.default_dtype;
  const Dtype result = to == To::kBool ? Dtype::kBool : to == To::kReal ? real_dtype(*common) : *common;
  return Typed{std::move(*found), *common, result};
}

inline Results write_to_first(const Call& call, const Typed& t) {
  const auto sizes = broadcast(call, t.operands);
  if (!sizes || !common_device(t.operands)) return std::nullopt;
  return in_place(call, *sizes, t.result);
}

/// Elementwise over these arguments.
template <To to, unsigned accepted, size_t... arguments>
Results pointwise(const Call& call) {
  const auto t = typed(call, {arguments...}, to, accepted);
  if (!t) return std::nullopt;
  return elementwise(call, t->operands, t->common, t->result);
}

/// The same, stored in the first argument.
template <To to, unsigned accepted, size_t... arguments>
Results pointwise_(const Call& call) {
  const auto t = typed(call, {arguments...}, to, accepted);
  if (!t) return std::nullopt;
  return write_to_first(call, *t);
}

/// Elementwise over tensors that must have one element type, as the kernels of most activations and their derivatives.
template <unsigned accepted, size_t... arguments>
Results uniform(const Call& call) {
  const auto found = operands(call, {arguments...});
  if (!found) return std::nullopt;
  const Dtype dtype = found->front().type.dtype;
  for (const Operand& one : *found)
    if (one.wrapped || one.type.dtype != dtype) return std::nullopt;
  if (!accepts(accepted, dtype)) return std::nullopt;
  return elementwise(call, *found, dtype, dtype);
}

template <unsigned accepted, size_t... arguments>
Results uniform_(const Call& call) {
  if (!uniform<accepted, arguments...>(call)) return std::nullopt;
  const auto found = operands(call, {arguments...});
  return write_to_first(call, {*found, found->front().type.dtype, found->front().type.dtype});
}

}  // namespace magneto::ops
