// A tensor object is a way to look at memory. So there are two tables: *storages*, each with the value that it holds
// now (its version), and *views*, each a view of another one or the whole of a storage. Every recorded tensor has one.
//
//   %1 = aten::select.int(%0, 0, 2)        view 1: select(view 0, 0, 2), view 0: the storage of %0
//   %1 = aten::mul_.Tensor(%1, 2.0)        a write through view 1
//   %3 = aten::neg(%0)                     reads view 0
//
// *Reading* a view applies it to what the view below reads as. The answer is kept together with the value that it was
// made from: it holds until the storage has another version.
// *Writing* through a view takes the operator that gives what is written as a result (Op::functional), then asks each
// view on the way down for the tensor below with the new value in its place (Op::put): select_scatter here. At the
// bottom it is the new version of the storage.
//
//   %4 = aten::select.int(%0, 0, 2)
//   %5 = aten::mul.Tensor(%4, 2.0)
//   %6 = aten::select_scatter(%0, %5, 0, 2)
//   %3 = aten::neg(%6)
//   %7 = aten::select.int(%0, 0, 2)
//   store %5 -> %7
//
// Reading again is not asked of views that were just written: the value is known on the whole way down. An input is
// stored to where it was written, and nowhere else: each view that was written through has its store, in order.
//
// Four things are not true of values, so that such programs stay as they are: a write to a tensor some of whose
// elements lie in the same place, an operator that reads places which it writes (but for the same element), a view by
// strides of memory that has gaps, and one of memory that may not be there.
#include "autograd/functionalise.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "ops/expander.h"
#include "ops/op.h"
#include "types/overlap.h"
#include "types/prove.h"

namespace magneto::autograd {

namespace {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::ValueId;
using types::Overlap;
using types::TensorType;

using StorageId = base::Id<struct StorageTag>;
using ViewId = base::Id<struct ViewTag>;

struct Storage {
  ValueId first, now;  ///< values of the new graph
  bool is_input = false;
  types::Expr offset;  ///< of the recorded tensor that is the whole. Versions start at 0, and so does what is made here
  /// What was written to it, in order, by the last write through each view.
  std::vector<std::pair<ViewId, ValueId>> written = {};
};

/// The value of a view, while what is below has the value `from`.
struct Made {
  ValueId value, from;
  bool is_applied = false;  ///< it is the view of `from`, not what was written through it
};

struct View {
  StorageId storage;
  ViewId below;  ///< invalid: the whole storage
  Node node;     ///< its first argument is `below`, whatever is written there; places and values of the new graph
  size_t output = 0;
  std::vector<TensorType> types;  ///< as recorded, of all results of the view
  Made read = {};                 ///< the view's elements: applied to what is below, or what was written through it
  Made shown = {};                ///< the view applied to a version of the storage, also after it was written through
  size_t group = 0;               ///< views of one node: the results of a split
  bool by_strides = false;        ///< it counts in memory, whatever the tensor below looks like
  ValueId recorded = {};          ///< the tensor that looks so; invalid: it has looked otherwise since
  const TensorType& type() const { return types[output]; }
};

class Functionalising {
 public:
  Functionalising(const Graph& from, types::Dtype default_dtype)
      : from_(from), default_dtype_(default_dtype), views_of_(from.values().size()), prover_(from.conditions) {}

