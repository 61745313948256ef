// aten/program.h: runs a graph operator by operator through ATen, above autograd, so that torch builds its own autograd
// graph as in eager. It is backend="eager": for debugging and bisecting, and the fallback of everything else.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

class Program {
 public:
  /// Looks every operator up in the dispatcher and converts the constant arguments once. Throws base::Fault on an
  /// unknown operator. `constants` are the tensors of graph.constants(), in order.
  Program(graph::Graph graph, std::vector<at::Tensor> constants);
  ~Program();

  struct Failure {
    std::exception_ptr error;  ///< empty: all went well
    size_t node = 0;           ///< the node that failed
    bool changed = false;      ///< an input was written to, or a random number drawn, before it failed
  };
  /// The memory of one run: made once and lent to run after run, so that a call allocates nothing of its own. Between
  /// runs it holds no tensor.
  struct Scratch;
  class Run {
   public:
    explicit Run(const Program& program);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    void set_input(size_t index, const at::Tensor& tensor);
    /// Runs the graph on all inputs. Intermediates die after their last reader. symbols[i] is the value of symbol i.
    Failure run(std::span<const int64_t> symbols = {});
    /// In the order of graph.outputs; undefined where the graph has none. Ready after a run without failure.
    std::vector<at::Tensor>& outputs();

   private:
    const Program& program_;
    Scratch* scratch_;
  };

  const graph::Graph& graph() const;
  bool writes_inputs() const;  ///< some operator writes to memory that an input may share

 private:
  struct Body;
  std::unique_ptr<Body> body_;
  mutable std::atomic<Scratch*> spare_{nullptr};
};

}  // namespace magneto::aten
