// types/tensor_type.h: all that is known of a tensor without its data.
#pragma once
#include <optional>
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
/// Row-major without gaps, as torch decides it: strides of dimensions of size 1 do not matter, an empty tensor always
/// is. With symbolic sizes: known to be so.
bool is_contiguous(const TensorType& type);

/// f32[2, 3]; strides only when they are not those of a fresh tensor, or when an offset follows: f32[2, 3]{1, 2}; then
/// offset and device: f32[2]{1}+4@cuda:0
std::string to_string(const TensorType& type);
std::optional<TensorType> parse_tensor_type(std::string_view text);  ///< reads what to_string writes
/// Reads a type at the head of `text` and takes it away; leaves `text` alone when there is none.
std::optional<TensorType> take_tensor_type(std::string_view& text);

}  // namespace magneto::types
