#include "types/dtype.h"

#include <iterator>

namespace magneto::types {

namespace {
enum class Kind : uint8_t { kBool, kInteger, kFloating, kComplex };
struct Row {
  std::string_view name;
  size_t item_size;
  Kind kind;
};
// In the order of Dtype.
constexpr Row kRows[] = {
    {"bool", 1, Kind::kBool},           {"u8", 1, Kind::kInteger},          {"i8", 1, Kind::kInteger},
    {"i16", 2, Kind::kInteger},         {"i32", 4, Kind::kInteger},         {"i64", 8, Kind::kInteger},
    {"u16", 2, Kind::kInteger},         {"u32", 4, Kind::kInteger},         {"u64", 8, Kind::kInteger},
    {"f16", 2, Kind::kFloating},        {"bf16", 2, Kind::kFloating},       {"f32", 4, Kind::kFloating},
    {"f64", 8, Kind::kFloating},        {"c32", 4, Kind::kComplex},         {"c64", 8, Kind::kComplex},
    {"c128", 16, Kind::kComplex},       {"f8e4m3fn", 1, Kind::kFloating},   {"f8e5m2", 1, Kind::kFloating},
    {"f8e4m3fnuz", 1, Kind::kFloating}, {"f8e5m2fnuz", 1, Kind::kFloating}, {"f8e8m0fnu", 1, Kind::kFloating},
};
static_assert(std::size(kRows) == static_cast<size_t>(Dtype::kF8E8M0FNU) + 1);

const Row& row(Dtype dtype) { return kRows[static_cast<size_t>(dtype)]; }
}  // namespace

std::string_view name(Dtype dtype) { return row(dtype).name; }
size_t item_size(Dtype dtype) { return row(dtype).item_size; }
bool is_floating(Dtype dtype) { return row(dtype).kind == Kind::kFloating; }
bool is_complex(Dtype dtype) { return row(dtype).kind == Kind::kComplex; }
bool is_integral(Dtype dtype) { return row(dtype).kind == Kind::kInteger; }

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].name == name) return static_cast<Dtype>(i);
  return std::nullopt;
}

}  // namespace magneto::types
