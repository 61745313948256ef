#include <cmath>
#include <cstdio>
#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "codegen/c_target_internal.h"
#include "codegen/math.h"
#include "loop/semantics.h"

namespace magneto::codegen {

using base::concat;
using loop::Dtype;
using loop::Fold;
using loop::Number;
using loop::Op;

namespace {

bool is_small(Dtype d) { return d == Dtype::kI8 || d == Dtype::kU8 || d == Dtype::kI16; }  // C computes them as int

std::string_view word(Op op) {
  switch (op) {
    case Op::kFloorDiv:
      return "floor_div";
    case Op::kMod:
      return "mod";
    case Op::kShl:
      return "shl";
    case Op::kShr:
      return "shr";
    default:
      return loop::traits(op).name;
  }
}

Type of(Dtype dtype, int lanes) { return {dtype, lanes}; }

}  // namespace

std::string type_name(Type type) {
  return type.lanes == 1 ? std::string(types::name(type.dtype)) : concat(types::name(type.dtype), "x", type.lanes);
}

std::string literal(Dtype dtype, Number number) {
  if (dtype == Dtype::kBool) return number.whole ? "true" : "false";
  if (!types::is_floating(dtype)) {
    if (number.whole == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807l - 1)";
    const std::string text = concat(number.whole, dtype == Dtype::kI64 ? "l" : "");
    const std::string typed = is_small(dtype) ? concat("(", types::name(dtype), ")", text) : text;
    return number.whole < 0 || is_small(dtype) ? concat("(", typed, ")") : typed;
  }
  if (loop::is_half(dtype)) {  // the bits, since that is what a half is here
    uint16_t bits = 0;
    loop::write(dtype, &bits, number);
    return concat("((", types::name(dtype), ")", bits, ")");
  }
  const bool wide = dtype == Dtype::kF64;
  // each target defines these words
  if (number.real != number.real) return wide ? "nan_f64" : "nan_f32";
  if (std::isinf(number.real)) {
    const std::string inf = wide ? "inf_f64" : "inf_f32";
    return number.real < 0 ? concat("(-", inf, ")") : inf;
  }
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, wide ? "%.17g" : "%.9g", number.real);
  std::string text = buffer;
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (!wide) text += "f";
  return text.front() == '-' ? concat("(", text, ")") : text;
}

// ---- the library of a text
// ---------------------------------------------------------------------------------------------

void CTarget::need(const std::string& name, const std::function<std::string()>& make) {
  if (!library_names_.insert(name).second) return;
  library_ += make();  // what it needs itself comes before it
}

std::string CTarget::type(Type t) {
  const std::string name = type_name(t);
  if (t.lanes == 1) return name;
  need(name, [&] {
    const Dtype lane = t.dtype == Dtype::kBool ? Dtype::kI32 : t.dtype;  // a mask: 0 or -1
    const size_t bytes = types::item_size(lane) * static_cast<size_t>(t.lanes);
    const size_t stored = types::item_size(t.dtype) * static_cast<size_t>(t.lanes);
    return concat("typedef ", types::name(lane), " ", name, " __attribute__((vector_size(", bytes, ")));\n", "typedef ",
                  memory_name(t.dtype), " ", name, "_in_memory __attribute__((vector_size(", stored, "), aligned(",
                  types::item_size(t.dtype), "), may_alias));\n");
  });
  return name;
}

std::string CTarget::list(std::initializer_list<const Value*> operands) const {
  std::string text;
  for (const Value* operand : operands) text += concat(text.empty() ? "" : ", ", bare(operand->text));
  return text;
}

Value CTarget::function(const std::string& name, Type result, std::initializer_list<const Value*> operands, bool fault,
                        const std::function<std::string()>& scalar) {
  fault = fault && sets_fault();
  if (!scalar || result.lanes > 1) type(result);
  for (const Value* operand : operands) type(operand->type);
  const int lanes = (*operands.begin())->type.lanes;
  const std::string one = concat(name, "_", types::name((*operands.begin())->type.dtype));
  if (scalar) need(one, scalar);
  std::string called = one;
  if (lanes > 1) {
    called = concat(name, "_", type_name((*operands.begin())->type));
    need(called, [&] {
      std::string parameters, arguments;
      char letter = 'a';
      for (const Value* operand : operands) {
        const std::string_view item(&letter, 1);
        parameters += concat(parameters.empty() ? "" : ", ", type_name(operand->type), " ", item);
        arguments += concat(arguments.empty() ? "" : ", ", item, "[k]");
        ++letter;
      }
      if (fault) {
        parameters += ", i32* fault";
        arguments += ", fault";
      }
      return concat(function_head(), type_name(result), " ", called, "(", parameters, ") {\n  ", type_name(result),
                    " y;\n  for (int k = 0; k < ", lanes, "; ++k) y[k] = ", one, "(", arguments,
                    ");\n  return y;\n}\n");
    });
  }
  return {concat(called, "(", list(operands), fault ? ", fault)" : ")"), result};
}

