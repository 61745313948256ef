#include <algorithm>
#include <array>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "loop/semantics.h"
#include "schedule/terms_internal.h"

namespace magneto::schedule {

using namespace loop;

namespace {

constexpr uint32_t kMost = 1u << 20;

std::optional<int64_t> whole(const Program& program, TermId id) {
  const Term& t = program.term(id);
  if (t.op != Op::kConstant || types::is_floating(t.dtype)) return std::nullopt;
  return program.number(t).whole;
}

TermId binary(Program& program, Op op, Dtype dtype, TermId a, TermId b) {
  const bool integer = !types::is_floating(dtype) && dtype != Dtype::kBool;
  if (integer && dtype == Dtype::kI64) {
    const auto x = whole(program, a), y = whole(program, b);
    if (x && y && op != Op::kChecked) {
      bool fault = false;
      const Number made = apply(op, dtype, {Number::of_int(*x), Number::of_int(*y), Number{}}, fault);
      if (!fault)
        return traits(op).compares ? program.boolean(made.whole != 0) : program.constant_int(made.whole, dtype);
    }
    if (op == Op::kAdd && x == 0) return b;
    if ((op == Op::kAdd || op == Op::kSub) && y == 0) return a;
    if (op == Op::kMul && x == 1) return b;
    if ((op == Op::kMul || op == Op::kFloorDiv || op == Op::kTruncDiv) && y == 1) return a;
    if (op == Op::kMul && (x == 0 || y == 0)) return program.constant_int(0, dtype);
    if (op == Op::kMod && y == 1) return program.constant_int(0, dtype);
  }
  if (dtype == Dtype::kBool && (op == Op::kAnd || op == Op::kOr)) {
    // where a load of a padded column stands, its guard is known
    const auto x = whole(program, a), y = whole(program, b);
    if (x) return (*x != 0) == (op == Op::kAnd) ? b : a;
    if (y) return (*y != 0) == (op == Op::kAnd) ? a : b;
  }
  return program.binary(op, a, b);
}

/// A value of a half type that was only widened, or chosen among such: to round it gives it back.
std::optional<TermId> before_widening(Program& program, TermId id, Dtype half) {
  const Term t = program.term(id);
  if (!is_half(half) || t.dtype != Dtype::kF32) return std::nullopt;
  if (t.op == Op::kCast && program.term(t.operands[0]).dtype == half) return t.operands[0];
  if (t.op != Op::kWhere) return std::nullopt;
  const auto a = before_widening(program, t.operands[1], half), b = before_widening(program, t.operands[2], half);
  return a && b ? std::optional(program.where(t.operands[0], *a, *b)) : std::nullopt;
}

bool holds_check(const Program& program, TermId root) {
  bool any = false;
  if (program.term(root).op != Op::kConstant)
    for_each_part(program, root, [&](TermId id) { any = any || program.term(id).op == Op::kChecked; });
  return any;
}

uint32_t work_of(const Program& program, const Term& t) {
  switch (t.op) {
    case Op::kConstant:
    case Op::kSize:
    case Op::kAxis:
    case Op::kLocal:
    case Op::kLoad:
    case Op::kGuarded:
    case Op::kReduce:
    case Op::kBits:
      return 0;
    case Op::kCast:
      return is_half(t.dtype) || is_half(program.term(t.operands[0]).dtype) ? 1 : 0;
    case Op::kDiv:
    case Op::kSqrt:
    case Op::kRsqrt:
      return 4;
    case Op::kFloorDiv:
    case Op::kMod:
    case Op::kTruncDiv:
    case Op::kFmod:
      return 4;
    case Op::kPow:
    case Op::kAtan2:
      return 20;
    default:
      return is_function(t.op) ? 10 : 1;
  }
}

}  // namespace

TermId rebuild(Program& program, const Term& term, const std::vector<TermId>& operands) {
  switch (term.op) {
    case Op::kConstant:
    case Op::kSize:
    case Op::kAxis:
    case Op::kLocal:
      base::check(false, "schedule: a leaf has no operands to rebuild it with");
      return {};
    case Op::kLoad:
      return program.load(BufferId(term.id), operands);
    case Op::kGuarded: {
      const std::vector<TermId> index(operands.begin(), operands.end() - 2);
      if (const auto holds = whole(program, operands[index.size()]))
        return *holds ? program.load(BufferId(term.id), index) : operands.back();
      return program.guarded(BufferId(term.id), index, operands[index.size()], operands.back());
    }
    case Op::kReduce: {
      std::vector<Range> ranges;
      for (size_t k = 0; k < term.axes.size(); ++k)
        ranges.push_back({term.axes[k], operands[1 + 2 * k], operands[2 + 2 * k]});
      return program.reduce(term.fold, ranges, operands[0]);
    }
    case Op::kCast:
      if (program.term(operands[0]).dtype == term.dtype) return operands[0];
      if (const auto narrow = before_widening(program, operands[0], term.dtype)) return *narrow;
      return program.cast(term.dtype, operands[0]);
    case Op::kBits:
      return program.bits(term.dtype, operands[0]);
    case Op::kWhere:
      if (const auto holds = whole(program, operands[0])) return *holds ? operands[1] : operands[2];
      return program.where(operands[0], operands[1], operands[2]);
    case Op::kFma:
      return program.fma(operands[0], operands[1], operands[2]);
    default:
      if (operands.size() == 1) return program.unary(term.op, operands[0]);
      return binary(program, term.op, program.term(operands[0]).dtype, operands[0], operands[1]);
  }
}

TermId Rewrite::operator()(TermId id) {
  if (const auto found = done_.find(id); found != done_.end()) return found->second;
  TermId made = id;
  if (const auto replaced = replace_(id)) {
    made = *replaced;
  } else {
    const Term term = program_.term(id);  // a copy: the arena grows
    if (!term.operands.empty()) {
      std::vector<TermId> operands;
      for (const TermId operand : term.operands) operands.push_back((*this)(operand));
      made = rebuild(program_, term, operands);
    }
  }
  return done_[id] = made;
}

const Weight& Weights::of(const Program& program, TermId id) {
  for (size_t n = weights_.size(); n < program.terms(); ++n) {
    const Term& t = program.term(TermId(n));
    Weight w{1, work_of(program, t)};
    const bool load = is_load(t);
    for (size_t k = 0; k < t.operands.size(); ++k) {
      const Weight& operand = weights_[t.operands[k].index()];
      w.tree = std::min(kMost, w.tree + operand.tree);
      const bool index =
          (load && !(t.op == Op::kGuarded && k + 1 == t.operands.size())) || (t.op == Op::kReduce && k > 0);
      if (!index) w.work = std::min(kMost, w.work + operand.work);
    }
    weights_.push_back(w);
  }
  return weights_[id.index()];
}

AxisId canonical_axis(Program& program, size_t k) { return program.axis(base::concat("i", k)); }

int64_t estimated_bytes(const Program& program, BufferId id) {
  const types::TensorType& type = program.buffer(id).type;
  const std::vector<int64_t> symbols(64, 128);
  try {
    return types::numel(type.sizes).evaluate(symbols) * static_cast<int64_t>(types::item_size(type.dtype));
  } catch (const std::exception&) {
    return 0;
  }
}

std::vector<size_t> core_of(const Program& program, BufferId id) {
  std::vector<size_t> core;
  const types::Sizes& sizes = program.buffer(id).type.sizes;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!is_one(sizes[d])) core.push_back(d);
  return core;
}

bool reads_in_place(Program& program, const Term& load, const std::vector<AxisId>& axes) {
  size_t k = 0;
  const std::vector<TermId> operands = load.operands;
  for (const size_t d : core_of(program, BufferId(load.id)))
    if (k == axes.size() || operands[d] != program.axis_value(axes[k++])) return false;
  const types::Sizes& sizes = program.buffer(BufferId(load.id)).type.sizes;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (is_one(sizes[d]) && holds_check(program, operands[d])) return false;  // who takes the element drops the index
  return true;
}

std::string fresh_name(const Program& program, const std::string& base) {
  return base::concat(base, "_", program.buffers());
}

}  // namespace magneto::schedule
