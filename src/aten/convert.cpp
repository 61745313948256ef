// aten/convert.cpp
#include "aten/convert_internal.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <utility>

#include "aten/storage_flags_internal.h"
#include "aten/symbols.h"
#include "base/check.h"

namespace magneto::aten {

using c10::ScalarType;
using types::Dtype;

namespace {

constexpr std::array<std::pair<ScalarType, Dtype>, 21> kDtypes{{
    {ScalarType::Float, Dtype::kF32},
    {ScalarType::Double, Dtype::kF64},
    {ScalarType::Half, Dtype::kF16},
    {ScalarType::BFloat16, Dtype::kBF16},
    {ScalarType::Long, Dtype::kI64},
    {ScalarType::Int, Dtype::kI32},
    {ScalarType::Short, Dtype::kI16},
    {ScalarType::Char, Dtype::kI8},
    {ScalarType::Byte, Dtype::kU8},
    {ScalarType::Bool, Dtype::kBool},
    {ScalarType::UInt16, Dtype::kU16},
    {ScalarType::UInt32, Dtype::kU32},
    {ScalarType::UInt64, Dtype::kU64},
    {ScalarType::ComplexHalf, Dtype::kC32},
    {ScalarType::ComplexFloat, Dtype::kC64},
    {ScalarType::ComplexDouble, Dtype::kC128},
    {ScalarType::Float8_e4m3fn, Dtype::kF8E4M3FN},
    {ScalarType::Float8_e5m2, Dtype::kF8E5M2},
    {ScalarType::Float8_e4m3fnuz, Dtype::kF8E4M3FNUZ},
    {ScalarType::Float8_e5m2fnuz, Dtype::kF8E5M2FNUZ},
    {ScalarType::Float8_e8m0fnu, Dtype::kF8E8M0FNU},
}};

constexpr std::pair<c10::MemoryFormat, types::MemoryFormat> kFormats[] = {
    {c10::MemoryFormat::Contiguous, types::MemoryFormat::kContiguous},
    {c10::MemoryFormat::Preserve, types::MemoryFormat::kPreserve},
    {c10::MemoryFormat::ChannelsLast, types::MemoryFormat::kChannelsLast},
    {c10::MemoryFormat::ChannelsLast3d, types::MemoryFormat::kChannelsLast3d},
};

types::Sizes sizes_of(c10::IntArrayRef numbers) { return types::Sizes(numbers.begin(), numbers.end()); }

std::optional<types::Sizes> sizes_of(c10::SymIntArrayRef numbers) {
  types::Sizes sizes;
  for (const c10::SymInt& number : numbers) {
    auto expr = Symbols::from_torch(number);
    if (!expr) return std::nullopt;
    sizes.push_back(std::move(*expr));
  }
  return sizes;
}

bool is_constant(const types::TensorType& type) {
  const auto constant = [](const types::Expr& expr) { return expr.is_constant(); };
  return std::all_of(type.sizes.begin(), type.sizes.end(), constant) &&
         std::all_of(type.strides.begin(), type.strides.end(), constant) && constant(type.offset);
}

int64_t constant(const types::Expr& expr) {
  base::check(expr.is_constant(), "convert: a symbolic size where a number is needed");
  return expr.value_or(0);
}

c10::SmallVector<int64_t, 6> constants(const types::Sizes& sizes) {
  c10::SmallVector<int64_t, 6> numbers;
  for (const types::Expr& size : sizes) numbers.push_back(constant(size));
  return numbers;
}

c10::Scalar scalar_of(const graph::Arg& number) {
  if (auto* integer = std::get_if<types::Expr>(&number)) return constant(*integer);
  if (auto* real = std::get_if<double>(&number)) return *real;
  if (auto* truth = std::get_if<bool>(&number)) return *truth;
  if (auto* complex = std::get_if<std::complex<double>>(&number))
    return c10::complex<double>(complex->real(), complex->imag());
  throw base::Fault("convert: an argument that should be a number is none");
}

std::optional<graph::Arg> number_arg(const c10::IValue& value) {
  if (value.isInt()) return types::Expr(value.toInt());
  if (value.isSymInt()) {
    auto expr = Symbols::from_torch(value.toSymInt());
    return expr ? std::optional<graph::Arg>(std::move(*expr)) : std::nullopt;
  }
  if (value.isDouble()) return value.toDouble();
  if (value.isSymFloat()) return Symbols::from_torch(value.toSymFloat());
  if (value.isBool()) return value.toBool();
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return std::complex<double>(number.real(), number.imag());
  }
  return std::nullopt;
}

// A list of Python numbers has a home in the graph language when all of them are of one kind.
std::optional<graph::Arg> numbers_arg(c10::ArrayRef<c10::IValue> list) {
  std::vector<types::Expr> integers;
  std::vector<double> reals;
  for (const c10::IValue& value : list) {
    if (value.isInt()) integers.emplace_back(value.toInt());
    if (value.isDouble()) reals.push_back(value.toDouble());
    if (value.isSymFloat()) reals.push_back(value.toSymFloat().guard_float(__FILE__, __LINE__));
  }
  if (reals.size() == list.size()) return reals;
  if (integers.size() == list.size()) return integers;
  return std::nullopt;
}

}  // namespace

