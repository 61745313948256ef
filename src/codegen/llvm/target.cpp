#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "base/text.h"
#include "codegen/abi.h"
#include "codegen/llvm/target_internal.h"
#include "codegen/math.h"
#include "codegen/walk.h"
#include "loop/semantics.h"

namespace magneto::codegen::llvm {

using base::concat;
using loop::Dtype;
using loop::Fold;
using loop::Number;
using loop::Op;

namespace {

std::string_view element_name(Dtype d) {
  switch (d) {
    case Dtype::kBool:
      return "i1";
    case Dtype::kU8:
    case Dtype::kI8:
      return "i8";
    case Dtype::kI16:
    case Dtype::kBF16:
      return "i16";
    case Dtype::kI32:
      return "i32";
    case Dtype::kI64:
      return "i64";
    case Dtype::kF16:
      return "half";
    case Dtype::kF32:
      return "float";
    case Dtype::kF64:
      return "double";
    default:
      throw base::Fault("codegen: LLVM has no " + std::string(types::name(d)));
  }
}

std::string with_lanes(std::string_view element, int lanes) {
  return lanes == 1 ? std::string(element) : concat("<", lanes, " x ", element, ">");
}

bool real(Dtype d) { return types::is_floating(d) && d != Dtype::kBF16; }

}  // namespace

std::string type_name(Type t) { return with_lanes(element_name(t.dtype), t.lanes); }
std::string typed(const Value& a) { return concat(type_name(a.type), " ", a.text); }
std::string memory_type(Type t) { return t.dtype == Dtype::kBool ? with_lanes("i8", t.lanes) : type_name(t); }
bool is_literal(const Value& a) { return a.text.front() != '%'; }

/// A literal of f32 or f64 that is not NaN.
bool is_number(const Value& a) {
  const size_t at = a.text.find("0x");
  uint64_t bits = 0;
  if (!is_literal(a) || at == std::string::npos) return false;
  std::from_chars(a.text.data() + at + 2, a.text.data() + a.text.size(), bits, 16);
  return !std::isnan(std::bit_cast<double>(bits));
}

std::optional<int64_t> literal(const Value& a) {
  std::string_view text = a.text;
  if (const size_t space = text.rfind(' '); space != text.npos) text.remove_prefix(space + 1);  // splat (i32 23)
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(read.ptr, static_cast<size_t>(text.data() + text.size() - read.ptr));
  const bool whole = !types::is_floating(a.type.dtype) && read.ec == std::errc() && (rest.empty() || rest == ")");
  return whole ? std::optional(value) : std::nullopt;
}

std::string mangled(Type t) {
  const std::string_view name = element_name(t.dtype);
  const std::string element = name == "half"     ? "f16"
                              : name == "float"  ? "f32"
                              : name == "double" ? "f64"
                                                 : std::string(name);
  return t.lanes == 1 ? element : concat("v", t.lanes, element);
}

// ---- instructions
// ----------------------------------------------------------------------------------------------------

Value LlvmTarget::pure(const std::string& instruction, Type type) {
  for (size_t depth = at_ + 1; depth-- > 0;)
    if (const auto found = scopes_[depth].known.find(instruction); found != scopes_[depth].known.end())
      return {found->second, type};
  Value made = effect(instruction, type);
  scopes_[at_].known[instruction] = made.text;
  return made;
}

Value LlvmTarget::effect(const std::string& instruction, Type type) {
  const std::string name = fresh();
  line(concat(name, " = ", instruction));
  return {name, type};
}

Value LlvmTarget::call(const std::string& name, Type result, const std::string& operands, const std::string& parameters,
                       const std::string& flags) {
  declarations_.try_emplace(name, concat("declare ", type_name(result), " @", name, "(", parameters, ")\n"));
  return pure(concat("call ", flags, type_name(result), " @", name, "(", operands, ")"), result);
}

Value LlvmTarget::intrinsic(const std::string& name, std::initializer_list<const Value*> operands) {
  std::string list, parameters;
  for (const Value* a : operands) {
    list += concat(list.empty() ? "" : ", ", typed(*a));
    parameters += concat(parameters.empty() ? "" : ", ", type_name(a->type));
  }
  const Type result = (*operands.begin())->type;
  return call(concat("llvm.", name, ".", mangled(result)), result, list, parameters);
}

Value LlvmTarget::by_lanes(const std::string& name, std::initializer_list<const Value*> operands) {
  const Type type = (*operands.begin())->type, one{type.dtype, 1};
  const std::string function = concat(name, type.dtype == Dtype::kF32 ? "f" : "");
  Value result{"poison", type};
  for (int k = 0; k < type.lanes; ++k) {
    std::string list, parameters;
    for (const Value* a : operands) {
      const Value item = type.lanes == 1 ? *a : lane(*a, k);
      list += concat(list.empty() ? "" : ", ", typed(item));
      parameters += concat(parameters.empty() ? "" : ", ", type_name(one));
    }
    const Value item = call(function, one, list, parameters);
    if (type.lanes == 1) return item;
    result = pure(concat("insertelement ", typed(result), ", ", typed(item), ", i32 ", k), type);
  }
  return result;
}

Value LlvmTarget::one_operand(const std::string& instruction, const Value& a) {
  return pure(concat(instruction, " ", typed(a)), a.type);
}
Value LlvmTarget::two_operands(const std::string& instruction, const Value& a, const Value& b) {
  return pure(concat(instruction, " ", typed(a), ", ", b.text), a.type);
}
Value LlvmTarget::convert(const std::string& instruction, const Value& a, Dtype to) {
  const Type type{to, a.type.lanes};
  return pure(concat(instruction, " ", typed(a), " to ", type_name(type)), type);
}

// ---- values
// ----------------------------------------------------------------------------------------------------------

Value LlvmTarget::constant(Type t, Number number) {
  std::string text;
  if (t.dtype == Dtype::kBool) {
    text = number.whole ? "true" : "false";
  } else if (loop::is_half(t.dtype)) {
    uint16_t bits = 0;
    loop::write(t.dtype, &bits, number);
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "0xH%04X", bits);
    text = t.dtype == Dtype::kBF16 ? std::to_string(static_cast<int16_t>(bits)) : buffer;
  } else if (types::is_floating(t.dtype)) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "0x%016llX",
                  static_cast<unsigned long long>(std::bit_cast<uint64_t>(loop::round_to(t.dtype, number.real))));
    text = buffer;
  } else {
    text = std::to_string(number.whole);
  }
  if (t.lanes > 1) text = concat("splat (", element_name(t.dtype), " ", text, ")");
  return {text, t};
}

