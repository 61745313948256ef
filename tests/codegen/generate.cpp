// Floats carry a bound on their size, so that nothing overflows and no cancellation eats all digits. What jumps (floor,
// comparisons, casts to integers) is applied only to floats that every printer computes to the last bit: loads and
// arithmetic, no elementary functions and no sums.
#include "generate.h"

#include <random>

#include "base/text.h"

namespace magneto::loop {

namespace {

using base::concat;

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  Generated make() {
    s0_ = types::Expr::symbol(0);
    s1_ = types::Expr::symbol(1);
    constexpr Dtype kFloats[] = {Dtype::kF32, Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64};
    constexpr Dtype kInts[] = {Dtype::kI64, Dtype::kI32, Dtype::kU8, Dtype::kI8, Dtype::kI16};
    const bool flipped = pick(4) == 0;
    x_ = input("x", kFloats[pick(5)], {s0_, s1_}, flipped);
    w_ = input("w", kFloats[pick(5)], {s1_});
    c_ = input("c", kFloats[pick(5)], {s0_});
    n_ = input("n", kInts[pick(5)], {s0_, s1_});
    b_ = input("b", Dtype::kBool, {s0_, s1_}, pick(4) == 0);
    ix_ = input("ix", Dtype::kI64, {s1_});
    table_ = input("table", kFloats[pick(5)], {8});
    real_ = pick(5) == 0 ? Dtype::kF64 : Dtype::kF32;
    whole_ = kInts[pick(5)];
    i_ = program_.axis("i");
    j_ = program_.axis("j");
    Kernel k;
    k.name = "k";
    k.threads = 32 << pick(3);
    switch (pick(4)) {
      case 0:
        lanes(k);
        break;
      case 1:
        square(k);
        break;
      default:
        rows(k);
    }
    program_.kernels.push_back(std::move(k));
    Generated made{std::move(program_), {1 + pick(7), 1 + pick(140)}};
    if (pick(6) == 0) made.symbols[1] = 64;
    return made;
  }

 private:
  struct Real {
    TermId term;
    double bound;
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  BufferId buffer(const std::string& name, Dtype dtype, types::Sizes sizes, Role role, bool flipped = false) {
    types::Sizes strides = types::contiguous_strides(sizes);
    if (flipped) strides = {1, sizes[0]};
    return program_.add_buffer(name, {dtype, {}, std::move(sizes), std::move(strides), 0}, role);
  }
  BufferId input(const std::string& name, Dtype dtype, types::Sizes sizes, bool flipped = false) {
    return buffer(name, dtype, std::move(sizes), Role::kIn, flipped);
  }

  // ---- leaves
  // --------------------------------------------------------------------------------------------------------

  TermId i() { return program_.axis_value(i_); }
  TermId j() { return program_.axis_value(j_); }
  TermId whole(int64_t v, Dtype d = Dtype::kI64) { return program_.constant_int(v, d); }
  TermId real(double v) { return program_.constant(v, real_); }
  TermId op(Op o, TermId a, TermId b) { return program_.binary(o, a, b); }
  TermId op(Op o, TermId a) { return program_.unary(o, a); }

  TermId column() {  // an index from 0 to s1 - 1
    switch (pick(8)) {
      case 0:
        return op(Op::kSub, program_.size(s1_ - 1), j());
      case 1:
        return op(Op::kFloorDiv, j(), whole(2));
      case 2:
        return op(Op::kMod, j(), whole(3 + pick(9)));
      default:
        return j();
    }
  }
  bool fits(TermId index) const { return program_.term(index).op != Op::kMod; }

  TermId two_d(BufferId id, TermId otherwise) {
    const TermId row = has_i_ ? i() : whole(0);
    if (!has_j_) return program_.guarded(id, {row, whole(0)}, op(Op::kLt, whole(0), program_.size(s1_)), otherwise);
    if (pick(6) == 0)  // the neighbour, where there is one
      return program_.guarded(id, {row, op(Op::kSub, j(), whole(2))}, op(Op::kGe, j(), whole(2)), otherwise);
    const TermId index = column();
    if (fits(index)) return program_.load(id, {row, index});
    return program_.guarded(id, {row, index}, op(Op::kLt, index, program_.size(s1_)), otherwise);
  }

