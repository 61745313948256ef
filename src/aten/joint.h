// aten/joint.h: a program and its backward as one graph.
//
// The program is repeated above autograd on tensors without data, then torch's own engine runs the backward, and the
// operators of both are recorded one after the other. No operator needs a gradient rule of ours, and what torch saves
// for its formulas is what the second half reads of the first.
//
//     y = x.sin()      in %0 (x), in %1 (tangent of y)    %2 = sin(%0)   %3 = cos(%0)   %4 = mul(%1, %3)   out %2, %2,
//     %4
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aten/symbols.h"
#include "graph/graph.h"

namespace magneto::aten {

class Program;

struct Joint {
  static constexpr size_t kNone = static_cast<size_t>(-1);
  static constexpr const char* kNoGradient = "no output needs a gradient";  ///< a reason
  /// The end of a reason: what lies before and after such an operator may have joint graphs.
  static constexpr const char* kPythonGradient = " has a gradient that is Python code";
  static constexpr const char* kNotLinear = " has a gradient that is not known to be linear";
  static constexpr const char* kHoldsResult = " holds a result that it has not saved";
  static constexpr const char* kInPieces[] = {kPythonGradient, kNotLinear, kHoldsResult};

  /// As recorded: views and in-place operators stand as they are.
  /// Inputs: those of the program, then the tangents. Constants: those of the program.
  /// Outputs: those of the program, then the roots, then one gradient for each input, invalid where there is none.
  graph::Graph graph;
  size_t inputs = 0, outputs = 0, roots = 0;
  size_t forward_nodes = 0;                 ///< the first nodes of the graph
  std::vector<graph::ValueId> root_values;  ///< the roots, in the program's graph
  /// Of each node of the program: the count of nodes that stand for those up to it; whether they are what torch makes
  /// of its own operator, not of an equal one; whether a tensor that it made or wrote to needs a gradient.
  std::vector<size_t> ends;
  std::vector<bool> is_same, has_history;
  std::vector<graph::ValueId> joint_values;  ///< of each value of the program that a node made
  std::vector<graph::ValueId> input_values;  ///< the inputs, in the program's graph
  std::vector<size_t>
      root_of;  ///< of each output: the tensor whose memory it shows, itself or a view; kNone: undefined
  std::vector<size_t> tangent_of;  ///< of each root; kNone: no gradient comes back through it
  std::vector<size_t> root_at;     ///< of each tangent
  /// Of each input: the tangents with which the engine comes to it. The gradient may be zeros, whatever the tangent is,
  /// or none.
  std::vector<std::vector<bool>> reached_by;
  std::vector<int64_t> hints;  ///< the symbols of the graph, as the examples have them
  /// What must hold of symbols beyond what the program's own graph says.
  std::vector<types::Condition> conditions;
  /// Floats that gradients count of others. They follow the symbols of the program's graph, and depend on nothing else.
  std::vector<Symbols::Counted> counted;
  std::string reason;  ///< not empty: why there is none; the rest has no meaning then

  /// Stops: outputs on the way to others. Such a tensor has a gradient that others can see (hooks, retain_grad,
  /// autograd.grad), all of it.
  struct Stop {
    size_t output = 0;
    graph::ValueId value;                    ///< of the program
    size_t history_complete = 0;             ///< the count of nodes after which its history is what it is in the end
    size_t complete = 0;                     ///< the count of nodes after which nobody writes to it any more
    std::vector<size_t> computed_from = {};  ///< the stops that it was computed from, without another one between
  };
  std::vector<Stop> stops;                         ///< each after those that it was computed from
  std::vector<std::vector<size_t>> computed_from;  ///< of each tangent: as Stop::computed_from, for its root
  /// Of each tangent: outputs that an operator on its way made beside others. No gradient comes to them from there, but
  /// the engine comes to that operator, and hooks of all its results are called.
  std::vector<std::vector<size_t>> beside;
  /// Of each output: whether it, and each tensor on the way down to its root, was made before the last write to the
  /// root's memory. Eager makes the history of such a view again, on the root itself.
  std::vector<std::vector<bool>> is_older;
  /// The tangents of each operator whose results are roots, in the order in which these were made: eager has one node
  /// for them. Empty: one root, and no stops.
  std::vector<std::vector<size_t>> nodes;

  /// Where only `pieces` were asked for: where to cut the program (counts of its nodes, rising), so that each stop ends
  /// a piece, and each operator whose gradient is Python code, or that stays outside (attach), is one. Only hints and
  /// requires_grad have a meaning then.
  std::vector<size_t> cuts;
  std::vector<bool> requires_grad;  ///< of each value of the program

  size_t tangents() const { return root_at.size(); }
};

/// What is asked of a joint graph. Nothing said: the whole of it.
struct JointOf {
  /// Only these tangents (counted as in the joint of all) come: torch leaves out what depends on none of them.
  std::vector<bool> through = {};
  /// What comes to these stops from the outputs computed from them ends there: it is a further output for each stop,
  /// after the gradients of the inputs. From a stop on, only its own tangent goes further, which is the whole then.
  std::vector<bool> blocked = {};
  bool pieces = false;  ///< no graph, only where to cut
};

/// `examples` are the program's inputs; their data are not read.
Joint make_joint(const Program& program, std::span<const at::Tensor> examples, const JointOf& asked = {});

/// What has happened to the tensors of a call between its forward and a backward.
struct Since {
  /// A run of the engine: from these tangents to these inputs and stops.
  struct Walk {
    std::vector<bool> through = {}, gives = {}, to_stops = {};
    friend auto operator<=>(const Walk&, const Walk&) = default;
  };
  std::vector<uint32_t> began = {};   ///< versions of the inputs, before the forward
  std::vector<uint32_t> shares = {};  ///< of each input: the first that has the same version counter. Empty: itself
  std::vector<uint32_t> inputs = {}, roots = {};  ///< versions since the forward: how many more
  /// Of each stop: where its gradient goes now, where that is somewhere else; to no node after detach_().
  std::vector<std::optional<torch::autograd::Edge>> stops = {};
  std::vector<Walk> earlier = {};  ///< those that let go what they read
  Walk now = {};                   ///< what is to run
};
/// What eager's backward says to that: the program is repeated on tensors without data, they are changed as the real
/// ones were, and torch's engine runs. Empty: no error.
std::string backward_error(const Program& program, std::span<const at::Tensor> examples, const Since& since,
                           std::span<const Joint::Stop> stops);

}  // namespace magneto::aten
