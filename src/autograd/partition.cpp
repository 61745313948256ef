// A value that the backward reads can be saved, at the price of its bytes, or computed again from values that are
// there. So each value that the backward needs is an edge of a network, as wide as its bytes, and the operators lead
// from the values they read to the values they make:
//
//   x --mm--> h --gelu--> g --mm--> y        the backward reads x (for the weight), h (for gelu), g (for the weight)
//
//   source -> h ==4096==> . -> g ==4096==> . -> sink       g may be computed again, h is a product and may not
//             h is read as well:            . -> sink
//
// The cheapest cut saves h alone. What comes from outside and is read by the recorded backward anyway costs nothing,
// and is no part of the network.
//
// Operators stand on one of three sides. Those that read a tangent, however far, are the backward's. Those that an
// output or a store of the forward needs are the forward's. The rest (cos of an input, for the gradient of sin) may be
// either's: the cut decides.
#include "autograd/partition.h"

#include <algorithm>
#include <limits>
#include <set>

#include "autograd/counterparts.h"
#include "autograd/cut_internal.h"
#include "base/check.h"
#include "base/text.h"
#include "ops/expander.h"
#include "ops/op.h"
#include "types/overlap.h"

namespace magneto::autograd {

namespace {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

bool is_view(const Node& node) {
  const ops::Op* op = ops::find(node.op);
  return op && op->view;
}

bool has_effect(const Node& node) {
  const ops::Op* op = ops::find(node.op);
  return (op && op->random) || node.outputs.empty();
}

bool may_raise(const Node& node) {
  const ops::Op* op = ops::find(node.op);
  return !op || op->may_raise_on_data;
}

/// What the program asks to compute again, can be.
bool may_recompute(const Node& node) {
  const ops::Op* op = ops::find(node.op);
  return node.checkpoint && op && !op->random && op->writes.empty() && !node.outputs.empty();
}

class Partitioning {
 public:
  Partitioning(const Graph& joint, const Halves& halves)
      : joint_(joint),
        halves_(halves),
        tangents_(joint.inputs().size() - halves.inputs),
        words_((tangents_ + 63) / 64),
        reaches_(joint.values().size() * words_),
        in_backward_(joint.nodes().size()),
        in_forward_(joint.nodes().size()),
        input_index_(joint.values().size(), Saved::kNone),
        store_of_(joint.values().size(), Saved::kNone),
        is_stored_to_(halves.inputs),
        is_read_directly_(joint.values().size()),
        is_checked_(joint.values().size()) {
    for (size_t i = 0; i < joint.inputs().size(); ++i) input_index_[joint.inputs()[i].index()] = i;
    for (size_t t = 0; t < tangents_; ++t) word(tangent(t), t / 64) |= uint64_t{1} << (t % 64);
    std::vector<ValueId> last(halves.inputs);  // what is stored last to the whole of an input is the input from then on
    for (const graph::Store& store : joint.stores) {
      const size_t input = input_index_[graph::outside_of(joint, store.into).index()];
      if (input >= halves.inputs) continue;
      is_stored_to_[input] = true;
      last[input] = input_index_[store.into.index()] == input ? store.value : ValueId();
    }
    for (size_t i = 0; i < last.size(); ++i)
      if (last[i].valid()) store_of_[last[i].index()] = i;
  }

  Partition run() {
    find_sides();
    if (!made_.reason.empty()) return std::move(made_);
    find_direct_reads();
    find_regions();
    find_runs();
    cut();
    if (!made_.reason.empty()) return std::move(made_);
    list_saved();
    build_backward();
    if (!made_.reason.empty()) return std::move(made_);
    build_forward();
    return std::move(made_);
  }

  Partition run_again(std::vector<Saved> saved) {
    find_sides();
    made_.saved = std::move(saved);
    if (made_.reason.empty()) build_backward();
    return std::move(made_);
  }

