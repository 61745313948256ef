// An index is first looked at in numbers: each term has a least and a most value, those of an axis are its range. That
// is enough for nearly all accesses with known sizes. Where it is not (sizes are symbols, an axis counts from the begin
// of its block, a condition stands before the load) the index becomes an expression of symbols (types/prove.h): sizes,
// and a variable for each axis and for each term whose inside is not known (a position from data), with its bounds.
//
//   y[i] = load(x[i - 4], 4 <= i, 0.0)         in numbers: i - 4 is in -4 .. 8
//                                              as expressions: 4 <= i is known, so i - 4 is not negative
//
// Integers of data may be any number and wrap; those of sizes and axes are tame: memory ends before they would wrap.
#include "loop/bounds.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "base/text.h"
#include "loop/text.h"
#include "types/prove.h"

namespace magneto::loop {

namespace {

using types::Expr;

constexpr int64_t kFar = int64_t{1} << 62;  ///< tame numbers end here

struct Span {
  int64_t low = INT64_MIN, high = INT64_MAX;
  bool tame() const { return low >= -kFar && high <= kFar; }
};

int64_t near(__int128 value) {
  return static_cast<int64_t>(std::clamp<__int128>(value, -static_cast<__int128>(kFar), kFar));
}
Span span_of(__int128 low, __int128 high) { return {near(low), near(high)}; }

int64_t floor_quotient(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/// Of a float: finite, or nothing is known.
struct Real {
  double low = 0, high = 0;
};

class Bounds {
 public:
  Bounds(const Program& program, const std::vector<types::Condition>& conditions)
      : program_(program),
        prover_(conditions),
        loads_(program.terms()),
        seen_(program.terms()),
        measured_(program.terms()),
        spans_(program.terms()),
        axes_(program.axes()),
        ranges_(program.axes()),
        lets_(program.locals()) {
    for (size_t n = 0; n < program.terms(); ++n) {
      const Term& t = program.term(TermId(n));
      loads_[n] = t.op == Op::kLoad || t.op == Op::kGuarded;
      for (const TermId operand : t.operands) loads_[n] = loads_[n] || loads_[operand.index()];
    }
  }

  std::vector<Unproved> run() {
    for (size_t b = 0; b < program_.buffers(); ++b)
      if (program_.buffer(BufferId(b)).role == Role::kIn) trust(type(BufferId(b)));
    for (size_t b = 0; b < program_.buffers(); ++b) strides(BufferId(b));
    size_t equation = 0, kernel = 0;
    in_order(
        program_,
        [&](const Equation& e) {
          where_ = Unproved();
          where_.equation = equation++;
          equation_ = &e;
          this->equation(e);
        },
        [&](const Kernel& k) {
          where_ = Unproved();
          where_.kernel = kernel++;
          kernel_ = &k;
          this->kernel(k);
        });
    return std::move(found_);
  }

 private:
  template <class... Pieces>
  void say(BufferId buffer, const Pieces&... pieces) {
    Unproved made = where_;
    if (buffer.valid()) made.buffer = program_.storage(buffer);
    made.what = base::concat(pieces...);
    if (made.equation != SIZE_MAX) made.where = print(program_, *equation_);
    if (made.kernel != SIZE_MAX) made.where = base::concat("kernel ", kernel_->name);
    found_.push_back(std::move(made));
  }
  const Term& term(TermId id) const { return program_.term(id); }
  const types::TensorType& type(BufferId id) const { return program_.buffer(id).type; }

  /// What the caller gives is a tensor: nothing of its type is negative, though no condition says so. (A view that was
  /// made before a graph break has an offset of the graph before it.)
  void trust(const types::TensorType& given) {
    const auto learn = [&](const Expr& e) {
      if (!e.is_constant() && !prover_.never_negative(e)) prover_.assume_not_negative(e);
    };
    std::for_each(given.sizes.begin(), given.sizes.end(), learn);
    std::for_each(given.strides.begin(), given.strides.end(), learn);
    learn(given.offset);
  }

  /// Memory begins at element 0: no step leads below it.
  void strides(BufferId id) {
    const auto fine = [&](const Expr& e) { return e.is_constant() ? e.value_or(-1) >= 0 : prover_.never_negative(e); };
    const types::TensorType& t = type(id);
    if (!std::all_of(t.strides.begin(), t.strides.end(), fine) || !fine(t.offset))
      say(id, program_.buffer(id).name, ": ", to_string(t),
          " has a stride or an offset that is not known to be positive");
  }

  // ---- spaces ------------------------------------------------------------------------------------------------------

  /// An axis that is bound here. The prover hears of it when it is first asked.
  struct Frame {
    AxisId axis;
    TermId begin, end;  ///< invalid: from 0 to `size`
    const Expr* size = nullptr;
    types::Prover::Mark mark{};
  };

  void enter(const Frame& frame) {
    Span& span = axes_[frame.axis.index()];
    if (frame.size) {
      span = {0, frame.size->value_or(kFar) - 1};
    } else {
      const Span first = measure(frame.begin), end = measure(frame.end);
      span = {first.low, end.high == INT64_MAX ? INT64_MAX : end.high - 1};
    }
    frames_.push_back(frame);
    empty_ += span.low > span.high;
    ++turn_;
  }
  void enter(const std::vector<Range>& ranges) {
    for (const Range& r : ranges) {
      visit(r.begin);
      visit(r.end);
      enter({r.axis, r.begin, r.end});
    }
  }
  void leave(size_t count) {
    for (; count > 0; --count) {
      if (told_ == frames_.size()) {
        prover_.back_to(frames_.back().mark);
        --told_;
      }
      const Span& span = axes_[frames_.back().axis.index()];
      empty_ -= span.low > span.high;
      frames_.pop_back();
    }
    ++turn_;
  }

  void tell() {
    for (; told_ < frames_.size(); ++told_) {
      Frame& frame = frames_[told_];
      frame.mark = prover_.mark();
      opaque_.clear();
      std::optional<Expr>& value = ranges_[frame.axis.index()];
      if (frame.size) {
        value = prover_.variable({*frame.size - 1});
        continue;
      }
      const Span span = axes_[frame.axis.index()];
      const auto begin = symbolic(frame.begin);
      if (!begin) {
        value = variable(span);
        continue;
      }
      std::vector<Expr> most;
      limits(frame.end, *begin, most);
      if (span.tame() && span.high < kFar - 1) most.emplace_back(Expr(span.high) - *begin);
      value = *begin + prover_.variable(most);
    }
  }
  void limits(TermId end, const Expr& begin, std::vector<Expr>& most) {
    const Term& t = term(end);
    if (t.op == Op::kMin) {
      limits(t.operands[0], begin, most);
      return limits(t.operands[1], begin, most);
    }
    if (const auto e = symbolic(end)) most.push_back(*e - 1 - begin);
  }
  std::optional<Expr> variable(const Span& span) {
    if (span.low < -kFar) return std::nullopt;
    std::vector<Expr> most;
    if (span.high < kFar) most.emplace_back(span.high - span.low);
    return prover_.variable(most) + span.low;
  }

  // ---- indices in numbers ------------------------------------------------------------------------------------------

  Span whole_range(Dtype dtype) const {
    if (dtype == Dtype::kI64) return {};
    if (dtype == Dtype::kBool) return {0, 1};
    const int bits = 8 * static_cast<int>(types::item_size(dtype));
    if (is_unsigned(dtype)) return {0, (int64_t{1} << bits) - 1};
    return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
  }

  Span measure(TermId id) {
    if (measured_[id.index()] == turn_) return spans_[id.index()];
    Span span = computed(id);
    const Dtype dtype = term(id).dtype;
    if (!types::is_floating(dtype)) {
      const Span all = whole_range(dtype);  // what does not fit wraps
      if (dtype != Dtype::kI64 && (span.low < all.low || span.high > all.high)) span = all;
    }
    measured_[id.index()] = turn_;
    return spans_[id.index()] = span;
  }

  Span computed(TermId id) {
    const Term& t = term(id);
    const auto operand = [&](size_t k) { return measure(t.operands[k]); };
    if (types::is_floating(t.dtype)) return {};
    switch (t.op) {
      case Op::kConstant: {
        const int64_t value = program_.number(t).whole;
        return {value, value};
      }
      case Op::kSize: {
        const auto low = program_.size_of(t).lower_bound();
        return {low ? std::max(*low, -kFar) : -kFar, kFar};
      }
      case Op::kAxis:
        return axes_[t.id];
      case Op::kLocal:
        return lets_[t.id].valid() ? measure(lets_[t.id]) : whole_range(t.dtype);
      case Op::kChecked: {  // the first place stands for one outside, so there must be one
        const Span size = operand(1), given = operand(0);
        if (size.low < 1) return {};
        if (given.low >= 0 && given.high < size.low) return given;
        return {0, std::min(std::max<int64_t>(given.high, 0), size.high - 1)};
      }
      case Op::kWhere: {
        const Span a = operand(1), b = operand(2);
        return {std::min(a.low, b.low), std::max(a.high, b.high)};
      }
      case Op::kMin: {
        const Span a = operand(0), b = operand(1);
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
      }
      case Op::kMax: {
        const Span a = operand(0), b = operand(1);
        return {std::max(a.low, b.low), std::max(a.high, b.high)};
      }
      case Op::kCast:
        return cast(t);
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kNeg:
      case Op::kAbs:
      case Op::kFloorDiv:
      case Op::kTruncDiv:
      case Op::kMod:
      case Op::kFmod:
        return arithmetic(t);
      default:
        return whole_range(t.dtype);
    }
  }

  Span cast(const Term& t) {
    const Dtype from = term(t.operands[0]).dtype;
    if (!types::is_floating(from)) return t.dtype == Dtype::kBool ? Span{0, 1} : measure(t.operands[0]);
    const auto real = measure_real(t.operands[0], 0);
    if (!real || std::fabs(real->low) > 1e18 || std::fabs(real->high) > 1e18) return whole_range(t.dtype);
    return {static_cast<int64_t>(real->low), static_cast<int64_t>(real->high)};
  }

  Span arithmetic(const Term& t) {
    const Span a = measure(t.operands[0]), b = t.operands.size() > 1 ? measure(t.operands[1]) : Span{0, 0};
    if (!a.tame() || !b.tame()) {
      // a remainder is bounded by the divisor alone
      if (t.op == Op::kMod && b.tame() && b.low > 0) return {0, b.high - 1};
      return whole_range(t.dtype);
    }
    const auto wide = [](int64_t value) { return static_cast<__int128>(value); };
    switch (t.op) {
      case Op::kAdd:
        return span_of(wide(a.low) + b.low, wide(a.high) + b.high);
      case Op::kSub:
        return span_of(wide(a.low) - b.high, wide(a.high) - b.low);
      case Op::kNeg:
        return {-a.high, -a.low};
      case Op::kAbs:
        return {a.low > 0 ? a.low : a.high < 0 ? -a.high : 0, std::max(std::abs(a.low), std::abs(a.high))};
      case Op::kMul: {
        const __int128 ends[] = {wide(a.low) * b.low, wide(a.low) * b.high, wide(a.high) * b.low,
                                 wide(a.high) * b.high};
        return span_of(*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4));
      }
      case Op::kMod:
        if (b.low < 1) return whole_range(t.dtype);
        if (a.low >= 0 && a.high < b.low) return a;
        if (b.low == b.high && floor_quotient(a.low, b.low) == floor_quotient(a.high, b.low)) {
          const int64_t turns = floor_quotient(a.low, b.low) * b.low;
          return {a.low - turns, a.high - turns};
        }
        return {0, b.high - 1};
      case Op::kFmod:
        if (b.low < 1 || a.low < 0) return whole_range(t.dtype);
        return {0, std::min(a.high, b.high - 1)};
      default: {  // divisions
        if (b.low < 1 || (t.op == Op::kTruncDiv && a.low < 0)) return whole_range(t.dtype);
        return {floor_quotient(a.low, a.low < 0 ? b.low : b.high), floor_quotient(a.high, a.high < 0 ? b.high : b.low)};
      }
    }
  }

  /// Rounding keeps the order, so the ends of a span are rounded, too; by one place more, since sums and products may
  /// be fused. Zero stays zero.
  static std::optional<Real> rounded(Dtype dtype, double low, double high) {
    constexpr double kMost = 1e30;
    if (!(low >= -kMost && high <= kMost)) return std::nullopt;
    const auto widened = [&](double value, double towards) {
      if (value == 0 || dtype == Dtype::kF64) return value == 0 ? value : std::nextafter(value, towards);
      return static_cast<double>(std::nextafter(static_cast<float>(value), static_cast<float>(towards)));
    };
    return Real{widened(low, -HUGE_VAL), widened(high, HUGE_VAL)};
  }

  std::optional<Real> measure_real(TermId id, int depth) {
    const Term& t = term(id);
    if (depth > 16 || (t.dtype != Dtype::kF32 && t.dtype != Dtype::kF64)) return std::nullopt;
    const auto operand = [&](size_t k) { return measure_real(t.operands[k], depth + 1); };
    switch (t.op) {
      case Op::kConstant: {
        const double value = program_.number(t).real;
        return std::isfinite(value) ? std::optional(Real{value, value}) : std::nullopt;
      }
      case Op::kCast: {
        if (types::is_floating(term(t.operands[0]).dtype)) {
          const auto a = operand(0);
          return a ? rounded(t.dtype, a->low, a->high) : std::nullopt;
        }
        const Span a = measure(t.operands[0]);
        if (!a.tame() || a.high == kFar) return std::nullopt;
        return rounded(t.dtype, static_cast<double>(a.low), static_cast<double>(a.high));
      }
      case Op::kLocal:
        return lets_[t.id].valid() ? measure_real(lets_[t.id], depth + 1) : std::nullopt;
      case Op::kFloor:
      case Op::kCeil:
      case Op::kTrunc:
      case Op::kRound: {
        const auto a = operand(0);
        if (!a) return std::nullopt;
        return Real{std::floor(a->low), std::ceil(a->high)};
      }
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kMin:
      case Op::kMax: {
        const auto a = operand(0), b = operand(1);
        if (!a || !b) return std::nullopt;
        if (t.op == Op::kAdd) return rounded(t.dtype, a->low + b->low, a->high + b->high);
        if (t.op == Op::kSub) return rounded(t.dtype, a->low - b->high, a->high - b->low);
        if (t.op == Op::kMin) return Real{std::min(a->low, b->low), std::min(a->high, b->high)};
        if (t.op == Op::kMax) return Real{std::max(a->low, b->low), std::max(a->high, b->high)};
        const double ends[] = {a->low * b->low, a->low * b->high, a->high * b->low, a->high * b->high};
        return rounded(t.dtype, *std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4));
      }
      default:
        return std::nullopt;
    }
  }

