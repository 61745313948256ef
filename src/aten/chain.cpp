// aten/chain.cpp
#include "aten/chain_internal.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

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

class Chain final : public Executable {
 public:
  Chain(std::shared_ptr<Program> whole, std::vector<Piece> pieces, std::vector<std::shared_ptr<Executable>> executables)
      : whole_(std::move(whole)), pieces_(std::move(pieces)), executables_(std::move(executables)) {
    const Graph& graph = whole_->graph();
    last_reader_.assign(graph.values().size(), kNever);
    for (size_t p = 0; p < pieces_.size(); ++p)
      for (const ValueId id : pieces_[p].inputs) last_reader_[id.index()] = p;
    for (const ValueId id : graph.outputs)
      if (id.valid()) last_reader_[id.index()] = kNever;
    for (const Piece& piece : pieces_) {
      changes_.push_back(piece.program->writes_inputs());
      draws_on_.push_back(random_devices(piece.program->graph()));
    }
  }

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override {
    const Graph& graph = whole_->graph();
    std::optional<Undo> undo;
    if (!undo_.inputs.empty() && undo_.is_complete) undo.emplace(undo_, inputs);
    std::vector<at::Tensor> values(graph.values().size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = std::move(inputs[i]);
    for (size_t c = 0; c < whole_->constants().size(); ++c)
      values[graph.constants()[c].index()] = whole_->constants()[c];
    std::vector<at::Tensor> given;
    c10::SmallVector<at::Tensor, 16> made;
    bool changed = false;
    Drawn drawn;
    for (size_t p = 0; p < pieces_.size(); ++p) {
      given.clear();
      made.clear();
      for (const ValueId id : pieces_[p].inputs) {
        at::Tensor& value = values[id.index()];
        if (last_reader_[id.index()] == p)
          given.push_back(std::move(value));
        else
          given.push_back(value);
      }
      for (const c10::Device device : draws_on_[p]) drawn.note(device);
      Failure failure = executables_[p]->run(given, symbols, made);
      if (failure.error) {
        failure.changed = (undo ? !undo->take_back() : failure.changed || changed) || !drawn.take_back();
        return failure;
      }
      changed = changed || changes_[p];
      for (size_t o = 0; o < made.size(); ++o) values[pieces_[p].outputs[o].index()] = std::move(made[o]);
    }
    for (const ValueId id : graph.outputs) outputs.push_back(id.valid() ? values[id.index()] : at::Tensor());
    return {};
  }

  bool writes_inputs() const override { return whole_->writes_inputs(); }

 private:
  const std::shared_ptr<Program> whole_;
  const std::vector<Piece> pieces_;
  const std::vector<std::shared_ptr<Executable>> executables_;
  const Undo::Plan undo_ = undo_plan(whole_->graph());
  std::vector<bool> changes_;                       ///< of each piece: it writes to inputs
  std::vector<std::vector<c10::Device>> draws_on_;  ///< of each piece
  std::vector<size_t> last_reader_;                 ///< of each value: the piece after which nobody needs it
};

// Copies nodes into another graph. What is read must have a name there.
class Copying {
 public:
  explicit Copying(const Graph& from) : from_(from) { graph.conditions = from.conditions; }

  void add_input(ValueId id) { renamed[id] = graph.add_input(from_.value(id).type, from_.value(id).name); }
  void add_constant(ValueId id) { renamed[id] = graph.add_constant(from_.value(id).type); }
  void add_node(const Node& node) {
    Node copy = node;
    for (graph::Arg& arg : copy.args) {
      if (auto* one = std::get_if<ValueId>(&arg); one && one->valid()) *one = renamed.at(*one);
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
        for (ValueId& id : *list)
          if (id.valid()) id = renamed.at(id);
    }
    for (ValueId& id : copy.outputs) {
      if (!id.valid()) continue;
      if (!renamed.count(id)) renamed[id] = graph.add_value(from_.value(id).type);
      id = renamed.at(id);
    }
    copy.place = graph.add_place(from_.places().at(copy.place));
    graph.add_node(std::move(copy));
  }
  /// In the place of a node that makes this value; nothing for what is there already.
  void add_zeros(ValueId id) {
    if (!id.valid() || renamed.count(id)) return;
    const types::TensorType& type = from_.value(id).type;
    const ValueId made = renamed[id] = graph.add_value(type);
    const auto add = [&](std::string op, std::vector<graph::Arg> args) {
      graph.add_node({.op = std::move(op), .args = std::move(args), .outputs = {made}, .grad = false});
    };
    add("aten::empty_strided", {type.sizes, type.strides, type.dtype, graph::Arg(), type.device, graph::Arg()});
    add("aten::zero_", {made});
  }

