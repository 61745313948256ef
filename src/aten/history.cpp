#include "aten/history.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>

namespace magneto::aten {

using torch::autograd::Edge;
using torch::autograd::Node;

std::vector<NodePtr> nodes_between(std::span<const at::Tensor> outputs, std::span<const at::Tensor> inputs) {
  std::unordered_set<const Node*> targets;
  for (const at::Tensor& input : inputs) targets.insert(torch::autograd::impl::gradient_edge(input).function.get());
  struct Visit {
    NodePtr node;
    size_t next = 0;
    bool runs = false;
  };
  std::vector<NodePtr> running;
  std::unordered_map<const Node*, bool> leads;  // to a target; false as long as it is looked at: there are no circles
  std::vector<Visit> path;                      // a history is deeper than the stack of a thread
  const auto enter = [&](const NodePtr& node) {
    if (node && leads.emplace(node.get(), false).second) path.push_back({node});
  };
  for (const at::Tensor& output : outputs) {
    enter(torch::autograd::impl::gradient_edge(output).function);
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next < visit.node->num_outputs()) {
        const NodePtr& after = visit.node->next_edge(visit.next).function;
        if (const auto known = after ? leads.find(after.get()) : leads.end(); !after || known != leads.end()) {
          visit.runs = visit.runs || (after && known->second);
          ++visit.next;
        } else {
          enter(after);  // and look at the edge again
        }
        continue;
      }
      leads[visit.node.get()] = visit.runs || targets.count(visit.node.get()) > 0;
      if (visit.runs) running.push_back(std::move(visit.node));
      path.pop_back();
    }
  }
  return running;
}

bool comes_from(const at::Tensor& tensor, const std::function<bool(const NodePtr&)>& is_such) {
  std::unordered_set<const Node*> seen;
  std::vector<NodePtr> open;
  const auto meet = [&](const NodePtr& node) {
    if (node && seen.insert(node.get()).second) open.push_back(node);
  };
  if (tensor.requires_grad()) meet(torch::autograd::impl::gradient_edge(tensor).function);
  while (!open.empty()) {
    const NodePtr node = std::move(open.back());
    open.pop_back();
    if (is_such(node)) return true;
    for (const Edge& edge : node->next_edges()) meet(edge.function);
  }
  return false;
}

at::Tensor leaf_of(const Node& node) {
  const auto* accumulates = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  return accumulates ? accumulates->variable : at::Tensor();
}

void free_history(const at::Tensor& tensor) {
  // It leads where the history has led: whoever asks for gradients there is told of the freed graph first.
  const NodePtr node = tensor.grad_fn();
  const NodePtr error = make_autograd_node<torch::autograd::Error>(
      torch::autograd::ERR_BACKWARD_TWICE,
      node ? torch::autograd::edge_list(node->next_edges()) : torch::autograd::edge_list());
  error->add_input_metadata(tensor);
  torch::autograd::impl::set_gradient_edge(tensor, {error, 0});
}

}  // namespace magneto::aten