std::optional<Dtype> to_dtype(ScalarType type) {
  for (const auto& [torch, ours] : kDtypes)
    if (torch == type) return ours;
  return std::nullopt;
}

ScalarType to_scalar_type(Dtype dtype) {
  for (const auto& [torch, ours] : kDtypes)
    if (ours == dtype) return torch;
  throw base::Fault("convert: a dtype that torch does not have");
}

std::optional<types::Device> to_device(c10::Device device) {
  using Kind = types::Device::Kind;
  if (device.is_cpu()) return types::Device{Kind::kCpu, static_cast<int8_t>(device.index())};
  if (device.is_cuda()) return types::Device{Kind::kCuda, static_cast<int8_t>(device.index())};
  if (device.is_meta()) return types::Device{Kind::kMeta, static_cast<int8_t>(device.index())};
  return std::nullopt;
}

c10::Device to_torch(types::Device device) {
  using Kind = types::Device::Kind;
  const auto type = device.kind == Kind::kCpu ? c10::kCPU : device.kind == Kind::kCuda ? c10::kCUDA : c10::kMeta;
  return c10::Device(type, device.index);
}

c10::MemoryFormat to_torch(types::MemoryFormat format) {
  for (const auto& [torch, ours] : kFormats)
    if (ours == format) return torch;
  throw base::Fault("convert: a memory format that torch does not have");
}

types::TensorType type_of(const c10::TensorImpl& impl) {
  if (impl.has_symbolic_sizes_strides())
    return {.dtype = *to_dtype(c10::typeMetaToScalarType(impl.dtype())),
            .device = *to_device(impl.device()),
            .sizes = sizes_of(impl.sym_sizes()).value(),
            .strides = sizes_of(impl.sym_strides()).value(),
            .offset = Symbols::from_torch(impl.sym_storage_offset()).value()};
  return {.dtype = *to_dtype(c10::typeMetaToScalarType(impl.dtype())),
          .device = *to_device(impl.device()),
          .sizes = sizes_of(impl.sizes()),
          .strides = sizes_of(impl.strides()),
          .offset = impl.storage_offset()};
}

bool has_type(const c10::TensorImpl& impl, const types::TensorType& type) {
  if (to_dtype(c10::typeMetaToScalarType(impl.dtype())) != type.dtype || to_device(impl.device()) != type.device)
    return false;
  if (impl.has_symbolic_sizes_strides() || !is_constant(type)) return type_of(impl) == type;
  const c10::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
  if (sizes.size() != type.sizes.size() || impl.storage_offset() != constant(type.offset)) return false;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != constant(type.sizes[d]) || strides[d] != constant(type.strides[d])) return false;
  return true;
}