  Functional run() {
    made_.graph.conditions = from_.conditions;
    for (const ValueId id : from_.inputs())
      outside(id, made_.graph.add_input(from_.value(id).type, from_.value(id).name));
    for (const ValueId id : from_.constants()) {
      outside(id, made_.graph.add_constant(from_.value(id).type));
      made_.graph.value(storages_.back().first).name = from_.value(id).name;
    }
    for (const Node& node : from_.nodes()) {
      const size_t first = graph().nodes().size();
      this->node(node);
      if (!made_.reason.empty()) return std::move(made_);
      for (size_t n = first; n < graph().nodes().size(); ++n)
        graph().node(graph::NodeId(n)).checkpoint = node.checkpoint;
      made_.ends.push_back(graph().nodes().size());
    }
    for (const ValueId id : from_.outputs) output(id);
    for (Storage& storage : storages_)
      if (storage.is_input) store(storage);
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

  // ---- storages and views ------------------------------------------------------------------------------------------

  void whole(ValueId recorded, ValueId value, bool is_input) {
    const TensorType& type = from_.value(recorded).type;
    storages_.push_back({value, value, is_input, type.offset});
    views_.push_back(
        {.storage = StorageId(storages_.size() - 1), .below = {}, .node = {}, .types = {type}, .recorded = recorded});
    views_of_[recorded.index()] = ViewId(views_.size() - 1);
  }
  void outside(ValueId recorded, ValueId value) {
    const auto& inputs = from_.inputs();
    whole(recorded, value, std::binary_search(inputs.begin(), inputs.end(), recorded));
  }
  ValueId fresh(ValueId recorded) {
    TensorType type = from_.value(recorded).type;
    type.offset = 0;
    const ValueId value = graph().add_value(std::move(type));
    whole(recorded, value, false);
    hold(views_.back().recorded, value);
    return value;
  }
  void hold(ValueId recorded, ValueId value) {
    if (recorded.valid()) made_.held.push_back({made_.ends.size(), recorded, value});
  }
  /// What a node reads is there before it.
  void hold_before(ValueId recorded, ValueId value) {
    if (!recorded.valid() || made_.ends.empty()) return;
    const size_t node = made_.ends.size() - 1;
    auto at = made_.held.end();
    while (at != made_.held.begin() && std::prev(at)->node > node) --at;
    made_.held.insert(at, {node, recorded, value});
  }
  View& view(ViewId id) { return views_[id.index()]; }
  Storage& storage(ViewId id) { return storages_[view(id).storage.index()]; }
  bool is_written(ViewId id) { return storage(id).now != storage(id).first; }
  ViewId view_of(ValueId recorded) const {
    base::check(views_of_[recorded.index()].valid(), "functionalise: %", recorded.index(),
                " is read before it is made");
    return views_of_[recorded.index()];
  }

  /// The types of a view's results over `below`. As recorded where `below` lies in memory as what the view was taken
  /// of; else as the table says; nothing: it cannot say.
  std::optional<std::vector<TensorType>> types_over(ViewId id, const Node& node, ValueId below) {
    std::vector<TensorType> types = view(id).types;
    const types::Expr shift = shift_of(id, below);
    TensorType recorded = view(view(id).below).type();
    recorded.offset = recorded.offset - shift;
    const bool same_units = std::all_of(types.begin(), types.end(), [&](const TensorType& type) {
      return types::item_size(type.dtype) == types::item_size(recorded.dtype);
    });
    if (graph().value(below).type == recorded && (same_units || shift == types::Expr(0))) {
      for (TensorType& type : types) type.offset = type.offset - shift;
      return types;
    }
    const ops::Op* op = ops::find(node.op);
    const auto results = op && op->type ? op->type({node.args, &graph(), default_dtype_}) : std::nullopt;
    if (!results || results->size() != types.size()) return std::nullopt;
    for (size_t k = 0; k < types.size(); ++k) {
      if ((*results)[k].type.sizes != types[k].sizes) return std::nullopt;
      types[k] = (*results)[k].type;
    }
    return types;
  }
  /// Recorded offsets minus those of views of `below`, which shows some version of the view's storage. Views of an
  /// input count from the start of the input's storage.
  types::Expr shift_of(ViewId id, ValueId below) {
    const ValueId first = storage(id).first;
    while (is_written(id) && below != first && graph().value(below).maker.valid()) {
      const Node& maker = graph().node(graph().value(below).maker);
      const ops::Op* op = ops::find(maker.op);
      if (!op || !op->view) return storage(id).offset;
      below = std::get<ValueId>(maker.args[0]);
    }
    return storage(id).offset - (below == first || !is_written(id) ? graph().value(first).type.offset : types::Expr(0));
  }

  /// Adds the node of a view over `below`; all its results, none when the table has no types for them.
  std::vector<ValueId> apply(ViewId id, ValueId below) {
    Node node = view(id).node;
    node.args[0] = below;
    node.outputs.clear();
    const auto types = types_over(id, node, below);
    if (!types) return {};
    for (const TensorType& type : *types) node.outputs.push_back(graph().add_value(type));
    const std::vector<ValueId> all = node.outputs;
    graph().add_node(std::move(node));
    return all;
  }
  /// Calls `use` with all views of the node that made this one: the results of one split need one node. They stand side
  /// by side.
  template <class Use>
  void for_group(ViewId id, const Use& use) {
    const size_t group = view(id).group;
    size_t k = id.index();
    while (k > 0 && views_[k - 1].group == group) --k;
    for (; k < views_.size() && views_[k].group == group; ++k) use(views_[k]);
  }

  ValueId read(ViewId id) {
    if (!view(id).below.valid()) return storage(id).now;
    const ValueId below = read(view(id).below);
    if (view(id).read.from == below) return view(id).read.value;
    const std::vector<ValueId> all = apply(id, below);
    if (all.empty()) return show(id, storage(id).now);
    for_group(id, [&](View& one) {
      one.read = {all[one.output], below, true};
      hold_before(one.recorded, one.read.value);
    });
    return view(id).read.value;
  }

  /// The view over a version of its storage, whatever was written through it: what an output means. Invalid: the table
  /// has no types for it.
  ValueId show(ViewId id, ValueId version) {
    if (!view(id).below.valid()) return version;
    const ValueId below = show(view(id).below, version);
    if (!below.valid()) return {};
    for (const Made& known : {view(id).shown, view(id).read})
      if (known.from == below && known.is_applied) return known.value;
    const std::vector<ValueId> all = apply(id, below);
    if (all.empty()) return {};
    for_group(id, [&](View& one) { one.shown = {all[one.output], below, true}; });
    return view(id).shown.value;
  }

  bool reads_by_strides(ViewId id) {
    while (view(id).below.valid() && !view(id).by_strides) id = view(id).below;
    return view(id).by_strides;
  }

  /// Whether strides show the same elements of every version of this storage: it was made here, so its values are all
  /// there is of it, and they have its layout without gaps. An input may be a part of something larger.
  bool strides_hold(ViewId id) {
    if (graph().comes_from_outside(storage(id).first)) return false;
    const TensorType& type = graph().value(storage(id).first).type;
    return types::dense_strides(type) == type.strides && storage(id).offset == types::Expr(0);
  }

  /// A view by strides counts in memory: in that of the outside as it was, or in one that strides hold for.
  bool may_look_by_strides(ViewId id) {
    return strides_hold(id) || (!is_written(id) && storage(id).offset == graph().value(storage(id).first).type.offset);
  }

  /// Strides count elements, and those of a storage are its own: not real parts of complex ones, nor halves of
  /// integers.
  bool counts_elements_of_storage(ViewId id) {
    return view(id).type().dtype == graph().value(storage(id).first).type.dtype;
  }

  /// Whether all that it looks at lies in the memory that the graph knows, for all sizes. There may be more of it in
  /// one call, and less in the next: then eager has an error to raise.
  bool is_there(ViewId below, const TensorType& looks_at) {
    TensorType whole = graph().value(storage(below).first).type;
    whole.offset = storage(below).offset;
    return prover_.lies_inside(looks_at, whole);
  }

  /// A view by strides lies on the storage itself, whatever tensor it was taken of.
  void lay_on_storage(View& made) {
    if (!strides_hold(made.below)) return;
    while (view(made.below).below.valid()) made.below = view(made.below).below;
    const TensorType& type = made.types[0];
    made.node.args = {made.node.args[0], type.sizes, type.strides, type.offset};
  }

  /// The new version of a storage has the layout of the old one, so that views of it are what they were.
  ValueId laid_out_as(ValueId value, TensorType type, const Node& like) {
    type.offset = 0;
    const graph::Value& made = graph().value(value);
    if (made.type == type) return value;
    const ops::Op* maker = made.maker.valid() ? ops::find(graph().node(made.maker).op) : nullptr;
    if (maker && maker->body) {
      graph().value(value).type = type;
      return value;
    }
    return copy_laid_out_as(value, std::move(type), like);
  }
  ValueId copy_laid_out_as(ValueId value, TensorType type, const Node& like) {
    type.offset = 0;
    const ops::Call none{{}, &graph(), default_dtype_};
    Node here = like;
    here.place = graph().add_place(from_.places().at(like.place));
    return ops::Expander(graph(), none, here, {}).laid_out(value, std::move(type));
  }

  void write(const Node& node, ViewId id, ValueId value) {
    std::vector<std::pair<ViewId, ValueId>> way;  // what each view reads as from now on
    ViewId bottom = id;
    const ValueId given = value;
    while (view(bottom).below.valid()) {
      way.emplace_back(bottom, value);
      const ViewId below = view(bottom).below;
      const ops::Op* op = ops::find(view(bottom).node.op);
      if (!op || !op->put) return stop(node, "writes through ", view(bottom).node.op, ", which cannot be undone");
      Node put = view(bottom).node;
      put.args[0] = read(below);
      if (!std::get<ValueId>(put.args[0]).valid()) return no_answer(node);
      const ops::Call call{put.args, &graph(), default_dtype_};
      ops::Expander expander(graph(), call, put, {});
      value = op->put(expander, view(bottom).output, value);
      if (expander.failed || !value.valid())
        return stop(node, "writes through ", view(bottom).node.op, ", which has no answer for these sizes");
      bottom = below;
    }
    Storage& changed = storage(bottom);
    value = laid_out_as(value, graph().value(changed.first).type, node);
    changed.now = value;
    if (changed.is_input) note_write(changed, id, way.empty() ? value : given);
    hold(view(bottom).recorded, value);
    for (const auto& [written, read] : way) hold(view(written).recorded, read);
    ValueId below = value;
    for (size_t k = way.size(); k-- > 0;) {
      view(way[k].first).read = {way[k].second, below};
      below = way[k].second;
    }
  }

  /// A later write to the same places, or to all, makes an earlier one's store needless.
  void note_write(Storage& changed, ViewId id, ValueId value) {
    std::erase_if(changed.written, [&](const auto& earlier) {
      return !view(id).below.valid() || types::overlap(view(id).type(), view(earlier.first).type()) == Overlap::kSame;
    });
    changed.written.emplace_back(id, value);
  }

  // ---- nodes -------------------------------------------------------------------------------------------------------

  void no_answer(const Node& node) {
    stop(node, "looks at written memory in a way that has no answer for these sizes");
  }

  bool is_made(const Node& node, ValueId id) const {
    const graph::NodeId maker = from_.value(id).maker;
    return maker.valid() && &from_.node(maker) == &node;
  }

  Node copied(const Node& node) {
    Node copy = node;
    copy.place = graph().add_place(from_.places().at(node.place));
    const auto current = [&](ValueId id) {
      if (!id.valid()) return id;
      const ValueId now = read(view_of(id));
      if (!now.valid()) no_answer(node);
      return now;
    };
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
      const ViewId at = view_of(id);
      if (reads_by_strides(at) && !may_look_by_strides(at)) stop(node, "reads memory by strides that was written to");
    });
    if (!made_.reason.empty()) return;
    if (op && op->changes_shape) return change_shape(*op, node);
    if (op && op->view) return add_view(*op, node);
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
    if (op && op->random) lay_out_as_recorded(node, copy);
    if (!made_.reason.empty()) return;
    for (ValueId& id : copy.outputs)
      if (id.valid()) id = fresh(id);
    graph().add_node(std::move(copy));
  }

