// aten/history.h: torch's autograd graph, as it stands: which of its nodes a backward runs, and what a tensor comes
// from.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/headeronly/version.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace magneto::aten {

using NodePtr = decltype(torch::autograd::Edge::function);

template <class Kind, class... Args>
NodePtr make_autograd_node(Args&&... args) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  return c10::make_intrusive<Kind>(std::forward<Args>(args)...);
#else
  return NodePtr(new Kind(std::forward<Args>(args)...), torch::autograd::deleteNode);
#endif
}

/// The nodes that autograd's engine runs when it is asked for the gradients of `inputs`.
std::vector<NodePtr> nodes_between(std::span<const at::Tensor> outputs, std::span<const at::Tensor> inputs);
/// Whether a node that the tensor comes from is such a one. Each is met once.
bool comes_from(const at::Tensor& tensor, const std::function<bool(const NodePtr&)>& is_such);
/// The leaf whose gradient this node accumulates; undefined: it is another one.
at::Tensor leaf_of(const torch::autograd::Node& node);
/// A backward of it raises from now on what torch raises where the graph has been freed.
void free_history(const at::Tensor& tensor);

}  // namespace magneto::aten
