#include "ops/expander.h"

#include "ops/body.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

using graph::Arg;
using graph::ValueId;

// Failure is remembered and tested once, at the end: a value that is missing makes every call that reads it fail, too.
ValueId Expander::add(std::string_view op, std::vector<Arg> args) {
  for (const Arg& arg : args)
    if (const auto* id = std::get_if<ValueId>(&arg); id && !id->valid()) failed = true;
  const Op* found = find(op);
  if (failed || !found || !found->type) {
    failed = true;
    return {};
  }
  // What is not known of sizes decides only about strides here, and those of inner values are nobody's business: the
  // elements are right whatever the answer.
  Call inner{args, &graph, call.default_dtype,
             [](const types::Condition& c) { return c.relation == types::Relation::kNe; }};
  const auto results_of = found->type(inner);
  if (!results_of || results_of->empty()) {
    failed = true;
    return {};
  }
  graph::Node node{std::string(op), std::move(args), {}, like_.grad, like_.place};
  for (const Result& result : *results_of)
    node.outputs.push_back(result.kind == Result::Kind::kUndefined ? ValueId() : graph.add_value(result.type));
  const ValueId first = node.outputs.front();
  graph.add_node(std::move(node));
  return first;
}

ValueId Expander::add(std::string_view op, std::vector<Arg> args, TensorType type) {
  for (const Arg& arg : args)
    if (const auto* id = std::get_if<ValueId>(&arg); id && !id->valid()) failed = true;
  if (failed) return {};
  const ValueId made = graph.add_value(std::move(type));
  graph.add_node({std::string(op), std::move(args), {made}, like_.grad, like_.place});
  return made;
}

ValueId Expander::tensor(size_t argument) const {
  if (argument >= call.args.size()) return {};
  const auto* id = std::get_if<ValueId>(&call.args[argument]);
  return id ? *id : ValueId();
}

ValueId Expander::sum(ValueId a, const Sizes& dims, bool keep) {
  return add("aten::sum.dim_IntList", {a, dims, keep, Arg()});
}
ValueId Expander::greatest(ValueId a, const Sizes& dims) { return add("aten::amax", {a, dims, true}); }
ValueId Expander::view(ValueId a, const Sizes& sizes) {
  if (!a.valid() || failed) {
    failed = true;
    return {};
  }
  if (type(a).sizes == sizes) return a;
  // A view of memory in another order would be a lie to all that read it by its strides.
  if (!types::is_contiguous(type(a))) a = laid_out(a, row_major(type(a).dtype, type(a).device, type(a).sizes));
  TensorType made = row_major(type(a).dtype, type(a).device, sizes);
  made.offset = type(a).offset;
  return add("aten::_unsafe_view", {a, sizes}, std::move(made));
}

ValueId Expander::to(Dtype dtype, ValueId a) {
  if (!a.valid() || failed) {
    failed = true;
    return {};
  }
  if (type(a).dtype == dtype) return a;
  return add("aten::_to_copy", {a, dtype, Arg(), Arg(), Arg(), false, Arg()});
}

ValueId Expander::laid_out(ValueId a, TensorType type) {
  return add("aten::clone", {a, MemoryFormat::kPreserve}, std::move(type));
}

ValueId Expander::widened(ValueId a) { return a.valid() ? to(computed_in(type(a).dtype), a) : to(Dtype::kF32, a); }

}  // namespace magneto::ops
