// Type promotion. Operands come in three ranks: tensors with dimensions, tensors without, Python numbers. A lower rank
// changes the result only when its category (bool, integer, float, complex) is above that of the higher ranks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/numbers.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

bool is_plain(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kU8:
    case Dtype::kI8:
    case Dtype::kI16:
    case Dtype::kI32:
    case Dtype::kI64:
    case Dtype::kF16:
    case Dtype::kBF16:
    case Dtype::kF32:
    case Dtype::kF64:
    case Dtype::kC64:
    case Dtype::kC128:
      return true;
    default:
      return false;
  }
}

bool accepts(unsigned accepted, Dtype dtype) {
  if (!is_plain(dtype)) return false;
  if (dtype == Dtype::kBool) return accepted & kBools;
  if (types::is_integral(dtype)) return accepted & kIntegers;
  return accepted & (types::is_complex(dtype) ? kComplexes : kFloats);
}

Dtype real_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kC32:
      return Dtype::kF16;
    case Dtype::kC64:
      return Dtype::kF32;
    case Dtype::kC128:
      return Dtype::kF64;
    default:
      return dtype;
  }
}

static Dtype complex_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return Dtype::kC128;
    case Dtype::kF16:
      return Dtype::kC32;
    default:
      return Dtype::kC64;  // bf16 has no complex of its own
  }
}

std::optional<Dtype> promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (!is_plain(a) || !is_plain(b)) return std::nullopt;
  if (types::is_complex(a) || types::is_complex(b)) {
    const auto parts = promote(real_dtype(a), real_dtype(b));
    if (!parts) return std::nullopt;
    return complex_dtype(*parts);
  }
  if (types::is_floating(a) && types::is_floating(b)) {
    if (a == Dtype::kF64 || b == Dtype::kF64) return Dtype::kF64;
    return Dtype::kF32;  // f16 and bf16 meet there
  }
  if (types::is_floating(a)) return a;
  if (types::is_floating(b)) return b;
  if (a == Dtype::kBool) return b;
  if (b == Dtype::kBool) return a;
  if (a == Dtype::kU8 || b == Dtype::kU8) {
    const Dtype other = a == Dtype::kU8 ? b : a;
    return other == Dtype::kI8 ? Dtype::kI16 : other;
  }
  return std::max(a, b);  // i8 < i16 < i32 < i64 in the order of Dtype
}

std::optional<Operand> operand(const Call& call, size_t i) {
  if (const TensorType* type = tensor(call, i)) return Operand{*type, false};
  if (i >= call.args.size()) return std::nullopt;
  Operand made{{}, true};
  const graph::Arg& arg = call.args[i];
  if (std::holds_alternative<bool>(arg))
    made.type.dtype = Dtype::kBool;
  else if (std::holds_alternative<Expr>(arg))
    made.type.dtype = Dtype::kI64;
  else if (std::holds_alternative<double>(arg) || takes_real(call, i))
    made.type.dtype = Dtype::kF64;
  else if (std::holds_alternative<std::complex<double>>(arg))
    made.type.dtype = Dtype::kC128;
  else
    return std::nullopt;
  return made;
}

std::optional<std::vector<Operand>> operands(const Call& call, std::initializer_list<size_t> arguments) {
  std::vector<Operand> found;
  for (const size_t i : arguments) {
    auto one = operand(call, i);
    if (!one) return std::nullopt;
    found.push_back(std::move(*one));
  }
  return found;
}

namespace {

using Maybe = std::optional<Dtype>;

Maybe promote_maybe(Maybe a, Maybe b, bool& ok) {
  if (!a) return b;
  if (!b) return a;
  const Maybe both = promote(*a, *b);
  ok = ok && both;
  return both;
}

Maybe combine(Maybe higher, Maybe lower, bool& ok) {
  if (!higher) return lower;
  if (types::is_complex(*higher)) return higher;
  if (types::is_floating(*higher)) {
    if (lower && types::is_complex(*lower)) return complex_dtype(*higher);
    return higher;
  }
  if (*higher == Dtype::kBool || (lower && (types::is_floating(*lower) || types::is_complex(*lower))))
    return promote_maybe(higher, lower, ok);
  return higher;
}

}  // namespace

std::optional<Dtype> common_dtype(const Call& call, std::span<const Operand> operands) {
  Maybe with_dims, without_dims, wrapped;
  bool ok = true, all_wrapped = true;
  for (const Operand& one : operands) {
    Dtype dtype = one.type.dtype;
    if (!is_plain(dtype)) return std::nullopt;
    all_wrapped = all_wrapped && one.wrapped;
    if (one.wrapped && types::is_floating(dtype)) dtype = call.default_dtype;
    if (one.wrapped && types::is_complex(dtype)) dtype = complex_dtype(call.default_dtype);
    Maybe& rank = one.wrapped ? wrapped : one.type.sizes.empty() ? without_dims : with_dims;
    rank = promote_maybe(rank, dtype, ok);
  }
  if (all_wrapped) return std::nullopt;
  const Maybe result = combine(with_dims, combine(without_dims, wrapped, ok), ok);
  if (!ok || !result || !is_plain(*result)) return std::nullopt;
  return result;
}

bool can_cast(Dtype from, Dtype to) {
  if (types::is_complex(from) && !types::is_complex(to)) return false;
  if (types::is_floating(from) && (types::is_integral(to) || to == Dtype::kBool)) return false;
  return from == Dtype::kBool || to != Dtype::kBool;
}

bool number_fits(const Call& call, size_t i, Dtype dtype) {
  if (i < call.args.size() && std::holds_alternative<bool>(call.args[i])) return true;
  if ((types::is_floating(dtype) || types::is_complex(dtype)) && converts_real(call, i)) return true;
  const auto value = real(call, i);
  if (const auto symbol = value ? std::nullopt : integer(call, i)) {  // any of 64 bits
    if (dtype == Dtype::kI64 || dtype == Dtype::kBool) return true;
    return dtype != Dtype::kF16 && (types::is_floating(dtype) || types::is_complex(dtype));
  }
  return value && number_fits(*value, dtype);
}

bool number_fits(double value, Dtype dtype) {
  const double size = std::abs(value);
  switch (dtype) {
    case Dtype::kBool:
      return true;
    case Dtype::kU8:
      return value >= 0 && size < 128;
    case Dtype::kI8:
      return size <= 127;
    case Dtype::kI16:
      return size <= 32767;
    case Dtype::kI32:
      return size <= 2147483647;
    case Dtype::kI64:
      return size < 9e18;
    case Dtype::kF16:
      return !std::isfinite(value) || size <= 65504;
    case Dtype::kBF16:
      return !std::isfinite(value) || size <= 0x1.fep127;
    case Dtype::kF32:
    case Dtype::kC64:
      return !std::isfinite(value) || size <= std::numeric_limits<float>::max();
    case Dtype::kF64:
    case Dtype::kC128:
      return true;
    default:
      return false;
  }
}

std::optional<Device> common_device(std::span<const Operand> operands) {
  std::optional<Device> device;
  bool only_scalar = false;  // up to now: a CPU tensor without dimensions, which may join any device
  for (const Operand& one : operands) {
    if (one.wrapped) continue;
    const bool scalar = on_cpu(one.type) && one.type.sizes.empty();
    if (!device || (only_scalar && !scalar)) {
      device = one.type.device;
      only_scalar = scalar;
    } else if (one.type.device != *device && !scalar) {
      return std::nullopt;
    }
  }
  return device;
}

}  // namespace magneto::ops
