// A tensor object is a way to look at memory. So there are two tables: *memories*, each with the value that it holds
// now, and *looks*, each a view of another look or the whole of a memory. Every recorded tensor has a look.
//
//   %1 = aten::select.int(%0, 0, 2)        look 1: select(look 0, 0, 2), look 0: the memory of %0
//   %1 = aten::mul_.Tensor(%1, 2.0)        a write through look 1
//   %3 = aten::neg(%0)                     reads look 0
//
// *Reading* a look applies its view to what the look below reads as. The answer is kept together with the value that it
// was made from: it holds until the memory changes.
// *Writing* a look takes the operator that gives what is written as a result (Op::functional), then asks each view on
// the way down for the tensor below with the new value in the place of the view (Op::put): select_scatter here. At the
// bottom it is the memory's new value.
//
//   %4 = aten::select.int(%0, 0, 2)
//   %5 = aten::mul.Tensor(%4, 2.0)
//   %6 = aten::select_scatter(%0, %5, 0, 2)
//   %3 = aten::neg(%6)
//   store %6 -> %0
//
// Reading again is not asked of views that were just written: the value is known on the whole way down.
#include "autograd/functionalise.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "ops/expander.h"
#include "ops/op.h"

namespace magneto::autograd {

namespace {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::ValueId;
using types::TensorType;

using MemoryId = base::Id<struct MemoryTag>;
using LookId = base::Id<struct LookTag>;

struct Memory {
  ValueId first, now;  ///< values of the new graph
  bool is_input = false;
  types::Expr shift;  ///< recorded offsets of views minus those in the new graph
};

struct Look {
  MemoryId memory;
  LookId below;  ///< invalid: the whole memory
  Node view;     ///< its first argument is `below`, whatever is written there; places and values of the new graph
  size_t output = 0;
  std::vector<TensorType> types;  ///< as recorded, of all results of the view
  ValueId value, made_from;       ///< what it reads as while `below` reads as made_from
  size_t group = 0;               ///< looks of one node: the results of a split
};

class Functionalising {
 public:
  Functionalising(const Graph& from, types::Dtype default_dtype)
      : from_(from), default_dtype_(default_dtype), looks_of_(from.values().size()) {}

  Functional run() {
    made_.graph.conditions = from_.conditions;
    for (const ValueId id : from_.inputs())
      outside(id, made_.graph.add_input(from_.value(id).type, from_.value(id).name));
    for (const ValueId id : from_.constants()) {
      outside(id, made_.graph.add_constant(from_.value(id).type));
      made_.graph.value(memories_.back().first).name = from_.value(id).name;
    }
    for (const Node& node : from_.nodes()) {
      this->node(node);
      if (!made_.reason.empty()) return std::move(made_);
    }
    for (const ValueId id : from_.outputs) output(id);
    for (const Memory& memory : memories_)
      if (memory.is_input && memory.now != memory.first) made_.graph.stores.push_back({memory.now, memory.first});
    return std::move(made_);
  }

 private:
  Graph& graph() { return made_.graph; }

  template <class... Pieces>
  void stop(const Node& node, const Pieces&... pieces) {
    if (!made_.reason.empty()) return;
    made_.reason = base::concat(node.op, " ", pieces...);
    const graph::Place& place = from_.places().at(node.place);
    if (place.line > 0) made_.reason += base::concat(" (", place.file, ":", place.line, ")");
  }

  // ---- memories and looks ------------------------------------------------------------------------------------------

  LookId whole(ValueId value, bool is_input) {
    memories_.push_back({value, value, is_input, 0});
    looks_.push_back({MemoryId(memories_.size() - 1), {}, {}, 0, {}, {}, {}, 0});
    return LookId(looks_.size() - 1);
  }
  void outside(ValueId recorded, ValueId value) {
    const auto& inputs = from_.inputs();
    looks_of_[recorded.index()] = whole(value, std::binary_search(inputs.begin(), inputs.end(), recorded));
  }
  Look& look(LookId id) { return looks_[id.index()]; }
  Memory& memory(LookId id) { return memories_[look(id).memory.index()]; }
  LookId look_of(ValueId recorded) const {
    base::check(looks_of_[recorded.index()].valid(), "functionalise: %", recorded.index(),
                " is read before it is made");
    return looks_of_[recorded.index()];
  }

