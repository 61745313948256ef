#include "codegen/cpp/print.h"

#include <map>
#include <memory>

#include "base/text.h"
#include "codegen/abi.h"
#include "codegen/c_target_internal.h"
#include "codegen/walk.h"

namespace magneto::codegen::cpp {

using base::concat;
using loop::Dtype;
using loop::Number;
using loop::Op;

namespace {

constexpr std::string_view kTypes =
    "typedef signed char i8;\ntypedef unsigned char u8;\ntypedef short i16;\ntypedef unsigned short u16;\n"
    "typedef int i32;\ntypedef unsigned u32;\ntypedef long i64;\ntypedef float f32;\ntypedef double f64;\n"
    "typedef unsigned short f16;   // the bits\ntypedef unsigned short bf16;\n"
    "#define inf_f32 __builtin_inff()\n#define inf_f64 __builtin_inf()\n"
    "#define nan_f32 __builtin_nanf(\"\")\n#define nan_f64 __builtin_nan(\"\")\n";

class CppTarget : public CTarget {
 public:
  CppTarget(const loop::Program& program, const loop::Kernel& kernel, const Machine& machine,
            std::set<std::string>& library_names, std::string& library)
      : CTarget(program, kernel, library_names, library), machine_(machine) {}

  std::string function(const std::string& name, const loop::Uses& uses) {
    for (const uint32_t symbol : symbols_of(program_, kernel_)) {
      scopes_.fresh(concat("s", symbol));
      scopes_.line(concat("const i64 s", symbol, " = s[", symbol, "];"));
    }
    std::set<loop::BufferId> stored;
    for_each_statement(kernel_.body, [&](const loop::Statement& s) {
      if (s.buffer.valid()) stored.insert(s.buffer);
    });
    size_t position = 0;
    for (const loop::BufferId id : arguments_of(program_, kernel_)) {
      const loop::Buffer& buffer = program_.buffer(id);
      const std::string t = concat(stored.count(id) ? "" : "const ", memory_name(buffer.type.dtype), "*");
      pointers_[id] = scopes_.fresh(buffer.name);
      scopes_.line(concat(t, " __restrict ", pointers_[id], " = (", t, ")buffers[", position++, "];"));
    }
    const std::vector<types::Expr> offsets = row_offsets(program_, kernel_.rows);
    for (size_t k = 0; k < kernel_.rows.size(); ++k) {
      const loop::Buffer& buffer = program_.buffer(kernel_.rows[k]);
      const std::string t = concat(memory_name(buffer.type.dtype), "*");
      pointers_[kernel_.rows[k]] = scopes_.fresh(buffer.name);
      scopes_.line(concat(t, " __restrict ", pointers_[kernel_.rows[k]], " = (", t, ")(scratch + ",
                          bare(size(offsets[k]).text), ");"));
    }
    const Value point = variable("point", {"lo", {Dtype::kI64, 1}});
    walk(program_, uses, kernel_, *this, point, {"hi", {Dtype::kI64, 1}});
    return concat("extern \"C\" void ", name,
                  "(void* const* buffers, const i64* s, i64 lo, i64 hi, char* scratch, i32* fault) {\n",
                  scopes_.close(), "}\n");
  }

  Value unary(Op op, const Value& a) override {
    if (a.type.dtype == Dtype::kF32 && a.type.lanes > 1 && op == Op::kAbs) {
      const Type whole{Dtype::kI32, a.type.lanes};
      return bits(Dtype::kF32, binary(Op::kAnd, bits(Dtype::kI32, a), constant(whole, Number::of_int(0x7fffffff))));
    }
    if (const std::string assembly = rounding(op, a.type); !assembly.empty())
      return primitive(concat(loop::traits(op).name, "_"), a, assembly);
    return CTarget::unary(op, a);
  }

