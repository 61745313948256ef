// Each value of the graph is asked for elements, never for memory: `element(value, index)` is a load from the value's
// buffer, or for a view the element of its argument at the mapped index. So a chain of views is one index, whatever its
// length, and no view is a copy.
//
//   %1: f32[3, 2]{1, 3} = aten::t(%0)
//   %2: f32[3] = aten::select.int(%1, 1, 0)
//   %3: f32[3] = aten::exp(%2)              ->     v3[i] = exp(v0[0, i])
//
// An operator that the table does not declare reads and writes whole tensors. Its equation names the buffers; its text
// is the call's arguments as the graph writes them, with $k for the k-th buffer that is read, and after it the type
// where the argument is a view of that buffer:
//
//   extern "aten::mm" (v0, v1) -> (v2) "$0, $1:f32[4, 3]{1, 4}"
//
// Results that are undefined tensors are listed too, so that nobody has to guess which ones were: " -> $, undef".
#include "lower/lower.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "graph/text.h"
#include "loop/uses.h"
#include "ops/body.h"
#include "ops/op.h"
#include "types/overlap.h"

namespace magneto::lower {

namespace {

using graph::Arg;
using graph::Node;
using graph::NodeId;
using graph::ValueId;
using loop::BufferId;
using loop::Program;
using ops::Body;
using ops::Element;
using ops::Index;
using types::TensorType;

class Lowering {
 public:
  Lowering(const graph::Graph& graph, types::Dtype default_dtype, types::Device device,
           const std::set<NodeId>& as_calls)
      : graph_(graph),
        default_dtype_(default_dtype),
        device_(device),
        as_calls_(as_calls),
        buffers_(graph.values().size()),
        views_(graph.values().size()) {}

  Lowered run() {
    find_live();
    find_views();
    find_roles();
    for (const ValueId id : graph_.inputs()) made_.inputs.push_back(outside(id));
    for (const ValueId id : graph_.constants()) made_.constants.push_back(outside(id));
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (is_live_[n]) {
        node(NodeId(n));
        effects_.resize(program().equations.size(), has_effect(graph_.nodes()[n]));
      }
      made_.makers.resize(program().equations.size(), NodeId(n));
    }
    for (const ValueId id : graph_.outputs) made_.outputs.push_back(output(id));
    for (const graph::Store& store : graph_.stores) this->store(store);
    made_.makers.resize(program().equations.size());
    made_.values.resize(program().buffers());
    for (size_t v = 0; v < buffers_.size(); ++v)
      if (buffers_[v].valid()) made_.values[buffers_[v].index()] = ValueId(v);
    keep_effects();
    return std::move(made_);
  }

 private:
  struct View {  ///< the result `output` of a node that views its argument
    const Node* node = nullptr;
    size_t output = 0;
    ValueId of;
    bool by_index = false;  ///< the table maps its indices; else it is read from memory by its strides
  };

  Program& program() { return made_.program; }
  const TensorType& type(ValueId id) const { return graph_.value(id).type; }
  bool is_view(ValueId id) const { return views_[id.index()].node != nullptr; }
  ops::Call call_of(const Node& node) const { return {node.args, &graph_, default_dtype_}; }

  // ---- what is needed, what is a view, and what lives in memory ----------------------------------------------------

  /// Nodes whose results are needed, or that do something: the rest is not computed.
  void find_live() {
    is_live_.resize(graph_.nodes().size());
    is_read_.resize(graph_.values().size());
    std::vector<bool> wanted(graph_.values().size());
    for (const ValueId id : graph_.outputs)
      if (id.valid()) wanted[id.index()] = true;
    for (const graph::Store& store : graph_.stores) {
      wanted[store.value.index()] = wanted[store.into.index()] = true;
      is_read_[store.value.index()] = true;
    }
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      is_live_[n] = has_effect(node) || std::any_of(node.outputs.begin(), node.outputs.end(),
                                                    [&](ValueId id) { return id.valid() && wanted[id.index()]; });
      if (!is_live_[n]) continue;
      graph::for_each_read(node, [&](ValueId id) { wanted[id.index()] = is_read_[id.index()] = true; });
    }
  }