  /// Whether `value` is this look as a view of memory, not the value that was last written through it.
  bool is_in_memory(LookId id, ValueId value) {
    if (!look(id).below.valid()) return true;
    const graph::NodeId maker = graph().value(value).maker;
    if (!maker.valid() || graph().node(maker).op != look(id).view.op) return false;
    const auto* below = std::get_if<ValueId>(&graph().node(maker).args[0]);
    return below && is_in_memory(look(id).below, *below);
  }

  /// The types of a view over `below`: as recorded where that is memory, else as the table says; nothing: it cannot
  /// say.
  std::optional<std::vector<TensorType>> types_over(LookId id, const Node& view, ValueId below,
                                                    const types::Expr& shift) {
    std::vector<TensorType> types = look(id).types;
    if (is_in_memory(look(id).below, below)) {
      for (TensorType& type : types) type.offset = type.offset - shift;
      return types;
    }
    const ops::Op* op = ops::find(view.op);
    const auto results = op && op->type ? op->type({view.args, &graph(), default_dtype_}) : std::nullopt;
    if (!results || results->size() != types.size()) return std::nullopt;
    for (size_t k = 0; k < types.size(); ++k) {
      if ((*results)[k].type.sizes != types[k].sizes) return std::nullopt;
      types[k] = (*results)[k].type;
    }
    return types;
  }

  /// Adds the view of a look over `below`; its value, or an invalid one when the table has no types for it.
  ValueId apply(LookId id, ValueId below, const types::Expr& shift) {
    Node view = look(id).view;
    view.args[0] = below;
    view.outputs.clear();
    const auto types = types_over(id, view, below, shift);
    if (!types) return {};
    for (const TensorType& type : *types) view.outputs.push_back(graph().add_value(type));
    const std::vector<ValueId> all = view.outputs;
    graph().add_node(std::move(view));
    // The other results of the same split need no node of their own. Looks of one node stand side by side.
    size_t first = id.index();
    while (first > 0 && looks_[first - 1].group == look(id).group) --first;
    for (size_t k = first; k < looks_.size() && looks_[k].group == look(id).group; ++k) {
      looks_[k].value = all[looks_[k].output];
      looks_[k].made_from = below;
    }
    return all[look(id).output];
  }

  ValueId read(LookId id) {
    if (!look(id).below.valid()) return memory(id).now;
    const ValueId below = read(look(id).below);
    if (look(id).made_from == below) return look(id).value;
    const ValueId value = apply(id, below, memory(id).shift);
    return value.valid() ? value : read_view(id, memory(id).now, memory(id).shift);
  }

  /// The look as a view of a value of its memory, whatever was written through it: what an output means.
  ValueId read_view(LookId id, ValueId bottom, const types::Expr& shift) {
    if (!look(id).below.valid()) return bottom;
    const ValueId below = read_view(look(id).below, bottom, shift);
    if (look(id).made_from == below && is_in_memory(id, look(id).value)) return look(id).value;
    return apply(id, below, shift);
  }

  bool reads_by_strides(LookId id) {
    for (; look(id).below.valid(); id = look(id).below)
      if (const ops::Op* op = ops::find(look(id).view.op); op && op->by_strides) return true;
    return false;
  }

  /// Whether strides show the same elements of every value that this memory will hold: it was made here, so its values
  /// are all there is of it, and they have its layout without gaps. An input may be a part of something larger.
  bool strides_hold(LookId id) {
    if (memory(id).is_input || from_outside(id)) return false;
    const TensorType& type = graph().value(memory(id).first).type;
    types::Expr extent = 1;
    for (size_t d = 0; d < type.sizes.size(); ++d) extent = extent + (type.sizes[d] - types::Expr(1)) * type.strides[d];
    return extent == types::numel(type.sizes) && type.offset == types::Expr(0);
  }
  bool from_outside(LookId id) { return graph().comes_from_outside(memory(id).first); }

  /// A look by strides lies on the memory itself, whatever tensor it was taken of.
  void lay_on_memory(Look& view) {
    if (!strides_hold(view.below)) return;
    while (look(view.below).below.valid()) view.below = look(view.below).below;
    const TensorType& type = view.types[0];
    view.view.args = {view.view.args[0], type.sizes, type.strides, type.offset};
  }

  /// The new value of a memory has the layout of the old one, so that views of it are what they were.
  ValueId laid_out_as(ValueId value, TensorType type, const Node& like) {
    type.offset = 0;
    const graph::Value& made = graph().value(value);
    if (made.type == type) return value;
    const ops::Op* maker = made.maker.valid() ? ops::find(graph().node(made.maker).op) : nullptr;
    if (maker && maker->body) {
      graph().value(value).type = type;
      return value;
    }
    const ops::Call none{{}, &graph(), default_dtype_};
    Node here = like;
    here.place = graph().add_place(from_.places().at(like.place));
    return ops::Expander(graph(), none, here, {}).laid_out(value, type);
  }

