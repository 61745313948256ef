#include "ops/element.h"

#include <optional>

#include "base/check.h"

namespace magneto::ops {

namespace {

using loop::Op;
using types::Dtype;

std::optional<int64_t> whole(Element e) {
  const loop::Term& term = e.program().term(e.term());
  if (term.op != Op::kConstant || types::is_floating(term.dtype)) return std::nullopt;
  return e.program().number(term).whole;
}

// What the language has no operation for on bools is done on bytes: true + true is true, as torch has it.
bool needs_bytes(Op op) { return op != Op::kAnd && op != Op::kOr && op != Op::kXor && op != Op::kEq && op != Op::kNe; }

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// Sums, products and quotients of indices. Symbols are never folded with numbers here: the program does that itself.
std::optional<Element> fold(Op op, Element a, Element b) {
  const auto x = whole(a), y = whole(b);
  loop::Program& program = a.program();
  const auto give = [&](int64_t value) { return Element(&program, program.constant_int(value, a.dtype())); };
  switch (op) {
    case Op::kAdd:
      if (x && y) return give(*x + *y);
      if (x == 0) return b;
      if (y == 0) return a;
      return std::nullopt;
    case Op::kSub:
      if (x && y) return give(*x - *y);
      if (y == 0) return a;
      return std::nullopt;
    case Op::kMul:
      if (x && y) return give(*x * *y);
      if (x == 0 || y == 0) return give(0);
      if (x == 1) return b;
      if (y == 1) return a;
      return std::nullopt;
    case Op::kFloorDiv:
      if (y == 1) return a;
      if (x && y && *y != 0) return give(floor_quotient(*x, *y));
      return std::nullopt;
    case Op::kMod:
      if (y == 1) return give(0);
      if (x && y && *y != 0) return give(*x - floor_quotient(*x, *y) * *y);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

Element Element::number(double value) const {
  if (types::is_floating(dtype())) return {program_, program_->constant(value, dtype())};
  return {program_, program_->constant_int(static_cast<int64_t>(value), dtype())};
}

Element unary(Op op, Element a) {
  if (a.dtype() == Dtype::kBool && op != Op::kNot) return cast(Dtype::kBool, unary(op, cast(Dtype::kU8, a)));
  return {&a.program(), a.program().unary(op, a.term())};
}

Element binary(Op op, Element a, Element b) {
  base::check(a.dtype() == b.dtype(), "ops: ", loop::traits(op).name, " of ", types::name(a.dtype()), " and ",
              types::name(b.dtype()));
  if (a.dtype() == Dtype::kBool && needs_bytes(op)) {
    const Element made = binary(op, cast(Dtype::kU8, a), cast(Dtype::kU8, b));
    return loop::traits(op).compares ? made : cast(Dtype::kBool, made);
  }
  if (a.dtype() == Dtype::kI64)
    if (const auto folded = fold(op, a, b)) return *folded;
  return {&a.program(), a.program().binary(op, a.term(), b.term())};
}

Element where(Element condition, Element a, Element b) {
  return {&a.program(), a.program().where(condition.term(), a.term(), b.term())};
}

Element cast(Dtype dtype, Element a) {
  if (a.dtype() == dtype) return a;
  loop::Program& program = a.program();
  const loop::Term& term = program.term(a.term());
  if (term.op == Op::kConstant && types::is_floating(dtype)) {  // numbers are written in the type they are used in
    const loop::Number number = program.number(term);
    const double value = types::is_floating(term.dtype) ? number.real : static_cast<double>(number.whole);
    return {&program, program.constant(value, dtype)};
  }
  return {&program, program.cast(dtype, a.term())};
}

Element checked(Element index, Element size) { return binary(Op::kChecked, index, size); }

}  // namespace magneto::ops
