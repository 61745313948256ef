#include "loop/op.h"

#include <iterator>

namespace magneto::loop {

namespace {

// In the order of Op.
constexpr OpTraits kTraits[] = {
    {"constant", 0, 0, Takes::kAny, false}, {"size", 0, 0, Takes::kAny, false},
    {"axis", 0, 0, Takes::kAny, false},     {"local", 0, 0, Takes::kAny, false},
    {"x[]", 0, 0, Takes::kAny, false},      {"load", 0, 0, Takes::kAny, false},
    {"reduce", 0, 0, Takes::kAny, false},   {"cast", 0, 0, Takes::kAny, false},
    {"bits", 0, 0, Takes::kAny, false},     {"where", 3, 0, Takes::kAny, false},
    {"fma", 3, 0, Takes::kFloat, false},    {"+", 2, 6, Takes::kNumber, false},
    {"-", 2, 6, Takes::kNumber, false},     {"*", 2, 7, Takes::kNumber, false},
    {"/", 2, 7, Takes::kFloat, false},      {"//", 2, 7, Takes::kNumber, false},
    {"%", 2, 7, Takes::kNumber, false},     {"trunc_div", 2, 0, Takes::kNumber, false},
    {"fmod", 2, 0, Takes::kNumber, false},  {"min", 2, 0, Takes::kNumber, false},
    {"max", 2, 0, Takes::kNumber, false},   {"pow", 2, 0, Takes::kNumber, false},
    {"atan2", 2, 0, Takes::kFloat, false},  {"copysign", 2, 0, Takes::kFloat, false},
    {"&", 2, 4, Takes::kBits, false},       {"|", 2, 2, Takes::kBits, false},
    {"^", 2, 3, Takes::kBits, false},       {"<<", 2, 5, Takes::kInteger, false},
    {">>", 2, 5, Takes::kInteger, false},   {"==", 2, 1, Takes::kAny, true},
    {"!=", 2, 1, Takes::kAny, true},        {"<", 2, 1, Takes::kNumber, true},
    {"<=", 2, 1, Takes::kNumber, true},     {">", 2, 1, Takes::kNumber, true},
    {">=", 2, 1, Takes::kNumber, true},     {"checked", 2, 0, Takes::kInteger, false},
    {"-", 1, 8, Takes::kNumber, false},     {"~", 1, 8, Takes::kBits, false},
    {"abs", 1, 0, Takes::kNumber, false},   {"floor", 1, 0, Takes::kFloat, false},
    {"ceil", 1, 0, Takes::kFloat, false},   {"trunc", 1, 0, Takes::kFloat, false},
    {"round", 1, 0, Takes::kFloat, false},  {"sqrt", 1, 0, Takes::kFloat, false},
    {"rsqrt", 1, 0, Takes::kFloat, false},  {"exp", 1, 0, Takes::kFloat, false},
    {"expm1", 1, 0, Takes::kFloat, false},  {"log", 1, 0, Takes::kFloat, false},
    {"log1p", 1, 0, Takes::kFloat, false},  {"log2", 1, 0, Takes::kFloat, false},
    {"sin", 1, 0, Takes::kFloat, false},    {"cos", 1, 0, Takes::kFloat, false},
    {"tan", 1, 0, Takes::kFloat, false},    {"tanh", 1, 0, Takes::kFloat, false},
    {"erf", 1, 0, Takes::kFloat, false},    {"asin", 1, 0, Takes::kFloat, false},
    {"acos", 1, 0, Takes::kFloat, false},   {"atan", 1, 0, Takes::kFloat, false},
    {"sinh", 1, 0, Takes::kFloat, false},   {"cosh", 1, 0, Takes::kFloat, false},
    {"lgamma", 1, 0, Takes::kFloat, false},
};
static_assert(std::size(kTraits) == static_cast<size_t>(Op::kLgamma) + 1);

constexpr std::string_view kFolds[] = {"sum", "prod", "max", "min", "argmax", "argmin", "any", "all"};

}  // namespace

const OpTraits& traits(Op op) { return kTraits[static_cast<size_t>(op)]; }

std::optional<Op> find_function(std::string_view name, int operands) {
  for (size_t i = 0; i < std::size(kTraits); ++i)
    if (kTraits[i].operands == operands && kTraits[i].precedence == 0 && kTraits[i].name == name)
      return static_cast<Op>(i);
  return std::nullopt;
}

std::string_view name(Fold fold) { return kFolds[static_cast<size_t>(fold)]; }

std::optional<Fold> find_fold(std::string_view name) {
  for (size_t i = 0; i < std::size(kFolds); ++i)
    if (kFolds[i] == name) return static_cast<Fold>(i);
  return std::nullopt;
}

types::Dtype result_of(Fold fold, types::Dtype element) { return gives_position(fold) ? types::Dtype::kI64 : element; }

bool is_known(types::Dtype dtype) {
  return dtype <= types::Dtype::kI64 || is_half(dtype) || dtype == types::Dtype::kF32 || dtype == types::Dtype::kF64;
}

bool is_unsigned(types::Dtype dtype) { return dtype == types::Dtype::kU8 || dtype == types::Dtype::kBool; }

bool takes(Takes what, types::Dtype dtype) {
  const bool computes = types::is_floating(dtype) && !is_half(dtype);
  switch (what) {
    case Takes::kAny:
      return true;
    case Takes::kNumber:
      return computes || types::is_integral(dtype);
    case Takes::kFloat:
      return computes;
    case Takes::kInteger:
      return types::is_integral(dtype);
    case Takes::kBits:
      return types::is_integral(dtype) || dtype == types::Dtype::kBool;
    case Takes::kNothing:
      return false;
  }
  return false;
}

}  // namespace magneto::loop