  // ---- indices as expressions --------------------------------------------------------------------------------------

  std::optional<Expr> symbolic(TermId id) {
    if (const auto size = program_.as_size(id)) return size;
    const Term& t = term(id);
    if (t.dtype != Dtype::kI64) return opaque(id, t);
    const auto operand = [&](size_t k) { return symbolic(t.operands[k]); };
    switch (t.op) {
      case Op::kAxis:
        return ranges_[t.id];
      case Op::kWhere:
        if (const auto chosen = chosen_.find(id); chosen != chosen_.end())
          return symbolic(t.operands[chosen->second ? 1 : 2]);
        break;
      case Op::kLocal:
        if (lets_[t.id].valid()) return symbolic(lets_[t.id]);
        break;
      case Op::kNeg:
        if (const auto a = operand(0)) return -*a;
        break;
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kFloorDiv:
      case Op::kMod:
      case Op::kMin:
      case Op::kMax: {
        const auto a = operand(0), b = operand(1);
        if (!a || !b) break;
        if (t.op == Op::kAdd) return *a + *b;
        if (t.op == Op::kSub) return *a - *b;
        if (t.op == Op::kMul) return *a * *b;
        if (t.op == Op::kMin) return Expr::min(*a, *b);
        if (t.op == Op::kMax) return Expr::max(*a, *b);
        if (!prover_.is_positive(*b)) break;
        return t.op == Op::kFloorDiv ? Expr::floor_div(*a, *b) : Expr::mod(*a, *b);
      }
      default:
        break;
    }
    return opaque(id, t);
  }

