// aten/joint.h: a program and its backward as one graph.
//
// The program is repeated above autograd on tensors without data, then torch's own engine runs the backward, and the
// operators of both are recorded one behind the other. No operator needs a gradient rule of ours, and what torch saves
// for its formulas is what the second half reads of the first.
//
//     y = x.sin()      in %0 (x), in %1 (tangent of y)    %2 = sin(%0)   %3 = cos(%0)   %4 = mul(%1, %3)   out %2, %2,
//     %4
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

class Program;

struct Joint {
  static constexpr size_t kNone = static_cast<size_t>(-1);
  static constexpr const char* kNoGradient = "no output needs a gradient";  ///< a reason

  /// As recorded: views and in-place operators stand as they are.
  /// Inputs: those of the program, then the tangents. Constants: those of the program.
  /// Outputs: those of the program, then the roots, then one gradient for each input, invalid where there is none.
  graph::Graph graph;
  size_t inputs = 0, outputs = 0, roots = 0;
  std::vector<graph::ValueId> root_values;  ///< the roots, in the program's graph
  std::vector<size_t>
      root_of;  ///< of each output: the tensor whose memory it shows, itself or a view; kNone: undefined
  std::vector<size_t> tangent_of;  ///< of each root; kNone: no gradient comes back through it
  std::vector<size_t> root_at;     ///< of each tangent
  std::vector<int64_t> hints;      ///< the symbols of the graph, as the examples have them
  /// What must hold of symbols beyond what the program's own graph says.
  std::vector<types::Condition> conditions;
  std::string reason;  ///< not empty: why there is none; the rest has no meaning then

  /// Where the program must be cut into several (counts of its nodes, rising), for a node each: an output on the way to
  /// another one has a gradient that others can see (hooks, retain_grad, autograd.grad), all of it. Not empty: only
  /// hints and requires_grad have a meaning.
  std::vector<size_t> cuts;
  std::vector<bool> requires_grad;  ///< of each value of the program

  size_t tangents() const { return root_at.size(); }
};

/// `examples` are the program's inputs; their data are not read. Where `through` is given, only these tangents (counted
/// as in the joint of all) come: torch then leaves out what depends on none of them. `pieces`: it may be cut.
Joint make_joint(const Program& program, std::span<const at::Tensor> examples, const std::vector<bool>& through = {},
                 bool pieces = false);

}  // namespace magneto::aten