 private:
  ValueId tangent(size_t t) const { return joint_.inputs()[halves_.inputs + t]; }
  uint64_t& word(ValueId id, size_t w) { return reaches_[id.index() * words_ + w]; }
  bool reads_tangent(ValueId id) {
    for (size_t w = 0; w < words_; ++w)
      if (word(id, w)) return true;
    return false;
  }
  std::vector<bool> tangents_of(ValueId id) {
    std::vector<bool> some;
    for (size_t t = 0; t < tangents_; ++t) some.push_back(word(id, t / 64) >> (t % 64) & 1);
    return some;
  }
  const Node* maker(ValueId id) const {
    const NodeId node = joint_.value(id).maker;
    return node.valid() ? &joint_.node(node) : nullptr;
  }
  size_t gradients() const { return joint_.outputs.size() - halves_.outputs; }
  ValueId gradient(size_t g) const { return joint_.outputs[halves_.outputs + g]; }

  template <class... Pieces>
  void stop(const Pieces&... pieces) {
    if (made_.reason.empty()) made_.reason = base::concat(pieces...);
  }

  // ---- sides -------------------------------------------------------------------------------------------------------

  void find_sides() {
    for (size_t n = 0; n < joint_.nodes().size(); ++n) {
      const Node& node = joint_.nodes()[n];
      for (size_t w = 0; w < words_; ++w) {
        uint64_t all = 0;
        graph::for_each_read(node, [&](ValueId id) { all |= word(id, w); });
        if (all) in_backward_[n] = true;
        for (const ValueId id : node.outputs)
          if (id.valid()) word(id, w) |= all;
      }
    }
    for (size_t o = 0; o < halves_.outputs; ++o)
      if (joint_.outputs[o].valid()) want_in_forward(joint_.outputs[o]);
    for (const graph::Store& store : joint_.stores) {
      want_in_forward(store.value);
      want_in_forward(store.into);
    }
    for (size_t n = 0; n < joint_.nodes().size(); ++n) {
      if (n < halves_.forward_nodes && !in_backward_[n] && may_raise(joint_.nodes()[n])) in_forward_[n] = true;
      if (!has_effect(joint_.nodes()[n])) continue;
      if (in_backward_[n]) return stop(joint_.nodes()[n].op, " has an effect, and the backward needs it");
      in_forward_[n] = true;
    }
    close_forward();
    for (size_t g = 0; g < gradients(); ++g) {
      auto& depends = made_.depends.emplace_back();
      if (!gradient(g).valid()) continue;
      depends = tangents_of(gradient(g));
    }
  }

  void want_in_forward(ValueId id) {
    if (reads_tangent(id)) return stop("a result of the forward depends on a gradient");
    const NodeId node = joint_.value(id).maker;
    if (node.valid()) in_forward_[node.index()] = true;
  }

  /// Everything that the nodes of the forward read.
  void close_forward() {
    for (size_t n = joint_.nodes().size(); n-- > 0;)
      if (in_forward_[n])
        graph::for_each_read(joint_.nodes()[n], [&](ValueId id) {
          const NodeId node = joint_.value(id).maker;
          if (node.valid() && node.index() < n) in_forward_[node.index()] = true;
        });
  }

  // ---- what may be kept of the outside -----------------------------------------------------------------------------

  ValueId viewed(ValueId id) const {
    while (const Node* node = maker(id)) {
      if (!is_view(*node)) break;
      id = std::get<ValueId>(node->args.at(0));
    }
    return id;
  }

  /// Whether writes to the memory of viewed(id) are counted by `id` as well: autograd takes _unsafe_view and
  /// unsafe_split for no views. Of what is made here functionalise may have made one.
  bool counts_writes(ValueId id) const {
    if (maker(viewed(id))) return true;
    for (const Node* node = maker(id); node && is_view(*node); node = maker(std::get<ValueId>(node->args.at(0))))
      if (node->op == "aten::_unsafe_view" || node->op.starts_with("aten::unsafe_split")) return false;
    return true;
  }