Value CTarget::library_function(Op op, std::initializer_list<const Value*> operands) {
  const Type result = (*operands.begin())->type;
  const std::string name(word(op));
  const std::string_view dtype = types::name(result.dtype);
  const bool two = operands.size() == 2;
  return function(name, result, operands, false, [&] {
    return concat(function_head(), dtype, " ", name, "_", dtype, "(", dtype, " a", two ? concat(", ", dtype, " b") : "",
                  ") { return ", library_call(op, result.dtype, two ? "a, b" : "a"), "; }\n");
  });
}

Value CTarget::as_formula(Op op, std::initializer_list<const Value*> operands) {
  const Type of = (*operands.begin())->type;
  const bool two = operands.size() == 2;
  const std::string name = concat(loop::traits(op).name, "_", type(of)), t = type_name(of);
  need(name, [&] {
    Scopes saved = std::move(scopes_);
    scopes_ = Scopes();
    scopes_.open();
    for (const char* argument : {"x", "y"}) scopes_.fresh(argument);
    const Value x{"x", of}, y{"y", of};
    const Value result = two ? formula(*this, op, x, y) : formula(*this, op, x);
    scopes_.line(concat("return ", bare(result.text), ";"));
    const std::string body = scopes_.close();
    scopes_ = std::move(saved);
    return concat(function_head(), t, " ", name, "(", t, " x", two ? concat(", ", t, " y") : "", ") {\n", body, "}\n");
  });
  return {concat(name, "(", list(operands), ")"), of};
}

// ---- values
// --------------------------------------------------------------------------------------------------------------

Value CTarget::constant(Type t, Number number) {
  const Value one{literal(t.dtype, number), of(t.dtype, 1)};
  return t.lanes == 1 ? one : splat(one, t.lanes);
}

Value CTarget::symbol(uint32_t index) { return {concat("s", index), of(Dtype::kI64, 1)}; }

Value CTarget::unary(Op op, const Value& a) {
  const Dtype d = a.type.dtype;
  const bool real = types::is_floating(d);
  switch (op) {
    case Op::kNeg:
      return {is_small(d) && a.type.lanes == 1 ? concat("((", types::name(d), ")-", a.text, ")")
                                               : concat("(-", a.text, ")"),
              a.type};
    case Op::kNot:
      if (a.type.lanes == 1 && d == Dtype::kBool) return {concat("(!", a.text, ")"), a.type};
      return {is_small(d) && a.type.lanes == 1 ? concat("((", types::name(d), ")~", a.text, ")")
                                               : concat("(~", a.text, ")"),
              a.type};
    case Op::kRsqrt:
      return binary(Op::kDiv, constant(a.type, Number::of(1)), unary(Op::kSqrt, a));
    case Op::kAbs:
      if (!real)
        return function("abs", a.type, {&a}, false, [&] {
          return concat(function_head(), types::name(d), " abs_", types::name(d), "(", types::name(d),
                        " a) { return a < 0 ? -a : a; }\n");
        });
      return library_function(op, {&a});
    default:
      if (uses_formulas() && d == Dtype::kF32 && has_formula(op)) return as_formula(op, {&a});
      return library_function(op, {&a});
  }
}

Value CTarget::mask(const Value& compared) {
  const int lanes = compared.type.lanes;
  if (lanes == 1) return {compared.text, of(Dtype::kBool, 1)};
  const size_t item = compared.type.dtype == Dtype::kBool ? 4 : types::item_size(compared.type.dtype);
  if (item == 4) return {compared.text, of(Dtype::kBool, lanes)};
  return {concat("__builtin_convertvector(", bare(compared.text), ", ", type(of(Dtype::kBool, lanes)), ")"),
          of(Dtype::kBool, lanes)};
}