  Real leaf() {
    const auto zero = [&](BufferId id) { return program_.constant(0.5, program_.buffer(id).type.dtype); };
    switch (pick(has_j_ ? 9 : 4)) {
      case 0:
        return {real(pick(41) / 8.0 - 2.5), 2.5};
      case 1:
        if (!real_locals_.empty())
          return real_locals_[static_cast<size_t>(pick(static_cast<int>(real_locals_.size())))];
        [[fallthrough]];
      case 2:
        if (has_i_) return {program_.cast(real_, program_.load(c_, {i()})), 3};
        [[fallthrough]];
      case 3:
        if (has_i_ && !exact_) return {program_.cast(real_, two_d(x_, zero(x_))), 3};
        return {real(pick(9) - 4), 4};
      case 4:
        return {program_.cast(real_, program_.load(w_, {j()})), 3};
      case 5: {
        const TermId at = op(Op::kChecked, program_.load(ix_, {j()}), whole(8));
        return {program_.cast(real_, program_.load(table_, {at})), 3};
      }
      case 6:
        return {program_.cast(real_, op(Op::kMod, j(), whole(5))), 4};
      default:
        return {program_.cast(real_, two_d(x_, zero(x_))), 3};
    }
  }

  // ---- terms
  // ---------------------------------------------------------------------------------------------------------

  Real tamed(Real a) {
    if (a.bound <= 40) return a;
    if (exact_) return {op(Op::kMin, op(Op::kMax, a.term, real(-8)), real(8)), 8};
    return {op(Op::kTanh, a.term), 1};
  }

  Real exact(int depth) {
    const bool before = exact_;
    const auto locals = real_locals_;
    exact_ = true;
    real_locals_.clear();
    const Real made = number(depth);
    exact_ = before;
    real_locals_ = locals;
    return made;
  }