  // What eager keeps: the values that operators of the backward read. A node of the forward that only the backward
  // needs (what a custom autograd.Function saves) has run by then: what it read is not kept.
  void find_direct_reads() {
    is_wanted_.resize(joint_.nodes().size());
    const auto want = [&](ValueId id) {
      if (!id.valid()) return;
      const NodeId node = joint_.value(id).maker;
      if (node.valid() && !in_forward_[node.index()]) is_wanted_[node.index()] = true;
    };
    for (size_t g = 0; g < gradients(); ++g) {
      want(gradient(g));
      if (gradient(g).valid()) is_read_directly_[viewed(gradient(g)).index()] = true;
      if (gradient(g).valid()) is_checked_[viewed(gradient(g)).index()] = true;
    }
    for (size_t n = joint_.nodes().size(); n-- > 0;) {
      if (!is_wanted_[n]) continue;
      const bool reads_nothing = is_view(joint_.nodes()[n]) || n < halves_.forward_nodes;
      graph::for_each_read(joint_.nodes()[n], [&](ValueId id) {
        want(id);
        if (reads_nothing) return;
        is_read_directly_[viewed(id).index()] = true;
        if (counts_writes(id)) is_checked_[viewed(id).index()] = true;
      });
    }
  }

  // Regions of torch.utils.checkpoint. What leaves one is not computed again for others, or they would lead from one to
  // the other. What they read of the outside is kept as it is, whatever becomes of it: so does eager.
  void find_regions() {
    leaves_region_.assign(joint_.values().size(), false);
    const auto read_from = [&](uint32_t reader, ValueId id) {
      const Node* node = maker(id);
      if (node && node->checkpoint && node->checkpoint != reader)
        leaves_region_[id.index()] = leaves_region_[viewed(id).index()] = true;
      const size_t input = input_index_[viewed(id).index()];
      if (reader && input < halves_.inputs && !is_stored_to_[input]) is_read_directly_[viewed(id).index()] = true;
    };
    for (size_t n = 0; n < halves_.forward_nodes; ++n)
      graph::for_each_read(joint_.nodes()[n], [&](ValueId id) { read_from(joint_.nodes()[n].checkpoint, id); });
    for (size_t o = 0; o < halves_.outputs; ++o)
      if (joint_.outputs[o].valid()) read_from(0, joint_.outputs[o]);
    for (const graph::Store& store : joint_.stores) read_from(0, store.value);
  }

  // An operator of the backward runs when a gradient comes through one of the tangents it depends on, on its way to one
  // that is asked for. For each value: with which of these sets an operator runs that reads it, itself or by way of
  // what is computed again; and of those that eager keeps, with which sets an operator of eager's does.
  void find_runs() {
    std::vector<size_t> asked_for;
    for (size_t g = 0; g < gradients(); ++g)
      if (gradient(g).valid()) asked_for.push_back(g);
    const bool tells_gradients = asked_for.size() > 1 && asked_for.size() <= kMostGradients;
    if (tangents_ <= 1 && !tells_gradients) return;
    std::vector<uint64_t> leads(joint_.values().size());  // to which gradients, as bits
    for (size_t k = 0; k < asked_for.size() && tells_gradients; ++k)
      leads[gradient(asked_for[k]).index()] |= uint64_t{1} << k;
    asked_.resize(joint_.values().size());
    eager_reads_.resize(joint_.values().size());
    const auto add = [](Runs& all, const Runs& some) { all.insert(some.begin(), some.end()); };
    for (size_t n = joint_.nodes().size(); n-- > 0;) {
      const Node& node = joint_.nodes()[n];
      Runs runs;
      if (in_backward_[n]) {
        if (!is_wanted_[n]) continue;
        std::vector<uint64_t> run(words_ + 1);
        for (const ValueId id : node.outputs) {
          if (!id.valid()) continue;
          for (size_t w = 0; w < words_; ++w) run[w] |= word(id, w);
          run[words_] |= leads[id.index()];
        }
        graph::for_each_read(node, [&](ValueId id) { leads[id.index()] |= run[words_]; });
        runs.insert(std::move(run));
      } else if (is_wanted_[n] || may_repeat(node) || may_recompute(node)) {
        for (const ValueId id : node.outputs)
          if (id.valid()) add(runs, asked_[id.index()]);
      }
      if (runs.empty()) continue;
      graph::for_each_read(node, [&](ValueId id) {
        if (reads_tangent(id)) return;
        add(asked_[id.index()], runs);
        const bool is_eagers = is_wanted_[n] && n >= halves_.forward_nodes && !is_view(node);
        if (is_eagers) add(eager_reads_[viewed(id).index()], runs);
      });
    }
  }