Value CTarget::extreme(Op op, const Value& a, const Value& b) {
  const std::string name = concat(word(op), "_", type(a.type));
  const bool real = types::is_floating(a.type.dtype);
  const std::string_view sign = op == Op::kMax ? " > " : " < ";
  need(name, [&] {  // NaN wins: a when it is one, and b when the comparison is false because b is one
    const std::string better = real ? concat("(a", sign, "b) | (a != a)") : concat("a", sign, "b");
    return concat(function_head(), type_name(a.type), " ", name, "(", type_name(a.type), " a, ", type_name(a.type),
                  " b) { return ", better, " ? a : b; }\n");
  });
  return {concat(name, "(", list({&a, &b}), ")"), a.type};
}

Value CTarget::division(Op op, const Value& a, const Value& b) {
  const Dtype d = a.type.dtype;
  const std::string t(types::name(d));
  const std::string head = concat(function_head(), t, " ", word(op), "_", t, "(", t, " a, ", t, " b");
  if (!types::is_floating(d)) {
    return function(std::string(word(op)), a.type, {&a, &b}, true, [&] {
      const bool quotient = op == Op::kFloorDiv || op == Op::kTruncDiv, floor = op == Op::kFloorDiv || op == Op::kMod;
      const std::string_view down = "r != 0 && (r < 0) != (b < 0)";
      std::string text = concat(
          head, sets_fault() ? ", i32* fault) {\n  if (b == 0) {\n    *fault = 1;\n    return 0;\n  }\n" : ") {\n");
      if (!loop::is_unsigned(d)) text += concat("  if (b == -1) return ", quotient ? "-a" : "0", ";\n");
      text += concat("  const ", t, quotient ? concat(" q = a / b", floor ? ", r = a % b" : "") : " r = a % b", ";\n");
      if (quotient) return concat(text, "  return ", floor ? concat("q - (", down, ")") : "q", ";\n}\n");
      return concat(text, "  return ", floor ? concat(down, " ? r + b : r") : "r", ";\n}\n");
    });
  }
  if (op == Op::kTruncDiv) return unary(Op::kTrunc, binary(Op::kDiv, a, b));
  if (op == Op::kFmod) return uses_formulas() ? as_formula(op, {&a, &b}) : library_function(op, {&a, &b});
  return function(std::string(word(op)), a.type, {&a, &b}, false, [&] {
    const Value one_a{"a", {d, 1}}, one_b{"b", {d, 1}};
    const std::string fmod = division(Op::kFmod, one_a, one_b).text, zero = literal(d, Number::of(0)),
                      one = literal(d, Number::of(1)), half = literal(d, Number::of(0.5));
    if (op == Op::kMod)
      return concat(head, ") {\n  const ", t, " r = ", fmod,
                    ";\n  return r != 0 && (b < 0) != (r < 0) ? r + b : r;\n}\n");
    return concat(head, ") {\n  if (b == 0) return a / b;\n  const ", t, " r = ", fmod, ";\n  ", t,
                  " q = (a - r) / b;\n", "  if (r != 0 && (b < 0) != (r < 0)) q -= ", one, ";\n  if (q == 0) return ",
                  library_call(Op::kCopysign, d, concat(zero, ", a / b")), ";\n  const ", t,
                  " whole = ", library_call(Op::kFloor, d, "q"), ";\n  return q - whole > ", half, " ? whole + ", one,
                  " : whole;\n}\n");
  });
}

Value CTarget::library_unless(const Value& fine, const Value& result, Op op, const Value& a, const Value* b) {
  const std::string_view t = types::name(a.type.dtype);
  const std::string name = concat(loop::traits(op).name, "_unless");
  const auto text = [&] {
    return concat(function_head(), t, " ", name, "_", t, "(", t, " result, bool fine, ", t, " a",
                  b ? concat(", ", t, " b") : "",
                  ") { return fine ? result : ", library_call(op, a.type.dtype, b ? "a, b" : "a"), "; }\n");
  };
  if (b) return function(name, result.type, {&result, &fine, &a, b}, false, text);
  return function(name, result.type, {&result, &fine, &a}, false, text);
}

Value CTarget::function_of_two(Op op, const Value& a, const Value& b) {
  const bool own = uses_formulas() && a.type.dtype == Dtype::kF32 && has_formula(op);
  return own ? as_formula(op, {&a, &b}) : library_function(op, {&a, &b});
}

