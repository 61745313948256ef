#include "codegen/cuda/print.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

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

constexpr int kFewWarps = 4;  ///< whose results each thread reads itself

class CudaTarget : public CTarget, public Sharing {
 public:
  using CTarget::CTarget;
  Sharing* sharing() override { return this; }

  std::string function(const std::string& name, const loop::Uses& uses) {
    const int threads = kernel_.threads;
    base::check(threads == 1 || (threads >= 32 && threads <= 1024 && (threads & (threads - 1)) == 0),
                "codegen: kernel ", kernel_.name, " has ", threads, " threads; a GPU wants 1, or 32, 64 ... 1024");
    const std::string parameters = this->parameters();
    const Grid grid = grid_of(program_, kernel_);
    const std::string point = scopes_.fresh("point");
    if (grid.points == 1) {
      scopes_.line(concat("const i64 ", point, " = blockIdx.x;"));
      if (threads > 1) scopes_.line("const i32 thread = threadIdx.x;");
    } else {
      const std::string own = threads > 1 ? concat("threadIdx.x / ", threads) : "threadIdx.x";
      scopes_.line(concat("const i64 ", point, " = blockIdx.x * ", grid.points, "l + ", own, ";"));
      if (threads > 1) scopes_.line(concat("const i32 thread = threadIdx.x % ", threads, ";"));
      scopes_.line(concat("if (", point, " >= ", bare(size(points_of(program_, kernel_)).text), ") return;"));
    }
    rows(grid);
    scopes_.open();
    scopes_.write_at(0);
    walk(program_, uses, kernel_, *this, {point, {Dtype::kI64, 1}}, {}, true);
    const std::string body = scopes_.close();
    return concat("extern \"C\" __global__ void __launch_bounds__(", grid.threads, ") ", name, "(", parameters, ") {\n",
                  scopes_.close(), "  {\n", body, "  }\n}\n");
  }

  // ---- threads -----------------------------------------------------------------------------------------------------

  int threads() const override { return kernel_.threads; }
  Value thread_along(int along) override { return place(along, along == kernel_.threads ? "" : " % "); }
  Value thread_across(int along) override { return place(along, " / "); }
  void meet() override {
    if (kernel_.threads > 1) scopes_.line(kernel_.threads > 32 ? "__syncthreads();" : "__syncwarp();");
  }
  void when(const Value& condition) override { scopes_.line(concat("if (", bare(condition.text), ")")); }
  void unroll_next(int times) override { unroll_ = times; }

  void loop(Value& axis, const Value& limit, int64_t step, const std::vector<Value*>& carried,
            const std::function<void()>& body) override {
    const int times = std::exchange(unroll_, 1);
    if (times > 0)
      return CTarget::loop(axis, limit, step, carried, [&] {
        body();
        pragma_ = concat("#pragma unroll ", times);
      });
    scopes_.open();
    body();
    const std::string text = scopes_.close();
    scopes_.line(concat("if (", axis.text, " < ", bare(limit.text), ") {"));
    scopes_.block(text);
    scopes_.line(concat("  ", axis.text, " += ", step, ";"));
    scopes_.line("}");
  }

  Value aligned(const std::vector<Access>& places, int group) override {
    need("is_aligned", [&] {
      return concat(function_head(),
                    "bool is_aligned(const void* p, int bytes) { return (unsigned long)p % bytes == 0; }\n");
    });
    std::string all;
    std::set<std::string> seen;
    for (const Access& a : places) {
      const std::string one = concat("is_aligned(&", element(a), ", ", bytes_at_once(a.type.dtype, group), ")");
      if (seen.insert(one).second) all += concat(all.empty() ? "" : " & ", one);
    }
    return keep({all, {Dtype::kBool, 1}}, "aligned");
  }

  Value load_group(const Access& a, int group) override {
    const std::string t = group_type(a.type.dtype, group), name = scopes_.fresh("g");
    scopes_.line(concat("const ", t, " ", name, " = *(const ", t, "*)&", element(a), ";"));
    return {name, a.type};
  }
  Value of_group(const Value& group, int k) override {
    return {from_memory(concat(group.text, ".at[", k, "]"), group.type.dtype), group.type};
  }

  void store_group(const Access& a, const std::vector<Value>& values) override {
    const std::string t = group_type(a.type.dtype, static_cast<int>(values.size()));
    std::string list;
    for (const Value& value : values) list += concat(list.empty() ? "" : ", ", bare(value.text));
    scopes_.line(concat("*(", t, "*)&", element(a), " = ", t, "{{", list, "}};"));
  }

