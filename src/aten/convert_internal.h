// aten/convert_internal.h: torch's dtypes, devices, tensors and boxed arguments <-> the graph language.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <span>

#include "aten/types.h"
#include "graph/graph.h"
#include "types/tensor_type.h"

namespace magneto::aten {

class Symbols;

std::optional<types::Dtype> to_dtype(c10::ScalarType type);  ///< nothing: quantised, bits, ...
std::optional<types::Device> to_device(c10::Device device);  ///< nothing: neither CPU, CUDA nor meta

/// The type of a plain tensor (CPU or CUDA, strided, a dtype of ours).
types::TensorType type_of(const c10::TensorImpl& impl);
/// Whether sizes, strides, offset, dtype and device agree.
bool has_type(const c10::TensorImpl& impl, const types::TensorType& type);
/// Gives a tensor the sizes, strides and offset of a type. Only where `symbols` are given may they be symbolic.
void set_layout(c10::TensorImpl& impl, const types::TensorType& type, Symbols* symbols = nullptr);

/// Sizes and strides of a type, as numbers.
struct Extents {
  c10::SmallVector<int64_t, 5> sizes, strides;
};
Extents extents_of(const types::TensorType& type, std::span<const int64_t> symbols);

/// What a place in a schema takes. Optional places take the same, or none.
enum class ArgKind : uint8_t {
  kTensor,
  kTensors,
  kOptionalTensors,
  kInt,
  kInts,
  kFloat,
  kFloats,
  kBool,
  kBools,
  kNumber,
  kNumbers,
  kString,
  kDtype,
  kDevice,
  kLayout,
  kMemoryFormat,
  kOther,  ///< a generator, a storage, ...: a graph holds only its absence
};
ArgKind kind_of(const c10::Argument& argument);

/// A boxed argument that is no tensor. Nothing: the graph language cannot hold it.
std::optional<graph::Arg> to_arg(const c10::IValue& value, ArgKind kind);
/// The way back. Constant expressions only.
c10::IValue to_ivalue(const graph::Arg& arg, ArgKind kind);

/// A Python number that torch wrapped into a tensor (x * 2), as a number, and back.
bool is_wrapped_number(const at::Tensor& tensor);
graph::Arg number_of(const at::Tensor& wrapped);
at::Tensor wrapped_number(const graph::Arg& number);

}  // namespace magneto::aten