Value LlvmTarget::unary(Op op, const Value& a) {
  const bool is_real = real(a.type.dtype);
  switch (op) {
    case Op::kNeg:
      return is_real ? one_operand("fneg", a) : two_operands("sub", constant(a.type, {}), a);
    case Op::kNot:
      return two_operands(
          "xor", a,
          a.type.dtype == Dtype::kBool ? constant(a.type, Number::of_int(1)) : constant(a.type, Number::of_int(-1)));
    case Op::kAbs:
      if (is_real) return intrinsic("fabs", {&a});
      if (loop::is_unsigned(a.type.dtype)) return a;
      return where(compare(Op::kLt, a, constant(a.type, {})), unary(Op::kNeg, a), a);
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kSqrt:
      return intrinsic(std::string(loop::traits(op).name), {&a});
    case Op::kRound:
      return intrinsic("roundeven", {&a});
    case Op::kRsqrt:
      return two_operands("fdiv", constant(a.type, Number::of(1)), unary(Op::kSqrt, a));
    default:
      if (a.type.dtype == Dtype::kF32 && has_formula(op)) return formula(*this, op, a);
      return by_lanes(std::string(loop::traits(op).name), {&a});
  }
}

Value LlvmTarget::compare(Op op, const Value& a, const Value& b) {
  const Dtype d = a.type.dtype;
  const size_t k = static_cast<size_t>(op) - static_cast<size_t>(Op::kEq);
  constexpr std::string_view kReal[] = {"fcmp oeq", "fcmp une", "fcmp olt", "fcmp ole", "fcmp ogt", "fcmp oge"};
  constexpr std::string_view kSigned[] = {"icmp eq", "icmp ne", "icmp slt", "icmp sle", "icmp sgt", "icmp sge"};
  constexpr std::string_view kUnsigned[] = {"icmp eq", "icmp ne", "icmp ult", "icmp ule", "icmp ugt", "icmp uge"};
  const std::string_view name = real(d) ? kReal[k] : loop::is_unsigned(d) ? kUnsigned[k] : kSigned[k];
  return pure(concat(name, " ", typed(a), ", ", b.text), {Dtype::kBool, a.type.lanes});
}