  /// Numbers are drawn in the order of memory, and that of a result may be its argument's: an argument that was written
  /// to lies in memory as it did when it was recorded.
  void lay_out_as_recorded(const Node& node, Node& copy) {
    for (size_t k = 0; k < node.args.size(); ++k) {
      const auto* recorded = std::get_if<ValueId>(&node.args[k]);
      if (!recorded || !recorded->valid()) continue;
      const TensorType& type = from_.value(*recorded).type;
      const ValueId now = std::get<ValueId>(copy.args[k]);
      if (graph().value(now).type.strides == type.strides) continue;
      if (types::dense_strides(type) != type.strides)
        return stop(node, "draws random numbers like a tensor that was written to and is not dense");
      copy.args[k] = copy_laid_out_as(now, type, node);
    }
  }

  void add_view(const ops::Op& op, const Node& node) {
    const auto* of = std::get_if<ValueId>(&node.args.at(0));
    if (!of || !of->valid()) return stop(node, "is a view of no tensor");
    const ViewId below = view_of(*of);
    const bool by_sizes = !op.functional.empty() && is_view_by_sizes(op, node);
    const bool by_strides = op.by_strides || (!op.functional.empty() && !by_sizes);
    if (by_strides && !counts_elements_of_storage(below))
      return stop(node, "looks by strides at memory that holds elements of another dtype");
    if (by_strides && !may_look_by_strides(below)) return stop(node, "looks by strides at memory that was written to");
    for (const ValueId id : node.outputs)
      if (by_strides && id.valid() && !is_there(below, from_.value(id).type))
        return stop(node, "looks by strides at memory that is not known to be there");
    Node copy = copied(node);
    std::vector<TensorType> types;
    for (const ValueId id : node.outputs) types.push_back(from_.value(id).type);
    if (by_sizes) {
      copy.op = op.functional;
      copy.args.resize(2);
    } else if (by_strides && !op.by_strides) {
      copy.op = "aten::as_strided";
      copy.args = {copy.args[0], types.at(0).sizes, types[0].strides, types[0].offset};
    }
    ++groups_;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (!is_made(node, node.outputs[k])) continue;  // lift_fresh and its like: the tensor itself
      views_.push_back({.storage = view(below).storage,
                        .below = below,
                        .node = copy,
                        .output = k,
                        .types = types,
                        .group = groups_,
                        .by_strides = by_strides,
                        .recorded = node.outputs[k]});
      if (by_strides) lay_on_storage(views_.back());
      views_of_[node.outputs[k].index()] = ViewId(views_.size() - 1);
    }
  }