Value CTarget::binary(Op op, const Value& a, const Value& b) {
  const Dtype d = a.type.dtype;
  const std::string t(types::name(d));
  const auto infix = [&] { return concat("(", a.text, " ", loop::traits(op).name, " ", b.text, ")"); };
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      if (is_small(d) && a.type.lanes == 1) return {concat("((", t, ")", infix(), ")"), a.type};
      return {infix(), a.type};
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
      return mask({infix(), a.type});
    case Op::kMin:
    case Op::kMax:
      return extreme(op, a, b);
    case Op::kFloorDiv:
    case Op::kMod:
    case Op::kTruncDiv:
    case Op::kFmod:
      return division(op, a, b);
    case Op::kShl:
    case Op::kShr: {
      const size_t bits = types::item_size(d) * 8;
      return function(std::string(word(op)), a.type, {&a, &b}, false, [&] {
        const std::string inside = concat("b >= 0 && b < ", bits);
        return concat(function_head(), t, " ", word(op), "_", t, "(", t, " a, ", t, " b) { return ",
                      op == Op::kShl ? concat(inside, " ? (", t, ")(a << b) : 0")
                                     : concat("a >> (", inside, " ? b : ", bits - 1, ")"),
                      "; }\n");
      });
    }
    case Op::kPow:
      if (types::is_floating(d)) return function_of_two(op, a, b);
      return function("pow", a.type, {&a, &b}, false, [&] {
        return concat(function_head(), t, " pow_", t, "(", t, " a, ", t, " b) {\n",
                      loop::is_unsigned(d) ? "" : "  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n",
                      "  ", t, " y = 1;\n  for (; b; b >>= 1, a *= a)\n    if (b & 1) y *= a;\n  return y;\n}\n");
      });
    case Op::kChecked:
      return function("checked", a.type, {&a, &b}, true, [&] {
        const std::string fault = out_of_bounds();
        return concat(function_head(), t, " checked_", t, "(", t, " k, ", t, " n", sets_fault() ? ", i32* fault" : "",
                      ") {\n  if (k >= 0 && k < n) return k;\n  ", fault, "\n  return 0;\n}\n");
      });
    default:
      return function_of_two(op, a, b);
  }
}

Value CTarget::where(const Value& condition, const Value& a, const Value& b) {
  std::string c = condition.text;
  const size_t item = a.type.dtype == Dtype::kBool ? 4 : types::item_size(a.type.dtype);
  if (a.type.lanes > 1 && item != 4) {
    const Dtype wide = item == 8 ? Dtype::kI64 : item == 2 ? Dtype::kI16 : Dtype::kI8;
    c = concat("__builtin_convertvector(", bare(c), ", ", type(of(wide, a.type.lanes)), ")");
  }
  return {concat("(", c, " ? ", a.text, " : ", b.text, ")"), a.type};
}

Value CTarget::fma(const Value& a, const Value& b, const Value& c) {
  const std::string_view t = types::name(a.type.dtype);
  return function("fma", a.type, {&a, &b, &c}, false, [&] {
    return concat(function_head(), t, " fma_", t, "(", t, " a, ", t, " b, ", t, " c) { return ",
                  library_call(Op::kFma, a.type.dtype, "a, b, c"), "; }\n");
  });
}

Value CTarget::cast(Dtype to, const Value& a) {
  const Dtype from = a.type.dtype;
  const int lanes = a.type.lanes;
  if (from == to) return a;
  if (loop::is_half(from)) return cast(to, from_half(a));
  if (to == Dtype::kBool) return binary(Op::kNe, a, constant(a.type, Number{}));
  if (loop::is_half(to)) return half_of(to, cast(Dtype::kF32, a));
  if (lanes == 1) {
    // from float by way of a signed integer, so that -1.0 becomes 255
    const bool real = types::is_floating(from);
    const std::string value = real && is_small(to) ? concat("(i64)", a.text) : a.text;
    return {concat("((", types::name(to), ")", value, ")"), of(to, 1)};
  }
  const auto convert = [&](Dtype target, const std::string& text) {
    return concat("__builtin_convertvector(", bare(text), ", ", type(of(target, lanes)), ")");
  };
  if (from == Dtype::kBool) return {convert(to, concat(a.text, " & 1")), of(to, lanes)};
  if (types::is_floating(from) && is_small(to)) return {convert(to, convert(Dtype::kI32, a.text)), of(to, lanes)};
  return {convert(to, a.text), of(to, lanes)};
}

Value CTarget::bits(Dtype to, const Value& a) {
  if (a.type.lanes > 1) return {concat("((", type(of(to, a.type.lanes)), ")", a.text, ")"), of(to, a.type.lanes)};
  const std::string_view t = types::name(to), f = types::name(a.type.dtype);
  return function(concat("bits_", t), of(to, 1), {&a}, false, [&] {
    return concat(function_head(), t, " bits_", t, "_", f, "(", f, " a) {\n  union {\n    ", f, " from;\n    ", t,
                  " to;\n  } both = {a};\n  return both.to;\n}\n");
  });
}

