#include "equations.h"

#include <random>

#include "base/text.h"

namespace magneto::schedule {

using namespace loop;
using types::Expr;

namespace {

enum class Kind { kFull, kRow, kColumn, kKeep, kScalar };

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  Program make() {
    for (int k = 0; k < 2; ++k) add(Kind::kFull, Role::kIn, Dtype::kF32);
    add(Kind::kFull, Role::kIn, Dtype::kBF16);
    add(Kind::kColumn, Role::kIn, Dtype::kF32);
    add(Kind::kRow, Role::kIn, Dtype::kF32);
    ix_ = program_.add_buffer("ix", type({s1_}, Dtype::kI64), Role::kIn);
    const int count = 4 + pick(12);
    for (int k = 0; k < count; ++k) equation(k + 1 == count);
    return std::move(program_);
  }

 private:
  struct Made {
    BufferId id;
    Kind kind;
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  static types::TensorType type(const types::Sizes& sizes, Dtype dtype) {
    types::TensorType made;
    made.dtype = dtype;
    made.sizes = sizes;
    made.strides = types::contiguous_strides(sizes);
    return made;
  }

  types::Sizes sizes(Kind kind) const {
    switch (kind) {
      case Kind::kFull:
        return {s0_, s1_};
      case Kind::kRow:
        return {s0_};
      case Kind::kKeep:
        return {s0_, 1};
      case Kind::kColumn:
        return {s1_};
      case Kind::kScalar:
        return {};
    }
    return {};
  }

  BufferId add(Kind kind, Role role, Dtype dtype) {
    const BufferId id = program_.add_buffer(base::concat(role == Role::kIn    ? "x"
                                                         : role == Role::kOut ? "y"
                                                                              : "t",
                                                         made_.size(), "_"),
                                            type(sizes(kind), dtype), role);
    made_.push_back({id, kind});
    return id;
  }

  TermId zero() { return program_.constant_int(0, Dtype::kI64); }

  /// A load at row i and column j; either may be missing (then only what does not need it is read).
  TermId load(TermId i, TermId j) {
    for (int tries = 0; tries < 50; ++tries) {
      const Made m = made_[pick(4) ? made_.size() - 1 -
                                         static_cast<size_t>(pick(static_cast<int>(std::min<size_t>(made_.size(), 4))))
                                   : static_cast<size_t>(pick(static_cast<int>(made_.size())))];
      std::vector<TermId> index;
      const bool needs_i = m.kind == Kind::kFull || m.kind == Kind::kRow || m.kind == Kind::kKeep;
      const bool needs_j = m.kind == Kind::kFull || m.kind == Kind::kColumn;
      if ((needs_i && !i.valid()) || (needs_j && !j.valid())) continue;
      TermId row = i, column = j;
      if (needs_j && pick(6) == 0)
        column = program_.binary(Op::kSub, program_.binary(Op::kSub, program_.size(s1_), j),
                                 program_.constant_int(1, Dtype::kI64));
      if (needs_i) index.push_back(row);
      if (needs_j) index.push_back(column);
      if (m.kind == Kind::kKeep) index.push_back(zero());
      TermId made;
      if (needs_j && pick(8) == 0) {
        const TermId condition = program_.binary(Op::kGe, j, program_.constant_int(2, Dtype::kI64));
        index.back() =
            m.kind == Kind::kKeep ? zero() : program_.binary(Op::kSub, j, program_.constant_int(2, Dtype::kI64));
        const Dtype dtype = program_.buffer(m.id).type.dtype;
        made = program_.guarded(m.id, index, condition, program_.constant(0.25, dtype));
      } else {
        made = program_.load(m.id, index);
      }
      return program_.term(made).dtype == Dtype::kF32 ? made : program_.cast(Dtype::kF32, made);
    }
    return program_.constant(0.5, Dtype::kF32);
  }

  /// A float of size up to about 3.
  TermId value(TermId i, TermId j, int depth) {
    if (depth == 0) return load(i, j);
    const TermId a = value(i, j, depth - 1);
    switch (pick(9)) {
      case 0:
        return program_.unary(Op::kTanh, a);
      case 1:
        return program_.unary(Op::kExp, program_.unary(Op::kNeg, program_.unary(Op::kAbs, a)));
      case 2:
        return program_.binary(Op::kMin, a, program_.constant(2.0, Dtype::kF32));
      case 3:
        return program_.binary(Op::kMul, a, program_.constant(-0.5, Dtype::kF32));
      case 4:
        return program_.binary(
            Op::kDiv, a,
            program_.binary(Op::kAdd, program_.binary(Op::kMul, a, a), program_.constant(1.0, Dtype::kF32)));
      default: {
        const TermId b = value(i, j, depth - 1);
        const TermId half = program_.constant(0.5, Dtype::kF32);
        const TermId sum = program_.binary(pick(2) ? Op::kAdd : Op::kSub, a, b);
        return program_.binary(Op::kMul, sum, half);
      }
    }
  }

  TermId reduce(Kind kind, TermId i, TermId j) {
    const AxisId a = program_.axis("a"), b = program_.axis("b");
    const Range rows{a, zero(), program_.size(s0_)}, columns{b, zero(), program_.size(s1_)};
    const TermId row = program_.axis_value(a), column = program_.axis_value(b);
    const Fold fold = pick(3) ? Fold::kSum : Fold::kMax;
    TermId made;
    if (kind == Kind::kScalar)
      made = program_.reduce(fold, {rows, columns}, value(row, column, pick(3)));
    else if (kind == Kind::kColumn)
      made = program_.reduce(fold, {rows}, value(row, j, pick(3)));
    else
      made = program_.reduce(fold, {columns}, value(i, column, pick(3)));
    // an empty max is -inf, and sums are long: bring both back
    return program_.unary(Op::kTanh, program_.binary(Op::kMul, made, program_.constant(0.125, Dtype::kF32)));
  }

  void equation(bool last) {
    constexpr Kind kKinds[] = {Kind::kFull, Kind::kFull,   Kind::kFull,  Kind::kRow,
                               Kind::kKeep, Kind::kColumn, Kind::kScalar};
    const Kind kind = kKinds[pick(7)];
    Equation e;
    TermId i, j;
    const AxisId ai = program_.axis("i"), aj = program_.axis("j");
    if (kind == Kind::kFull || kind == Kind::kRow || kind == Kind::kKeep) {
      e.axes.push_back(ai);
      i = program_.axis_value(ai);
    }
    if (kind == Kind::kFull || kind == Kind::kColumn) {
      e.axes.push_back(aj);
      j = program_.axis_value(aj);
    }
    if (kind == Kind::kKeep) e.axes.push_back(program_.axis("k"));
    e.value = kind != Kind::kFull && pick(4) ? reduce(kind, i, j) : value(i, j, 1 + pick(3));
    if (kind == Kind::kFull && pick(6) == 0) e.value = program_.binary(Op::kSub, e.value, reduce(Kind::kRow, i, j));
    const bool half = pick(6) == 0;
    if (half) e.value = program_.cast(Dtype::kBF16, e.value);
    e.target = add(kind, last || pick(4) == 0 ? Role::kOut : Role::kTemp, half ? Dtype::kBF16 : Dtype::kF32);
    program_.equations.push_back(std::move(e));
  }

  std::mt19937 random_;
  Program program_;
  Expr s0_ = Expr::symbol(0), s1_ = Expr::symbol(1);
  BufferId ix_;
  std::vector<Made> made_;
};

}  // namespace

Program random_equations(unsigned seed) { return Generator(seed).make(); }

}  // namespace magneto::schedule