  /// Any number in the bounds of a term; the same one wherever the term stands.
  std::optional<Expr> opaque(TermId id, const Term& t) {
    const auto [at, is_new] = opaque_.try_emplace(id);
    if (!is_new) return at->second;
    std::optional<Expr> made;
    if (t.op == Op::kChecked) {
      const auto size = symbolic(t.operands[1]);
      if (size && prover_.is_positive(*size)) made = prover_.variable({*size - 1});
    } else if (t.op == Op::kMin || t.op == Op::kMax) {  // one of both is not known at all
      auto known = symbolic(t.operands[0]);
      if (!known) known = symbolic(t.operands[1]);
      const Span span = measure(id);
      if (known && t.op == Op::kMax) {
        std::vector<Expr> most;
        if (span.high < kFar) most.push_back(span.high - *known);
        made = *known + prover_.variable(most);
      } else if (known) {
        std::vector<Expr> most;
        if (span.low >= -kFar) most.push_back(*known - span.low);
        made = *known - prover_.variable(most);
      }
    }
    if (!made && !types::is_floating(t.dtype)) made = variable(measure(id));
    return opaque_[id] = made;
  }

  static std::optional<types::Relation> relation(Op op) {
    if (op == Op::kEq) return types::Relation::kEq;
    if (op == Op::kLt || op == Op::kGt) return types::Relation::kLt;
    if (op == Op::kLe || op == Op::kGe) return types::Relation::kLe;
    return std::nullopt;
  }