  Real number(int depth) {
    if (depth <= 0) return leaf();
    const Real a = number(depth - 1);
    const auto other = [&] { return number(pick(depth)); };
    switch (pick(exact_ ? 12 : 26)) {
      case 0:
        return leaf();
      case 1: {
        const Real b = other();
        return tamed({op(Op::kAdd, a.term, b.term), a.bound + b.bound});
      }
      case 2: {
        const Real b = other();
        return tamed({op(Op::kSub, a.term, b.term), a.bound + b.bound});
      }
      case 3: {
        const Real b = other();
        return tamed({op(Op::kMul, a.term, b.term), a.bound * b.bound});
      }
      case 4: {
        const Real b = other();
        return {op(pick(2) ? Op::kMax : Op::kMin, a.term, b.term), std::max(a.bound, b.bound)};
      }
      case 5: {
        const Real b = other();
        return {program_.where(truth(depth - 1), a.term, b.term), std::max(a.bound, b.bound)};
      }
      case 6:
        return {op(pick(2) ? Op::kNeg : Op::kAbs, a.term), a.bound};
      case 7: {
        const Real b = other();
        const Real c = other();
        return tamed({program_.fma(a.term, b.term, c.term), a.bound * b.bound + c.bound});
      }
      case 8:
        return {program_.cast(real_, op(Op::kMod, integer(depth - 1), whole(16, whole_))), 16};
      case 9: {
        constexpr Op kJumps[] = {Op::kFloor, Op::kCeil, Op::kTrunc, Op::kRound};
        const Real e = exact(depth - 1);
        return {op(kJumps[pick(4)], e.term), e.bound + 1};
      }
      case 10: {
        const Real e = exact(depth - 1);
        const TermId divisor = real(1 + pick(4) * 0.5);
        constexpr Op kDivisions[] = {Op::kFloorDiv, Op::kMod, Op::kFmod};
        return {op(kDivisions[pick(3)], e.term, pick(2) ? divisor : op(Op::kNeg, divisor)), e.bound + 3};
      }
      case 11: {
        const Real b = other();
        return {op(Op::kCopysign, a.term, op(Op::kAdd, op(Op::kAbs, b.term), real(1))), a.bound};
      }
      case 12:
        return {op(Op::kExp, op(Op::kMin, a.term, real(2))), 7.5};
      case 13:
        return {op(Op::kLog, op(Op::kAdd, op(Op::kAbs, a.term), real(0.5))), 4};
      case 14:
        return {op(Op::kTanh, a.term), 1};
      case 15:
        return {op(Op::kErf, a.term), 1};
      case 16:
        return {op(pick(2) ? Op::kSin : Op::kCos, a.term), 1};
      case 17:
        return {op(Op::kSqrt, op(Op::kAdd, op(Op::kAbs, a.term), real(0.25))), 7};
      case 18:
        return {op(Op::kRsqrt, op(Op::kAdd, op(Op::kAbs, a.term), real(0.5))), 1.5};
      case 19: {
        const Real b = other();
        return {op(Op::kDiv, a.term, op(Op::kAdd, op(Op::kAbs, b.term), real(1))), a.bound};
      }
      case 20:
        return {op(Op::kLog1p, op(Op::kAbs, a.term)), 4};
      case 21:
        return {op(Op::kExpm1, op(Op::kMin, a.term, real(2))), 7};
      case 22:
        return {op(Op::kLog2, op(Op::kAdd, op(Op::kAbs, a.term), real(0.5))), 6};
      case 23:
        return {op(Op::kTan, op(Op::kTanh, a.term)), 1.6};
      case 24:
        return {op(Op::kPow, op(Op::kAdd, op(Op::kTanh, op(Op::kAbs, a.term)), real(0.5)), real(pick(5) - 2)), 4};
      default: {  // through a half type and back
        const Dtype half = pick(2) ? Dtype::kBF16 : Dtype::kF16;
        if (a.bound > 3 || !real_locals_.empty()) return {op(Op::kAtan, a.term), 1.6};
        const Real e = exact(depth - 1);
        return {program_.cast(real_, program_.cast(half, e.term)), e.bound + 1};
      }
    }
  }

  TermId integer(int depth) {
    const auto constant = [&] { return whole(pick(15) - 4, whole_); };
    if (depth <= 0 || !has_j_) {
      if (has_j_ && pick(3)) return program_.cast(whole_, two_d(n_, whole(1, program_.buffer(n_).type.dtype)));
      if (has_j_ && pick(2)) return program_.cast(whole_, j());
      return constant();
    }
    const TermId a = integer(depth - 1);
    const auto other = [&] { return integer(pick(depth)); };
    constexpr Op kPlain[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kMin, Op::kMax, Op::kAnd, Op::kOr, Op::kXor};
    constexpr Op kDivisions[] = {Op::kFloorDiv, Op::kMod, Op::kTruncDiv, Op::kFmod};
    switch (pick(9)) {
      case 0:
        return op(kDivisions[pick(4)], a, whole(pick(2) ? 3 + pick(4) : whole_ == Dtype::kU8 ? 2 : -3, whole_));
      case 1:
        return op(pick(2) ? Op::kShl : Op::kShr, a, whole(pick(9), whole_));
      case 2:
        return op(pick(2) ? Op::kNot : Op::kNeg, a);
      case 3:
        return program_.where(truth(depth - 1), a, other());
      case 4:
        return op(Op::kAbs, a);
      case 5:
        return program_.cast(whole_, exact(depth - 1).term);
      case 6:
        return op(Op::kPow, a, whole(pick(4), whole_));
      default: {
        const Op o = kPlain[pick(8)];
        return op(o, a, other());
      }
    }
  }

