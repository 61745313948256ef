// aten/program.h: runs a graph operator by operator through ATen, above autograd, so that torch builds its own autograd
// graph as in eager. It is backend="eager": for debugging and bisecting, and the fallback of everything else.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "graph/graph.h"

namespace magneto::aten {

class Program : public Executable {
 public:
  /// Looks every operator up in the dispatcher and converts the constant arguments once. Throws base::Fault on an
  /// unknown operator. `constants` are the tensors of graph.constants(), in order.
  /// `as_typed`: each new result gets the dtype and the strides that the graph says. Those of a recorded graph are what
  /// operators give; a graph of values counts on its own.
  Program(graph::Graph graph, std::vector<at::Tensor> constants, bool as_typed = false);
  ~Program() override;

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override;
  bool writes_inputs() const override;

  const graph::Graph& graph() const;
  const std::vector<at::Tensor>& constants() const;
  /// Symbols that no input tells have these values now. Before the program is shared.
  void set_hints(std::span<const int64_t> hints);
  const std::vector<int64_t>& hints() const;     ///< empty: all that matter are told
  const std::vector<int>& bumps() const;         ///< of each input: how often operators count its version up
  const std::vector<int>& output_bumps() const;  ///< of each output whose memory is new: the same
  const std::vector<OutputView>& output_views() const;
  /// Why the graph cannot become one of values: an operator does something to memory that only its kernel knows.
  std::string hidden_effect() const;

 private:
  struct Body;
  /// The memory of one run: made once and lent to run after run, so that a call allocates nothing of its own. Between
  /// runs it holds no tensor.
  struct Scratch;
  class Lent;
  std::unique_ptr<Body> body_;
  mutable std::atomic<Scratch*> spare_{nullptr};
};

}  // namespace magneto::aten