  /// The comparisons that all hold where the condition does.
  void comparisons(TermId condition, std::vector<TermId>& into) const {
    const Term& t = term(condition);
    if (t.op == Op::kLocal && lets_[t.id].valid()) return comparisons(lets_[t.id], into);
    if (t.op == Op::kAnd) {
      comparisons(t.operands[0], into);
      return comparisons(t.operands[1], into);
    }
    if (relation(t.op)) into.push_back(condition);
  }
  /// A guard that is written as a number, or compares numbers.
  bool never_holds(TermId condition) {
    const Term& t = term(condition);
    if (t.op == Op::kLocal && lets_[t.id].valid()) return never_holds(lets_[t.id]);
    if (t.op == Op::kAnd) return never_holds(t.operands[0]) || never_holds(t.operands[1]);
    if (t.op == Op::kConstant) return program_.number(t).whole == 0;
    if (!relation(t.op) || term(t.operands[0]).dtype != Dtype::kI64) return false;
    const bool turned = t.op == Op::kGt || t.op == Op::kGe;
    const Span a = measure(t.operands[turned ? 1 : 0]), b = measure(t.operands[turned ? 0 : 1]);
    if (t.op == Op::kEq) return a.low > b.high || b.low > a.high;
    return t.op == Op::kLt || t.op == Op::kGt ? a.low >= b.high : a.low > b.high;
  }