Value LlvmTarget::extreme(Op op, const Value& a, const Value& b) {
  const Dtype d = a.type.dtype;
  if (!real(d)) {
    const std::string name = concat(loop::is_unsigned(d) ? "u" : "s", loop::traits(op).name);
    return intrinsic(name, {&a, &b});
  }
  if (machine_.isa == Machine::Isa::kNeon) return intrinsic(op == Op::kMax ? "maximum" : "minimum", {&a, &b});
  // NaN wins: b when the comparison is false because b is one, which is what one instruction does; then a. Of a fold, b
  // is what was folded so far: only that instruction and the choice after it wait for the step before.
  if (is_number(b)) return where(compare(op == Op::kMax ? Op::kGt : Op::kLt, b, a), b, a);
  const Value better = where(compare(op == Op::kMax ? Op::kGt : Op::kLt, a, b), a, b);
  return is_number(a) ? better : where(compare(Op::kNe, a, a), a, better);
}

Value LlvmTarget::shift(Op op, const Value& a, const Value& b) {
  const std::string name = op == Op::kShl ? "shl" : loop::is_unsigned(a.type.dtype) ? "lshr" : "ashr";
  const auto bits = static_cast<int64_t>(types::item_size(a.type.dtype) * 8);
  if (const auto by = literal(b); by && *by >= 0 && *by < bits) return two_operands(name, a, b);
  const Value inside = pure(concat("icmp ult ", typed(b), ", ", constant(b.type, Number::of_int(bits)).text),
                            {Dtype::kBool, a.type.lanes});
  const Value by = where(inside, b, constant(b.type, Number::of_int(op == Op::kShl ? 0 : bits - 1)));
  const Value shifted = two_operands(name, a, by);
  return op == Op::kShl ? where(inside, shifted, constant(a.type, {})) : shifted;
}

void LlvmTarget::fault_where(const Value& condition) {
  const Value any = condition.type.lanes == 1 ? condition : horizontal(Fold::kAny, condition);
  // a store under a mask, so that no other thread's flag is written back
  declarations_.try_emplace("llvm.masked.store.v1i32.p0",
                            "declare void @llvm.masked.store.v1i32.p0(<1 x i32>, ptr, i32, <1 x i1>)\n");
  const std::string mask = fresh();
  line(concat(mask, " = insertelement <1 x i1> poison, i1 ", any.text, ", i32 0"));
  line(
      concat("call void @llvm.masked.store.v1i32.p0(<1 x i32> splat (i32 1), ptr %fault, i32 4, <1 x i1> ", mask, ")"));
}

Value LlvmTarget::integer_division(Op op, const Value& a, const Value& b) {
  const bool is_unsigned = loop::is_unsigned(a.type.dtype);
  const bool quotient = op == Op::kFloorDiv || op == Op::kTruncDiv, floor = op == Op::kFloorDiv || op == Op::kMod;
  const Value zero = constant(a.type, {}), one = constant(a.type, Number::of_int(1));
  const bool known = is_literal(b) && b.text != "0" && b.text.find("(i64 0)") == std::string::npos &&
                     b.text.find(" 0)") == std::string::npos;
  Value by = b, is_zero;
  if (!known) {
    is_zero = compare(Op::kEq, b, zero);
    fault_where(is_zero);
    by = where(is_zero, one, b);
  }
  Value minus;
  const bool may_be_minus = !is_unsigned && (!known || b.text.find('-') != std::string::npos);
  if (may_be_minus) {  // the least integer divided by -1 does not exist
    minus = compare(Op::kEq, b, constant(a.type, Number::of_int(-1)));
    by = where(minus, one, by);
  }
  const Value q = two_operands(is_unsigned ? "udiv" : "sdiv", a, by);
  const Value r = two_operands("sub", a, two_operands("mul", q, by));
  Value result = quotient ? q : r;
  if (floor && !is_unsigned) {
    const Value differs = compare(Op::kLt, two_operands("xor", r, by), zero);
    const Value down = two_operands("and", compare(Op::kNe, r, zero), differs);
    result = where(down, quotient ? two_operands("sub", q, one) : two_operands("add", r, by), result);
  }
  if (may_be_minus) result = where(minus, quotient ? two_operands("sub", zero, a) : zero, result);
  return known ? result : where(is_zero, zero, result);
}

