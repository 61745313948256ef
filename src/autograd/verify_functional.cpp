// Knows nothing of how functionalise works: who writes to what is read from the table, what is a view of what from the
// graphs themselves. Where the table has no answer (sizes are symbols) nothing is said.
#include "autograd/verify_functional.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "loop/op.h"
#include "ops/op.h"
#include "types/prove.h"

namespace magneto::autograd {

namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using types::Expr;
using types::TensorType;

/// By value: the tensor whose memory a chain of views shows. Makers stand before readers, so one sweep is enough.
std::vector<ValueId> roots_of(const Graph& graph) {
  std::vector<ValueId> roots(graph.values().size());
  for (size_t v = 0; v < roots.size(); ++v) roots[v] = ValueId(v);
  for (const Node& node : graph.nodes()) {
    const ops::Op* op = ops::find(node.op);
    if (!op || !(op->view || op->changes_shape) || node.args.empty()) continue;
    const auto* of = std::get_if<ValueId>(&node.args[0]);
    if (!of || !of->valid()) continue;
    for (const ValueId id : node.outputs)
      if (id.valid() && id != *of) roots[id.index()] = roots[of->index()];
  }
  return roots;
}

/// By value: which input it is; SIZE_MAX: none.
std::vector<size_t> inputs_of(const Graph& graph) {
  std::vector<size_t> numbers(graph.values().size(), SIZE_MAX);
  for (size_t k = 0; k < graph.inputs().size(); ++k) numbers[graph.inputs()[k].index()] = k;
  return numbers;
}

class Verifier {
 public:
  Verifier(const Graph& graph, types::Dtype default_dtype)
      : graph_(graph),
        default_dtype_(default_dtype),
        prover_(graph.conditions),
        broken_(graph::verify(graph, /*is_part=*/true)) {}

  std::vector<std::string> run() {
    nodes();
    return std::move(broken_);
  }

  std::vector<std::string> run(const Graph& recorded, const Functional& made) {
    nodes();
    if (!broken_.empty()) return std::move(broken_);
    roots_ = roots_of(graph_);
    boundary(recorded);
    if (!broken_.empty()) return std::move(broken_);
    if (made.outputs.size() != graph_.outputs.size()) say("functionalise tells of ", made.outputs.size(), " outputs");
    for (size_t k = 0; k < graph_.outputs.size() && broken_.empty(); ++k) output(k, recorded, made.outputs[k]);
    if (broken_.empty()) sharing(recorded);
    stores(recorded);
    effects(recorded);
    return std::move(broken_);
  }

 private:
  void nodes() {
    if (broken_.empty())
      for (size_t n = 0; n < graph_.nodes().size(); ++n) node(n);
  }

  template <class... Pieces>
  void say(const Pieces&... pieces) {
    broken_.push_back(base::concat(pieces...));
  }

  /// Known to be different, whatever the symbols are.
  bool differs(const Expr& a, const Expr& b) {
    if (a == b) return false;
    const Expr more = a - b;
    return more.is_constant() || prover_.is_positive(more) || prover_.is_positive(-more);
  }
  bool differs(const types::Sizes& a, const types::Sizes& b) {
    if (a.size() != b.size()) return true;
    for (size_t d = 0; d < a.size(); ++d)
      if (differs(a[d], b[d])) return true;
    return false;
  }
  /// Strides of a dimension of one element, or of a tensor of none, lead nowhere.
  bool lies_elsewhere(const TensorType& a, const TensorType& b) {
    if (std::find(a.sizes.begin(), a.sizes.end(), Expr(0)) != a.sizes.end()) return false;
    for (size_t d = 0; d < a.sizes.size(); ++d)
      if (!(a.sizes[d] == Expr(1)) && differs(a.strides[d], b.strides[d]) && !prover_.never_negative(1 - a.sizes[d]))
        return true;
    return differs(a.offset, b.offset);
  }

  // ---- the graph alone ---------------------------------------------------------------------------------------------