  // ---- accesses ----------------------------------------------------------------------------------------------------

  Span under(TermId index, const std::vector<TermId>& conditions) {
    Span span = measure(index);
    for (const TermId id : conditions) {
      const Term& t = term(id);
      const bool left = t.operands[0] == index;
      if (!left && t.operands[1] != index) continue;
      const Span other = measure(t.operands[left ? 1 : 0]);
      const bool equal = t.op == Op::kEq, less = (t.op == Op::kLt || t.op == Op::kLe) == left;
      const int64_t strict = t.op == Op::kLt || t.op == Op::kGt;
      if (!other.tame()) continue;
      if (equal || !less) span.low = std::max(span.low, other.low + strict);
      if (equal || less) span.high = std::min(span.high, other.high - strict);
    }
    return span;
  }

  void access(BufferId buffer, const TermId* index, TermId condition) {
    if (empty_ > 0) return;  // nobody comes here
    const types::Sizes& sizes = type(buffer).sizes;
    std::vector<TermId> conditions;
    if (condition.valid()) {
      if (never_holds(condition)) return;
      comparisons(condition, conditions);
    }
    const BufferId of = program_.buffer(buffer).of;
    bool fine = !of.valid() || has_elements(type(of));
    for (size_t d = 0; d < sizes.size() && fine; ++d) {
      const Span span = under(index[d], conditions);
      fine = span.low >= 0 && sizes[d].is_constant() && span.high < sizes[d].value_or(0);
    }
    if (fine) return;
    tell();
    std::vector<TermId> choices;
    for (size_t d = 0; d < sizes.size(); ++d) find_choices(index[d], choices);
    if (choices.size() > kMostChoices) choices.clear();
    for (size_t k = 0; k < size_t{1} << choices.size(); ++k) {
      const auto before = prover_.mark();
      opaque_.clear();
      chosen_.clear();
      for (size_t n = 0; n < choices.size(); ++n) {
        chosen_[choices[n]] = k >> n & 1;
        choose(term(choices[n]).operands[0], k >> n & 1);
      }
      for (const TermId id : conditions) assume(id, true);
      const std::string what = unproved(buffer, index, conditions);
      prover_.back_to(before);
      opaque_.clear();
      chosen_.clear();
      if (what.empty()) continue;
      std::string place = program_.buffer(buffer).name + "[";
      for (size_t d = 0; d < sizes.size(); ++d) place += base::concat(d ? ", " : "", print(program_, index[d]));
      return say(buffer, place, "]: ", what);
    }
  }