Value LlvmTarget::library_unless(const Value& fine, const Value& result, Op op, const Value& a, const Value* b) {
  const Type type = a.type, one{type.dtype, 1};
  const int lanes = type.lanes;
  const std::string name = concat(loop::traits(op).name, ".unless.", mangled(type)), t = type_name(type);
  const std::string called = concat(loop::traits(op).name, type.dtype == Dtype::kF32 ? "f" : ""), e = type_name(one);
  declarations_.try_emplace(called, concat("declare ", e, " @", called, "(", e, b ? concat(", ", e) : "", ")\n"));
  const std::string masks = type_name(fine.type), all = concat("llvm.vector.reduce.and.", mangled(fine.type));
  if (lanes > 1) declarations_.try_emplace(all, concat("declare i1 @", all, "(", masks, ")\n"));
  if (!declarations_.count(name)) {
    std::string text = concat("define internal ", t, " @", name, "(", masks, " %fine, ", t, " %result, ", t, " %a",
                              b ? concat(", ", t, " %b") : "", ") nounwind {\n");
    if (lanes > 1) text += concat("  %all = call i1 @", all, "(", masks, " %fine)\n");
    text += concat("  br i1 %", lanes > 1 ? "all" : "fine", ", label %often, label %rarely\noften:\n  ret ", t,
                   " %result\nrarely:\n");
    for (int k = 0; k < lanes; ++k) {
      const auto part = [&](std::string_view of) {
        if (lanes == 1) return concat(e, " %", of);
        text += concat("  %", of, k, " = extractelement ", t, " %", of, ", i32 ", k, "\n");
        return concat(e, " %", of, k);
      };
      std::string arguments = part("a");
      if (b) arguments += concat(", ", part("b"));
      text += concat("  %r", k, " = call ", e, " @", called, "(", arguments, ")\n");
      if (lanes > 1)
        text += concat("  %s", k, " = insertelement ", t, k ? concat(" %s", k - 1) : " poison", ", ", e, " %r", k,
                       ", i32 ", k, "\n");
    }
    declarations_[name] = concat(text, "  ret ", t, lanes > 1 ? " %s" : " %r", lanes - 1, "\n}\n");
  }
  return pure(concat("call ", t, " @", name, "(", typed(fine), ", ", typed(result), ", ", typed(a),
                     b ? concat(", ", typed(*b)) : "", ")"),
              type);
}

Value LlvmTarget::real_division(Op op, const Value& a, const Value& b) {
  if (op == Op::kTruncDiv) return unary(Op::kTrunc, two_operands("fdiv", a, b));
  const Value r = formula(*this, Op::kFmod, a, b);
  if (op == Op::kFmod) return r;
  const Value zero = constant(a.type, {}), one = constant(a.type, Number::of(1));
  const Value differs = two_operands("xor", compare(Op::kLt, b, zero), compare(Op::kLt, r, zero));
  const Value down = two_operands("and", compare(Op::kNe, r, zero), differs);
  if (op == Op::kMod) return where(down, two_operands("fadd", r, b), r);
  Value q = two_operands("fdiv", two_operands("fsub", a, r), b);
  q = where(down, two_operands("fsub", q, one), q);
  const Value whole = unary(Op::kFloor, q);
  const Value up = compare(Op::kGt, two_operands("fsub", q, whole), constant(a.type, Number::of(0.5)));
  const Value quotient = two_operands("fdiv", a, b);
  Value result = where(up, two_operands("fadd", whole, one), whole);
  result = where(compare(Op::kEq, q, zero), intrinsic("copysign", {&zero, &quotient}), result);
  return where(compare(Op::kEq, b, zero), quotient, result);
}