  void write(const Node& node, LookId id, ValueId value) {
    std::vector<std::pair<LookId, ValueId>> way;  // what each look reads as from now on
    while (look(id).below.valid()) {
      way.emplace_back(id, value);
      const LookId below = look(id).below;
      const ops::Op* op = ops::find(look(id).view.op);
      if (!op || !op->put) return stop(node, "writes through ", look(id).view.op, ", which cannot be undone");
      Node view = look(id).view;
      view.args[0] = read(below);
      view.place = look(id).view.place;
      const ops::Call call{view.args, &graph(), default_dtype_};
      ops::Expander expander(graph(), call, view, {});
      value = op->put(expander, look(id).output, value);
      if (expander.failed || !value.valid())
        return stop(node, "writes through ", look(id).view.op, ", which has no answer for these sizes");
      id = below;
    }
    value = laid_out_as(value, graph().value(memory(id).first).type, node);
    Memory& changed = memory(id);
    // Values start at offset 0; a view of the input itself counts from the start of the input's storage.
    if (changed.now == changed.first) changed.shift = graph().value(changed.first).type.offset;
    changed.now = value;
    ValueId below = value;
    for (size_t k = way.size(); k-- > 0;) {
      look(way[k].first).value = way[k].second;
      look(way[k].first).made_from = below;
      below = way[k].second;
    }
  }

  // ---- nodes -------------------------------------------------------------------------------------------------------

  bool is_made(const Node& node, ValueId id) const {
    const graph::NodeId maker = from_.value(id).maker;
    return maker.valid() && &from_.node(maker) == &node;
  }

  Node copied(const Node& node) {
    Node copy = node;
    copy.place = graph().add_place(from_.places().at(node.place));
    const auto current = [&](ValueId id) { return id.valid() ? read(look_of(id)) : id; };
    for (Arg& arg : copy.args) {
      if (auto* one = std::get_if<ValueId>(&arg)) *one = current(*one);
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
        for (ValueId& id : *list) id = current(id);
    }
    return copy;
  }

  void node(const Node& node) {
    const ops::Op* op = ops::find(node.op);
    // torch does not say so, but its result is its argument's memory, which counts no versions
    if (node.op == "aten::data") return stop(node, "gives memory a second name");
    graph::for_each_read(node, [&](ValueId id) {
      const LookId at = look_of(id);
      if (memory(at).now != memory(at).first && reads_by_strides(at) && !strides_hold(at))
        stop(node, "reads memory by strides that was written to");
    });
    if (!made_.reason.empty()) return;
    if (op && op->changes_shape) return change_shape(*op, node);
    if (op && op->view) return view(*op, node);
    std::vector<int> written;
    if (op && (!op->writes_if || op->writes_if({node.args, &from_, default_dtype_})))
      for (const int i : op->writes)
        if (const auto* id = std::get_if<ValueId>(&node.args[static_cast<size_t>(i)]); id && id->valid())
          written.push_back(i);
    if (!written.empty()) return write_in_place(*op, node, written);
    bool gives_old = false;
    for (const ValueId id : node.outputs) gives_old = gives_old || (id.valid() && !is_made(node, id));
    if (gives_old) return stop(node, "changes a tensor, and what it writes is not known");
    Node copy = copied(node);
    for (ValueId& id : copy.outputs)
      if (id.valid()) id = fresh(id);
    graph().add_node(std::move(copy));
  }

  ValueId fresh(ValueId recorded) {
    const ValueId value = graph().add_value(from_.value(recorded).type);
    looks_of_[recorded.index()] = whole(value, false);
    return value;
  }

  void view(const ops::Op& op, const Node& node) {
    const auto* of = std::get_if<ValueId>(&node.args.at(0));
    if (!of || !of->valid()) return stop(node, "is a view of no tensor");
    const LookId below = look_of(*of);
    if (op.by_strides && memory(below).now != memory(below).first && !strides_hold(below))
      return stop(node, "looks by strides at memory that was written to");
    Node copy = copied(node);
    std::vector<TensorType> types;
    for (const ValueId id : node.outputs) types.push_back(from_.value(id).type);
    ++groups_;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (!is_made(node, node.outputs[k])) continue;  // lift_fresh and its like: the tensor itself
      looks_.push_back({look(below).memory, below, copy, k, types, {}, {}, groups_});
      if (op.by_strides) lay_on_memory(looks_.back());
      looks_of_[node.outputs[k].index()] = LookId(looks_.size() - 1);
    }
  }

