#include "loop/program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace magneto::loop {

namespace {

// To a half type, in double: scale so that the last bit kept is worth one, round, scale back. By way of f32, as torch
// and all hardware do it, so that an f64 is rounded twice.
double round_bits(double value, int mantissa, int least_exponent, double most) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::fabs(rounded) > most ? std::copysign(HUGE_VAL, value) : std::copysign(rounded, value);
}

void mix(size_t& hash, size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15ull + (hash >> 29); }

}  // namespace

double round_to(Dtype dtype, double value) {
  switch (dtype) {
    case Dtype::kF32:
      return static_cast<double>(static_cast<float>(value));
    case Dtype::kF16:
      return round_bits(static_cast<double>(static_cast<float>(value)), 10, -14, 65504.0);
    case Dtype::kBF16:
      return round_bits(static_cast<double>(static_cast<float>(value)), 7, -126, 3.3895313892515355e38);
    default:
      return value;
  }
}

int64_t wrap_to(Dtype dtype, int64_t value) {
  switch (dtype) {
    case Dtype::kBool:
      return value != 0;
    case Dtype::kU8:
      return static_cast<uint8_t>(value);
    case Dtype::kI8:
      return static_cast<int8_t>(value);
    case Dtype::kI16:
      return static_cast<int16_t>(value);
    case Dtype::kI32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

static size_t hash_of(const Term& term) {
  size_t hash = static_cast<size_t>(term.op) * 64 + static_cast<size_t>(term.dtype);
  mix(hash, static_cast<size_t>(term.fold));
  mix(hash, term.id);
  for (const TermId id : term.operands) mix(hash, id.index());
  for (const AxisId id : term.axes) mix(hash, id.index());
  return hash ^ (hash >> 32);
}

BufferId Program::add_buffer(std::string name, types::TensorType type, Role role) {
  buffers_.push_back({std::move(name), std::move(type), role, {}});
  return BufferId(buffers_.size() - 1);
}

BufferId Program::flat_view(BufferId of) {
  const auto [at, is_new] = view_of_.try_emplace(of, BufferId(buffers_.size()));
  if (!is_new) return at->second;
  const Buffer base = buffer(of);
  types::Expr last = base.type.offset;
  for (size_t d = 0; d < base.type.sizes.size(); ++d) last = last + (base.type.sizes[d] - 1) * base.type.strides[d];
  types::TensorType type;
  type.dtype = base.type.dtype;
  type.device = base.type.device;
  type.sizes = {types::is_contiguous(base.type) ? types::numel(base.type.sizes) + base.type.offset : last + 1};
  type.strides = {1};
  buffers_.push_back({base.name + "_flat", std::move(type), base.role, of});
  return at->second;
}

AxisId Program::axis(std::string_view name) {
  const auto [at, is_new] = axis_of_.try_emplace(std::string(name), AxisId(axes_.size()));
  if (is_new) axes_.emplace_back(name);
  return at->second;
}

LocalId Program::add_local(std::string name, Dtype dtype) {
  locals_.push_back({std::move(name), dtype});
  return LocalId(locals_.size() - 1);
}

TermId Program::intern(Term term) {
  if (2 * terms_.size() >= slots_.size()) {
    slots_.assign(std::max<size_t>(256, 2 * slots_.size()), kFree);
    for (size_t n = 0; n < terms_.size(); ++n) slots_[slot_of(terms_[n], hashes_[n])] = static_cast<uint32_t>(n);
  }
  const size_t hash = hash_of(term), slot = slot_of(term, hash);
  if (slots_[slot] != kFree) return TermId(slots_[slot]);
  slots_[slot] = static_cast<uint32_t>(terms_.size());
  hashes_.push_back(hash);
  terms_.push_back(std::move(term));
  return TermId(terms_.size() - 1);
}

size_t Program::slot_of(const Term& term, size_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot] != kFree && !(hashes_[slots_[slot]] == hash && terms_[slots_[slot]] == term))
    slot = (slot + 1) & mask;
  return slot;
}

TermId Program::number(Number value, Dtype dtype) {
  const uint64_t bits =
      types::is_floating(dtype) ? std::bit_cast<uint64_t>(value.real) : static_cast<uint64_t>(value.whole);
  const auto key = std::make_pair(bits, static_cast<uint8_t>(dtype));
  const auto [at, is_new] = number_of_.try_emplace(key, static_cast<uint32_t>(numbers_.size()));
  if (is_new) numbers_.push_back(value);
  return intern({.op = Op::kConstant, .dtype = dtype, .id = at->second, .operands = {}, .axes = {}});
}

TermId Program::constant(double value, Dtype dtype) {
  base::check(types::is_floating(dtype), "loop: a constant of ", types::name(dtype), " is made of an integer");
  if (std::isnan(value)) value = std::nan("");  // one NaN, so that equal programs have equal terms
  return number(Number::of(round_to(dtype, value)), dtype);
}