  /// Which dimension is not known to be inside; "" when all are.
  std::string unproved(BufferId buffer, const TermId* index, const std::vector<TermId>& conditions) {
    const types::Sizes& sizes = type(buffer).sizes;
    if (const BufferId of = program_.buffer(buffer).of; of.valid()) {
      const auto is_positive = [&](const Expr& size) { return prover_.is_positive(size); };
      const types::Sizes& all = type(of).sizes;  // none of them is negative
      if (!std::all_of(all.begin(), all.end(), is_positive) && !is_positive(types::numel(all)))
        return base::concat(program_.buffer(of).name, " is not known to have elements");
    }
    for (size_t d = 0; d < sizes.size(); ++d) {
      const Span span = under(index[d], conditions);
      const auto at = symbolic(index[d]);
      const bool low = span.low >= 0 || (at && prover_.never_negative(*at));
      const bool high = (sizes[d].is_constant() && span.high < sizes[d].value_or(0)) ||
                        (at && prover_.never_negative(sizes[d] - 1 - *at));
      if (!low || !high)
        return base::concat(low ? "" : "0 <= ", print(program_, index[d]),
                            high ? std::string() : base::concat(" < ", to_string(sizes[d])), " is not proved");
    }
    return "";
  }

  /// where(i < 4, i, i - 4): each of both is looked at under its own condition.
  void find_choices(TermId id, std::vector<TermId>& into) const {
    const Term& t = term(id);
    if (t.op == Op::kWhere && std::find(into.begin(), into.end(), id) == into.end()) into.push_back(id);
    if (t.op == Op::kLoad || t.op == Op::kGuarded || t.op == Op::kChecked || into.size() > kMostChoices) return;
    for (const TermId operand : t.operands) find_choices(operand, into);
  }
  static constexpr size_t kMostChoices = 3;

  void choose(TermId condition, bool holds) {
    std::vector<TermId> list;
    comparisons(condition, list);
    if (holds || (list.size() == 1 && list[0] == condition))  // not (a and b) says nothing of a
      for (const TermId id : list) assume(id, holds);
  }
  void assume(TermId comparison, bool holds) {
    const Term& t = term(comparison);
    if (term(t.operands[0]).dtype != Dtype::kI64 || (!holds && t.op == Op::kEq)) return;
    const bool turned = (t.op == Op::kGt || t.op == Op::kGe) == holds && t.op != Op::kEq;
    const auto a = symbolic(t.operands[turned ? 1 : 0]), b = symbolic(t.operands[turned ? 0 : 1]);
    types::Relation relation = *this->relation(t.op);
    if (!holds) relation = relation == types::Relation::kLt ? types::Relation::kLe : types::Relation::kLt;
    if (a && b) prover_.assume({*a, relation, *b});
  }

  static bool has_elements(const types::TensorType& type) {
    return std::all_of(type.sizes.begin(), type.sizes.end(), [](const Expr& e) { return e.value_or(0) > 0; });
  }