  void change_shape(const ops::Op& op, const Node& node) {
    const auto* id = std::get_if<ValueId>(&node.args.at(0));
    if (!id || !id->valid()) return stop(node, "changes the shape of no tensor");
    const LookId below = look_of(*id);
    if (from_.comes_from_outside(*id)) return stop(node, "changes the shape of an input");
    const ops::Op* view = ops::find(op.functional);
    const ValueId now = read(below);
    Node copy = copied(node);
    copy.op = op.functional;
    const auto results = view && view->type ? view->type({copy.args, &graph(), default_dtype_}) : std::nullopt;
    if (!results || results->size() != 1 || !now.valid()) return stop(node, "has no answer for these sizes");
    if (view->by_strides && memory(below).now != memory(below).first && !strides_hold(below))
      return stop(node, "looks by strides at memory that was written to");
    TensorType type = (*results)[0].type;
    type.offset = type.offset + memory(below).shift;
    looks_.push_back({look(below).memory, below, std::move(copy), 0, {std::move(type)}, {}, {}, ++groups_});
    if (view->by_strides) lay_on_memory(looks_.back());
    // A value has one type: the tensor goes on as another value, or as the same one where its type stayed.
    const ValueId changed = node.outputs.empty() || !node.outputs[0].valid() ? *id : node.outputs[0];
    looks_of_[changed.index()] = LookId(looks_.size() - 1);
  }

  void write_in_place(const ops::Op& op, const Node& node, const std::vector<int>& written) {
    if (op.functional.empty()) return stop(node, "writes in place, and there is no operator that gives what it writes");
    // torch's functional form draws into contiguous memory, and so in another order
    if (op.functional == "aten::bernoulli.p" &&
        !types::is_contiguous(from_.value(std::get<ValueId>(node.args[0])).type))
      return stop(node, "draws random numbers into memory that is not contiguous");
    Node copy = copied(node);
    copy.op = op.functional;
    copy.outputs.clear();
    for (const ValueId id : node.outputs)
      if (!id.valid() || is_made(node, id)) copy.outputs.push_back(id.valid() ? fresh(id) : id);
    std::vector<std::pair<LookId, ValueId>> writes;
    for (const int i : written) {
      const LookId at = look_of(std::get<ValueId>(node.args[static_cast<size_t>(i)]));
      if (reads_by_strides(at) && !strides_hold(at)) return stop(node, "writes to memory by strides");
      // As large as what is written to. A whole memory keeps its layout, so that views of it stay what they are.
      TensorType type = graph().value(std::get<ValueId>(copy.args[static_cast<size_t>(i)])).type;
      if (look(at).below.valid()) type.strides = types::contiguous_strides(type.sizes);
      type.offset = 0;
      copy.outputs.push_back(graph().add_value(std::move(type)));
      writes.emplace_back(at, copy.outputs.back());
    }
    graph().add_node(std::move(copy));
    for (const auto& [at, value] : writes) write(node, at, value);
  }

  // ---- outputs -----------------------------------------------------------------------------------------------------

  void output(ValueId recorded) {
    if (!recorded.valid()) {
      graph().outputs.push_back({});
      made_.outputs.push_back({});
      return;
    }
    const LookId at = look_of(recorded);
    const bool outside =
        memory(at).is_input || (graph().comes_from_outside(memory(at).first) && memory(at).now == memory(at).first);
    const ValueId value =
        memory(at).is_input ? read_view(at, memory(at).first, 0) : read_view(at, memory(at).now, memory(at).shift);
    graph().outputs.push_back(value);
    const ValueId below = memory(at).is_input ? memory(at).first : memory(at).now;
    if (look(at).below.valid())
      made_.outputs.push_back({Alias::Kind::kView, below});
    else
      made_.outputs.push_back(outside ? Alias{Alias::Kind::kItself, below} : Alias{});
  }

  const Graph& from_;
  const types::Dtype default_dtype_;
  Functional made_;
  std::vector<Memory> memories_;
  std::vector<Look> looks_;
  std::vector<LookId> looks_of_;  ///< of each recorded value
  size_t groups_ = 0;             ///< 0 is that of whole memories
};

}  // namespace

Functional functionalise(const Graph& graph, types::Dtype default_dtype) {
  return Functionalising(graph, default_dtype).run();
}

}  // namespace magneto::autograd