  void find_views() {
    for (const Node& node : graph_.nodes()) {
      const ops::Op* op = ops::find(node.op);
      base::check(!op || !writes(*op, node), "lower: ", node.op, " writes its arguments; functionalise removes it");
      if (!op || !op->view) continue;
      const auto* of = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
      base::check(of && of->valid(), "lower: ", node.op, " is a view of no tensor");
      for (size_t k = 0; k < node.outputs.size(); ++k)
        if (node.outputs[k].valid() && node.outputs[k] != *of)
          views_[node.outputs[k].index()] = {&node, k, *of, can_map(node, k)};
    }
  }
  bool writes(const ops::Op& op, const Node& node) const {
    if (op.writes_if && !op.writes_if(call_of(node))) return false;
    return std::any_of(op.writes.begin(), op.writes.end(), [&](int i) {
      const auto* id = std::get_if<ValueId>(&node.args[static_cast<size_t>(i)]);
      return id && id->valid();
    });
  }
  /// Whether the table maps the indices of a view: asked once with indices that nobody keeps.
  bool can_map(const Node& node, size_t output) {
    Program scratch;
    const ops::Call call = call_of(node);
    const TensorType& made = type(node.outputs[output]);
    if (!loop::is_known(made.dtype) || made.dtype != type(std::get<ValueId>(node.args[0])).dtype) return false;
    Index index;
    for (size_t d = 0; d < made.sizes.size(); ++d) index.emplace_back(&scratch, scratch.axis_value(axis(scratch, d)));
    Body body(scratch, call, made, output, std::move(index), {}, {});
    return ops::find(node.op)->view(body).has_value() && !body.declined();
  }
  ValueId root(ValueId id) const {
    while (is_view(id)) id = views_[id.index()].of;
    return id;
  }

  void find_roles() {
    is_output_.resize(graph_.values().size());
    for (const ValueId id : graph_.outputs)
      if (id.valid()) is_output_[root(id).index()] = true;
  }

  // ---- buffers -----------------------------------------------------------------------------------------------------

  BufferId outside(ValueId id) {
    return buffers_[id.index()] = program().add_buffer(name(id), type(id), loop::Role::kIn);
  }
  BufferId make(ValueId id) {
    const loop::Role role = is_output_[id.index()] ? loop::Role::kOut : loop::Role::kTemp;
    TensorType own = type(id);
    own.offset = 0;  // a view that is copied is no longer a part of something
    if (is_view(id)) own.strides = types::contiguous_strides(own.sizes);
    return buffers_[id.index()] = program().add_buffer(name(id), std::move(own), role);
  }
  /// It draws random numbers, or fails on some data, or nobody knows what it does.
  static bool has_effect(const Node& node) {
    const ops::Op* op = ops::find(node.op);
    return !op || op->random || op->may_raise_on_data;
  }
  static std::string name(ValueId id) { return base::concat("v", id.index()); }

  static loop::AxisId axis(Program& program, size_t d) {
    constexpr std::string_view kNames = "ijklmnop";
    return program.axis(d < kNames.size() ? std::string(1, kNames[d]) : base::concat("i", d));
  }

  // ---- elements ----------------------------------------------------------------------------------------------------