Value LlvmTarget::integer_power(const Value& a, const Value& b) {
  declarations_.try_emplace("power", R"(define internal i64 @power(i64 %a, i64 %b) {
entry:
  %negative = icmp slt i64 %b, 0
  br i1 %negative, label %inverse, label %loop
inverse:
  %odd = trunc i64 %b to i1
  %sign = select i1 %odd, i64 -1, i64 1
  %one = icmp eq i64 %a, 1
  %minus = icmp eq i64 %a, -1
  %small = select i1 %minus, i64 %sign, i64 0
  %result = select i1 %one, i64 1, i64 %small
  ret i64 %result
loop:
  %y = phi i64 [ 1, %entry ], [ %next, %loop ]
  %factor = phi i64 [ %a, %entry ], [ %square, %loop ]
  %rest = phi i64 [ %b, %entry ], [ %half, %loop ]
  %bit = trunc i64 %rest to i1
  %product = mul i64 %y, %factor
  %next = select i1 %bit, i64 %product, i64 %y
  %square = mul i64 %factor, %factor
  %half = lshr i64 %rest, 1
  %done = icmp eq i64 %half, 0
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %next
}
)");
  const Value wide_a = cast(Dtype::kI64, a), wide_b = cast(Dtype::kI64, b);
  Value result{"poison", wide_a.type};
  for (int k = 0; k < a.type.lanes; ++k) {
    const Value x = a.type.lanes == 1 ? wide_a : lane(wide_a, k), y = a.type.lanes == 1 ? wide_b : lane(wide_b, k);
    const Value item = pure(concat("call i64 @power(", typed(x), ", ", typed(y), ")"), {Dtype::kI64, 1});
    result = a.type.lanes == 1
                 ? item
                 : pure(concat("insertelement ", typed(result), ", ", typed(item), ", i32 ", k), result.type);
  }
  return cast(a.type.dtype, result);
}

Value LlvmTarget::binary(Op op, const Value& a, const Value& b) {
  const bool is_real = real(a.type.dtype);
  switch (op) {
    case Op::kAdd:
      return two_operands(is_real ? "fadd" : "add", a, b);
    case Op::kSub:
      return two_operands(is_real ? "fsub" : "sub", a, b);
    case Op::kMul:
      return two_operands(is_real ? "fmul" : "mul", a, b);
    case Op::kDiv:
      return two_operands("fdiv", a, b);
    case Op::kAnd:
      return two_operands("and", a, b);
    case Op::kOr:
      return two_operands("or", a, b);
    case Op::kXor:
      return two_operands("xor", a, b);
    case Op::kFloorDiv:
    case Op::kMod:
    case Op::kTruncDiv:
    case Op::kFmod:
      return is_real ? real_division(op, a, b) : integer_division(op, a, b);
    case Op::kMin:
    case Op::kMax:
      return extreme(op, a, b);
    case Op::kShl:
    case Op::kShr:
      return shift(op, a, b);
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
      return compare(op, a, b);
    case Op::kChecked: {
      const Value fine = pure(concat("icmp ult ", typed(a), ", ", b.text), {Dtype::kBool, a.type.lanes});
      fault_where(unary(Op::kNot, fine));
      return where(fine, a, constant(a.type, {}));
    }
    case Op::kCopysign:
      return intrinsic("copysign", {&a, &b});
    case Op::kPow:
      if (!is_real) return integer_power(a, b);
      [[fallthrough]];
    default:
      if (a.type.dtype == Dtype::kF32 && has_formula(op)) return formula(*this, op, a, b);
      return by_lanes(std::string(loop::traits(op).name), {&a, &b});
  }
}

Value LlvmTarget::where(const Value& c, const Value& a, const Value& b) {
  return pure(concat("select ", typed(c), ", ", typed(a), ", ", typed(b)), a.type);
}

Value LlvmTarget::fma(const Value& a, const Value& b, const Value& c) {
  if (machine_.has_fma() || a.type.dtype != Dtype::kF32) return intrinsic("fma", {&a, &b, &c});
  // without the instruction: in f64, where a product of two f32 is exact
  const Value product = two_operands("fmul", cast(Dtype::kF64, a), cast(Dtype::kF64, b));
  return cast(Dtype::kF32, two_operands("fadd", product, cast(Dtype::kF64, c)));
}

std::optional<Value> LlvmTarget::scaled(const Value& a, const Value& n) {
  const int lanes = a.type.lanes;
  if (machine_.isa != Machine::Isa::kAvx512 || a.type.dtype != Dtype::kF32 || (lanes != 16 && lanes != 8))
    return std::nullopt;
  const std::string type = type_name(a.type), name = concat("llvm.x86.avx512.mask.scalef.ps.", 32 * lanes);
  const bool wide = lanes == 16;  // with a rounding mode: the current one
  return call(name, a.type, concat(typed(a), ", ", typed(n), ", ", type, " poison, ", wide ? "i16 -1, i32 4" : "i8 -1"),
              concat(type, ", ", type, ", ", type, wide ? ", i16, i32 immarg" : ", i8"));
}