void set_layout(c10::TensorImpl& impl, const types::TensorType& type, Symbols* symbols) {
  if (symbols && !is_constant(type)) {
    std::vector<c10::SymInt> sizes, strides;
    for (const types::Expr& size : type.sizes) sizes.push_back(symbols->to_torch(size));
    for (const types::Expr& stride : type.strides) strides.push_back(symbols->to_torch(stride));
    return impl.set_sizes_and_strides(sizes, strides, symbols->to_torch(type.offset));
  }
  impl.set_sizes_and_strides(constants(type.sizes), constants(type.strides), constant(type.offset));
}

Extents extents_of(const types::TensorType& type, std::span<const int64_t> symbols) {
  Extents made;
  for (const types::Expr& size : type.sizes) made.sizes.push_back(size.evaluate(symbols));
  for (const types::Expr& stride : type.strides) made.strides.push_back(stride.evaluate(symbols));
  return made;
}

ArgKind kind_of(const c10::Argument& argument) {
  using c10::TypeKind;
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case TypeKind::TensorType:
      return ArgKind::kTensor;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ArgKind::kInt;
    case TypeKind::FloatType:
      return ArgKind::kFloat;
    case TypeKind::BoolType:
      return ArgKind::kBool;
    case TypeKind::NumberType:
      return ArgKind::kNumber;
    case TypeKind::StringType:
      return ArgKind::kString;
    case TypeKind::ScalarTypeType:
      return ArgKind::kDtype;
    case TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    case TypeKind::LayoutType:
      return ArgKind::kLayout;
    case TypeKind::MemoryFormatType:
      return ArgKind::kMemoryFormat;
    case TypeKind::ListType:
      break;
    default:
      return ArgKind::kOther;
  }
  c10::TypePtr element = type->expect<c10::ListType>()->getElementType();
  if (auto optional = element->cast<c10::OptionalType>())
    return optional->getElementType()->kind() == TypeKind::TensorType ? ArgKind::kOptionalTensors : ArgKind::kOther;
  switch (element->kind()) {
    case TypeKind::TensorType:
      return ArgKind::kTensors;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ArgKind::kInts;
    case TypeKind::FloatType:
      return ArgKind::kFloats;
    case TypeKind::BoolType:
      return ArgKind::kBools;
    case TypeKind::NumberType:
      return ArgKind::kNumbers;
    default:
      return ArgKind::kOther;
  }
}

std::optional<graph::Arg> to_arg(const c10::IValue& value, ArgKind kind) {
  if (value.isNone()) return graph::Arg();
  switch (kind) {
    case ArgKind::kDtype:
      if (!value.isInt()) return std::nullopt;
      if (auto dtype = to_dtype(value.toScalarType())) return *dtype;
      return std::nullopt;
    case ArgKind::kDevice:
      if (auto device = to_device(value.toDevice())) return *device;
      return std::nullopt;
    case ArgKind::kLayout:
      if (value.toLayout() != c10::kStrided) return std::nullopt;
      return types::Layout::kStrided;
    case ArgKind::kMemoryFormat:
      for (const auto& [torch, ours] : kFormats)
        if (torch == value.toMemoryFormat()) return ours;
      return std::nullopt;
    case ArgKind::kInt:
    case ArgKind::kFloat:
    case ArgKind::kBool:
    case ArgKind::kNumber:
      return number_arg(value);
    case ArgKind::kString:
      if (value.isString()) return value.toStringRef();
      return std::nullopt;
    case ArgKind::kInts:
      if (value.isIntList()) return sizes_of(value.toDimVector());
      if (!value.isSymIntList()) return std::nullopt;
      if (auto sizes = sizes_of(c10::SymIntArrayRef(value.toSymIntVector()))) return std::move(*sizes);
      return std::nullopt;
    case ArgKind::kFloats:
      if (!value.isDoubleList()) return std::nullopt;
      return value.toDoubleVector();
    case ArgKind::kBools: {
      if (!value.isBoolList()) return std::nullopt;
      const auto list = value.toBoolList();
      return std::vector<bool>(list.begin(), list.end());
    }
    case ArgKind::kNumbers:
      if (!value.isList()) return std::nullopt;
      return numbers_arg(value.toListRef());
    case ArgKind::kTensor:
    case ArgKind::kTensors:
    case ArgKind::kOptionalTensors:
    case ArgKind::kOther:
      break;
  }
  return std::nullopt;
}