  /// Whether the strides that a view is told are those that follow from its sizes: then it is a view of any layout.
  bool is_view_by_sizes(const ops::Op& op, const Node& node) {
    const TensorType& below = from_.value(std::get<ValueId>(node.args[0])).type;
    const TensorType& type = from_.value(node.outputs.at(0)).type;
    if (below.sizes == type.sizes && below.strides == type.strides) return true;
    const ops::Op* other = ops::find(op.functional);
    if (!other || !other->type) return false;
    bool is_known = true;
    ops::Call call{std::span<const Arg>(node.args.data(), 2), &from_, default_dtype_};
    call.decide = [&](const types::Condition& question) {
      const auto answer = prover_.decide(question);
      is_known = is_known && answer.has_value();
      return answer.value_or(false);
    };
    const auto results = other->type(call);
    if (!is_known || !results || results->size() != 1) return false;
    const TensorType& by_sizes = (*results)[0].type;
    const auto is_equal = [&](const types::Expr& x, const types::Expr& y) {
      return prover_.decide({x, types::Relation::kEq, y}) == true;
    };
    return std::equal(by_sizes.sizes.begin(), by_sizes.sizes.end(), type.sizes.begin(), type.sizes.end(), is_equal) &&
           std::equal(by_sizes.strides.begin(), by_sizes.strides.end(), type.strides.begin(), type.strides.end(),
                      is_equal);
  }

