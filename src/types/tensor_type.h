// types/tensor_type.h: all that is known of a tensor without its data.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "types/device.h"
#include "types/dtype.h"
#include "types/expr.h"

namespace magneto::types {

using Sizes = std::vector<Expr>;

struct TensorType {
  Dtype dtype = Dtype::kF32;
  Device device;
  Sizes sizes;
  Sizes strides;  ///< in elements, one for each size
  Expr offset;    ///< of the first element in the storage, in elements
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

Sizes contiguous_strides(const Sizes& sizes);  ///< of a fresh row-major tensor, as torch gives them
Expr numel(const Sizes& sizes);
bool is_contiguous(const TensorType& type);

/// f32[2, 3]; strides only when not contiguous: f32[2, 3]{1, 2}; then offset and device: f32[2]{1}+4@cuda:0
std::string to_string(const TensorType& type);

}  // namespace magneto::types
