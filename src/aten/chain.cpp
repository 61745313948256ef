// aten/chain.cpp
#include "aten/chain_internal.h"

#include <algorithm>
#include <unordered_map>

#include "aten/operators_internal.h"
#include "aten/program.h"
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
      const auto& nodes = piece.program->graph().nodes();
      changes_.push_back(
          piece.program->writes_inputs() ||
          std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return operator_named(node.op).random; }));
    }
  }

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override {
    const Graph& graph = whole_->graph();
    std::vector<at::Tensor> values(graph.values().size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = std::move(inputs[i]);
    for (size_t c = 0; c < whole_->constants().size(); ++c)
      values[graph.constants()[c].index()] = whole_->constants()[c];
    std::vector<at::Tensor> given;
    c10::SmallVector<at::Tensor, 16> made;
    bool changed = false;
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
      Failure failure = executables_[p]->run(given, symbols, made);
      if (failure.error) {
        failure.changed = failure.changed || changed;
        return failure;
      }
      changed = changed || changes_[p];
      for (size_t o = 0; o < made.size(); ++o) values[pieces_[p].outputs[o].index()] = std::move(made[o]);
    }
    for (const ValueId id : graph.outputs) outputs.push_back(id.valid() ? values[id.index()] : at::Tensor());
    return {};
  }

  bool writes_inputs() const override { return whole_->writes_inputs(); }
  std::span<const std::shared_ptr<Executable>> executables() const { return executables_; }

 private:
  const std::shared_ptr<Program> whole_;
  const std::vector<Piece> pieces_;
  const std::vector<std::shared_ptr<Executable>> executables_;
  std::vector<bool> changes_;        ///< of each piece: it cannot be run again
  std::vector<size_t> last_reader_;  ///< of each value: the piece after which nobody needs it
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
    Graph graph;
    graph.conditions = from.conditions;
    std::vector<bool> read(from.values().size());
    for (size_t n = begin; n < ends[p]; ++n)
      graph::for_each_read(from.nodes()[n], [&](ValueId id) { read[id.index()] = true; });
    std::unordered_map<ValueId, ValueId> renamed;
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
      renamed[id] = graph.add_input(from.value(id).type, from.value(id).name);
      piece.inputs.push_back(id);
    }
    for (const ValueId id : constants) renamed[id] = graph.add_constant(from.value(id).type);
    for (size_t n = begin; n < ends[p]; ++n) {
      Node copy = from.nodes()[n];
      for (graph::Arg& arg : copy.args) {
        if (auto* one = std::get_if<ValueId>(&arg); one && one->valid()) *one = renamed.at(*one);
        if (auto* list = std::get_if<std::vector<ValueId>>(&arg))
          for (ValueId& id : *list)
            if (id.valid()) id = renamed.at(id);
      }
      for (ValueId& id : copy.outputs) {
        if (!id.valid()) continue;
        if (!renamed.count(id)) renamed[id] = graph.add_value(from.value(id).type);
        id = renamed.at(id);
      }
      copy.place = graph.add_place(from.places().at(copy.place));
      graph.add_node(std::move(copy));
    }
    for (size_t v = 0; v < from.values().size(); ++v)
      if (made_in[v] == p && last_read[v] > p) {
        piece.outputs.push_back(ValueId(v));
        graph.outputs.push_back(renamed.at(ValueId(v)));
      }
    piece.program = std::make_shared<Program>(std::move(graph), std::move(tensors));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::shared_ptr<Executable> make_chain(std::shared_ptr<Program> whole, std::vector<Piece> pieces,
                                       std::vector<std::shared_ptr<Executable>> executables) {
  base::check(pieces.size() == executables.size(), "chain: ", executables.size(), " executables for ", pieces.size(),
              " pieces");
  return std::make_shared<Chain>(std::move(whole), std::move(pieces), std::move(executables));
}

std::span<const std::shared_ptr<Executable>> pieces_of(const Executable& executable) {
  const auto* chain = dynamic_cast<const Chain*>(&executable);
  return chain ? chain->executables() : std::span<const std::shared_ptr<Executable>>();
}

}  // namespace magneto::aten