  Graph graph;
  std::unordered_map<ValueId, ValueId> renamed;

 private:
  const Graph& from_;
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
    const size_t piece = piece_of(n);
    graph::for_each_read(from.nodes()[n], [&](ValueId id) { last_read[id.index()] = piece; });
    for (const ValueId id : from.nodes()[n].outputs)
      if (id.valid() && from.value(id).maker == graph::NodeId(n)) made_in[id.index()] = piece;
  }
  for (const ValueId id : from.outputs)
    if (id.valid()) last_read[id.index()] = ends.size();

  std::vector<Piece> pieces;
  for (size_t p = 0; p < ends.size(); ++p) {
    const size_t begin = p == 0 ? 0 : ends[p - 1];
    Piece piece;
    Copying copy(from);
    std::vector<bool> read(from.values().size());
    for (size_t n = begin; n < ends[p]; ++n)
      graph::for_each_read(from.nodes()[n], [&](ValueId id) { read[id.index()] = true; });
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
    for (size_t n = begin; n < ends[p]; ++n) copy.add_node(from.nodes()[n]);
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

std::unique_ptr<Program> enter_at(const Program& program, std::span<const Entry> entries, std::span<const Entry> known,
                                  const std::vector<bool>& idle, std::span<const ValueId> outputs) {
  const Graph& from = program.graph();
  Copying copy(from);
  for (const ValueId id : from.inputs()) copy.add_input(id);
  std::vector<ValueId> given, numbers;
  for (const Entry& entry : entries) given.push_back(copy.graph.add_input(from.value(entry.value).type, ""));
  for (const Entry& entry : known) numbers.push_back(copy.graph.add_input(from.value(entry.value).type, ""));
  const auto put = [&](ValueId into, ValueId value) {
    const ValueId data = copy.graph.add_value(copy.graph.value(into).type);
    copy.graph.add_node({.op = "aten::data", .args = {into}, .outputs = {data}, .grad = false});
    copy.graph.add_node({.op = "aten::copy_", .args = {data, value, false}, .outputs = {data}, .grad = false});
  };
  for (const ValueId id : from.constants()) copy.add_constant(id);
  std::unordered_map<ValueId, ValueId> computed;
  for (size_t n = 0; n <= from.nodes().size(); ++n) {
    for (size_t k = 0; k < known.size(); ++k)
      if (known[k].complete == n) put(copy.renamed.at(known[k].value), numbers[k]);
    for (size_t e = 0; e < entries.size(); ++e)
      if (entries[e].complete == n)
        computed[entries[e].value] = std::exchange(copy.renamed.at(entries[e].value), given[e]);
    if (n == from.nodes().size()) break;
    const Node& node = from.nodes()[n];
    if (idle[n])
      for (const ValueId id : node.outputs) copy.add_zeros(id);
    else if (!node.outputs.empty() || operator_named(node.op).writes_anything)
      copy.add_node(node);
  }
  for (const ValueId id : outputs) {
    const auto entered = computed.find(id);
    copy.graph.outputs.push_back(entered == computed.end() ? copy.renamed.at(id) : entered->second);
  }
  return std::make_unique<Program>(std::move(copy.graph), program.constants());
}

std::shared_ptr<Executable> make_chain(std::shared_ptr<Program> whole, std::vector<Piece> pieces,
                                       std::vector<std::shared_ptr<Executable>> executables) {
  base::check(pieces.size() == executables.size(), "chain: ", executables.size(), " executables for ", pieces.size(),
              " pieces");
  return std::make_shared<Chain>(std::move(whole), std::move(pieces), std::move(executables));
}

}  // namespace magneto::aten