  Value shared(Fold fold, const Value& a, int along) override {
    const std::string_view t = types::name(a.type.dtype);
    const std::string name = concat(along > 1 ? "column" : "block", "_", loop::name(fold), "_", t, "_", kernel_.threads,
                                    along > 1 ? concat("_", along) : "");
    constexpr Op kOps[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kMin, Op::kAdd, Op::kAdd, Op::kOr, Op::kAnd};
    need(name, [&] {
      const auto join = [&](const std::string& x, const std::string& y) {
        return std::string(bare(binary(kOps[static_cast<size_t>(fold)], {x, a.type}, {y, a.type}).text));
      };
      const std::string head = concat(function_head(), t, " ", name, "(", t, " a) {\n");
      if (along > 1)
        return concat(head, to_all(t, "a", "part"), "  a = part[threadIdx.x % ", along, "];\n  for (int k = ", along,
                      "; k < ", kernel_.threads, "; k += ", along,
                      ") a = ", join("a", concat("part[threadIdx.x % ", along, " + k]")), ";\n  return a;\n}\n");
      const std::string warp =
          concat(head, "  for (int k = 16; k; k >>= 1) a = ", join("a", shuffled("a", a.type.dtype)), ";\n");
      if (kernel_.threads == 32) return concat(warp, "  return a;\n}\n");
      const int warps = kernel_.threads / 32;
      if (warps > kFewWarps)  // every warp has them all, one in a lane
        return concat(warp, across_warps(t, "a", "part"), "  a = part[threadIdx.x % ", warps,
                      "];\n  for (int k = ", warps / 2, "; k; k >>= 1) a = ", join("a", shuffled("a", a.type.dtype)),
                      ";\n  return a;\n}\n");
      return concat(warp, across_warps(t, "a", "part"), "  a = part[0];\n  for (int k = 1; k < ", warps,
                    "; ++k) a = ", join("a", "part[k]"), ";\n  return a;\n}\n");
    });
    return keep({concat(name, "(", bare(a.text), ")"), a.type}, "total");
  }

  void shared_position(Fold fold, Value& value, Value& position, int along) override {
    const std::string_view t = types::name(value.type.dtype);
    const std::string name = concat(along > 1 ? "column" : "block", "_", loop::name(fold), "_", t, "_", kernel_.threads,
                                    along > 1 ? concat("_", along) : "");
    need(name, [&] {
      const bool real = types::is_floating(value.type.dtype);
      const std::string sign = fold == Fold::kArgmax ? " > " : " < ";
      const std::string better = real ? concat("b", sign, "a || (b != b && a == a)") : concat("b", sign, "a");
      const std::string equal = real ? "(b == a || (b != b && a != a))" : "b == a";
      const std::string take =
          concat("    if (", better, " || (", equal, " && q < p)) {\n      a = b;\n      p = q;\n    }\n");
      const auto from = [&](const std::string& first, const std::string& steps, const std::string& k) {
        return concat("  a = part[", first, "];\n  p = where[", first, "];\n  for (", steps, ") {\n    const ", t,
                      " b = part[", k, "];\n    const i64 q = where[", k, "];\n", take, "  }\n}\n");
      };
      const std::string head = concat(function_head(), "void ", name, "(", t, "& a, i64& p) {\n");
      if (along > 1) {
        const std::string own = concat("threadIdx.x % ", along);
        return concat(head, to_all(t, "a", "part"), to_all("i64", "p", "where"),
                      from(own, concat("int k = ", along, "; k < ", kernel_.threads, "; k += ", along), own + " + k"));
      }
      const std::string warp =
          concat(head, "  for (int k = 16; k; k >>= 1) {\n    const ", t, " b = ", shuffled("a", value.type.dtype),
                 ";\n    const i64 q = __shfl_xor_sync(0xffffffff, p, k);\n", take, "  }\n");
      if (kernel_.threads == 32) return concat(warp, "}\n");
      return concat(warp, across_warps(t, "a", "part"), across_warps("i64", "p", "where"),
                    from("0", concat("int k = 1; k < ", kernel_.threads / 32, "; ++k"), "k"));
    });
    scopes_.line(concat(name, "(", value.text, ", ", position.text, ");"));
  }

  // ---- memory ------------------------------------------------------------------------------------------------------

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