  Value binary(Op op, const Value& a, const Value& b) override {
    if (op == Op::kCopysign && a.type.dtype == Dtype::kF32 && a.type.lanes > 1) {
      const Type whole{Dtype::kI32, a.type.lanes};
      const Value size = CTarget::binary(Op::kAnd, bits(Dtype::kI32, a), constant(whole, Number::of_int(0x7fffffff)));
      const Value sign = CTarget::binary(Op::kAnd, bits(Dtype::kI32, b), constant(whole, Number::of_int(INT32_MIN)));
      return bits(Dtype::kF32, CTarget::binary(Op::kOr, size, sign));
    }
    const bool shift = op == Op::kShl || op == Op::kShr;
    if (shift && a.type.lanes > 1) {
      const std::string t = type(a.type), name = concat(op == Op::kShl ? "shl_" : "shr_", t);
      const std::string bits_in = std::to_string(types::item_size(a.type.dtype) * 8);
      need(name, [&] {  // a comparison has the lanes' own width here, so that no mask is converted
        const std::string inside = concat("(b >= 0) & (b < ", bits_in, ")");
        return concat(function_head(), t, " ", name, "(", t, " a, ", t, " b) { return ",
                      op == Op::kShl
                          ? concat(inside, " ? a << b : 0 * a")
                          : concat("a >> (", inside, " ? b : 0 * b + ", types::item_size(a.type.dtype) * 8 - 1, ")"),
                      "; }\n");
      });
      return {concat(name, "(", list({&a, &b}), ")"), a.type};
    }
    return CTarget::binary(op, a, b);
  }

  Value fma(const Value& a, const Value& b, const Value& c) override {
    if (!machine_.has_fma() && a.type.dtype == Dtype::kF32) return exact_fma(a, b, c);
    const std::string kind = instruction_kind(a.type);
    if (kind.empty()) return CTarget::fma(a, b, c);
    const std::string t = type(a.type), name = concat("fma_", t);
    need(name, [&] {
      const std::string assembly =
          machine_.isa == Machine::Isa::kNeon
              ? concat("fmla %0.", a.type.dtype == Dtype::kF32 ? "4s, %1.4s, %2.4s" : "2d, %1.2d, %2.2d")
              : concat("vfmadd231p", kind, " %2, %1, %0");
      return concat(function_head(), t, " ", name, "(", t, " a, ", t, " b, ", t, " c) {\n  asm(\"", assembly,
                    "\" : \"+", registers(), "\"(c) : \"", registers(), "\"(a), \"", registers(),
                    "\"(b));\n  return c;\n}\n");
    });
    return {concat(name, "(", list({&a, &b, &c}), ")"), a.type};
  }

 protected:
  std::string function_head() const override { return "static inline "; }
  bool uses_formulas() const override { return true; }

  std::string library_call(Op op, Dtype dtype, const std::string& operands) const override {
    const std::string_view name = op == Op::kAbs ? "fabs" : op == Op::kRound ? "nearbyint" : loop::traits(op).name;
    return concat("__builtin_", name, dtype == Dtype::kF32 ? "f" : "", "(", operands, ")");
  }

  Value from_half(const Value& a) override {
    const Type wide{Dtype::kF32, a.type.lanes};
    if (a.type.dtype == Dtype::kBF16) {
      const std::string name = concat("f32_of_", type(a.type)), t = type(wide);
      need(name, [&] {
        if (a.type.lanes == 1) {
          bits(Dtype::kF32, {"0", {Dtype::kI32, 1}});
          return concat(function_head(), "f32 ", name, "(bf16 a) { return bits_f32_i32((i32)a << 16); }\n");
        }
        const std::string whole = type({Dtype::kI32, a.type.lanes});
        return concat(function_head(), t, " ", name, "(", type_name(a.type), " a) { return (", t,
                      ")(__builtin_convertvector(a, ", whole, ") << 16); }\n");
      });
      return {concat(name, "(", bare(a.text), ")"), wide};
    }
    if (x86() && conversion_fits(a.type.lanes)) return f16c("f32_of_", a, wide, "vcvtph2ps %1, %0");
    // A power of two moves the exponent, of denormal halves too; infinities and NaN get the exponent that they have in
    // f32.
    return CTarget::function("f32_of", wide, {&a}, false, [&] {
      bits(Dtype::kF32, {"0", {Dtype::kI32, 1}});
      bits(Dtype::kI32, {"0", {Dtype::kF32, 1}});
      return concat(function_head(),
                    "f32 f32_of_f16(f16 a) {\n  const i32 size = (a & 0x7fff) << 13, sign = (a & 0x8000) << 16;\n",
                    "  const i32 b = bits_i32_f32(bits_f32_i32(size) * 0x1p112f);\n",
                    "  return bits_f32_i32((size >= 0x0f800000 ? size | 0x7f800000 : b) | sign);\n}\n");
    });
  }