  void change_shape(const ops::Op& op, const Node& node) {
    const auto* id = std::get_if<ValueId>(&node.args.at(0));
    if (!id || !id->valid()) return stop(node, "changes the shape of no tensor");
    const ViewId below = view_of(*id);
    if (from_.comes_from_outside(*id)) return stop(node, "changes the shape of an input");
    // A value has one type: the tensor goes on as another value, or as the same one where nothing changed.
    const ValueId changed = node.outputs.empty() || !node.outputs[0].valid() ? *id : node.outputs[0];
    if (changed == *id) return;
    const ops::Op* other = ops::find(op.functional);
    Node copy = copied(node);
    copy.op = op.functional;
    if (!other || !other->view) return stop(node, "has no answer for these sizes");
    if (other->by_strides && !counts_elements_of_storage(below))
      return stop(node, "looks by strides at memory that holds elements of another dtype");
    if (other->by_strides && !may_look_by_strides(below))
      return stop(node, "looks by strides at memory that was written to");
    if (other->by_strides && !is_there(below, from_.value(changed).type))
      return stop(node, "looks by strides at memory that is not known to be there");
    views_.push_back({.storage = view(below).storage,
                      .below = below,
                      .node = std::move(copy),
                      .types = {from_.value(changed).type},
                      .group = ++groups_,
                      .by_strides = other->by_strides,
                      .recorded = changed});
    view(below).recorded = {};
    if (other->by_strides) lay_on_storage(views_.back());
    views_of_[changed.index()] = ViewId(views_.size() - 1);
  }

