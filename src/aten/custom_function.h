// aten/custom_function.h: torch.autograd.Function in a graph.
//
// The operators of its forward stand in the graph as they ran. After them one node says that what they made has a
// gradient of its own, and holds the operators that its backward ran when it was rehearsed:
//
//     %2 = aten::mul(%0, 2) !no_grad
//     %3 = magneto::function("Double", "graph { in %0 ... }", false, [], [%2], [%0], [], ...)
//
// %3 is %2, with another history: for whoever computes without gradients the node does nothing.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

struct CustomFunction {
  static constexpr const char* kOperator = "magneto::function";
  /// The arguments of the node. kNumbers are the values of `kReals`, which are symbols of the backward; kSizes has one
  /// for each symbol, 0 where none stands in the backward.
  enum Argument : size_t { kName, kBackward, kOnce, kChecked, kResults, kInputs, kSaved, kSizes, kReals, kNumbers };
  static constexpr size_t kMostReals = 4;

  std::string name;
  /// Inputs: a contiguous gradient for each result, then what was saved. Outputs: a gradient for each input of the
  /// function, invalid where it gives none.
  graph::Graph backward;
  bool once_differentiable = false;  ///< its gradients are not to be differentiated
  std::vector<bool> checked;         ///< of what was saved: by save_for_backward, so that its version is looked at
};

/// Whether it is known that a backward gives the sum of gradients for a sum of what comes to it, as all of torch's own
/// do: `gradients` are its first inputs. g * 2 is, g.clamp(-1, 1) is not.
bool is_linear(const graph::Graph& backward, size_t gradients);

/// The graph for whoever computes no gradients: without such nodes.
graph::Graph without_functions(graph::Graph graph);

}  // namespace magneto::aten