c10::IValue to_ivalue(const graph::Arg& arg, ArgKind kind) {
  if (std::holds_alternative<std::monostate>(arg)) return {};
  switch (kind) {
    case ArgKind::kTensor:
      return wrapped_number(arg);
    case ArgKind::kInt:
    case ArgKind::kFloat:
    case ArgKind::kBool:
    case ArgKind::kNumber: {
      const c10::Scalar number = scalar_of(arg);
      if (kind == ArgKind::kInt) return number.toLong();
      if (kind == ArgKind::kFloat) return number.toDouble();
      if (kind == ArgKind::kBool) return number.toBool();
      return number;
    }
    case ArgKind::kInts: {
      c10::List<int64_t> list;
      for (const types::Expr& e : std::get<std::vector<types::Expr>>(arg)) list.push_back(constant(e));
      return list;
    }
    case ArgKind::kFloats: {
      c10::List<double> list;
      for (double real : std::get<std::vector<double>>(arg)) list.push_back(real);
      return list;
    }
    case ArgKind::kBools: {
      c10::List<bool> list;
      for (bool truth : std::get<std::vector<bool>>(arg)) list.push_back(truth);
      return list;
    }
    case ArgKind::kNumbers: {
      c10::List<c10::Scalar> list;
      if (auto* reals = std::get_if<std::vector<double>>(&arg))
        for (double real : *reals) list.push_back(c10::Scalar(real));
      else
        for (const types::Expr& e : std::get<std::vector<types::Expr>>(arg)) list.push_back(c10::Scalar(constant(e)));
      return list;
    }
    case ArgKind::kString:
      return std::get<std::string>(arg);
    case ArgKind::kDtype:
      return to_scalar_type(std::get<Dtype>(arg));
    case ArgKind::kDevice:
      return to_torch(std::get<types::Device>(arg));
    case ArgKind::kLayout:
      base::check(std::get<types::Layout>(arg) == types::Layout::kStrided, "convert: only strided tensors can be made");
      return c10::kStrided;
    case ArgKind::kMemoryFormat:
      return to_torch(std::get<types::MemoryFormat>(arg));
    case ArgKind::kTensors:
    case ArgKind::kOptionalTensors:
    case ArgKind::kOther:
      break;
  }
  throw base::Fault("convert: an argument that its operator's schema does not take");
}

bool is_wrapped_number(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.is_wrapped_number() || impl.dim() != 0 || !impl.device().is_cpu()) return false;
  const ScalarType type = c10::typeMetaToScalarType(impl.dtype());
  return (type == ScalarType::Long || type == ScalarType::Double || type == ScalarType::Bool ||
          type == ScalarType::ComplexDouble) &&
         impl.unsafe_storage() && !is_sealed(*impl.unsafe_storage().unsafeGetStorageImpl());
}

graph::Arg number_of(const at::Tensor& wrapped) {
  const void* data = wrapped.const_data_ptr();
  switch (wrapped.scalar_type()) {
    case ScalarType::Long:
      return types::Expr(*static_cast<const int64_t*>(data));
    case ScalarType::Double:
      return *static_cast<const double*>(data);
    case ScalarType::Bool:
      return *static_cast<const bool*>(data);
    case ScalarType::ComplexDouble:
      return *static_cast<const std::complex<double>*>(data);
    default:
      break;
  }
  throw base::Fault("convert: a wrapped number of a dtype that Python numbers do not have");
}

at::Tensor wrapped_number(const graph::Arg& number) {
  at::Tensor tensor = c10::scalar_to_tensor(scalar_of(number));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace magneto::aten