  static bool is_row_major(const Graph& graph, const Arg& tensor) {
    return types::is_contiguous(graph.value(std::get<ValueId>(tensor)).type);
  }

  /// Values are all read before anything is written, and an element has one place. Memory need not be so.
  bool writes_as_values(const ops::Op& op, const Node& node, const std::vector<int>& written) {
    for (const int i : written) {
      const ValueId target = std::get<ValueId>(node.args[static_cast<size_t>(i)]);
      const TensorType& type = from_.value(target).type;
      // nor may those of what it is a view of: to write one would be to write the other
      for (ViewId id = view_of(target); id.valid(); id = view(id).below)
        if (!types::has_distinct_elements(view(id).type())) {
          stop(node, "writes to a tensor whose elements share places in memory");
          return false;
        }
      bool apart = true;
      size_t same = 0;  // itself, once
      graph::for_each_read(node, [&](ValueId id) {
        if (view(view_of(id)).storage != view(view_of(target)).storage || (id == target && same++ == 0)) return;
        const Overlap shared = types::overlap(type, from_.value(id).type);
        apart = apart && (shared == Overlap::kNone || (shared == Overlap::kSame && ops::works_by_element(op)));
      });
      if (!apart) {
        stop(node, "reads memory that it writes to");
        return false;
      }
    }
    return true;
  }