Value CTarget::splat(const Value& a, int lanes) {
  const Type t = of(a.type.dtype, lanes);
  const std::string name = concat("all_", type(t));
  need(name, [&] {  // minus zero keeps the sign of a zero, plus zero would not
    const bool is_bool = t.dtype == Dtype::kBool;
    return concat(function_head(), type_name(t), " ", name, "(", types::name(t.dtype), " a) { return ",
                  is_bool ? "-(i32)a" : "a", " - ", type_name(t), "{}; }\n");
  });
  return {concat(name, "(", bare(a.text), ")"), t};
}

Value CTarget::steps(const Value& first, int lanes) {
  const Type t = of(Dtype::kI64, lanes);
  const std::string name = concat("steps_", type(t));
  need(name, [&] {
    std::string list = "0";
    for (int k = 1; k < lanes; ++k) list += concat(", ", k);
    return concat(function_head(), type_name(t), " ", name, "(i64 a) { return a + ", type_name(t), "{", list, "}; }\n");
  });
  return {concat(name, "(", bare(first.text), ")"), t};
}

Value CTarget::lane(const Value& a, int lane) {
  const std::string item = concat(a.text, "[", lane, "]");
  return {a.type.dtype == Dtype::kBool ? concat("(", item, " != 0)") : item, of(a.type.dtype, 1)};
}

Value CTarget::horizontal(Fold fold, const Value& a) {
  const int lanes = a.type.lanes;
  const std::string name = concat(loop::name(fold), "_of_", type(a.type));
  const auto join = [&](const Value& x, const Value& y) {
    constexpr Op kOps[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kMin, Op::kAdd, Op::kAdd, Op::kOr, Op::kAnd};
    return binary(kOps[static_cast<size_t>(fold)], x, y);
  };
  need(name, [&] {
    const std::string head =
        concat(function_head(), types::name(a.type.dtype), " ", name, "(", type_name(a.type), " a) {\n");
    const Value whole{"a", a.type};
    if (lanes == 2) return concat(head, "  return ", bare(join(lane(whole, 0), lane(whole, 1)).text), ";\n}\n");
    const Type half = of(a.type.dtype, lanes / 2);
    std::string low, high;
    for (int k = 0; k < lanes / 2; ++k) {
      low += concat(", ", k);
      high += concat(", ", k + lanes / 2);
    }
    const Value joined = join({"low", half}, {"high", half});
    const Value result = horizontal(fold, joined);
    return concat(head, "  const ", type(half), " low = __builtin_shufflevector(a, a", low,
                  "), high = __builtin_shufflevector(a, a", high, ");\n  return ", result.text, ";\n}\n");
  });
  return {concat(name, "(", bare(a.text), ")"), of(a.type.dtype, 1)};
}

Value CTarget::keep(const Value& a, std::string_view hint) {
  if (is_name(a.text)) return a;
  if (const std::string* name = scopes_.find(a.text)) return {*name, a.type};
  const std::string name = scopes_.fresh(hint);
  scopes_.line(concat("const ", type(a.type), " ", name, " = ", bare(a.text), ";"));
  scopes_.remember(a.text, name);
  return {name, a.type};
}

// ---- loops
// ---------------------------------------------------------------------------------------------------------------

Value CTarget::variable(std::string_view hint, const Value& first) {
  const std::string name = scopes_.fresh(hint);
  scopes_.line(concat(type(first.type), " ", name, " = ", bare(first.text), ";"));
  return {name, first.type};
}

void CTarget::assign(Value& variable, const Value& a) { scopes_.line(concat(variable.text, " = ", bare(a.text), ";")); }

void CTarget::loop(Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& /*carried*/,
                   const std::function<void()>& body) {
  scopes_.open();
  body();
  const std::string text = scopes_.close();
  const std::string next = step == 1 ? concat("++", axis.text) : concat(axis.text, " += ", step);
  if (!before_loop().empty()) scopes_.line(before_loop());
  scopes_.line(concat("for (; ", axis.text, " < ", bare(limit.text), "; ", next, ") {"));
  scopes_.block(text);
  scopes_.line("}");
}

const std::string& CTarget::pointer(loop::BufferId id) { return pointers_.at(id); }

}  // namespace magneto::codegen
