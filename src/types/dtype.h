// types/dtype.h: element types. Names are short, as in printed graphs: f32, bf16, i64, bool.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace magneto::types {

enum class Dtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC32,
  kC64,
  kC128,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
};

std::string_view name(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);
size_t item_size(Dtype dtype);
bool is_floating(Dtype dtype);  ///< real floating point, complex not included
bool is_complex(Dtype dtype);
bool is_integral(Dtype dtype);  ///< integers without bool

}  // namespace magneto::types