  void write_in_place(const ops::Op& op, const Node& node, const std::vector<int>& written) {
    if (op.functional.empty()) return stop(node, "writes in place, and there is no operator that gives what it writes");
    if (!writes_as_values(op, node, written)) return;
    Node copy = copied(node);
    if (!made_.reason.empty()) return;
    // numbers are drawn in the order of memory, by torch's functional forms into memory of their own
    if (op.random && !(is_row_major(from_, node.args[0]) && is_row_major(graph(), copy.args[0])))
      return stop(node, "draws random numbers into memory that is not contiguous");
    copy.op = op.functional;
    copy.outputs.clear();
    for (const ValueId id : node.outputs)
      if (!id.valid() || is_made(node, id)) copy.outputs.push_back(id.valid() ? fresh(id) : id);
    std::vector<std::pair<ViewId, ValueId>> writes;
    std::vector<std::pair<ValueId, ValueId>> casts;
    for (const int i : written) {
      const ViewId at = view_of(std::get<ValueId>(node.args[static_cast<size_t>(i)]));
      if (reads_by_strides(at) && !strides_hold(at)) return stop(node, "writes to memory by strides");
      // As large as what is written to. A whole storage keeps its layout, so that views of it stay what they are.
      TensorType type = graph().value(std::get<ValueId>(copy.args[static_cast<size_t>(i)])).type;
      if (view(at).below.valid()) type.strides = types::contiguous_strides(type.sizes);
      type.offset = 0;
      copy.outputs.push_back(graph().add_value(std::move(type)));
      writes.emplace_back(at, copy.outputs.back());
    }
    for (size_t k = 0; k < writes.size(); ++k)
      if (const auto natural = other_dtype(copy, copy.outputs.size() - writes.size() + k, writes[k].second)) {
        const ValueId result = graph().add_value(*natural);
        copy.outputs[copy.outputs.size() - writes.size() + k] = result;
        casts.emplace_back(result, writes[k].second);
      }
    const uint32_t place = copy.place;
    graph().add_node(std::move(copy));
    for (const auto& [from, to] : casts)
      graph().add_node({.op = "aten::_to_copy",
                        .args = {from, graph().value(to).type.dtype, Arg(), Arg(), Arg(), false, Arg()},
                        .outputs = {to},
                        .grad = node.grad,
                        .place = place});
    for (const auto& [at, value] : writes) write(node, at, value);
  }

  /// What the operator gives, where that has another dtype than what it is written to.
  std::optional<TensorType> other_dtype(const Node& node, size_t output, ValueId target) {
    const ops::Op* op = ops::find(node.op);
    const auto results = op && op->type ? op->type({node.args, &graph(), default_dtype_}) : std::nullopt;
    if (!results || output >= results->size()) return std::nullopt;
    TensorType type = graph().value(target).type;
    const types::Dtype natural = (*results)[output].type.dtype;
    if (natural == type.dtype) return std::nullopt;
    type.dtype = natural;
    return type;
  }

  // ---- the end -----------------------------------------------------------------------------------------------------

  void output(ValueId recorded) {
    if (!recorded.valid()) {
      graph().outputs.push_back({});
      made_.outputs.push_back({});
      return;
    }
    const ViewId at = view_of(recorded);
    const bool outside = storage(at).is_input || (graph().comes_from_outside(storage(at).first) && !is_written(at));
    const ValueId version = storage(at).is_input ? storage(at).first : storage(at).now;
    const ValueId value = show(at, version);
    TensorType type = from_.value(recorded).type;
    if (!storage(at).is_input && !outside) type.offset = type.offset - storage(at).offset;
    if (!value.valid() || graph().value(value).type != type || (!outside && storage(at).offset != types::Expr(0))) {
      made_.reason = base::concat("an output is ", to_string(from_.value(recorded).type),
                                  ", which is no view of the values that it is made of");
      return;
    }
    graph().outputs.push_back(value);
    if (view(at).below.valid())
      made_.outputs.push_back({Alias::Kind::kView, version});
    else
      made_.outputs.push_back(outside ? Alias{Alias::Kind::kItself, version} : Alias{});
  }

  void store(Storage& storage) {
    for (const auto& [id, value] : storage.written) {
      const ValueId into = show(id, storage.first);
      if (!into.valid()) {
        made_.reason = base::concat("a view of ", graph().value(storage.first).name,
                                    " is written to, and it has no answer for these sizes");
        return;
      }
      // what was written there before is covered, whatever was written in between
      std::erase_if(graph().stores, [&](const graph::Store& earlier) { return earlier.into == into; });
      graph().stores.push_back({value, into});
    }
  }

  const Graph& from_;
  const types::Dtype default_dtype_;
  Functional made_;
  std::vector<Storage> storages_;
  std::vector<View> views_;
  std::vector<ViewId> views_of_;  ///< of each recorded value
  size_t groups_ = 0;             ///< 0 is that of whole storages
  types::Prover prover_;
};

}  // namespace

Functional functionalise(const Graph& graph, types::Dtype default_dtype) {
  return Functionalising(graph, default_dtype).run();
}

}  // namespace magneto::autograd
