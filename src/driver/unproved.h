// driver/unproved.h: what is done about places of memory that are not proved to lie inside of their buffers.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "loop/bounds.h"
#include "lower/lower.h"

namespace magneto::driver {

/// Nodes that must be calls of torch, each with the reason.
using Calls = std::map<graph::NodeId, std::string>;

/// Adds the nodes that touch these places: of equations as lowering made them the nodes that they compute, of a
/// scheduled program all that make or read the buffer. False when there are no places. Throws base::Violation when a
/// place has no node that could be called instead.
bool call_instead(const std::vector<loop::Unproved>& places, bool scheduled, const graph::Graph& graph,
                  const lower::Lowered& lowered, Calls& calls);

}  // namespace magneto::driver
