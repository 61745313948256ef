// ops/ranges.h: what is known of the elements of a tensor before it is computed.
#pragma once
#include <optional>

#include "graph/graph.h"

namespace magneto::ops {

/// The truth of all elements of a comparison, where the range of what is compared decides it: rand() < 0 is false.
/// Only of a value that no node but its maker touches, made of one that no node but its maker and this one touch.
std::optional<bool> known_truth(const graph::Graph& graph, graph::ValueId value);

}  // namespace magneto::ops