  /// Who changes what eager keeps gets an error from the operators that read it, and from no others. So another value
  /// may be computed again of it only for runs in which one of those runs, too; and of what may change unnoticed, none.
  bool is_kept_for(ValueId kept, ValueId made) const {
    if (!is_read_directly_[kept.index()] || (maker(kept) && !is_shown_[kept.index()]) || is_constant(kept)) return true;
    if (!is_checked_[kept.index()]) return false;
    if (asked_.empty()) return true;
    const Runs& of_eager = eager_reads_[kept.index()];
    const auto covers = [&](const std::vector<uint64_t>& some) {
      return std::any_of(of_eager.begin(), of_eager.end(), [&](const std::vector<uint64_t>& all) {
        for (size_t w = 0; w <= words_; ++w)
          if (some[w] & ~all[w]) return false;
        return true;
      });
    };
    const Runs& asked = asked_[made.index()];
    return std::all_of(asked.begin(), asked.end(), covers);
  }

  /// The input that is this value when the backward runs, if keeping it costs nothing.
  size_t free_input(ValueId id) const {
    const size_t input = input_index_[id.index()], stored = store_of_[id.index()];
    if (input < halves_.inputs && !is_stored_to_[input]) return is_read_directly_[id.index()] ? input : Saved::kNone;
    if (stored < halves_.inputs && is_read_directly_[id.index()] &&
        joint_.value(id).type == joint_.value(joint_.inputs()[stored]).type)
      return stored;
    return Saved::kNone;
  }

  bool is_constant(ValueId id) const {
    return std::binary_search(joint_.constants().begin(), joint_.constants().end(), id);
  }

  /// The caller has its memory, and may write to it before the backward: eager does not keep it.
  bool may_change(ValueId id) const { return !is_read_directly_[id.index()] && (!maker(id) || is_shown_[id.index()]); }
  bool may_copy(ValueId id) const {
    const types::TensorType& type = joint_.value(id).type;
    const size_t input = input_index_[id.index()];
    const bool is_as_it_was = maker(id) || (input < halves_.inputs && !is_stored_to_[input]);
    return is_as_it_was && type.offset == types::Expr(0) && types::dense_strides(type) == type.strides;
  }

  // ---- the cut -----------------------------------------------------------------------------------------------------

  int64_t elements(ValueId id) const { return types::numel(joint_.value(id).type.sizes).evaluate(halves_.hints); }
  int64_t bytes(ValueId id) const {
    return elements(id) * static_cast<int64_t>(types::item_size(joint_.value(id).type.dtype));
  }

  /// Cheap: one element for each element of the result, no more of its arguments than of itself.
  bool may_repeat(const Node& node) const {
    const ops::Op* op = ops::find(node.op);
    if (!op || op->random || !op->writes.empty()) return false;
    if (op->view) return true;
    if (!op->body || op->may_raise_on_data) return false;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const ValueId id : node.outputs)
      if (id.valid()) least = std::min(least, elements(id));
    bool grows = true;
    graph::for_each_read(node, [&](ValueId id) { grows = grows && elements(id) <= least; });
    return grows;
  }

