// capture/symbolic_trace.h: the second world of a recording whose sizes may change from call to call.
//
// The program itself runs on real tensors with real sizes, as in any recording: its results, its autograd graph and its
// errors are eager's. Beside it, each torch call is repeated on stand-ins: tensors without data whose sizes are
// symbols, and with symbolic integers in place of ints that carry an expression. What torch's own code asks about sizes
// on the way is answered as in the real world, and the answer becomes a condition. The graph of the symbolic trace
// serves all sizes for which the conditions hold.
//
//     real:     y = x.view(6, 4)          x: f32[2, 3, 4]      n is an int, 6, that carries s0*3
//     symbolic: y' = x'.view(s0*3, 4)     x': f32[s0, 3, 4]
//
// A symbolic trace may fail at any time (an operator whose shape only its kernel knows, a read of data): then the
// recording is what it would have been without, and all its symbols are fixed. At the end both worlds must tell the
// same: the graph of the symbolic trace, with numbers for its symbols, is the graph of the program.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/program.h"
#include "aten/symbols.h"
#include "aten/trace.h"
#include "capture/evaluator.h"

namespace magneto::capture {

class SymbolicTrace {
 public:
  SymbolicTrace(const aten::Trace& live, std::shared_ptr<aten::Symbols> symbols);

  bool alive() const { return why_.empty(); }
  void give_up(std::string why);
  const std::string& why() const { return why_; }

  void add_input(graph::ValueId live, const at::Tensor& tensor, types::Sizes sizes, types::Sizes strides,
                 types::Expr offset, const std::string& name);
  aten::Trace& trace() { return trace_; }

  /// What an int or float stands for: types::Expr or graph::Real.
  using NumberOf = std::function<std::optional<graph::Arg>(PyObject*)>;
  /// The counterpart of an operand, containers rebuilt. Empty: it has none, and the symbolic trace is given up.
  Ref translate(PyObject* operand, const NumberOf& number_of);

  at::Tensor counterpart(const at::Tensor& live) const;  ///< undefined: it has none
  void set_counterpart(const at::Tensor& live, const at::Tensor& symbolic);
  void forget(const std::vector<graph::ValueId>& live);
  /// Whether sizes of this tensor of the live world, or of one in this tuple or list, are symbols.
  bool is_symbolic(PyObject* operand) const;

  /// Learns that `symbolic` is the counterpart of `live`, a result. Returns `live`, or what it is to be replaced with:
  /// an int that is symbolic in the symbolic trace becomes tag(int, expression).
  using Tag = std::function<PyObject*(PyObject*, types::Expr)>;
  Ref pair(Ref live, PyObject* symbolic, const Tag& tag);

  /// The symbolic trace's graph with these outputs (values of the live trace), when it tells the same as `live`.
  /// `inputs` receives the live values of its inputs. nullptr: it is given up.
  std::shared_ptr<aten::Program> finish(const std::vector<graph::ValueId>& outputs, const graph::Graph& live,
                                        std::vector<graph::ValueId>* inputs);

 private:
  Ref translate_sequence(PyObject* sequence, const NumberOf& number_of);
  Ref pair_sequence(Ref live, PyObject* symbolic, const Tag& tag);

  const aten::Trace& live_;
  std::shared_ptr<aten::Symbols> symbols_;
  aten::Trace trace_;
  std::unordered_map<graph::ValueId, Ref> counterparts_;            // of live values: Python tensors
  std::unordered_map<graph::ValueId, graph::ValueId> live_inputs_;  // of the symbolic trace's inputs
  std::string why_;
};

/// tensor[key]. Where positions are symbols (x[:, n]), what torch makes of numbers there: its own code would fix them.
PyObject* indexed(PyObject* tensor, PyObject* key);

/// Registers with aten how Python keeps a symbolic integer that it wrapped into a tensor.
void prepare_symbolic_traces();

}  // namespace magneto::capture
