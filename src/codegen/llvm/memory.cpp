// Loads and stores in LLVM IR. Masks and lanes that lie apart are LLVM's masked intrinsics; it turns them into one
// instruction where the machine has it.
#include "base/text.h"
#include "codegen/llvm/target_internal.h"

namespace magneto::codegen::llvm {

using base::concat;
using loop::Dtype;
using loop::Fold;
using loop::Number;
using loop::Op;

namespace {
constexpr int64_t kNear = 1 << 20;  ///< elements from lane to lane

std::string mangled_memory(Type t) { return mangled(t.dtype == Dtype::kBool ? Type{Dtype::kU8, t.lanes} : t); }
}  // namespace

std::string LlvmTarget::address(const Access& a) {
  return pure(concat("getelementptr ", memory_type({a.type.dtype, 1}), ", ptr ", pointers_.at(a.buffer), ", i64 ",
                     a.offset.text),
              {})
      .text;
}

std::string LlvmTarget::addresses(const Access& a) {
  const int lanes = a.type.lanes;
  Value at = a.offset;
  const auto stride = a.kind == Access::Kind::kStrided ? literal(a.stride) : std::nullopt;
  if (stride && *stride > -kNear && *stride < kNear) {  // one place and short distances from it: half as many bits
    std::string list;
    for (int k = 0; k < lanes; ++k) list += concat(k ? ", " : "", "i32 ", k * *stride);
    const Value made = pure(concat("getelementptr ", memory_type({a.type.dtype, 1}), ", ptr ", address(a), ", <", lanes,
                                   " x i32> <", list, ">"),
                            {});
    return concat("<", lanes, " x ptr> ", made.text);
  }
  if (a.kind != Access::Kind::kGather) {
    const Value zero = constant({Dtype::kI64, 1}, {});
    Value steps_along = steps(zero, lanes);
    if (a.kind == Access::Kind::kStrided) steps_along = two_operands("mul", steps_along, splat(a.stride, lanes));
    at = two_operands("add", splat(a.offset, lanes), steps_along);
  }
  const Value made = pure(
      concat("getelementptr ", memory_type({a.type.dtype, 1}), ", ptr ", pointers_.at(a.buffer), ", ", typed(at)), {});
  return concat("<", lanes, " x ptr> ", made.text);
}

Value LlvmTarget::from_memory(const Value& a, Dtype dtype) {
  if (dtype != Dtype::kBool) return a;
  return compare(Op::kNe, a, constant(a.type, {}));
}

Value LlvmTarget::in_memory(const Value& a) {
  return a.type.dtype == Dtype::kBool ? convert("zext", a, Dtype::kU8) : a;
}

Value LlvmTarget::load(const Access& a) {
  const Dtype stored = a.type.dtype == Dtype::kBool ? Dtype::kU8 : a.type.dtype;
  const Type memory{stored, a.type.lanes};
  const size_t align = types::item_size(stored);
  if (a.type.lanes == 1) {
    std::string from = address(a);
    if (a.mask) {  // from a place that always exists, where the condition does not hold
      declarations_.try_emplace("nothing", "@nothing = internal constant [8 x i8] zeroinitializer, align 8\n");
      from = pure(concat("select i1 ", a.mask->text, ", ptr ", from, ", ptr @nothing"), {}).text;
    }
    const Value value = from_memory(effect(concat("load ", type_name(memory), ", ptr ", from), memory), a.type.dtype);
    return a.mask ? where(*a.mask, value, *a.otherwise) : value;
  }
  if (!a.mask && a.kind == Access::Kind::kVector)
    return from_memory(effect(concat("load ", type_name(memory), ", ptr ", address(a), ", align ", align), memory),
                       a.type.dtype);
  Value mask = constant({Dtype::kBool, a.type.lanes}, Number::of_int(1));
  std::string otherwise = "poison";
  if (a.mask) {
    mask = a.mask->type.lanes == 1 ? splat(*a.mask, a.type.lanes) : *a.mask;
    otherwise = in_memory(*a.otherwise).text;
  }
  const bool near = a.kind == Access::Kind::kVector;
  const std::string pointers = concat("<", a.type.lanes, " x ptr>");
  const std::string name = concat("llvm.masked.", near ? "load." : "gather.", mangled_memory(a.type),
                                  near ? ".p0" : concat(".v", a.type.lanes, "p0"));
  declarations_.try_emplace(name, concat("declare ", type_name(memory), " @", name, "(", near ? "ptr" : pointers,
                                         ", i32, <", a.type.lanes, " x i1>, ", type_name(memory), ")\n"));
  const std::string place = near ? concat("ptr ", address(a)) : addresses(a);
  const Value value = effect(concat("call ", type_name(memory), " @", name, "(", place, ", i32 ", align, ", ",
                                    typed(mask), ", ", type_name(memory), " ", otherwise, ")"),
                             memory);
  return from_memory(value, a.type.dtype);
}

void LlvmTarget::store(const Access& a, const Value& value, bool /*of_row*/) {
  const Value stored = in_memory(value);
  const size_t align = types::item_size(stored.type.dtype);
  if (a.type.lanes == 1 || a.kind == Access::Kind::kVector)
    return line(concat("store ", typed(stored), ", ptr ", address(a), ", align ", align));
  const std::string name = concat("llvm.masked.scatter.", mangled_memory(a.type), ".v", a.type.lanes, "p0");
  declarations_.try_emplace(name, concat("declare void @", name, "(", type_name(stored.type), ", <", a.type.lanes,
                                         " x ptr>, i32, <", a.type.lanes, " x i1>)\n"));
  line(concat("call void @", name, "(", typed(stored), ", ", addresses(a), ", i32 ", align, ", <", a.type.lanes,
              " x i1> splat (i1 true))"));
}

void LlvmTarget::update(const Access& a, Fold fold, const Value& value, bool atomic, bool /*of_row*/) {
  const std::string at = address(a);
  const bool is_real = types::is_floating(a.type.dtype), is_unsigned = loop::is_unsigned(a.type.dtype);
  constexpr Op kOps[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kMin};
  const std::string_view name = fold == Fold::kSum   ? (is_real ? "fadd" : "add")
                                : fold == Fold::kMax ? (is_real       ? "fmaximum"
                                                        : is_unsigned ? "umax"
                                                                      : "max")
                                : fold == Fold::kMin ? (is_real       ? "fminimum"
                                                        : is_unsigned ? "umin"
                                                                      : "min")
                                                     : "";
  if (atomic && !name.empty()) {
    line(concat("atomicrmw ", name, " ptr ", at, ", ", typed(value), " monotonic"));
    return;
  }
  const Value old = effect(concat("load ", type_name(a.type), ", ptr ", at), a.type);
  const Value next = binary(kOps[static_cast<size_t>(fold)], old, value);
  if (!atomic) return line(concat("store ", typed(next), ", ptr ", at));
  // a product has no instruction of its own: try until nobody came between
  const auto bits = static_cast<int>(types::item_size(a.type.dtype) * 8);
  const int number = ++labels_;
  const std::string again = concat("again", number), done = concat("done", number), whole = concat("i", bits);
  const std::string first = fresh(), seen = fresh(), now = fresh();
  line(concat(first, " = bitcast ", typed(old), " to ", whole));
  line(concat("br label %", again));
  Scope& scope = scopes_[at_];
  const std::string before = scope.label;
  scope.text += concat(again, ":\n");
  line(concat(seen, " = phi ", whole, " [ ", first, ", %", before, " ], [ ", now, ", %", again, " ]"));
  const std::string seen_value = fresh(), product = fresh(), product_bits = fresh(), pair = fresh(), fine = fresh();
  line(concat(seen_value, " = bitcast ", whole, " ", seen, " to ", type_name(a.type)));
  line(concat(product, " = ", is_real ? "fmul " : "mul ", type_name(a.type), " ", seen_value, ", ", value.text));
  line(concat(product_bits, " = bitcast ", type_name(a.type), " ", product, " to ", whole));
  line(concat(pair, " = cmpxchg ptr ", at, ", ", whole, " ", seen, ", ", whole, " ", product_bits,
              " monotonic monotonic"));
  line(concat(now, " = extractvalue { ", whole, ", i1 } ", pair, ", 0"));
  line(concat(fine, " = extractvalue { ", whole, ", i1 } ", pair, ", 1"));
  line(concat("br i1 ", fine, ", label %", done, ", label %", again));
  scope.text += concat(done, ":\n");
  scope.label = done;
}

}  // namespace magneto::codegen::llvm