  void cut() {
    Network network;
    const size_t source = network.add_vertex(), sink = network.add_vertex();
    std::vector<size_t> vertex(joint_.values().size());  // the first of two, from 2; 0: not met
    std::vector<ValueId> waiting;
    const auto meet = [&](ValueId id) {
      if (vertex[id.index()]) return vertex[id.index()];
      vertex[id.index()] = network.add_vertex();
      network.add_vertex();
      waiting.push_back(id);
      return vertex[id.index()];
    };
    const auto is_there = [&](ValueId id) { return is_constant(id) || free_input(id) != Saved::kNone; };
    std::vector<bool> is_output(joint_.values().size());
    is_shown_.assign(joint_.values().size(), false);
    for (size_t o = 0; o < halves_.outputs; ++o) {
      if (!joint_.outputs[o].valid()) continue;
      is_output[joint_.outputs[o].index()] = true;
      is_shown_[joint_.outputs[o].index()] = is_shown_[viewed(joint_.outputs[o]).index()] = true;
    }
    const auto need = [&](ValueId id) {
      if (!reads_tangent(id) && !is_there(id)) network.add_edge(meet(id) + 1, sink, Network::kEndless);
    };
    for (size_t g = 0; g < gradients(); ++g)
      if (gradient(g).valid()) need(gradient(g));
    for (size_t n = 0; n < joint_.nodes().size(); ++n)
      if (in_backward_[n] && is_wanted_[n]) graph::for_each_read(joint_.nodes()[n], need);
    while (!waiting.empty()) {
      const ValueId id = waiting.back();
      waiting.pop_back();
      const size_t in = vertex[id.index()];
      const Node* node = maker(id);
      const NodeId made_by = joint_.value(id).maker;
      const bool is_the_forwards = node && (in_forward_[made_by.index()] || made_by.index() < halves_.forward_nodes);
      const bool is_made = is_the_forwards && !is_view(*node);
      const bool may_keep = may_change(id) ? may_copy(id) : is_made;
      const bool is_there_anyway = may_keep && is_output[id.index()] && is_read_directly_[id.index()];
      // What needs no copy comes first, then what the program has: it needs no operator of its own.
      const bool is_the_programs = !node || in_forward_[made_by.index()];
      const int64_t price = bytes(id) + may_change(id) + !is_the_programs;
      network.add_edge(in, in + 1, !may_keep ? Network::kEndless : is_there_anyway ? 0 : price);
      bool may_compute = node && (!in_forward_[made_by.index()] || may_repeat(*node));
      if (node && node->checkpoint && is_the_forwards)
        may_compute = is_view(*node) || (may_recompute(*node) && !leaves_region_[id.index()]);
      else if (may_compute && !is_view(*node))
        graph::for_each_read(*node, [&](ValueId read) { may_compute = may_compute && is_kept_for(viewed(read), id); });
      if (!may_compute || is_there_anyway) {
        network.add_edge(source, in, Network::kEndless);
        continue;
      }
      graph::for_each_read(*node, [&](ValueId read) {
        if (!is_there(read)) network.add_edge(meet(read) + 1, in, Network::kEndless);
      });
    }
    if (network.separate(source, sink) >= Network::kEndless)
      return stop("the backward reads an input as it was before it was written to");
    is_saved_.assign(joint_.values().size(), false);
    for (size_t v = 0; v < vertex.size(); ++v)
      if (vertex[v] && network.is_behind(vertex[v] + 1) && !network.is_behind(vertex[v])) is_saved_[v] = true;
  }

  void list_saved() {
    for (size_t v = 0; v < is_saved_.size(); ++v) {
      const ValueId id(v);
      if (const size_t input = free_input(id); input != Saved::kNone)
        made_.saved.push_back({.from = Saved::From::kInput, .index = input, .value = id, .is_checked = is_checked_[v]});
      else if (is_saved_[v])
        made_.saved.push_back({.from = Saved::From::kExtra, .index = 0, .value = id, .is_checked = is_checked_[v]});
    }
  }

  // ---- the halves --------------------------------------------------------------------------------------------------

  struct Half {
    Graph graph;
    std::vector<ValueId> renamed;
    std::vector<bool> nodes;
  };

  Half start() const {
    Half half;
    half.graph.conditions = joint_.conditions;
    half.renamed.resize(joint_.values().size());
    half.nodes.resize(joint_.nodes().size());
    return half;
  }

  void add_input(Half& half, ValueId id) const {
    half.renamed[id.index()] = half.graph.add_input(joint_.value(id).type, joint_.value(id).name);
  }

