#include "aten/reading.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/chain_internal.h"
#include "aten/early.h"
#include "aten/joint.h"
#include "aten/operators_internal.h"
#include "aten/program.h"
#include "aten/undo.h"

namespace magneto::aten {

using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {

void read_nothing(const at::Tensor&, at::IntArrayRef) {}
void read_no_size(const at::Tensor&, int64_t, at::IntArrayRef) {}

/// Whether all symbols of the condition have their values after so many reads.
bool is_known(const types::Condition& condition, size_t reads, const std::vector<size_t>& read_at) {
  std::vector<uint32_t> symbols;
  condition.left.collect_symbols(symbols);
  condition.right.collect_symbols(symbols);
  return std::all_of(symbols.begin(), symbols.end(),
                     [&](uint32_t symbol) { return symbol >= read_at.size() || read_at[symbol] <= reads; });
}

/// Counts of nodes, after each row of reads. What has a size that is read is a piece of its own: no plan has memory for
/// it.
std::vector<size_t> cuts_of(const Graph& graph) {
  std::vector<size_t> cuts;
  const auto reads = [&](size_t n) { return n < graph.nodes().size() && is_read(graph.nodes()[n]); };
  const auto cut = [&](size_t n) {
    if (n > 0 && (cuts.empty() || cuts.back() < n)) cuts.push_back(n);
  };
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (!reads(n) && reads(n + 1) && graph.nodes()[n + 1].op == kReadSize) cut(n);
    if (reads(n) && !reads(n + 1)) cut(n + 1);
  }
  return cuts;
}

/// The tensors of a program as its pieces meet them: no data, and a history where they have one.
class Examples {
 public:
  Examples(const Program& whole, std::span<const at::Tensor> inputs, std::span<const int64_t> hints)
      : graph_(whole.graph()), hints_(hints), needs_gradient_(graph_.values().size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs_.emplace_back(graph_.inputs()[i], inputs[i]);
      needs_gradient_[graph_.inputs()[i].index()] = inputs[i].requires_grad();
    }
  }

  std::vector<at::Tensor> of(const Piece& piece) const {
    std::vector<at::Tensor> made;
    for (const ValueId id : piece.inputs) made.push_back(example(id));
    return made;
  }

  /// Which of its results have a history, as torch has it.
  void follow(const Piece& piece, std::span<const at::Tensor> examples) {
    if (std::none_of(examples.begin(), examples.end(), [](const at::Tensor& t) { return t.requires_grad(); })) return;
    const Joint joint = make_joint(*piece.program, examples, {.pieces = true});
    const Graph& own = piece.program->graph();
    const bool is_known = joint.reason.empty();
    const auto set = [&](ValueId id, ValueId in_piece, bool may_need) {
      may_need = may_need && at::isFloatingType(to_scalar_type(graph_.value(id).type.dtype));
      needs_gradient_[id.index()] = is_known ? joint.requires_grad[in_piece.index()] : may_need;
    };
    for (size_t o = 0; o < piece.outputs.size(); ++o)
      set(piece.outputs[o], own.outputs[o], joint.reason != Joint::kNoGradient);
    if (!piece.program->writes_inputs()) return;
    for (size_t i = 0; i < piece.inputs.size(); ++i)
      set(piece.inputs[i], own.inputs()[i], true);  // it has another history
  }

 private:
  at::Tensor example(ValueId id) const {
    for (const auto& [input, tensor] : inputs_)
      if (input == id && tensor.requires_grad() == needs_gradient_[id.index()]) return tensor;
    return example_of(graph_.value(id).type, hints_, needs_gradient_[id.index()]);
  }

  const Graph& graph_;
  const std::span<const int64_t> hints_;
  std::vector<std::pair<ValueId, at::Tensor>> inputs_;
  std::vector<bool> needs_gradient_;
};

}  // namespace

void read_numbers(const at::Tensor& tensor, at::IntArrayRef symbols) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("magneto::read", "")
                             .typed<void(const at::Tensor&, at::IntArrayRef)>();
  op.call(tensor, symbols);
}