  /// The place in memory of the element of a value.
  std::pair<BufferId, Index> place(ValueId id, Index index) {
    while (is_view(id) && !buffers_[id.index()].valid()) {
      const View& view = views_[id.index()];
      const ops::Call call = call_of(*view.node);
      Body body(program(), call, type(id), view.output, std::move(index), {}, {});
      auto mapped = ops::find(view.node->op)->view(body);
      base::check(mapped && !body.declined(), "lower: ", view.node->op, " mapped its indices before, but not now");
      index = std::move(*mapped);
      id = view.of;
    }
    base::check(buffers_[id.index()].valid(), "lower: %", id.index(), " is read before it is made");
    return {buffers_[id.index()], std::move(index)};
  }
  static std::vector<loop::TermId> terms(const Index& index) {
    std::vector<loop::TermId> list;
    for (const Element& e : index) list.push_back(e.term());
    return list;
  }
  Element element(ValueId id, const Index& index) {
    const auto [buffer, at] = place(id, index);
    const loop::TermId value = program().load(buffer, terms(at));
    return {&program(), holds_checks() ? loop::with_checks(program(), value, terms(index)) : value};
  }
  /// Whether there is a check at all. Each term is looked at once.
  bool holds_checks() {
    for (; !checks_ && looked_at_ < program().terms(); ++looked_at_)
      checks_ = program().term(loop::TermId(looked_at_)).op == loop::Op::kChecked;
    return checks_;
  }
  Element element_if(ValueId id, const Index& index, Element condition, Element otherwise) {
    // Of what is empty nothing is read; its places would count with sizes of zero.
    const types::Sizes& sizes = type(id).sizes;
    if (std::any_of(sizes.begin(), sizes.end(), [](const types::Expr& size) { return size == types::Expr(0); }))
      return otherwise;
    const auto [buffer, at] = place(id, index);
    return {&program(), program().guarded(buffer, terms(at), condition.term(), otherwise.term())};
  }
  Body body_of(const ops::Call& call, const TensorType& type, size_t output, Index index) {
    return Body(
        program(), call, type, output, std::move(index),
        [this](ValueId id, const Index& at) { return element(id, at); },
        [this](ValueId id, const Index& at, Element c, Element o) { return element_if(id, at, c, o); });
  }

  // ---- nodes -------------------------------------------------------------------------------------------------------