  /// Adds the nodes that were chosen, in order, the constants that they read, and the outputs.
  void fill(Half& half, std::span<const ValueId> outputs, std::vector<size_t>& constants) const {
    std::vector<bool> read(joint_.values().size());
    for (size_t n = 0; n < half.nodes.size(); ++n)
      if (half.nodes[n]) graph::for_each_read(joint_.nodes()[n], [&](ValueId id) { read[id.index()] = true; });
    for (const ValueId id : outputs)
      if (id.valid()) read[id.index()] = true;
    for (size_t c = 0; c < joint_.constants().size(); ++c) {
      const ValueId id = joint_.constants()[c];
      if (!read[id.index()]) continue;
      half.renamed[id.index()] = half.graph.add_constant(joint_.value(id).type);
      half.graph.value(half.renamed[id.index()]).name = joint_.value(id).name;
      constants.push_back(c);
    }
    for (const size_t n : in_order(half.nodes)) {
      Node copy = joint_.nodes()[n];
      for (Arg& arg : copy.args) {
        if (auto* one = std::get_if<ValueId>(&arg)) *one = renamed(half, *one);
        if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
          for (ValueId& id : *list) id = renamed(half, id);
      }
      for (ValueId& id : copy.outputs) {
        if (!id.valid()) continue;
        // An output that was saved is an input already; what comes out here is not used.
        const ValueId made = half.graph.add_value(joint_.value(id).type);
        if (!half.renamed[id.index()].valid()) half.renamed[id.index()] = made;
        id = made;
      }
      copy.place = half.graph.add_place(joint_.places().at(copy.place));
      half.graph.add_node(std::move(copy));
    }
    for (const ValueId id : outputs) half.graph.outputs.push_back(renamed(half, id));
  }