  TermId truth(int depth) {
    if (depth <= 0 || pick(4) == 0) {
      if (has_j_ && has_i_ && pick(2)) return two_d(b_, program_.boolean(true));
      return program_.boolean(pick(2) == 0);
    }
    constexpr Op kCompare[] = {Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe};
    switch (pick(5)) {
      case 0: {
        const TermId a = truth(depth - 1);
        constexpr Op kLogic[] = {Op::kAnd, Op::kOr, Op::kXor, Op::kEq};
        const Op o = kLogic[pick(4)];
        return op(o, a, truth(depth - 1));
      }
      case 1:
        return op(Op::kNot, truth(depth - 1));
      case 2: {
        const TermId a = integer(depth - 1);
        const Op o = kCompare[pick(6)];
        return op(o, a, integer(depth - 1));
      }
      case 3:
        return program_.cast(Dtype::kBool, integer(depth - 1));
      default: {
        const Real a = exact(depth - 1);
        const Op o = kCompare[pick(6)];
        return op(o, a.term, exact(depth - 1).term);
      }
    }
  }

  Real value(int depth) {  // of any size that a store can take
    Real a = number(depth);
    if (a.bound > 60) a = {op(Op::kMin, op(Op::kMax, a.term, real(-8)), real(8)), 8};
    return a;
  }

  // ---- statements
  // ----------------------------------------------------------------------------------------------------

  Statement let(const std::string& name, Real a, bool keep = true) {
    Statement s;
    s.local = program_.add_local(name, real_);
    s.value = a.term;
    if (keep) real_locals_.push_back({program_.local(s.local), a.bound});
    return s;
  }

  Statement store(BufferId id, std::vector<TermId> index, TermId value) {
    Statement s;
    s.kind = Statement::Kind::kStore;
    s.buffer = id;
    s.index = std::move(index);
    s.value = value;
    return s;
  }

  BufferId output(Dtype dtype, types::Sizes sizes) {
    return buffer(concat("y", outputs_++), dtype, std::move(sizes), Role::kOut, sizes.size() == 2 && pick(5) == 0);
  }

  /// One to three stores of elements, of several types.
  void element_stores(std::vector<Statement>& body) {
    constexpr Dtype kHalves[] = {Dtype::kBF16, Dtype::kF16};
    for (int k = 1 + pick(3); k-- > 0;) {
      switch (pick(4)) {
        case 0:
          body.push_back(store(output(whole_, {s0_, s1_}), {i(), j()}, integer(3)));
          break;
        case 1:
          body.push_back(store(output(Dtype::kBool, {s0_, s1_}), {i(), j()}, truth(3)));
          break;
        case 2: {
          const Dtype half = kHalves[pick(2)];
          body.push_back(store(output(half, {s0_, s1_}), {i(), j()}, program_.cast(half, value(3).term)));
          break;
        }
        default:
          body.push_back(store(output(real_, {s0_, s1_}), {i(), j()}, value(4).term));
      }
    }
  }

  /// Folds of elements; what they give is known behind the phase.
  std::vector<Real> folds(std::vector<Statement>& body) {
    std::vector<Real> made;
    for (int k = pick(3); k-- >= 0;) {
      Statement s;
      s.kind = Statement::Kind::kFold;
      const std::string name = concat("f", folds_++);
      double bound = 1;
      switch (pick(6)) {
        case 0:
          s.fold = pick(2) ? Fold::kMax : Fold::kMin;
          s.value = value(3).term;
          bound = 70;
          break;
        case 1:
          s.fold = pick(2) ? Fold::kArgmax : Fold::kArgmin;
          s.value = exact(2).term;
          s.position = j();
          break;
        case 2:
          s.fold = pick(2) ? Fold::kAny : Fold::kAll;
          s.value = truth(2);
          break;
        case 3:
          s.fold = pick(3) ? Fold::kSum : Fold::kProd;
          s.value = integer(2);
          break;
        default:
          s.fold = Fold::kSum;
          s.value = value(3).term;
          bound = 70 * 150;
      }
      const Dtype element = program_.term(s.value).dtype;
      s.local = program_.add_local(name, result_of(*s.fold, element));
      const TermId local = program_.local(s.local);
      body.push_back(s);
      const bool is_real = types::is_floating(program_.term(local).dtype);
      if (!is_real) {
        others_.push_back(local);
      } else if (*s.fold == Fold::kSum) {  // a mean
        made.push_back({op(Op::kDiv, local, real(bound / 8)), 8});
      } else {  // an empty max is infinite
        made.push_back({op(Op::kMin, op(Op::kMax, local, real(-8)), real(8)), 8});
      }
    }
    return made;
  }

