// types/overlap.h: which places of one storage a tensor uses, and which of them two tensors share.
#pragma once
#include "types/tensor_type.h"

namespace magneto::types {

/// Whether no two elements of the tensor lie in the same place, for all values of its symbols. False: not known.
bool has_distinct_elements(const TensorType& type);

enum class Overlap : uint8_t {
  kNone,     ///< no place in common
  kSame,     ///< the same places, element by element
  kUnknown,  ///< some places, or nobody knows
};
/// Of two tensors over one storage. A claim holds for all values of the symbols.
Overlap overlap(const TensorType& a, const TensorType& b);

/// Strides without gaps for a copy of the tensor: its own where they are such, else row-major.
Sizes dense_strides(const TensorType& type);

}  // namespace magneto::types
