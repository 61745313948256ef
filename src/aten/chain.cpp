// aten/chain.cpp
#include "aten/chain_internal.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "aten/convert_internal.h"
#include "aten/copying_internal.h"
#include "aten/generators_internal.h"
#include "aten/operators_internal.h"
#include "aten/program.h"
#include "aten/undo.h"
#include "base/check.h"

namespace magneto::aten {

using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {

constexpr size_t kNever = static_cast<size_t>(-1);

// The elements, as Reading::Take wants them.
void append_numbers(const at::Tensor& tensor, std::vector<int64_t>& to) {
  const auto append = [&](const at::Scalar& number) {
    to.push_back(number.isFloatingPoint() ? std::bit_cast<int64_t>(number.toDouble()) : number.to<int64_t>());
  };
  if (tensor.numel() == 1) return append(tensor.item());
  const at::Tensor plain = tensor.detach().to(at::kCPU).reshape({-1});
  for (int64_t i = 0; i < plain.numel(); ++i) append(plain[i].item());
}

struct OtherNumbers : std::exception {
  const char* what() const noexcept override { return "numbers that are read are others than when it was recorded"; }
};

class Chain final : public Reading {
 public:
  Chain(std::shared_ptr<Program> whole, std::vector<Piece> pieces, std::vector<std::shared_ptr<Executable>> executables)
      : whole_(std::move(whole)), pieces_(std::move(pieces)), executables_(std::move(executables)) {
    const Graph& graph = whole_->graph();
    last_reader_.assign(graph.values().size(), kNever);
    for (size_t p = 0; p < pieces_.size(); ++p) {
      for (const ValueId id : pieces_[p].inputs) last_reader_[id.index()] = p;
      for (const Piece::Read& read : pieces_[p].reads) last_reader_[read.tensor.index()] = p;
    }
    for (const ValueId id : graph.outputs)
      if (id.valid()) last_reader_[id.index()] = kNever;
    for (size_t i = 0; i < graph.inputs().size(); ++i)
      if (is_read_before_reads(graph.inputs()[i])) before_reads_.push_back(i);
    size_t nodes = 0;
    for (const Piece& piece : pieces_) {
      if (nodes <= undo_.last_refusal) last_refusal_ = changes_.size();
      nodes += piece.program->graph().nodes().size() + piece.reads.size();
      changes_.push_back(piece.program->writes_inputs());
      draws_on_.push_back(random_devices(piece.program->graph()));
    }
  }

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override {
    return run(inputs, symbols, outputs, [](size_t, std::span<const int64_t>) -> bool {
      throw base::Fault("chain: nobody takes the numbers that it reads");
    });
  }

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs,
              const Take& take) const override {
    const Graph& graph = whole_->graph();
    std::optional<Undo> undo;
    if (!undo_.inputs.empty() && (undo_.is_complete || reads_)) undo.emplace(undo_, inputs);
    // The history of a view is its base's: it cannot be put back. Who records such a call ends before the read.
    if (undo && undo->keeps_views() &&
        std::any_of(before_reads_.begin(), before_reads_.end(), [&](size_t i) { return inputs[i].requires_grad(); }))
      return {std::make_exception_ptr(OtherNumbers()), 0, false, /*missed=*/true};
    std::vector<at::Tensor> values(graph.values().size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = std::move(inputs[i]);
    for (size_t c = 0; c < whole_->constants().size(); ++c)
      values[graph.constants()[c].index()] = whole_->constants()[c];
    std::vector<at::Tensor> given;
    c10::SmallVector<at::Tensor, 16> made;
    bool changed = false;
    Drawn drawn;
    size_t reads = 0;
    std::vector<int64_t> numbers;
    for (size_t p = 0; p < pieces_.size(); ++p) {
      given.clear();
      made.clear();
      for (const ValueId id : pieces_[p].inputs) {
        at::Tensor& value = values[id.index()];
        const bool is_read = std::any_of(pieces_[p].reads.begin(), pieces_[p].reads.end(),
                                         [&](const Piece::Read& read) { return read.tensor == id; });
        if (last_reader_[id.index()] == p && !is_read)
          given.push_back(std::move(value));
        else
          given.push_back(value);
      }
      for (const c10::Device device : draws_on_[p]) drawn.note(device);
      Failure failure;
      if (executables_[p])
        failure = (fits(pieces_[p], given) ? *executables_[p] : *pieces_[p].program).run(given, symbols, made);
      if (failure.error) {
        // What a piece has written may be memory that one before it made.
        const bool is_untouched = !whole_->writes_inputs() || (!failure.changed && !changed);
        const bool is_kept = undo_.is_complete || p < last_refusal_ || (p == last_refusal_ && !failure.changed);
        const bool taken_back = undo && is_kept ? undo->take_back() : is_untouched;
        failure.changed = !taken_back || !drawn.take_back();
        return failure;
      }
      changed = changed || changes_[p];
      for (size_t o = 0; o < made.size(); ++o) values[pieces_[p].outputs[o].index()] = std::move(made[o]);
      for (const Piece::Read& read : pieces_[p].reads) {
        numbers.clear();
        if (const at::Tensor& tensor = values[read.tensor.index()]; read.dim < 0)
          append_numbers(tensor, numbers);
        else
          numbers.push_back(tensor.size(read.dim));
        if (take(reads++, numbers)) continue;
        const bool taken_back = !undo || undo->take_back();  // all that was written before a read is kept there
        return {std::make_exception_ptr(OtherNumbers()), 0, !taken_back || !drawn.take_back(), /*missed=*/true};
      }
      for (const Piece::Read& read : pieces_[p].reads)
        if (last_reader_[read.tensor.index()] == p) values[read.tensor.index()] = at::Tensor();
    }
    for (const ValueId id : graph.outputs) outputs.push_back(id.valid() ? values[id.index()] : at::Tensor());
    return {};
  }

  bool writes_inputs() const override { return whole_->writes_inputs(); }

 private:
  /// Whether the inputs need gradients as those did for which the piece was compiled.
  static bool fits(const Piece& piece, std::span<const at::Tensor> inputs) {
    for (size_t i = 0; i < piece.needs_gradient.size(); ++i)
      if (inputs[i].requires_grad() != piece.needs_gradient[i]) return false;
    return true;
  }

  /// By a piece after which a number is read, now or later.
  bool is_read_before_reads(ValueId id) const {
    const auto last = std::find_if(pieces_.rbegin(), pieces_.rend(), [](const Piece& p) { return !p.reads.empty(); });
    return std::any_of(last, pieces_.rend(), [&](const Piece& piece) {
      return std::find(piece.inputs.begin(), piece.inputs.end(), id) != piece.inputs.end();
    });
  }

  const std::shared_ptr<Program> whole_;
  const std::vector<Piece> pieces_;
  const std::vector<std::shared_ptr<Executable>> executables_;
  const Undo::Plan undo_ = undo_plan(whole_->graph());
  const bool reads_ = reads_numbers(whole_->graph());
  std::vector<size_t> before_reads_;                ///< the inputs of what stands before the last read
  size_t last_refusal_ = 0;                         ///< the piece of Undo::Plan::last_refusal
  std::vector<bool> changes_;                       ///< of each piece: it writes to inputs
  std::vector<std::vector<c10::Device>> draws_on_;  ///< of each piece
  std::vector<size_t> last_reader_;                 ///< of each value: the piece after which nobody needs it
};

// Whether it makes a view in torch's eyes, of one tensor.
bool looks(const Graph& graph, const Node& node) {
  const Way way = operator_named(node.op).way;
  return (way == Way::kView || way == Way::kRestride) && !node.outputs.empty() && node.outputs[0].valid() &&
         is_view(graph, node.outputs[0]) && viewed_by(node).valid();
}

// The view that t_() and its like turn a view into: another tensor, so that nobody's version is counted.
Node as_view(Node node) {
  if (const Operator& op = operator_named(node.op); op.way == Way::kRestride) node.op = op.declared->functional;
  return node;
}

// The program of enter_at().
class Entering {
 public:
  Entering(const Program& program, std::span<const Entry> entries, std::span<const Entry> known)
      : from_(program.graph()), entries_(entries), known_(known), copy_(from_), last_read_(from_.values().size()) {
    copy_.graph.conditions = from_.conditions;
    for (const ValueId id : from_.inputs()) copy_.add_input(id);
    for (const Entry& entry : entries) given_.push_back(copy_.graph.add_input(from_.value(entry.value).type, ""));
    for (const Entry& entry : known) numbers_.push_back(copy_.graph.add_input(from_.value(entry.value).type, ""));
    for (const ValueId id : from_.constants()) copy_.add_constant(id);
    for (size_t n = 0; n < from_.nodes().size(); ++n)
      graph::for_each_read(from_.nodes()[n], [&](ValueId id) { last_read_[id.index()] = n; });
  }

  Graph run(const std::vector<bool>& idle, std::span<const ValueId> outputs) {
    for (size_t n = 0; n <= from_.nodes().size(); ++n) {
      for (size_t k = 0; k < known_.size(); ++k)
        if (known_[k].complete == n) put(copy_.renamed.at(known_[k].value), numbers_[k]);
      for (size_t e = 0; e < entries_.size(); ++e)
        if (entries_[e].history_complete == n) enter(entries_[e], given_[e]);
      for (const Entry& entry : entries_)
        if (entry.history_complete == n && !is_view(from_, entry.value)) look_again(entry);
      if (n == from_.nodes().size()) break;
      const Node& node = from_.nodes()[n];
      if (idle[n])
        for (const ValueId id : node.outputs) copy_.add_zeros(id);
      else if (!node.outputs.empty() || operator_named(node.op).writes_anything)
        copy_.add_node(node);
    }
    for (const ValueId id : outputs) {
      const auto entered = computed_.find(id);
      copy_.graph.outputs.push_back(entered == computed_.end() ? copy_.renamed.at(id) : entered->second);
    }
    return std::move(copy_.graph);
  }

 private:
  void put(ValueId into, ValueId value) {
    const ValueId data = copy_.graph.add_value(copy_.graph.value(into).type);
    copy_.graph.add_node({.op = "aten::data", .args = {into}, .outputs = {data}, .grad = false});
    copy_.graph.add_node({.op = "aten::copy_", .args = {data, value, false}, .outputs = {data}, .grad = false});
  }

  void enter(const Entry& entry, ValueId given) {
    ValueId& name = copy_.renamed.at(entry.value);
    const ValueId own = computed_[entry.value] = name;
    name = given;
    if (entry.history_complete == entry.complete) return;
    name = copy_.graph.add_value(from_.value(entry.value).type);
    copy_.graph.add_node({.op = "aten::clone", .args = {given, graph::Arg()}, .outputs = {name}});
    put(name, own);
  }

  // As torch does: after a write, older views of what was written to have the history that it has now.
  void look_again(const Entry& entry) {
    std::unordered_map<ValueId, ValueId> names = {{entry.value, copy_.renamed.at(entry.value)}};
    std::vector<ValueId> before;  // what it was before t_()
    for (ValueId id = entry.value; from_.value(id).maker.valid();) {
      const Node& maker = from_.node(from_.value(id).maker);
      if (operator_named(maker.op).way != Way::kRestride) break;
      before.push_back(id = viewed_by(maker));
    }
    std::vector<size_t> views;
    std::unordered_set<ValueId> seen(before.begin(), before.end());
    seen.insert(entry.value);
    const graph::NodeId first = from_.value(before.empty() ? entry.value : before.back()).maker;
    for (size_t n = first.valid() ? first.index() + 1 : 0; n < entry.history_complete; ++n) {
      const Node& node = from_.nodes()[n];
      if (!looks(from_, node) || !seen.count(viewed_by(node))) continue;
      views.push_back(n);
      for (const ValueId id : node.outputs) seen.insert(id);
    }
    std::unordered_set<ValueId> needed;
    for (size_t v = views.size(); v-- > 0;) {
      const Node& node = from_.nodes()[views[v]];
      const auto is_needed = [&](ValueId id) {
        return id.valid() && (needed.count(id) || last_read_[id.index()] >= entry.history_complete);
      };
      if (std::any_of(node.outputs.begin(), node.outputs.end(), is_needed))
        needed.insert(viewed_by(node));
      else
        views.erase(views.begin() + static_cast<std::ptrdiff_t>(v));
    }
    for (const ValueId id : before) {
      if (!needed.count(id)) continue;
      const types::TensorType& type = from_.value(id).type;
      copy_.graph.add_node({.op = "aten::as_strided",
                            .args = {names.at(entry.value), type.sizes, type.strides, type.offset},
                            .outputs = {names[id] = copy_.graph.add_value(type)}});
    }
    for (const size_t n : views) {
      Node view = as_view(from_.nodes()[n]);
      view.grad = true;
      copy_.add_node(std::move(view), names);
      for (const ValueId id : from_.nodes()[n].outputs)
        if (id.valid() && !computed_.count(id)) copy_.renamed.at(id) = names.at(id);
    }
  }

  const Graph& from_;
  const std::span<const Entry> entries_, known_;
  Copying copy_;
  std::vector<ValueId> given_, numbers_;           ///< inputs: of the entries, of what is known
  std::vector<size_t> last_read_;                  ///< of each value: by which node
  std::unordered_map<ValueId, ValueId> computed_;  ///< of entries: what the program itself computes
};

}  // namespace

std::vector<Piece> cut_into_pieces(const Program& program, const std::vector<size_t>& cuts) {
  const Graph& from = program.graph();
  std::vector<size_t> ends = cuts;
  ends.push_back(from.nodes().size());
  std::vector<size_t> made_in(from.values().size(), kNever), last_read(from.values().size(), 0);
  const auto piece_of = [&](size_t node) {
    size_t piece = 0;
    while (node >= ends[piece]) ++piece;
    return piece;
  };
  for (size_t n = 0; n < from.nodes().size(); ++n) {
    const size_t piece = piece_of(n) + (is_read(from.nodes()[n]) ? 1 : 0);
    graph::for_each_read(from.nodes()[n], [&](ValueId id) { last_read[id.index()] = piece; });
    for (const ValueId id : from.nodes()[n].outputs)
      if (id.valid() && from.value(id).maker == graph::NodeId(n)) made_in[id.index()] = piece_of(n);
  }
  for (const ValueId id : from.outputs)
    if (id.valid()) last_read[id.index()] = ends.size();

  std::vector<Piece> pieces;
  for (size_t p = 0; p < ends.size(); ++p) {
    const size_t begin = p == 0 ? 0 : ends[p - 1];
    Piece piece;
    Copying copy(from);
    copy.graph.conditions = from.conditions;
    std::vector<bool> read(from.values().size());
    for (size_t n = begin; n < ends[p]; ++n)
      if (const Node& node = from.nodes()[n]; is_read(node))
        piece.reads.push_back({std::get<ValueId>(node.args[0]),
                               node.op == kReadSize ? std::get<types::Expr>(node.args[1]).value_or(0) : -1});
      else
        graph::for_each_read(node, [&](ValueId id) { read[id.index()] = true; });
    std::vector<ValueId> constants;
    std::vector<at::Tensor> tensors;
    for (size_t v = 0; v < from.values().size(); ++v) {
      const ValueId id(v);
      if (!read[v] || made_in[v] == p) continue;
      const auto constant = std::lower_bound(from.constants().begin(), from.constants().end(), id);
      if (constant != from.constants().end() && *constant == id) {
        constants.push_back(id);
        tensors.push_back(program.constants()[static_cast<size_t>(constant - from.constants().begin())]);
        continue;
      }
      copy.add_input(id);
      piece.inputs.push_back(id);
    }
    for (const ValueId id : constants) copy.add_constant(id);
    for (size_t n = begin; n < ends[p]; ++n)
      if (!is_read(from.nodes()[n])) copy.add_node(from.nodes()[n]);
    for (size_t v = 0; v < from.values().size(); ++v)
      if (made_in[v] == p && last_read[v] > p) {
        piece.outputs.push_back(ValueId(v));
        copy.graph.outputs.push_back(copy.renamed.at(ValueId(v)));
      }
    piece.program = std::make_shared<Program>(std::move(copy.graph), std::move(tensors));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

at::Tensor example_of(const types::TensorType& type, std::span<const int64_t> hints, bool requires_grad) {
  c10::AutoGradMode grad_mode(true);
  const auto [sizes, strides] = extents_of(type, hints);
  at::Tensor made = at::empty_strided(sizes, strides, at::TensorOptions(c10::kMeta).dtype(to_scalar_type(type.dtype)));
  return requires_grad ? made.set_requires_grad(true).alias() : made;
}

std::unique_ptr<Program> enter_at(const Program& program, std::span<const Entry> entries, std::span<const Entry> known,
                                  const std::vector<bool>& idle, std::span<const ValueId> outputs) {
  return std::make_unique<Program>(Entering(program, entries, known).run(idle, outputs), program.constants());
}

std::shared_ptr<Reading> make_chain(std::shared_ptr<Program> whole, std::vector<Piece> pieces,
                                    std::vector<std::shared_ptr<Executable>> executables) {
  base::check(pieces.size() == executables.size(), "chain: ", executables.size(), " executables for ", pieces.size(),
              " pieces");
  return std::make_shared<Chain>(std::move(whole), std::move(pieces), std::move(executables));
}

}  // namespace magneto::aten