  Statement loop(Loop::Kind kind, std::vector<Range> ranges, std::vector<Statement> body, bool plain = false) {
    Loop l;
    l.kind = kind;
    l.ranges = std::move(ranges);
    if (!plain) {
      constexpr int kVectors[] = {1, 4, 8, 8, 16};
      l.vector = kVectors[pick(5)];
      l.unroll = 1 + pick(8) % 3;
      l.accumulators = 1 + pick(l.unroll);
    }
    l.body = std::move(body);
    Statement s;
    s.kind = Statement::Kind::kLoop;
    s.loop.push_back(std::move(l));
    return s;
  }

  Range range(AxisId axis, TermId end) { return {axis, whole(0), end}; }

  void row_stores(std::vector<Statement>& body) {
    for (const TermId other : others_) body.push_back(store(output(program_.term(other).dtype, {s0_}), {i()}, other));
    others_.clear();
    if (!real_locals_.empty()) body.push_back(store(output(real_, {s0_}), {i()}, value(2).term));
  }

  void rows(Kernel& k) {
    k.outer = {range(i_, program_.size(s0_))};
    has_i_ = has_j_ = true;
    if (pick(3) == 0) {
      const bool j_before = has_j_, i_before = has_i_;
      has_j_ = has_i_ = false;
      k.once.push_back(let("k0", exact(1)));
      has_j_ = j_before;
      has_i_ = i_before;
    }
    const bool keeps = pick(2);
    const BufferId row = keeps ? buffer("r0", real_, {s1_}, Role::kRow) : BufferId();
    if (keeps) k.rows = {row};
    const auto outside = real_locals_;
    std::vector<Statement> first;
    first.push_back(let("v", value(3)));
    if (keeps) first.push_back(store(row, {j()}, program_.local(first[0].local)));
    const std::vector<Real> results = folds(first);
    if (pick(2)) element_stores(first);
    // causal now and then, but a kept row is filled to its end
    const TermId causal = op(Op::kMin, op(Op::kAdd, op(Op::kMul, i(), whole(3)), whole(1)), program_.size(s1_));
    k.body.push_back(
        loop(Loop::Kind::kPhase, {range(j_, keeps || pick(4) ? program_.size(s1_) : causal)}, std::move(first)));
    real_locals_ = outside;
    real_locals_.insert(real_locals_.end(), results.begin(), results.end());
    has_j_ = false;
    k.body.push_back(let("m", value(2)));
    row_stores(k.body);
    has_j_ = true;
    if (keeps || pick(2)) {
      std::vector<Statement> second;
      if (keeps) second.push_back(let("u", {program_.load(row, {column_inside()}), 60}));
      element_stores(second);
      k.body.push_back(loop(Loop::Kind::kPhase, {range(j_, program_.size(s1_))}, std::move(second)));
    }
    if (pick(3) == 0) in_blocks(k);
  }