Value LlvmTarget::cast(Dtype to, const Value& a) {
  const Dtype from = a.type.dtype;
  const int lanes = a.type.lanes;
  if (from == to) return a;
  if (from == Dtype::kBF16) {
    const Value wide = convert("zext", a, Dtype::kI32);
    const Value shifted = two_operands("shl", wide, constant(wide.type, Number::of_int(16)));
    return cast(to, convert("bitcast", shifted, Dtype::kF32));
  }
  if (from == Dtype::kF16 && to != Dtype::kF32) return cast(to, cast(Dtype::kF32, a));
  if (to == Dtype::kBool) return compare(Op::kNe, a, constant(a.type, {}));
  if (to == Dtype::kBF16) {  // to the nearest, ties to even; a NaN stays one
    const Value x = cast(Dtype::kF32, a), b = convert("bitcast", x, Dtype::kI32);
    const auto number = [&](int64_t v) { return constant({Dtype::kI32, lanes}, Number::of_int(v)); };
    const Value odd = two_operands("and", two_operands("lshr", b, number(16)), number(1));
    const Value near =
        two_operands("lshr", two_operands("add", two_operands("add", b, number(0x7fff)), odd), number(16));
    return convert("trunc", where(compare(Op::kNe, x, x), number(0x7fc0), near), Dtype::kBF16);
  }
  if (to == Dtype::kF16) return convert("fptrunc", cast(Dtype::kF32, a), to);
  if (types::is_floating(from) && types::is_floating(to))
    return convert(to == Dtype::kF64 || from == Dtype::kF16 ? "fpext" : "fptrunc", a, to);
  if (types::is_floating(to)) return convert(loop::is_unsigned(from) ? "uitofp" : "sitofp", a, to);
  const size_t size = types::item_size(to);
  if (types::is_floating(from)) {  // small ones by way of i32, so that -1.0 becomes 255
    if (size < 4) return convert("trunc", convert("fptosi", a, Dtype::kI32), to);
    return convert("fptosi", a, to);
  }
  if (from == Dtype::kBool) return convert("zext", a, to);
  const size_t given = types::item_size(from);
  if (given == size) return {a.text, {to, lanes}};
  return convert(given > size ? "trunc" : loop::is_unsigned(from) ? "zext" : "sext", a, to);
}

Value LlvmTarget::bits(Dtype to, const Value& a) {
  if (element_name(to) == element_name(a.type.dtype)) return {a.text, {to, a.type.lanes}};
  return convert("bitcast", a, to);
}

Value LlvmTarget::splat(const Value& a, int lanes) {
  const Type type{a.type.dtype, lanes};
  if (is_literal(a)) return {concat("splat (", typed(a), ")"), type};
  const Value first = pure(concat("insertelement ", type_name(type), " poison, ", typed(a), ", i32 0"), type);
  return pure(
      concat("shufflevector ", typed(first), ", ", type_name(type), " poison, <", lanes, " x i32> zeroinitializer"),
      type);
}

Value LlvmTarget::steps(const Value& first, int lanes) {
  std::string list;
  for (int k = 0; k < lanes; ++k) list += concat(k ? ", " : "<", "i64 ", k);
  return two_operands("add", splat(first, lanes), {list + ">", {Dtype::kI64, lanes}});
}

Value LlvmTarget::lane(const Value& a, int lane) {
  return pure(concat("extractelement ", typed(a), ", i32 ", lane), {a.type.dtype, 1});
}