 protected:
  std::string function_head() const override { return "static __device__ __forceinline__ "; }
  std::string_view before_loop() const override { return pragma_; }
  bool sets_fault() const override { return false; }
  std::string out_of_bounds() override {
    need("__assertfail", [] {
      return std::string(
          "extern \"C\" __device__ void __assertfail(const char*, const char*, unsigned, const char*, unsigned "
          "long);\n");
    });
    return "__assertfail(\"index out of bounds\", \"a kernel of magneto\", 0, \"checked\", 1);";
  }

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
  std::string parameters() {
    // what is stored under one name must not be thought constant, or apart from the rest, under another
    std::map<loop::BufferId, int> names;
    std::set<loop::BufferId> stored;
    const std::vector<loop::BufferId> buffers = arguments_of(program_, kernel_);
    for (const loop::BufferId id : buffers) ++names[program_.storage(id)];
    for_each_statement(kernel_.body, [&](const loop::Statement& s) {
      if (s.buffer.valid()) stored.insert(program_.storage(s.buffer));
    });
    std::string text;
    const auto add = [&](const std::string& one) { text += concat(text.empty() ? "" : ", ", one); };
    for (const loop::BufferId id : buffers) {
      const loop::Buffer& buffer = program_.buffer(id);
      const bool writes = stored.count(program_.storage(id)) > 0;
      pointers_[id] = scopes_.fresh(buffer.name);
      add(concat(writes ? "" : "const ", memory_name(buffer.type.dtype), "* ",
                 writes && names[program_.storage(id)] > 1 ? "" : "__restrict__ ", pointers_[id]));
    }
    for (const uint32_t symbol : symbols_of(program_, kernel_)) add(concat("i64 ", scopes_.fresh(concat("s", symbol))));
    return text;
  }

  void rows(const Grid& grid) {
    const std::vector<loop::BufferId> rows = shared_rows(program_, kernel_);
    if (rows.empty()) return;
    scopes_.line("extern __shared__ __align__(64) char scratch[];");
    const std::string own = grid.points == 1 ? ""
                                             : concat("threadIdx.x / ", kernel_.threads, " * ",
                                                      bare(size(scratch_bytes(program_, rows)).text), " + ");
    const std::vector<types::Expr> offsets = row_offsets(program_, rows);
    for (size_t k = 0; k < rows.size(); ++k) {
      const loop::Buffer& buffer = program_.buffer(rows[k]);
      const std::string t = concat(memory_name(buffer.type.dtype), "*");
      pointers_[rows[k]] = scopes_.fresh(buffer.name);
      scopes_.line(
          concat(t, " ", pointers_[rows[k]], " = (", t, ")(scratch + ", own, bare(size(offsets[k]).text), ");"));
    }
  }

  Value place(int along, std::string_view sign) {
    if (kernel_.threads == 1) return {"0l", {Dtype::kI64, 1}};
    const std::string text = sign.empty() ? "thread" : concat("(thread", sign, along, ")");
    return {concat("((i64)", text, ")"), {Dtype::kI64, 1}};
  }

  void one_thread() {
    if (kernel_.threads > 1) scopes_.line("if (thread == 0)");
  }

  std::string element(const Access& a) { return concat(pointer(a.buffer), "[", bare(a.offset.text), "]"); }

  static int bytes_at_once(Dtype d, int group) { return std::min(16, static_cast<int>(types::item_size(d)) * group); }

  /// A few elements that lie one after the other, aligned so that one instruction moves up to 16 bytes of them.
  std::string group_type(Dtype d, int group) {
    const std::string name = concat(types::name(d), "x", group);
    need(name, [&] {
      return concat("struct __align__(", bytes_at_once(d, group), ") ", name, " {\n  ", memory_name(d), " at[", group,
                    "];\n};\n");
    });
    return name;
  }

  static std::string shuffled(const std::string& a, Dtype d) {
    const bool small = types::item_size(d) < 4;
    return small ? concat("((", types::name(d), ")__shfl_xor_sync(0xffffffff, (i32)", a, ", k))")
                 : concat("__shfl_xor_sync(0xffffffff, ", a, ", k)");
  }

  /// Puts what each thread has into shared memory, where all find it.
  std::string to_all(std::string_view t, std::string_view a, std::string_view part) const {
    return concat("  __shared__ ", t, " ", part, "[", kernel_.threads,
                  "];\n  __syncthreads();  // the last ones may still read\n  ", part, "[threadIdx.x] = ", a,
                  ";\n  __syncthreads();\n");
  }

  /// Puts what each warp has into shared memory, where all threads find it.
  static std::string across_warps(std::string_view t, std::string_view a, std::string_view part) {
    return concat("  __shared__ ", t, " ", part, "[32];\n  __syncthreads();  // the last ones may still read\n",
                  "  if (threadIdx.x % 32 == 0) ", part, "[threadIdx.x / 32] = ", a, ";\n  __syncthreads();\n");
  }

  int unroll_ = 1;
  std::string pragma_;
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