  Value half_of(Dtype half, const Value& a) override {
    const Type narrow{half, a.type.lanes};
    if (half == Dtype::kBF16) {
      const std::string name = concat("bf16_of_", type(a.type)), t = type(narrow);
      need(name, [&] {  // to the nearest, ties to even; a NaN stays one
        if (a.type.lanes == 1) {
          bits(Dtype::kI32, {"0", {Dtype::kF32, 1}});
          return concat(function_head(), "bf16 ", name, "(f32 a) {\n  const u32 b = bits_i32_f32(a);\n",
                        "  return a != a ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16;\n}\n");
        }
        const std::string whole = type({Dtype::kI32, a.type.lanes});
        const int bytes = 4 * a.type.lanes;
        return concat(function_head(), t, " ", name, "(", type_name(a.type),
                      " a) {\n  typedef u32 bits __attribute__((vector_size(", bytes,
                      ")));\n  const bits b = (bits)a;\n  const bits near = (b + 0x7fff + (b >> 16 & 1)) >> 16;\n",
                      "  return __builtin_convertvector(a != a ? (", whole, ")(0 * b + 0x7fc0) : (", whole, ")near, ",
                      t, ");\n}\n");
      });
      return {concat(name, "(", bare(a.text), ")"), narrow};
    }
    if (x86() && conversion_fits(a.type.lanes)) return f16c("f16_of_", a, narrow, "vcvtps2ph $0, %1, %0");
    // To the nearest, ties to even: of what becomes denormal by adding a number whose last bit is worth as much as
    // theirs.
    return CTarget::function("f16_of", narrow, {&a}, false, [&] {
      bits(Dtype::kF32, {"0", {Dtype::kI32, 1}});
      bits(Dtype::kI32, {"0", {Dtype::kF32, 1}});
      return concat(
          function_head(),
          "f16 f16_of_f32(f32 a) {\n  const u32 b = bits_i32_f32(a), size = b & 0x7fffffff, sign = b >> 16 & 0x8000;\n",
          "  if (size > 0x7f800000) return 0x7e00;\n  if (size >= 0x477ff000) return 0x7c00 | sign;\n",
          "  if (size < 0x38800000) return bits_i32_f32(bits_f32_i32(size) + 0.5f) - 0x3f000000 | sign;\n",
          "  return size - 0x38000000 + 0xfff + (size >> 13 & 1) >> 13 | sign;\n}\n");
    });
  }

 private:
  bool x86() const { return machine_.isa == Machine::Isa::kAvx2 || machine_.isa == Machine::Isa::kAvx512; }
  bool native(Type t) const {  // fills a register that the machine has
    const int bytes = static_cast<int>(types::item_size(t.dtype)) * t.lanes;
    if (machine_.isa == Machine::Isa::kNeon) return bytes == 16;
    return x86() && (bytes == 16 || bytes == 32 || (bytes == 64 && machine_.isa == Machine::Isa::kAvx512));
  }
  bool conversion_fits(int lanes) const { return lanes >= 4 && native({Dtype::kF32, lanes}); }
  std::string_view registers() const {
    return machine_.isa == Machine::Isa::kNeon ? "w" : machine_.isa == Machine::Isa::kAvx512 ? "v" : "x";
  }
  std::string instruction_kind(Type t) const {  // s or d, empty when no register holds it
    if (!types::is_floating(t.dtype) || loop::is_half(t.dtype) || t.lanes == 1 || !native(t)) return "";
    return t.dtype == Dtype::kF32 ? "s" : "d";
  }