Value LlvmTarget::horizontal(Fold fold, const Value& a) {
  const Dtype d = a.type.dtype;
  const Type one{d, 1};
  const auto reduce = [&](const std::string& name, const std::string& first, const std::string& flags) {
    const std::string start = first.empty() ? "" : concat(type_name(one), " ", first, ", ");
    const std::string parameters = concat(first.empty() ? "" : concat(type_name(one), ", "), type_name(a.type));
    return call(concat("llvm.vector.reduce.", name, ".", mangled(a.type)), one, start + typed(a), parameters, flags);
  };
  const std::string sign = loop::is_unsigned(d) ? "u" : "s";
  if ((fold == Fold::kMax || fold == Fold::kMin) && real(d)) {  // one half with the other, until one is left
    Value value = a;
    while (value.type.lanes > 1) {
      const int lanes = value.type.lanes / 2;
      const auto half = [&](int first) {
        std::string list;
        for (int k = 0; k < lanes; ++k) list += concat(k ? ", " : "", "i32 ", first + k);
        return pure(concat("shufflevector ", typed(value), ", ", type_name(value.type), " poison, <", lanes,
                           " x i32> <", list, ">"),
                    {d, lanes});
      };
      if (lanes == 1)
        value = extreme(fold == Fold::kMax ? Op::kMax : Op::kMin, lane(value, 0), lane(value, 1));
      else
        value = extreme(fold == Fold::kMax ? Op::kMax : Op::kMin, half(0), half(lanes));
    }
    return value;
  }
  switch (fold) {
    case Fold::kSum:
      return real(d) ? reduce("fadd", constant(one, Number::of(-0.0)).text, "reassoc ") : reduce("add", "", "");
    case Fold::kProd:
      return real(d) ? reduce("fmul", constant(one, Number::of(1)).text, "reassoc ") : reduce("mul", "", "");
    case Fold::kMax:
      return reduce(sign + "max", "", "");
    case Fold::kMin:
      return reduce(sign + "min", "", "");
    case Fold::kAll:
      return reduce("and", "", "");
    default:
      return reduce("or", "", "");
  }
}

// ---- loops
// -----------------------------------------------------------------------------------------------------------

void LlvmTarget::loop(Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& carried,
                      const std::function<void()>& body) {
  const int number = ++labels_;
  const size_t outside = at_;
  const std::string head = concat("head", number), inside = concat("body", number), exit = concat("exit", number);
  std::vector<Value*> variables = {&axis};
  variables.insert(variables.end(), carried.begin(), carried.end());
  std::vector<Value> first, phis;
  for (Value* variable : variables) {
    first.push_back(*variable);
    phis.push_back({fresh(), variable->type});
    *variable = phis.back();
  }
  scopes_.push_back({"", inside, {}});
  at_ = scopes_.size() - 1;
  body();
  const Value next = pure(concat("add nsw i64 ", phis[0].text, ", ", step), axis.type);
  line(concat("br label %", head));
  axis = next;
  const Scope made = std::move(scopes_.back());
  scopes_.pop_back();
  at_ = outside;
  Scope& scope = scopes_[at_];
  line(concat("br label %", head));
  scope.text += concat(head, ":\n");
  for (size_t k = 0; k < variables.size(); ++k) {
    line(concat(phis[k].text, " = phi ", type_name(phis[k].type), " [ ", first[k].text, ", %", scope.label, " ], [ ",
                variables[k]->text, ", %", made.label, " ]"));
    *variables[k] = phis[k];
  }
  const std::string more = fresh();
  line(concat(more, " = icmp slt i64 ", phis[0].text, ", ", limit.text));
  line(concat("br i1 ", more, ", label %", inside, ", label %", exit));
  scope.text += concat(inside, ":\n", made.text, exit, ":\n");
  scope.label = exit;
}

std::string LlvmTarget::function(const std::string& name, const loop::Uses& uses) {
  scopes_.push_back({"", "entry", {}});
  for (const uint32_t index : symbols_of(program_, kernel_)) {
    const Value at = pure(concat("getelementptr i64, ptr %s, i64 ", index), {});
    symbols_[index] = effect(concat("load i64, ptr ", at.text), {Dtype::kI64, 1});
  }
  size_t position = 0;
  for (const loop::BufferId id : arguments_of(program_, kernel_)) {
    const Value at = pure(concat("getelementptr ptr, ptr %buffers, i64 ", position++), {});
    pointers_[id] = effect(concat("load ptr, ptr ", at.text), {}).text;
  }
  const std::vector<types::Expr> offsets = row_offsets(program_, kernel_.rows);
  for (size_t k = 0; k < kernel_.rows.size(); ++k)
    pointers_[kernel_.rows[k]] = pure(concat("getelementptr i8, ptr %scratch, i64 ", size(offsets[k]).text), {}).text;
  walk(program_, uses, kernel_, *this, {"%lo", {Dtype::kI64, 1}}, {"%hi", {Dtype::kI64, 1}});
  line("ret void");
  return concat("define void @", name,
                "(ptr %buffers, ptr %s, i64 %lo, i64 %hi, ptr %scratch, ptr %fault) nounwind {\nentry:\n",
                scopes_[0].text, "}\n");
}

}  // namespace magneto::codegen::llvm