  /// The nodes that were chosen. What is computed again for a region comes just before it is needed.
  std::vector<size_t> in_order(const std::vector<bool>& chosen) const {
    std::vector<size_t> order, needed(chosen.size());
    bool has_regions = false;
    for (size_t n = 0; n < chosen.size(); ++n) {
      if (!chosen[n]) continue;
      order.push_back(n);
      has_regions = has_regions || (joint_.nodes()[n].checkpoint && n < halves_.forward_nodes);
    }
    if (!has_regions || !in_backward_[order.back()]) return order;
    for (const size_t n : order) needed[n] = in_backward_[n] ? n : chosen.size();
    for (size_t k = order.size(); k-- > 0;)
      graph::for_each_read(joint_.nodes()[order[k]], [&](ValueId id) {
        if (const NodeId node = joint_.value(id).maker; node.valid())
          needed[node.index()] = std::min(needed[node.index()], needed[order[k]]);
      });
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return needed[a] < needed[b]; });
    return order;
  }

  ValueId renamed(const Half& half, ValueId id) const {
    if (!id.valid()) return id;
    base::check(half.renamed[id.index()].valid(), "partition: %", id.index(), " is read before it is made");
    return half.renamed[id.index()];
  }

  void build_backward() {
    Half half = start();
    std::vector<bool> there(joint_.values().size()), read(joint_.values().size());
    for (const Saved& saved : made_.saved)
      if (saved.value.valid()) there[saved.value.index()] = true;
    for (size_t t = 0; t < tangents_; ++t) there[tangent(t).index()] = true;
    const auto want = [&](ValueId id) {
      read[id.index()] = true;
      if (there[id.index()] || is_constant(id)) return;
      const NodeId node = joint_.value(id).maker;
      if (!node.valid()) return stop("the backward needs an input that was not saved");
      if (in_forward_[node.index()] && !may_repeat(joint_.node(node)) && !may_recompute(joint_.node(node)))
        return stop(joint_.node(node).op, " gives what the backward needs, and it was not saved");
      half.nodes[node.index()] = true;
    };
    for (size_t g = 0; g < gradients(); ++g)
      if (gradient(g).valid()) want(gradient(g));
    for (size_t n = joint_.nodes().size(); n-- > 0;)
      if (half.nodes[n]) graph::for_each_read(joint_.nodes()[n], want);
    if (!made_.reason.empty()) return;

    if (!is_saved_.empty()) std::erase_if(made_.saved, [&](const Saved& saved) { return !read[saved.value.index()]; });
    for (Saved& saved : made_.saved) {
      saved.is_read = saved.value.valid() && read[saved.value.index()];
      if (saved.is_read) add_input(half, saved.value);
    }
    find_readers(half.nodes);
    for (size_t t = 0; t < tangents_; ++t) {
      if (!read[tangent(t).index()]) continue;
      made_.tangents.push_back(t);
      add_input(half, tangent(t));
    }
    fill(half, std::span(joint_.outputs).subspan(halves_.outputs), made_.backward_constants);
    made_.backward = std::move(half.graph);
  }

  void find_readers(const std::vector<bool>& nodes) {
    std::vector<std::set<std::vector<bool>>> of(joint_.values().size());
    for (size_t n = nodes.size(); n-- > 0;) {
      if (!nodes[n]) continue;
      std::set<std::vector<bool>> here;
      for (const ValueId id : joint_.nodes()[n].outputs) {
        if (!id.valid()) continue;
        if (in_backward_[n])
          here.insert(tangents_of(id));
        else
          here.insert(of[id.index()].begin(), of[id.index()].end());
      }
      graph::for_each_read(joint_.nodes()[n], [&](ValueId id) {
        if (!reads_tangent(id)) of[id.index()].insert(here.begin(), here.end());
      });
    }
    for (const Saved& saved : made_.saved) {
      auto& readers = made_.readers.emplace_back();
      if (saved.value.valid()) readers.assign(of[saved.value.index()].begin(), of[saved.value.index()].end());
    }
  }

  void build_forward() {
    Half half = start();
    for (size_t i = 0; i < halves_.inputs; ++i) add_input(half, joint_.inputs()[i]);
    std::vector<ValueId> extras;
    for (Saved& saved : made_.saved) {
      if (saved.from == Saved::From::kInput) continue;
      made_.bytes += bytes(saved.value);
      for (size_t o = 0; o < halves_.outputs && !may_change(saved.value); ++o) {
        const ValueId output = joint_.outputs[o];
        if (!output.valid()) continue;
        if (output == saved.value) {
          saved.from = Saved::From::kOutput;
          saved.index = o;
        } else if (viewed(output) == saved.value) {
          saved.shares = o;
        }
      }
      if (saved.from == Saved::From::kOutput) continue;
      saved.index = extras.size();
      extras.push_back(saved.value);
      if (const NodeId node = joint_.value(saved.value).maker; node.valid()) in_forward_[node.index()] = true;
    }
    close_forward();
    half.nodes = in_forward_;
    std::vector<ValueId> outputs(joint_.outputs.begin(),
                                 joint_.outputs.begin() + static_cast<ptrdiff_t>(halves_.outputs));
    outputs.insert(outputs.end(), extras.begin(), extras.end());
    fill(half, outputs, made_.forward_constants);
    for (size_t e = 0; e < extras.size(); ++e) {
      if (!may_change(extras[e])) continue;
      ValueId& kept = half.graph.outputs[halves_.outputs + e];
      const types::TensorType type = half.graph.value(kept).type;
      kept = ops::Expander(half.graph, {}, {}, {}).laid_out(kept, type);
    }
    for (const graph::Store& store : joint_.stores)
      half.graph.stores.push_back({renamed(half, store.value), renamed(half, store.into)});
    made_.forward = std::move(half.graph);
  }

  const Graph& joint_;
  const Halves& halves_;
  const size_t tangents_, words_;
  std::vector<uint64_t> reaches_;  ///< of each value: the tangents that it depends on, as bits
  std::vector<bool> in_backward_, in_forward_;
  std::vector<bool> is_wanted_;                 ///< of nodes that are not the forward's: a gradient needs it
  std::vector<size_t> input_index_, store_of_;  ///< of each value: the input that it is, the input it is stored to
  std::vector<bool> is_stored_to_, is_read_directly_, is_checked_, is_saved_;
  std::vector<bool> leaves_region_;  ///< made in a region of torch.utils.checkpoint, and read by others
  std::vector<bool> is_shown_;       ///< an output of the forward, or what one is a view of
  static constexpr size_t kMostGradients = 64;
  using Runs = std::set<std::vector<uint64_t>>;
  std::vector<Runs> asked_, eager_reads_;  ///< of each value, as bits of tangents, then of gradients: find_runs
  Partition made_;
};

}  // namespace

Partition partition(const Graph& joint, const Halves& halves) { return Partitioning(joint, halves).run(); }

Partition partition_again(const Graph& joint, const Halves& halves, const Graph& first, std::vector<Saved> saved) {
  const std::vector<ValueId> here = counterparts(first, joint);
  for (Saved& one : saved) one.value = here[one.value.index()];
  return Partitioning(joint, halves).run_again(std::move(saved));
}

}  // namespace magneto::autograd