  /// A few rows are one point, and their columns are summed in a kept row.
  void in_blocks(Kernel& k) {
    constexpr int64_t kWidth = 3;
    const AxisId block = program_.axis("block");
    const types::Expr blocks = types::Expr::ceil_div(s0_, kWidth);
    const BufferId sums = buffer("sums", real_, {s1_}, Role::kRow), result = output(real_, {blocks, s1_});
    k.rows.push_back(sums);
    k.outer = {range(block, program_.size(blocks))};
    const auto over_columns = [&](Statement s) {
      return loop(Loop::Kind::kPhase, {range(j_, program_.size(s1_))}, {std::move(s)});
    };
    real_locals_.clear();
    Statement add = store(sums, {j()}, op(Op::kDiv, value(2).term, real(8)));
    add.kind = Statement::Kind::kUpdate;
    add.fold = Fold::kSum;
    k.body.push_back(over_columns(std::move(add)));
    const TermId begin = op(Op::kMul, program_.axis_value(block), whole(kWidth));
    const TermId end = op(Op::kMin, op(Op::kAdd, begin, whole(kWidth)), program_.size(s0_));
    Statement each = loop(Loop::Kind::kEach, {{i_, begin, end}}, std::move(k.body), true);
    k.body = {over_columns(store(sums, {j()}, real(0))), std::move(each),
              over_columns(store(result, {program_.axis_value(block), j()}, program_.load(sums, {j()})))};
  }

  TermId column_inside() { return pick(3) ? j() : op(Op::kSub, program_.size(s1_ - 1), j()); }

  /// All elements in one point: a phase over two axes.
  void square(Kernel& k) {
    has_i_ = has_j_ = true;
    std::vector<Statement> body;
    if (pick(2)) body.push_back(let("v", value(3)));
    element_stores(body);
    folds(body);
    k.body.push_back(
        loop(Loop::Kind::kPhase, {range(i_, program_.size(s0_)), range(j_, program_.size(s1_))}, std::move(body)));
    for (const TermId other : others_) k.body.push_back(store(output(program_.term(other).dtype, {}), {}, other));
  }

  /// Columns in vectors, rows in a phase inside.
  void lanes(Kernel& k) {
    const int width = 16 << pick(3);
    const AxisId c = program_.axis("c");
    k.outer = {range(c, program_.size(types::Expr::ceil_div(s1_, width)))};
    const TermId begin = op(Op::kMul, program_.axis_value(c), whole(width));
    const TermId end = op(Op::kMin, op(Op::kAdd, begin, whole(width)), program_.size(s1_));
    has_j_ = true;
    std::vector<Statement> body;
    const bool head = pick(2);
    if (head) body.push_back(let("h", exact(1)));
    const auto outside = real_locals_;
    has_i_ = true;
    std::vector<Statement> inner;
    if (pick(2)) inner.push_back(let("v", value(2)));
    const std::vector<Real> results = folds(inner);
    if (pick(2)) element_stores(inner);
    body.push_back(loop(Loop::Kind::kPhase, {range(i_, program_.size(s0_))}, std::move(inner), true));
    has_i_ = false;
    real_locals_ = outside;
    real_locals_.insert(real_locals_.end(), results.begin(), results.end());
    for (const TermId other : others_) body.push_back(store(output(program_.term(other).dtype, {s1_}), {j()}, other));
    for (const Real& r : results) body.push_back(store(output(real_, {s1_}), {j()}, r.term));
    Statement all = loop(Loop::Kind::kLanes, {{j_, begin, end}}, std::move(body));
    all.loop.front().accumulators = all.loop.front().unroll;
    k.body.push_back(std::move(all));
  }

  std::mt19937 random_;
  Program program_;
  types::Expr s0_, s1_;
  Dtype real_ = Dtype::kF32, whole_ = Dtype::kI64;
  BufferId x_, w_, c_, n_, b_, ix_, table_;
  AxisId i_, j_;
  bool has_i_ = false, has_j_ = false, exact_ = false;
  std::vector<Real> real_locals_;
  std::vector<TermId> others_;
  int outputs_ = 0, folds_ = 0;
};

}  // namespace

Generated generate(unsigned seed) { return Generator(seed).make(); }

}  // namespace magneto::loop
