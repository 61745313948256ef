// aten/linearity.cpp: whether the backward of a custom function is linear in what comes to it.
#include <algorithm>
#include <string_view>

#include "aten/custom_function.h"
#include "aten/operators_internal.h"

namespace magneto::aten {

using graph::ValueId;

namespace {

// What is known of each value of a backward.
class Linearity {
 public:
  Linearity(const graph::Graph& graph, size_t gradients) : graph_(graph), of_(graph.values().size(), kFixed) {
    for (size_t i = 0; i < gradients; ++i) of_[graph.inputs()[i].index()] = kLinear;
    root_.resize(of_.size());
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = v;
  }

  bool run() {
    for (const graph::Node& node : graph_.nodes()) visit(node);
    return std::all_of(graph_.outputs.begin(), graph_.outputs.end(), [&](ValueId id) {
      return !id.valid() || at(id) == kZero || at(id) == kLinear;  // what is fixed is there once, and not for each part
    });
  }

 private:
  /// kZero is both of the next two.
  enum Kind : uint8_t { kZero, kFixed, kLinear, kOther };

  Kind& at(ValueId id) { return of_[root_[id.index()]]; }
  void set(ValueId id, Kind kind) {
    const types::Dtype dtype = graph_.value(id).type.dtype;
    const bool rounds = !types::is_floating(dtype) && !types::is_complex(dtype);
    at(id) = kind == kLinear && rounds ? kOther : kind;
  }
  Kind kind(const graph::Arg& arg) {
    if (const auto* id = std::get_if<ValueId>(&arg)) return id->valid() ? at(*id) : kZero;
    if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      Kind all = kZero;
      for (const ValueId id : *list) all = sum(all, id.valid() ? at(id) : kZero);
      return all;
    }
    const auto* real = std::get_if<double>(&arg);
    const auto* whole = std::get_if<types::Expr>(&arg);
    const auto* truth = std::get_if<bool>(&arg);
    return (real && *real == 0) || (whole && *whole == types::Expr(0)) || (truth && !*truth) ? kZero : kFixed;
  }
  static Kind sum(Kind a, Kind b) {
    if (a == kZero) return b;
    return b == kZero || a == b ? a : kOther;
  }
  static Kind product(Kind a, Kind b) {
    if (a == kZero || b == kZero) return kZero;
    if (a == kOther || b == kOther || (a == kLinear && b == kLinear)) return kOther;
    return a == kLinear || b == kLinear ? kLinear : kFixed;
  }

  static bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  /// Of its result, or of what it writes.
  Kind result(const graph::Node& node, std::string_view base) {
    const auto given = [&](size_t a) { return a < node.args.size() ? kind(node.args[a]) : kZero; };
    bool varies = false;  // an argument that is no number
    for (const graph::Arg& arg : node.args)
      if (std::holds_alternative<ValueId>(arg) || std::holds_alternative<std::vector<ValueId>>(arg))
        varies = varies || kind(arg) == kLinear || kind(arg) == kOther;
    if (is_any(base, {"zeros", "zeros_like", "new_zeros", "zero"})) return kZero;
    if (!varies) return kFixed;
    // Linear in its first argument, where the others do not depend on what comes.
    const auto first_alone = [&] {
      for (size_t a = 1; a < node.args.size(); ++a)
        if (const Kind other = kind(node.args[a]); other == kLinear || other == kOther) return kOther;
      return given(0);
    };
    if (is_any(base, {"add", "sub", "rsub", "cat", "stack"}))
      return base == "cat" || base == "stack" ? given(0) : sum(given(0), given(1));
    if (is_any(base, {"mul", "mm", "bmm", "mv", "dot", "matmul"})) return product(given(0), given(1));
    if (node.op == "aten::div.Tensor" || node.op == "aten::div_.Tensor" || node.op == "aten::div.Scalar")
      return given(1) == kFixed ? given(0) : kOther;
    if (base == "where") return given(0) == kFixed ? sum(given(1), given(2)) : kOther;
    if (is_any(base, {"masked_fill", "index_put"})) return given(1) == kFixed ? sum(given(0), given(2)) : kOther;
    if (is_any(base,
               {"copy", "index_add", "scatter_add", "scatter", "index_copy", "select_scatter", "slice_scatter"})) {
      const size_t source = base == "copy" || base.ends_with("_scatter") ? 1 : 3;
      for (size_t a = 1; a < source; ++a)
        if (const Kind other = kind(node.args[a]); other == kLinear || other == kOther) return kOther;
      return sum(given(0), given(source));
    }
    if (base == "fill") return given(1);
    // Whatever torch's own formulas call by such a name is linear in the gradient, which comes first.
    const bool is_formula = base.ends_with("_backward") || base.ends_with("_backward_data");
    if (is_formula || is_any(base, {"neg",
                                    "clone",
                                    "_to_copy",
                                    "contiguous",
                                    "sum",
                                    "mean",
                                    "cumsum",
                                    "flip",
                                    "roll",
                                    "index_select",
                                    "gather",
                                    "index",
                                    "constant_pad_nd",
                                    "tril",
                                    "triu",
                                    "repeat",
                                    "_unsafe_view",
                                    "lift_fresh_copy",
                                    "pixel_shuffle",
                                    "pixel_unshuffle",
                                    "im2col",
                                    "col2im",
                                    "_conj_physical"}))
      return first_alone();
    return kOther;
  }

  void visit(const graph::Node& node) {
    if (node.op == CustomFunction::kOperator) {
      const auto& results = std::get<std::vector<ValueId>>(node.args[CustomFunction::kResults]);
      for (size_t k = 0; k < results.size(); ++k) root_[node.outputs[k].index()] = root_[results[k].index()];
      return;
    }
    const Operator& op = operator_named(node.op);
    const size_t colons = node.op.find("::");
    std::string_view base = std::string_view(node.op).substr(colons == std::string::npos ? 0 : colons + 2);
    base = base.substr(0, base.find('.'));
    if (op.writes_anything && base.ends_with('_')) base.remove_suffix(1);
    if (op.way == Way::kView || op.way == Way::kRestride) {
      const ValueId of = viewed_by(node);
      for (const ValueId id : node.outputs)
        if (id.valid() && of.valid())
          root_[id.index()] = root_[of.index()];
        else if (id.valid())
          at(id) = kOther;
      if (node.op == "aten::view.dtype" && of.valid() && at(of) != kZero) at(of) = kOther;
      return;
    }
    const Kind made = result(node, base);
    if (op.writes_anything) {
      for (size_t a = 0; a < node.args.size(); ++a) {
        const auto* into = std::get_if<ValueId>(&node.args[a]);
        if (!op.writes[a] || !into || !into->valid()) continue;
        set(*into, a == 0 ? sum(at(*into), made) : kOther);  // elements that are not written to stay
        for (const ValueId id : node.outputs)
          if (id.valid()) root_[id.index()] = root_[into->index()];
      }
      return;
    }
    for (const ValueId id : node.outputs)
      if (id.valid()) set(id, made);
  }

  const graph::Graph& graph_;
  std::vector<Kind> of_;
  std::vector<size_t> root_;
};

}  // namespace

bool is_linear(const graph::Graph& backward, size_t gradients) { return Linearity(backward, gradients).run(); }

}  // namespace magneto::aten