  std::string rounding(Op op, Type t) const {
    const std::string kind = instruction_kind(t);
    if (kind.empty()) return "";
    const bool neon = machine_.isa == Machine::Isa::kNeon;
    const std::string lanes = kind == "s" ? "4s" : "2d";
    if (op == Op::kSqrt) return neon ? concat("fsqrt %0.", lanes, ", %1.", lanes) : concat("vsqrtp", kind, " %1, %0");
    const char* mode = op == Op::kRound   ? "8n"
                       : op == Op::kFloor ? "9m"
                       : op == Op::kCeil  ? "10p"
                       : op == Op::kTrunc ? "11z"
                                          : nullptr;
    if (!mode) return "";
    const std::string text(mode);
    if (neon) return concat("frint", text.substr(text.size() - 1), " %0.", lanes, ", %1.", lanes);
    // the newer one reaches all registers, the older one only half of them
    return concat(machine_.isa == Machine::Isa::kAvx512 ? "vrndscalep" : "vroundp", kind, " $",
                  text.substr(0, text.size() - 1), ", %1, %0");
  }

  Value primitive(const std::string& prefix, const Value& a, const std::string& assembly) {
    const std::string t = type(a.type), name = prefix + t;
    need(name, [&] {
      return concat(function_head(), t, " ", name, "(", t, " a) {\n  ", t, " y;\n  asm(\"", assembly,
                    "\" : \"=", registers(), "\"(y) : \"", registers(), "\"(a));\n  return y;\n}\n");
    });
    return {concat(name, "(", bare(a.text), ")"), a.type};
  }

  Value f16c(const std::string& prefix, const Value& a, Type result, const std::string& assembly) {
    const std::string from = type(a.type), to = type(result), name = prefix + from;
    need(name, [&] {
      // four halves are 8 bytes; the instruction wants them in a register of 16
      const bool small = a.type.lanes == 4;
      const bool widens = result.dtype == Dtype::kF32;
      const std::string wide = small ? type({Dtype::kF16, 8}) : "";
      if (small && widens)
        return concat(function_head(), to, " ", name, "(", from, " a) {\n  ", wide,
                      " b = {a[0], a[1], a[2], a[3]};\n  ", to, " y;\n  asm(\"", assembly, "\" : \"=", registers(),
                      "\"(y) : \"", registers(), "\"(b));\n  return y;\n}\n");
      if (small)
        return concat(function_head(), to, " ", name, "(", from, " a) {\n  ", wide, " y;\n  asm(\"", assembly,
                      "\" : \"=", registers(), "\"(y) : \"", registers(), "\"(a));\n  return ", to,
                      "{y[0], y[1], y[2], y[3]};\n}\n");
      return concat(function_head(), to, " ", name, "(", from, " a) {\n  ", to, " y;\n  asm(\"", assembly,
                    "\" : \"=", registers(), "\"(y) : \"", registers(), "\"(a));\n  return y;\n}\n");
    });
    return {concat(name, "(", bare(a.text), ")"), result};
  }

  /// Without the instruction: in f64, where a product of two f32 is exact.
  Value exact_fma(const Value& a, const Value& b, const Value& c) {
    const Value product = CTarget::binary(Op::kMul, cast(Dtype::kF64, a), cast(Dtype::kF64, b));
    return cast(Dtype::kF32, CTarget::binary(Op::kAdd, product, cast(Dtype::kF64, c)));
  }

  const Machine& machine_;
};

}  // namespace

std::string print(const std::vector<Unit>& units, const Machine& machine) {
  std::string library, functions;
  std::set<std::string> library_names;
  std::map<const loop::Program*, std::unique_ptr<loop::Uses>> uses;
  for (const Unit& unit : units) {
    auto& known = uses[unit.program];
    if (!known) known = std::make_unique<loop::Uses>(*unit.program);
    CppTarget target(*unit.program, *unit.kernel, machine, library_names, library);
    functions += concat("\n", target.function(unit.name, *known));
  }
  return concat(kTypes, "\n", library, functions);
}

}  // namespace magneto::codegen::cpp
