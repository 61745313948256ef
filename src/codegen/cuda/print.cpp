#include "codegen/cuda/print.h"

#include <map>
#include <memory>

#include "base/check.h"
#include "base/text.h"
#include "codegen/abi.h"
#include "codegen/c_target_internal.h"
#include "codegen/walk.h"

namespace magneto::codegen::cuda {

using base::concat;
using loop::Dtype;
using loop::Fold;
using loop::Op;

namespace {

constexpr std::string_view kTypes =
    "typedef signed char i8;\ntypedef unsigned char u8;\ntypedef short i16;\ntypedef int i32;\ntypedef unsigned u32;\n"
    "typedef long i64;\ntypedef float f32;\ntypedef double f64;\ntypedef unsigned short f16;   // the bits\n"
    "typedef unsigned short bf16;\n"
    "#define inf_f32 __int_as_float(0x7f800000)\n#define inf_f64 __longlong_as_double(0x7ff0000000000000)\n"
    "#define nan_f32 __int_as_float(0x7fc00000)\n#define nan_f64 __longlong_as_double(0x7ff8000000000000)\n";

class CudaTarget : public CTarget {
 public:
  using CTarget::CTarget;

  std::string function(const std::string& name, const loop::Uses& uses) {
    base::check(kernel_.threads == 1 || kernel_.threads % 32 == 0, "codegen: kernel ", kernel_.name, " has ",
                kernel_.threads, " threads, which fill no warp");
    std::set<loop::BufferId> stored;
    for_each_statement(kernel_.body, [&](const loop::Statement& s) {
      if (s.buffer.valid()) stored.insert(s.buffer);
    });
    std::string parameters;
    for (const loop::BufferId id : arguments_of(program_, kernel_)) {
      const loop::Buffer& buffer = program_.buffer(id);
      pointers_[id] = scopes_.fresh(buffer.name);
      parameters += concat(stored.count(id) ? "" : "const ", types::name(buffer.type.dtype), "* __restrict__ ",
                           pointers_[id], ", ");
    }
    for (const uint32_t symbol : symbols_of(program_, kernel_))
      parameters += concat("i64 ", scopes_.fresh(concat("s", symbol)), ", ");
    if (!kernel_.rows.empty()) scopes_.line("extern __shared__ __align__(64) char scratch[];");
    const std::vector<types::Expr> offsets = row_offsets(program_, kernel_);
    for (size_t k = 0; k < kernel_.rows.size(); ++k) {
      const loop::Buffer& buffer = program_.buffer(kernel_.rows[k]);
      const std::string t = concat(types::name(buffer.type.dtype), "*");
      pointers_[kernel_.rows[k]] = scopes_.fresh(buffer.name);
      scopes_.line(
          concat(t, " ", pointers_[kernel_.rows[k]], " = (", t, ")(scratch + ", bare(size(offsets[k]).text), ");"));
    }
    const std::string point = scopes_.fresh("point");
    scopes_.line(concat("const i64 ", point, " = blockIdx.x;"));
    if (kernel_.threads > 1) scopes_.line("const i32 thread = threadIdx.x;");
    scopes_.open();
    scopes_.write_at(0);
    walk(program_, uses, kernel_, *this, {point, {Dtype::kI64, 1}}, {}, true);
    const std::string body = scopes_.close();
    return concat("extern \"C\" __global__ void __launch_bounds__(", kernel_.threads, ") ", name, "(", parameters,
                  "i32* fault) {\n", scopes_.close(), "  {\n", body, "  }\n}\n");
  }

  bool vectors() const override { return false; }
  int64_t thread_step(int) override { return kernel_.threads; }
  Value first_of_thread(const Value& begin) override {
    return kernel_.threads == 1 ? begin : Value{concat("(", begin.text, " + thread)"), begin.type};
  }
  void end_phase(bool rereads) override {
    if (rereads && kernel_.threads > 1) scopes_.line("__syncthreads();");
  }

  void store(const Access& access, const Value& a, bool of_row) override {
    if (of_row) one_thread();
    CTarget::store(access, a, of_row);
  }

  void update(const Access& a, Fold fold, const Value& value, bool /*atomic*/, bool of_row) override {
    const std::string_view t = types::name(a.type.dtype);
    const size_t size = types::item_size(a.type.dtype);
    base::check(size >= 2, "codegen: a GPU has no atomic of ", t);
    const std::string name = concat("atomic_", loop::name(fold), "_", t);
    constexpr Op kOps[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kMin};
    need(name, [&] {
      const bool native = fold == Fold::kSum &&
                          (a.type.dtype == Dtype::kF32 || a.type.dtype == Dtype::kF64 || a.type.dtype == Dtype::kI32);
      const std::string head = concat(function_head(), "void ", name, "(", t, "* p, ", t, " a) {\n");
      if (native) return concat(head, "  atomicAdd(p, a);\n}\n");
      const std::string_view whole = size == 8 ? "unsigned long long" : size == 4 ? "unsigned" : "unsigned short";
      const Value next = binary(kOps[static_cast<size_t>(fold)], {"now.value", a.type}, {"a", a.type});
      return concat(head, "  union Both {\n    ", t, " value;\n    ", whole, " bits;\n  } now, next;\n  ", whole,
                    " seen;\n  now.value = *p;\n  do {\n    seen = now.bits;\n    next.value = ", bare(next.text),
                    ";\n    now.bits = atomicCAS((", whole,
                    "*)p, seen, next.bits);\n  } while (now.bits != seen);\n}\n");
    });
    if (of_row) one_thread();
    scopes_.line(concat(name, "(&", pointer(a.buffer), "[", bare(a.offset.text), "], ", bare(value.text), ");"));
  }