bool reads_numbers(const Graph& graph) { return std::any_of(graph.nodes().begin(), graph.nodes().end(), is_read); }

static std::shared_ptr<Reading> make_pieces(const std::shared_ptr<Program>& program,
                                            std::span<const at::Tensor> examples, std::span<const int64_t> hints,
                                            const std::vector<size_t>& read_at, const CompilePiece& compile) {
  std::vector<Piece> pieces = cut_into_pieces(*program, cuts_of(program->graph()));
  std::vector<std::shared_ptr<Executable>> executables;
  Examples known(*program, examples, hints);
  size_t reads = 0;
  for (Piece& piece : pieces) {
    Graph graph = piece.program->graph();
    std::erase_if(graph.conditions,
                  [&](const types::Condition& condition) { return !is_known(condition, reads, read_at); });
    reads += piece.reads.size();
    const bool has_own_size =
        std::any_of(piece.reads.begin(), piece.reads.end(), [](const Piece::Read& read) { return read.dim >= 0; });
    if (has_own_size)  // what it gives is nothing that its type could tell
      for (const ValueId id : graph.outputs)
        for (types::Expr& size : graph.value(id).type.sizes) size = types::Expr(size.evaluate(hints));
    piece.program = std::make_shared<Program>(std::move(graph), piece.program->constants());
    piece.program->set_hints(hints);
    if (piece.program->graph().nodes().empty()) {
      executables.push_back(nullptr);
      continue;
    }
    const std::vector<at::Tensor> inputs = known.of(piece);
    for (const at::Tensor& input : inputs) piece.needs_gradient.push_back(input.requires_grad());
    executables.push_back(has_own_size ? piece.program : compile(piece.program, inputs));
    known.follow(piece, inputs);
  }
  return make_chain(program, std::move(pieces), std::move(executables));
}

namespace {

/// Numbers are read before what does not need them, unless inputs share memory that nobody said they share.
class EarlyReading final : public Reading {
 public:
  EarlyReading(Apart apart, std::shared_ptr<Reading> early, std::shared_ptr<Reading> in_order)
      : apart_(std::move(apart)), early_(std::move(early)), in_order_(std::move(in_order)) {}
  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override {
    return chosen(inputs).run(inputs, symbols, outputs);
  }
  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs,
              const Take& take) const override {
    return chosen(inputs).run(inputs, symbols, outputs, take);
  }
  bool writes_inputs() const override { return in_order_->writes_inputs(); }

 private:
  const Reading& chosen(std::span<const at::Tensor> inputs) const {
    return *(apart_.holds(inputs) ? early_ : in_order_);
  }
  const Apart apart_;
  const std::shared_ptr<Reading> early_, in_order_;
};

}  // namespace

std::shared_ptr<Reading> make_reading(const std::shared_ptr<Program>& program, std::span<const at::Tensor> examples,
                                      std::span<const int64_t> hints, const std::vector<size_t>& read_at,
                                      const CompilePiece& compile) {
  std::optional<EarlyReads> early;
  if (!Reversible().look(program->graph())) early = with_early_reads(program->graph(), read_at);
  if (!early) return make_pieces(program, examples, hints, read_at, compile);
  const auto as_it_is = [](const std::shared_ptr<Program>& piece, std::span<const at::Tensor>) { return piece; };
  auto reordered = std::make_shared<Program>(std::move(early->graph), program->constants());
  return std::make_shared<EarlyReading>(std::move(early->apart),
                                        make_pieces(reordered, examples, hints, read_at, compile),
                                        make_pieces(program, examples, hints, read_at, as_it_is));
}

TORCH_LIBRARY_FRAGMENT(magneto, library) {
  library.def("read_size(Tensor tensor, int dim, int[] symbols) -> ()");
  library.impl("read_size", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(read_no_size));
  library.def("read(Tensor tensor, int[] symbols) -> ()");
  library.impl("read", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(read_nothing));
}

}  // namespace magneto::aten