  /// All accesses under a term.
  void visit(TermId root) {
    if (!loads_[root.index()]) return;
    const uint32_t turn = ++seen_turn_;
    std::vector<TermId> stack = {root};
    while (!stack.empty()) {
      const TermId id = stack.back();
      stack.pop_back();
      if (!loads_[id.index()] || seen_[id.index()] == turn) continue;
      seen_[id.index()] = turn;
      const Term& t = term(id);
      if (t.op == Op::kLoad) access(BufferId(t.id), t.operands.data(), {});
      if (t.op == Op::kGuarded) access(BufferId(t.id), t.operands.data(), t.operands[t.operands.size() - 2]);
      if (t.op == Op::kReduce) {
        const std::vector<Range> ranges = program_.ranges_of(t);
        enter(ranges);
        visit(t.operands[0]);
        leave(ranges.size());
        continue;
      }
      stack.insert(stack.end(), t.operands.begin(), t.operands.end());
    }
  }

  // ---- equations ---------------------------------------------------------------------------------------------------

  void equation(const Equation& e) {
    ++turn_;
    if (e.kind == Equation::Kind::kExtern) return;
    const types::Sizes& sizes = type(e.target).sizes;
    const bool scatter = e.kind == Equation::Kind::kScatter;
    if (scatter)
      enter(e.over);
    else
      for (size_t d = 0; d < sizes.size(); ++d) enter({e.axes[d], {}, {}, &sizes[d]});
    for (const TermId id : e.index) visit(id);
    visit(e.value);
    if (scatter) access(e.target, e.index.data(), {});
    if (e.positions.valid() && type(e.positions).sizes != sizes)
      say(e.positions, program_.buffer(e.positions).name, " does not have the sizes of ",
          program_.buffer(e.target).name);
    leave(scatter ? e.over.size() : sizes.size());
  }

  // ---- kernels -----------------------------------------------------------------------------------------------------

  void kernel(const Kernel& k) {
    std::fill(lets_.begin(), lets_.end(), TermId());
    ++turn_;
    enter(k.outer);  // there are points, else it is not run
    block(k.once);
    block(k.body);
    leave(k.outer.size());
  }

  void block(const std::vector<Statement>& body) {
    for (const Statement& s : body) {
      for_each_term(s, [&](TermId id) { visit(id); });
      if (s.kind == Statement::Kind::kStore || s.kind == Statement::Kind::kUpdate) access(s.buffer, s.index.data(), {});
      if (s.kind == Statement::Kind::kLet) lets_[s.local.index()] = s.value;
      if (s.kind == Statement::Kind::kLoop) loop(s.loop.front());
    }
  }

  void loop(const Loop& l) {
    if (l.tail == Loop::Tail::kNone) {
      const int64_t step = int64_t{l.vector} * l.unroll;
      const auto begin = program_.as_size(l.ranges.back().begin), end = program_.as_size(l.ranges.back().end);
      if (step > 1 && (!begin || !end || !(Expr::mod(*end - *begin, step) == Expr(0))))
        say({}, print(program_, l.ranges.back()), " has no tail, but is not known to be a multiple of ", step);
    }
    enter(l.ranges);
    block(l.body);
    leave(l.ranges.size());
  }

  const Program& program_;
  types::Prover prover_;
  std::vector<bool> loads_;  ///< by term: it reads memory
  std::vector<uint32_t> seen_, measured_;
  uint32_t seen_turn_ = 0, turn_ = 0;  ///< no clearing: each space has a number of its own
  std::vector<Span> spans_;
  std::vector<Span> axes_;                   ///< by axis
  std::vector<std::optional<Expr>> ranges_;  ///< by axis, of those that the prover knows
  std::vector<TermId> lets_;                 ///< by local: its value
  std::vector<Frame> frames_;
  size_t told_ = 0;   ///< frames that the prover knows
  size_t empty_ = 0;  ///< frames that are known to have no element
  std::unordered_map<TermId, std::optional<Expr>> opaque_;
  std::unordered_map<TermId, bool> chosen_;  ///< of a `where`: its condition holds
  Unproved where_;
  const Equation* equation_ = nullptr;
  const Kernel* kernel_ = nullptr;
  std::vector<Unproved> found_;
};

}  // namespace

std::vector<Unproved> unproved_places(const Program& program, const std::vector<types::Condition>& conditions) {
  return Bounds(program, conditions).run();
}

}  // namespace magneto::loop
