// aten/halves_internal.h: from a program to the graphs of its training, nothing run yet.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "aten/joint.h"
#include "autograd/partition.h"
#include "graph/graph.h"

namespace magneto::aten {

/// The joint graph in values, and where the tensors of the program are in it.
struct FunctionalJoint {
  struct Root {
    enum class From : uint8_t { kForward, kInput, kConstant };
    From from = From::kForward;
    size_t index = 0;  ///< among the forward's outputs, the inputs, the constants
    size_t tangent = Joint::kNone;
    graph::ValueId value;     ///< of the joint graph
    graph::ValueId recorded;  ///< of the program's graph
  };
  struct Output {
    size_t root = Joint::kNone;  ///< kNone: undefined
    size_t view = Joint::kNone;  ///< which output of the root's views; kNone: the root itself
  };
  graph::Graph graph;
  autograd::Halves halves;
  std::vector<Root> roots;
  std::vector<size_t> root_at;  ///< of each tangent
  std::vector<Output> outputs;
  std::vector<graph::Graph> views;  ///< of each root, its input: those outputs of the program that are views of it
  std::vector<Joint::Stop> stops;   ///< and the next three: as in Joint
  std::vector<std::vector<size_t>> computed_from;
  std::vector<std::vector<size_t>> beside;
  std::vector<std::vector<size_t>> nodes;
  std::vector<std::vector<bool>> reached_by;  ///< as in Joint
  /// A tensor of the program whose memory is this value once so many nodes have run.
  struct Held {
    graph::ValueId value;     ///< of the joint graph
    graph::ValueId recorded;  ///< of the program's graph
    size_t complete = 0;
  };
  std::vector<Held> held;
  /// Of each node of the forward half: that of the program; whether it has another operator there.
  std::vector<size_t> program_node;
  std::vector<bool> is_other;
  std::vector<bool> has_history;  ///< as in Joint
  std::vector<types::Condition> conditions;
  std::vector<Symbols::Counted> counted;  ///< as in Joint
  std::vector<size_t> stored;             ///< inputs that are stored to
  double functionalise_ms = 0;
  std::string reason;

  /// Each root with a gradient has a node of its own, so that only the hooks of those are called that a gradient comes
  /// to.
  bool has_output_nodes() const { return !nodes.empty(); }
};

FunctionalJoint make_functional_joint(std::span<const at::Tensor> examples, Joint joint);

/// How often eager counts a new version of a tensor (`_version`): for each value of the recorded graph that is no view,
/// the operators that write to its memory, as their schemas tell.
std::vector<uint32_t> count_versions(const graph::Graph& recorded);

}  // namespace magneto::aten
