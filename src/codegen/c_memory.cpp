// Loads and stores of the C-like targets. A vector in memory is aligned as its elements are.
#include "base/text.h"
#include "codegen/c_target_internal.h"

namespace magneto::codegen {

using base::concat;
using loop::Dtype;
using loop::Fold;
using loop::Number;
using loop::Op;

namespace {
std::string plus(const std::string& pointer, const Value& offset) {
  return offset.text == "0l" ? pointer : concat(pointer, " + ", bare(offset.text));
}
}  // namespace

std::string_view CTarget::memory_name(Dtype dtype) { return types::name(dtype == Dtype::kBool ? Dtype::kU8 : dtype); }

std::string CTarget::from_memory(const std::string& element, Dtype dtype) {
  return dtype == Dtype::kBool ? concat("(", element, " != 0)") : element;
}

Value CTarget::vector_load(const Access& a, const std::string& from) {
  const std::string t = type(a.type);
  const std::string_view item = memory_name(a.type.dtype);
  const bool is_bool = a.type.dtype == Dtype::kBool;
  const std::string name = concat(a.kind == Access::Kind::kVector    ? "load_"
                                  : a.kind == Access::Kind::kStrided ? "load_strided_"
                                                                     : "gather_",
                                  t);
  const auto loop = [&](std::string_view index) {
    return concat("  ", t, " y;\n  for (int k = 0; k < ", a.type.lanes, "; ++k) y[k] = ", is_bool ? "-" : "",
                  from_memory(concat("p[", index, "]"), a.type.dtype), ";\n  return y;\n}\n");
  };
  need(name, [&] {
    const std::string head = concat(function_head(), t, " ", name, "(const ", item, "* p");
    if (a.kind == Access::Kind::kStrided) return concat(head, ", i64 stride) {\n", loop("k * stride"));
    if (a.kind == Access::Kind::kGather) {
      type({Dtype::kI64, a.type.lanes});
      return concat(head, ", ", type_name({Dtype::kI64, a.type.lanes}), " at) {\n", loop("at[k]"));
    }
    if (!is_bool) return concat(head, ") { return *(const ", t, "_in_memory*)p; }\n");
    return concat(head, ") { return __builtin_convertvector(*(const ", t, "_in_memory*)p, ", t, ") != 0; }\n");
  });
  if (a.kind == Access::Kind::kGather) return {concat(name, "(", from, ", ", bare(a.offset.text), ")"), a.type};
  const std::string stride = a.kind == Access::Kind::kStrided ? concat(", ", bare(a.stride.text)) : "";
  return {concat(name, "(", plus(from, a.offset), stride, ")"), a.type};
}

Value CTarget::load(const Access& a) {
  const std::string& from = pointer(a.buffer);
  if (a.type.lanes == 1) {
    const std::string one = from_memory(concat(from, "[", bare(a.offset.text), "]"), a.type.dtype);
    if (!a.mask) return {one, a.type};
    return {concat("(", a.mask->text, " ? ", one, " : ", a.otherwise->text, ")"), a.type};
  }
  if (!a.mask) return vector_load(a, from);
  if (a.mask->type.lanes == 1)
    return {concat("(", a.mask->text, " ? ", vector_load(a, from).text, " : ", a.otherwise->text, ")"), a.type};
  // lane by lane, since no address may be touched where the mask is false
  const int lanes = a.type.lanes;
  Value at = a.offset;
  if (a.kind == Access::Kind::kVector) at = steps(a.offset, lanes);
  if (a.kind == Access::Kind::kStrided)
    at = binary(Op::kAdd, splat(a.offset, lanes),
                binary(Op::kMul, steps(constant({Dtype::kI64, 1}, Number{}), lanes), splat(a.stride, lanes)));
  const std::string t = type(a.type), name = concat("gather_if_", t);
  type({Dtype::kBool, lanes});
  type({Dtype::kI64, lanes});
  need(name, [&] {
    return concat(function_head(), t, " ", name, "(const ", memory_name(a.type.dtype), "* p, ",
                  type_name({Dtype::kI64, lanes}), " at, ", type_name({Dtype::kBool, lanes}), " mask, ", t,
                  " y) {\n  for (int k = 0; k < ", lanes,
                  "; ++k)\n    if (mask[k]) y[k] = ", a.type.dtype == Dtype::kBool ? "-" : "",
                  from_memory("p[at[k]]", a.type.dtype), ";\n  return y;\n}\n");
  });
  return {concat(name, "(", from, ", ", bare(at.text), ", ", list({a.mask, a.otherwise}), ")"), a.type};
}

void CTarget::store(const Access& a, const Value& value, bool /*of_row*/) {
  const std::string& to = pointer(a.buffer);
  if (a.type.lanes == 1) return scopes_.line(concat(to, "[", bare(a.offset.text), "] = ", bare(value.text), ";"));
  const std::string t = type(a.type);
  const bool is_bool = a.type.dtype == Dtype::kBool;
  const std::string name = concat(a.kind == Access::Kind::kVector    ? "store_"
                                  : a.kind == Access::Kind::kStrided ? "store_strided_"
                                                                     : "scatter_",
                                  t);
  const auto loop = [&](std::string_view index) {
    return concat("  for (int k = 0; k < ", a.type.lanes, "; ++k) p[", index, "] = y[k]", is_bool ? " != 0" : "",
                  ";\n}\n");
  };
  need(name, [&] {
    const std::string head = concat(function_head(), "void ", name, "(", memory_name(a.type.dtype), "* p, ");
    if (a.kind == Access::Kind::kStrided) return concat(head, "i64 stride, ", t, " y) {\n", loop("k * stride"));
    if (a.kind == Access::Kind::kGather) {
      type({Dtype::kI64, a.type.lanes});
      return concat(head, type_name({Dtype::kI64, a.type.lanes}), " at, ", t, " y) {\n", loop("at[k]"));
    }
    if (!is_bool) return concat(head, t, " y) { *(", t, "_in_memory*)p = y; }\n");
    return concat(head, t, " y) { *(", t, "_in_memory*)p = __builtin_convertvector(y & 1, ", t, "_in_memory); }\n");
  });
  if (a.kind == Access::Kind::kGather)
    return scopes_.line(concat(name, "(", to, ", ", bare(a.offset.text), ", ", bare(value.text), ");"));
  const std::string stride = a.kind == Access::Kind::kStrided ? concat(", ", bare(a.stride.text)) : "";
  scopes_.line(concat(name, "(", plus(to, a.offset), stride, ", ", bare(value.text), ");"));
}

void CTarget::update(const Access& a, Fold fold, const Value& value, bool atomic, bool /*of_row*/) {
  constexpr Op kOps[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kMin};
  const Op op = kOps[static_cast<size_t>(fold)];
  const std::string place = concat(pointer(a.buffer), "[", bare(a.offset.text), "]");
  if (!atomic) return scopes_.line(concat(place, " = ", bare(binary(op, {place, a.type}, value).text), ";"));
  const std::string_view t = types::name(a.type.dtype);
  const std::string name = concat("atomic_", loop::name(fold), "_", t);
  need(name, [&] {
    const Value next = binary(op, {"old", a.type}, {"a", a.type});
    return concat(
        function_head(), "void ", name, "(", t, "* p, ", t, " a) {\n  ", t, " old, next;\n",
        "  __atomic_load(p, &old, __ATOMIC_RELAXED);\n  do next = ", bare(next.text),
        ";\n  while (!__atomic_compare_exchange(p, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));\n}\n");
  });
  scopes_.line(concat(name, "(&", place, ", ", bare(value.text), ");"));
}

}  // namespace magneto::codegen
