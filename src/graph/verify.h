// graph/verify.h: what must hold of a graph.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace magneto::graph {

/// The promises that `graph` breaks, one sentence each; empty when it is sound: every value is made before it is read
/// and made once, ids are in range, types have one stride for each size, outputs exist, places exist, symbols of values
/// are bound by the sizes of inputs; of a part of a program, whoever runs it may know them otherwise.
std::vector<std::string> verify(const Graph& graph, bool is_part = false);

}  // namespace magneto::graph
