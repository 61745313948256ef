// aten/onward_internal.h: a node of a program that was made again hands its gradients to the node that the caller has.
#pragma once
#include <utility>
#include <vector>

#include "aten/backward_node_internal.h"

namespace magneto::aten {

constexpr uint32_t kNoInput = static_cast<uint32_t>(-1);

/// From now on, a gradient that comes to one of these inputs of the node goes to the other edge instead. That edge is a
/// way of every gradient that comes to the node: where only others came (kNoInput: always), it brings none, and the
/// engine comes there.
void lead_on(torch::autograd::Node& made_again, const std::vector<std::pair<uint32_t, torch::autograd::Edge>>& onward);

/// After edges of a node were changed: what writes to a view has them twice, and torch compares.
void repeat_edges_inside(torch::autograd::Node& node);

/// The same tensor for the program that is made again: an identity stands between its history and the program, and
/// gives on what comes. (The gradient of a view is a view. Several leaves would take it over, each for its own, and add
/// to one memory.)
at::Tensor after_identity(const at::Tensor& tensor);

}  // namespace magneto::aten