  static std::vector<ValueId> written_by(const Graph& graph, const Node& node, types::Dtype default_dtype) {
    const ops::Op* op = ops::find(node.op);
    std::vector<ValueId> list;
    if (!op || op->changes_shape || (op->writes_if && !op->writes_if({node.args, &graph, default_dtype}))) return list;
    for (const int i : op->writes) {
      if (static_cast<size_t>(i) >= node.args.size()) continue;
      const graph::Arg& arg = node.args[static_cast<size_t>(i)];
      if (const auto* id = std::get_if<ValueId>(&arg); id && id->valid()) list.push_back(*id);
      if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg))
        std::copy_if(ids->begin(), ids->end(), std::back_inserter(list), [](ValueId id) { return id.valid(); });
    }
    return list;
  }

  void node(size_t n) {
    const Node& node = graph_.nodes()[n];
    const auto who = [&] { return base::concat("node ", n, " (", node.op, ")"); };
    for (const ValueId id : written_by(graph_, node, default_dtype_)) say(who(), " writes %", id.index());
    const ops::Op* op = ops::find(node.op);
    if (!op || !op->type) return;
    // the strides of the tensor that was recorded: a version of it may have others
    if (op->view && !op->functional.empty()) say(who(), " is told its strides");
    const auto results = op->type({node.args, &graph_, default_dtype_});
    if (!results || results->size() != node.outputs.size()) return;
    for (size_t k = 0; k < results->size(); ++k) {
      const ops::Result& result = (*results)[k];
      const ValueId id = node.outputs[k];
      if (!id.valid() || result.kind == ops::Result::Kind::kUndefined || result.kind == ops::Result::Kind::kSame)
        continue;
      const TensorType& type = graph_.value(id).type;
      const bool view = result.kind == ops::Result::Kind::kView;
      // what is computed by a loop is cast to the dtype it is stored in: x_half *= y_float is one operator
      const bool casts = op->body && loop::is_known(type.dtype) && loop::is_known(result.type.dtype);
      if (differs(type.sizes, result.type.sizes) || (type.dtype != result.type.dtype && !casts) ||
          type.device != result.type.device || (view && lies_elsewhere(type, result.type)))
        say("%", id.index(), " of ", who(), " is ", to_string(type), ", which should be ", to_string(result.type));
    }
  }

  // ---- beside what was recorded ------------------------------------------------------------------------------------

  void boundary(const Graph& recorded) {
    const auto same = [&](std::string_view what, const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
      if (a.size() != b.size()) return say("there are ", b.size(), " ", what, "s; ", a.size(), " were recorded");
      for (size_t k = 0; k < a.size(); ++k)
        if (recorded.value(a[k]).type != graph_.value(b[k]).type)
          say(what, " ", k, " is ", to_string(graph_.value(b[k]).type), "; recorded was ",
              to_string(recorded.value(a[k]).type));
    };
    same("input", recorded.inputs(), graph_.inputs());
    same("constant", recorded.constants(), graph_.constants());
    if (recorded.outputs.size() != graph_.outputs.size())
      say("there are ", graph_.outputs.size(), " outputs; ", recorded.outputs.size(), " were recorded");
    if (recorded.conditions != graph_.conditions) say("the conditions are not those that were recorded");
  }

  void output(size_t k, const Graph& recorded, const Alias& alias) {
    const ValueId id = graph_.outputs[k], before = recorded.outputs[k];
    if (id.valid() != before.valid()) return say("output ", k, id.valid() ? " is defined" : " is undefined");
    if (!id.valid()) return;
    const TensorType &type = graph_.value(id).type, &wanted = recorded.value(before).type;
    const ValueId root = roots_[id.index()];
    const bool outside = graph_.comes_from_outside(root);
    TensorType moved = type;
    if (!outside) moved.offset = wanted.offset;  // memory of its own begins where it begins
    if (type.dtype != wanted.dtype || type.device != wanted.device || differs(type.sizes, wanted.sizes) ||
        lies_elsewhere(moved, wanted))
      say("output ", k, " is ", to_string(type), "; recorded was ", to_string(wanted));
    const bool itself = graph_.comes_from_outside(id);
    if ((alias.kind == Alias::Kind::kItself) != itself)
      say("output ", k, itself ? " is the input itself, but is said to be another" : " is said to be an input");
    // what was written through a view is laid back by another one: `of` may be a view itself
    if (alias.kind != Alias::Kind::kFresh && (!alias.of.valid() || roots_[alias.of.index()] != root))
      say("output ", k, " is said to show %", alias.of.valid() ? alias.of.index() : 0, ", but is a view of %",
          root.index());
    if (alias.kind == Alias::Kind::kFresh && outside && !itself)
      say("output ", k, " is said to have memory of its own, but is a view of %", root.index());
  }

  /// Two outputs share their memory where those that were recorded did, and only there.
  void sharing(const Graph& recorded) {
    const std::vector<ValueId> roots = roots_of(recorded);
    std::map<ValueId, size_t> before, after;  // the first output that shows it
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      if (!graph_.outputs[k].valid()) continue;
      const size_t one = before.emplace(roots[recorded.outputs[k].index()], k).first->second,
                   other = after.emplace(roots_[graph_.outputs[k].index()], k).first->second;
      if (one == other) continue;
      if (one < k) say("output ", k, " shared its memory with output ", one, " and does not any more");
      if (other < k) say("output ", k, " shares its memory with output ", other, " and did not");
    }
  }

  void stores(const Graph& recorded) {
    std::set<size_t> written, stored;  // inputs by number
    const std::vector<ValueId> roots = roots_of(recorded);
    const std::vector<size_t> recorded_inputs = inputs_of(recorded), inputs = inputs_of(graph_);
    for (const Node& node : recorded.nodes())
      for (const ValueId id : written_by(recorded, node, default_dtype_))
        if (const size_t k = recorded_inputs[roots[id.index()].index()]; k != SIZE_MAX) written.insert(k);
    for (const graph::Store& store : graph_.stores) {
      const size_t k = inputs[roots_[store.into.index()].index()];
      if (k == SIZE_MAX) return say("a store changes %", store.into.index(), ", which shows no input");
      stored.insert(k);
    }
    for (const size_t k : written)
      if (!stored.contains(k)) say("input ", k, " is written to, but nothing is stored to it");
    for (const size_t k : stored)
      if (!written.contains(k)) say("input ", k, " is stored to, but nobody writes to it");
  }

  /// What an operator does besides its results is not known, or it draws numbers: none may be lost or change its place.
  /// No more numbers may be drawn; what is written through a view may need operators that were not there.
  void effects(const Graph& recorded) {
    const auto is_random = [](const std::string& name) {
      const ops::Op* op = ops::find(name);
      return op && op->random;
    };
    const auto effects_of = [&](const Graph& graph) {
      std::vector<std::string> list;
      for (const Node& node : graph.nodes()) {
        const ops::Op* op = ops::find(node.op);
        if (!op) list.push_back(node.op);
        if (op && op->random) list.emplace_back(op->functional.empty() ? op->name : op->functional);
      }
      return list;
    };
    const std::vector<std::string> before = effects_of(recorded), after = effects_of(graph_);
    size_t k = 0;
    for (const std::string& name : after) {
      if (k < before.size() && before[k] == name)
        ++k;
      else if (is_random(name))
        return say(name, " draws numbers where ", k < before.size() ? before[k] : std::string("nothing"),
                   " was recorded");
    }
    if (k < before.size()) say(before[k], " was recorded and is missing, or stands elsewhere");
  }

  const Graph& graph_;
  const types::Dtype default_dtype_;
  types::Prover prover_;
  std::vector<ValueId> roots_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> verify_functional(const Graph& graph, types::Dtype default_dtype) {
  return Verifier(graph, default_dtype).run();
}

std::vector<std::string> verify_functional(const Graph& recorded, const Functional& made, types::Dtype default_dtype) {
  return Verifier(made.graph, default_dtype).run(recorded, made);
}

}  // namespace magneto::autograd