  void node(NodeId id) {
    const Node& node = graph_.node(id);
    const ops::Op* op = ops::find(node.op);
    if (op && op->view) return view(node);
    if (op && (op->body || op->equation) && computes(node) && !as_calls_.contains(id)) {
      std::vector<loop::Equation> equations;
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        if (!node.outputs[k].valid()) continue;
        auto one = op->body ? map(*op, node, k) : other(*op, node, k);
        if (!one) return external(node);
        equations.push_back(std::move(*one));
      }
      size_t next = 0;  // buffers only now: a declined body leaves nothing behind
      for (const ValueId id : node.outputs) {
        if (!id.valid()) continue;
        equations[next].target = make(id);
        program().equations.push_back(std::move(equations[next++]));
      }
      return;
    }
    external(node);
  }

  /// Whether loops can touch it: they know its element type, and their device has its memory.
  bool is_ours(ValueId id) const { return loop::is_known(type(id).dtype) && type(id).device == device_; }
  bool computes(const Node& node) const {
    bool all = true;
    graph::for_each_read(node, [&](ValueId id) { all = all && is_ours(id); });
    for (const ValueId id : node.outputs) all = all && (!id.valid() || is_ours(id));
    return all;
  }

  std::optional<loop::Equation> map(const ops::Op& op, const Node& node, size_t output) {
    const TensorType& made = type(node.outputs[output]);
    loop::Equation equation;
    Index index;
    for (size_t d = 0; d < made.sizes.size(); ++d) {
      equation.axes.push_back(axis(program(), d));
      index.emplace_back(&program(), program().axis_value(equation.axes.back()));
    }
    const ops::Call call = call_of(node);
    Body body = body_of(call, made, output, std::move(index));
    const Element value = op.body(body);
    if (!value.valid() || body.declined()) return std::nullopt;
    // Where its rule of types has no answer, torch's was recorded: the body may not be written for these element types.
    if (value.dtype() != ops::computed_in(made.dtype) && op.type && !op.type(call)) return std::nullopt;
    equation.value = cast(made.dtype, value).term();
    return equation;
  }

  /// Scatter, scan, sort: the table makes the whole equation.
  std::optional<loop::Equation> other(const ops::Op& op, const Node& node, size_t output) {
    const TensorType& made = type(node.outputs[output]);
    const ops::Call call = call_of(node);
    loop::Equation equation;
    Index index;
    for (size_t d = 0; d < made.sizes.size(); ++d) {
      equation.axes.push_back(axis(program(), d));
      index.emplace_back(&program(), program().axis_value(equation.axes.back()));
    }
    Body body = body_of(call, made, output, std::move(index));
    if (!op.equation(body, equation) || body.declined()) return std::nullopt;
    if (equation.kind == loop::Equation::Kind::kScatter) {
      equation.axes.clear();
      if (body.base.valid()) equation.base = whole(body.base, made);
    }
    return equation;
  }

  /// The buffer that holds a value by itself: its own, or a copy of a view, or of another layout.
  BufferId whole(ValueId id, const TensorType& wanted) {
    if (!is_view(id)) return buffers_[id.index()];
    TensorType copy = wanted;
    const BufferId target = program().add_buffer(base::concat(name(id), "_", copies_++), copy, loop::Role::kTemp);
    program().equations.push_back(copied(id, target));
    return target;
  }
  loop::Equation copied(ValueId id, BufferId target) {
    loop::Equation equation;
    equation.target = target;
    Index index;
    for (size_t d = 0; d < type(id).sizes.size(); ++d) {
      equation.axes.push_back(axis(program(), d));
      index.emplace_back(&program(), program().axis_value(equation.axes.back()));
    }
    equation.value = element(id, index).term();
    return equation;
  }

  /// Loops read a view through its index. One whose index the table cannot map is copied for them. What loops cannot
  /// touch only calls read, by its sizes and strides.
  void view(const Node& node) {
    for (const ValueId id : node.outputs)
      if (id.valid() && is_read_[id.index()] && is_ours(id) && is_view(id) && !views_[id.index()].by_index) copy(id);
  }

  /// A view as a tensor of its own. Not by the view's own operator: one that counts in strides means the memory of the
  /// storage, which a copy on the way to it has not.
  BufferId copy(ValueId id) {
    loop::Equation equation;
    equation.kind = loop::Equation::Kind::kExtern;
    equation.callee = "aten::clone";
    equation.arguments = reference(id, equation.reads) + ", contiguous_format";
    equation.writes.push_back(make(id));
    program().equations.push_back(std::move(equation));
    return buffers_[id.index()];
  }

  // ---- extern calls ------------------------------------------------------------------------------------------------

  std::string reference(ValueId id, std::vector<BufferId>& reads) {
    if (!id.valid()) return "undef";
    // Of a view that was copied for loops a call gets the view itself: what it makes may have its layout.
    const ValueId at = root(id);
    const BufferId buffer = buffers_[at.index()];
    base::check(buffer.valid(), "lower: %", id.index(), " is read before it is made");
    auto found = std::find(reads.begin(), reads.end(), buffer);
    if (found == reads.end()) found = reads.insert(reads.end(), buffer);
    std::string text = base::concat("$", found - reads.begin());
    if (at != id) text += base::concat(":", to_string(type(id)));
    return text;
  }

  void external(const Node& node) {
    loop::Equation equation;
    equation.kind = loop::Equation::Kind::kExtern;
    equation.callee = node.op;
    bool first = true;
    for (const Arg& arg : node.args) {
      if (!first) equation.arguments += ", ";
      first = false;
      if (const auto* one = std::get_if<ValueId>(&arg)) {
        equation.arguments += reference(*one, equation.reads);
      } else if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
        equation.arguments += "[";
        for (size_t i = 0; i < list->size(); ++i)
          equation.arguments +=
              base::concat(i ? ", " : "", (*list)[i].valid() ? reference((*list)[i], equation.reads) : "none");
        equation.arguments += "]";
      } else {
        equation.arguments += graph::print(arg);
      }
    }
    const bool all_defined =
        std::all_of(node.outputs.begin(), node.outputs.end(), [](ValueId id) { return id.valid(); });
    if (!all_defined) {
      equation.arguments += " ->";
      for (size_t k = 0; k < node.outputs.size(); ++k)
        equation.arguments += base::concat(k ? ", " : " ", node.outputs[k].valid() ? "$" : "undef");
    }
    for (const ValueId id : node.outputs)
      if (id.valid()) equation.writes.push_back(make(id));
    program().equations.push_back(std::move(equation));
  }

  // ---- the end -----------------------------------------------------------------------------------------------------

  Output output(ValueId id) {
    if (!id.valid()) return {};
    const ValueId from = root(id);
    return {buffers_[from.index()], type(id), id == from && graph_.comes_from_outside(id)};
  }

  void store(const graph::Store& store) {
    const BufferId into = buffers_[root(store.into).index()];
    if (!is_ours(store.into) || !is_ours(store.value)) {  // no equation copies it: the value's own memory is stored
      BufferId own = buffers_[store.value.index()];
      if (!own.valid() && is_view(store.value)) own = copy(store.value);
      base::check(own.valid() && !graph_.comes_from_outside(store.value), "lower: %", store.value.index(),
                  " is stored to an input and has no memory of its own");
      program().buffer(own).role = loop::Role::kOut;
      made_.stores.push_back({own, into, type(store.into)});
      return;
    }
    TensorType own = type(store.into);  // memory of its own, without what lies between the elements of the input
    own.strides = types::dense_strides(own);
    own.offset = 0;
    const BufferId target =
        program().add_buffer(base::concat(name(store.into), "_new"), std::move(own), loop::Role::kOut);
    program().equations.push_back(copied(store.value, target));
    made_.stores.push_back({target, into, type(store.into)});
  }

  /// What has an effect stays where its results are not needed: a call says so, of an equation the result is an output
  /// that nobody asks for. An operator may read a tensor of the graph, and none of its elements (zero, new_full).
  void keep_effects() {
    std::vector<bool> needed(program().buffers()), seen(program().terms());
    for (size_t b = 0; b < program().buffers(); ++b) needed[b] = program().buffer(BufferId(b)).role == loop::Role::kOut;
    const auto need = [&](BufferId id) {
      if (id.valid()) needed[id.index()] = true;
    };
    effects_.resize(program().equations.size());
    for (size_t n = program().equations.size(); n-- > 0;) {
      loop::Equation& e = program().equations[n];
      std::vector<BufferId> made = e.writes;
      for (const BufferId id : {e.target, e.positions})
        if (id.valid()) made.push_back(id);
      const bool wanted = std::any_of(made.begin(), made.end(), [&](BufferId id) { return needed[id.index()]; });
      if (!wanted && !effects_[n]) continue;
      if (e.kind == loop::Equation::Kind::kExtern)
        e.stays = effects_[n];
      else if (!wanted && !made.empty())
        program().buffer(made[0]).role = loop::Role::kOut;
      need(e.base);
      for (const BufferId id : e.reads) need(id);
      std::vector<loop::TermId> terms = e.index;
      if (e.value.valid()) terms.push_back(e.value);
      for (const loop::Range& range : e.over) terms.insert(terms.end(), {range.begin, range.end});
      while (!terms.empty()) {  // terms are shared between equations, and so is what they need
        const loop::TermId id = terms.back();
        terms.pop_back();
        if (seen[id.index()]) continue;
        seen[id.index()] = true;
        const loop::Term& term = program().term(id);
        if (term.op == loop::Op::kLoad || term.op == loop::Op::kGuarded) needed[term.id] = true;
        terms.insert(terms.end(), term.operands.begin(), term.operands.end());
      }
    }
  }

  const graph::Graph& graph_;
  const types::Dtype default_dtype_;
  const types::Device device_;
  const std::set<NodeId>& as_calls_;
  Lowered made_;
  std::vector<bool> effects_;      ///< of equations
  std::vector<BufferId> buffers_;  ///< of each value; invalid for views
  std::vector<View> views_;
  std::vector<bool> is_live_;  ///< of nodes
  std::vector<bool> is_output_, is_read_;
  size_t copies_ = 0;
  size_t looked_at_ = 0;  ///< terms
  bool checks_ = false;
};

}  // namespace

Lowered lower(const graph::Graph& graph, types::Dtype default_dtype, types::Device device,
              const std::set<NodeId>& as_calls) {
  return Lowering(graph, default_dtype, device, as_calls).run();
}

}  // namespace magneto::lower