  Value shared(Fold fold, const Value& a) override {
    if (kernel_.threads == 1) return a;
    const std::string_view t = types::name(a.type.dtype);
    const std::string name = concat("block_", loop::name(fold), "_", t, "_", kernel_.threads);
    constexpr Op kOps[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kMin, Op::kAdd, Op::kAdd, Op::kOr, Op::kAnd};
    need(name, [&] {
      const auto join = [&](const std::string& x, const std::string& y) {
        return std::string(bare(binary(kOps[static_cast<size_t>(fold)], {x, a.type}, {y, a.type}).text));
      };
      return concat(function_head(), t, " ", name, "(", t,
                    " a) {\n  for (int k = 16; k; k >>= 1) a = ", join("a", shuffled("a", a.type.dtype)), ";\n",
                    across_warps(t, "a", "part"), "  a = part[0];\n  for (int k = 1; k < ", kernel_.threads / 32,
                    "; ++k) a = ", join("a", "part[k]"), ";\n  return a;\n}\n");
    });
    return keep({concat(name, "(", bare(a.text), ")"), a.type}, "total");
  }

  void shared_position(Fold fold, Value& value, Value& position) override {
    if (kernel_.threads == 1) return;
    const std::string_view t = types::name(value.type.dtype);
    const std::string name = concat("block_", loop::name(fold), "_", t, "_", kernel_.threads);
    need(name, [&] {
      const bool real = types::is_floating(value.type.dtype);
      const std::string sign = fold == Fold::kArgmax ? " > " : " < ";
      const std::string better = real ? concat("b", sign, "a || (b != b && a == a)") : concat("b", sign, "a");
      const std::string equal = real ? "(b == a || (b != b && a != a))" : "b == a";
      const std::string take =
          concat("    if (", better, " || (", equal, " && q < p)) {\n      a = b;\n      p = q;\n    }\n");
      return concat(
          function_head(), "void ", name, "(", t, "& a, i64& p) {\n  for (int k = 16; k; k >>= 1) {\n    const ", t,
          " b = ", shuffled("a", value.type.dtype), ";\n    const i64 q = __shfl_xor_sync(0xffffffff, p, k);\n", take,
          "  }\n", across_warps(t, "a", "part"), across_warps("i64", "p", "place"),
          "  a = part[0];\n  p = place[0];\n  for (int k = 1; k < ", kernel_.threads / 32, "; ++k) {\n    const ", t,
          " b = part[k];\n    const i64 q = place[k];\n", take, "  }\n}\n");
    });
    scopes_.line(concat(name, "(", value.text, ", ", position.text, ");"));
  }

 protected:
  std::string function_head() const override { return "static __device__ __forceinline__ "; }
  std::string_view before_loop() const override { return "#pragma unroll 1"; }

  std::string library_call(Op op, Dtype dtype, const std::string& operands) const override {
    const std::string_view name = op == Op::kAbs ? "fabs" : op == Op::kRound ? "rint" : loop::traits(op).name;
    return concat(name, dtype == Dtype::kF32 ? "f" : "", "(", operands, ")");
  }

  Value from_half(const Value& a) override {
    const Type wide{Dtype::kF32, 1};
    if (a.type.dtype == Dtype::kBF16) return {concat("__int_as_float((i32)", a.text, " << 16)"), wide};
    need("f32_of_f16", [&] {
      return concat(function_head(),
                    "f32 f32_of_f16(f16 a) {\n  f32 y;\n  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(a));\n",
                    "  return y;\n}\n");
    });
    return {concat("f32_of_f16(", bare(a.text), ")"), wide};
  }

  Value half_of(Dtype half, const Value& a) override {
    const std::string_view t = types::name(half);
    need(concat(t, "_of_f32"), [&] {
      return concat(function_head(), t, " ", t, "_of_f32(f32 a) {\n  ", t, " y;\n  asm(\"cvt.rn.", t,
                    ".f32 %0, %1;\" : \"=h\"(y) : \"f\"(a));\n  return y;\n}\n");
    });
    return {concat(t, "_of_f32(", bare(a.text), ")"), {half, 1}};
  }

 private:
  void one_thread() {
    if (kernel_.threads > 1) scopes_.line("if (thread == 0)");
  }

  static std::string shuffled(const std::string& a, Dtype d) {
    const bool small = types::item_size(d) < 4;
    return small ? concat("((", types::name(d), ")__shfl_xor_sync(0xffffffff, (i32)", a, ", k))")
                 : concat("__shfl_xor_sync(0xffffffff, ", a, ", k)");
  }

  /// Puts what each warp has into shared memory, where all threads find it.
  static std::string across_warps(std::string_view t, std::string_view a, std::string_view part) {
    return concat("  __shared__ ", t, " ", part, "[32];\n  __syncthreads();  // the last ones may still read\n",
                  "  if (threadIdx.x % 32 == 0) ", part, "[threadIdx.x / 32] = ", a, ";\n  __syncthreads();\n");
  }
};

}  // namespace

std::string print(const std::vector<Unit>& units) {
  std::string library, functions;
  std::set<std::string> library_names;
  std::map<const loop::Program*, std::unique_ptr<loop::Uses>> uses;
  for (const Unit& unit : units) {
    auto& known = uses[unit.program];
    if (!known) known = std::make_unique<loop::Uses>(*unit.program);
    CudaTarget target(*unit.program, *unit.kernel, library_names, library);
    functions += concat("\n", target.function(unit.name, *known));
  }
  return concat(kTypes, "\n", library, functions);
}

}  // namespace magneto::codegen::cuda