TermId Program::constant_int(int64_t value, Dtype dtype) {
  if (types::is_floating(dtype)) return constant(static_cast<double>(value), dtype);
  return number(Number::of_int(wrap_to(dtype, value)), dtype);
}

TermId Program::size(const types::Expr& size) {
  if (const auto value = size.constant()) return constant_int(*value, Dtype::kI64);
  const auto [at, is_new] = size_index_.try_emplace(size, static_cast<uint32_t>(sizes_.size()));
  if (is_new) sizes_.push_back(size);
  return intern({.op = Op::kSize, .dtype = Dtype::kI64, .id = at->second, .operands = {}, .axes = {}});
}

TermId Program::axis_value(AxisId axis) {
  return intern(
      {.op = Op::kAxis, .dtype = Dtype::kI64, .id = static_cast<uint32_t>(axis.index()), .operands = {}, .axes = {}});
}

TermId Program::local(LocalId local) {
  return intern({.op = Op::kLocal,
                 .dtype = locals_[local.index()].dtype,
                 .id = static_cast<uint32_t>(local.index()),
                 .operands = {},
                 .axes = {}});
}

TermId Program::load(BufferId buffer, std::vector<TermId> index) {
  return intern({.op = Op::kLoad,
                 .dtype = buffers_[buffer.index()].type.dtype,
                 .id = static_cast<uint32_t>(buffer.index()),
                 .operands = std::move(index),
                 .axes = {}});
}

TermId Program::guarded(BufferId buffer, std::vector<TermId> index, TermId condition, TermId otherwise) {
  index.push_back(condition);
  index.push_back(otherwise);
  return intern({.op = Op::kGuarded,
                 .dtype = buffers_[buffer.index()].type.dtype,
                 .id = static_cast<uint32_t>(buffer.index()),
                 .operands = std::move(index),
                 .axes = {}});
}

TermId Program::reduce(Fold fold, const std::vector<Range>& ranges, TermId body) {
  Term made{
      .op = Op::kReduce, .dtype = result_of(fold, term(body).dtype), .fold = fold, .operands = {body}, .axes = {}};
  for (const Range& range : ranges) {
    made.axes.push_back(range.axis);
    made.operands.push_back(range.begin);
    made.operands.push_back(range.end);
  }
  return intern(std::move(made));
}

std::vector<Range> Program::ranges_of(const Term& reduce) const {
  std::vector<Range> ranges;
  for (size_t i = 0; i < reduce.axes.size(); ++i)
    ranges.push_back({reduce.axes[i], reduce.operands[1 + 2 * i], reduce.operands[2 + 2 * i]});
  return ranges;
}

TermId Program::cast(Dtype dtype, TermId a) {
  return intern({.op = Op::kCast, .dtype = dtype, .operands = {a}, .axes = {}});
}

TermId Program::bits(Dtype dtype, TermId a) {
  return intern({.op = Op::kBits, .dtype = dtype, .operands = {a}, .axes = {}});
}

TermId Program::unary(Op op, TermId a) {
  if (op == Op::kNeg && term(a).op == Op::kSize) return size(-size_of(term(a)));
  return intern({.op = op, .dtype = term(a).dtype, .operands = {a}, .axes = {}});
}

std::optional<types::Expr> Program::as_size(TermId id) const {
  const Term& t = term(id);
  if (t.dtype != Dtype::kI64) return std::nullopt;
  if (t.op == Op::kSize) return size_of(t);
  if (t.op == Op::kConstant) return types::Expr(number(t).whole);
  return std::nullopt;
}

TermId Program::binary(Op op, TermId a, TermId b) {
  if (term(a).op == Op::kSize || term(b).op == Op::kSize) {
    const auto left = as_size(a), right = as_size(b);
    const bool zero = right && right->is_constant() && right->value_or(1) == 0;
    if (left && right) {
      if (op == Op::kAdd) return size(*left + *right);
      if (op == Op::kSub) return size(*left - *right);
      if (op == Op::kMul) return size(*left * *right);
      if (op == Op::kFloorDiv && !zero) return size(types::Expr::floor_div(*left, *right));
      if (op == Op::kMod && !zero) return size(types::Expr::mod(*left, *right));
      if (op == Op::kMin) return size(types::Expr::min(*left, *right));
      if (op == Op::kMax) return size(types::Expr::max(*left, *right));
    }
  }
  const Dtype dtype = traits(op).compares ? Dtype::kBool : term(a).dtype;
  return intern({.op = op, .dtype = dtype, .operands = {a, b}, .axes = {}});
}

TermId Program::where(TermId condition, TermId a, TermId b) {
  return intern({.op = Op::kWhere, .dtype = term(a).dtype, .operands = {condition, a, b}, .axes = {}});
}

TermId Program::fma(TermId a, TermId b, TermId c) {
  return intern({.op = Op::kFma, .dtype = term(a).dtype, .operands = {a, b, c}, .axes = {}});
}

}  // namespace magneto::loop
