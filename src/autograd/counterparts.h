// autograd/counterparts.h: which values of one graph are computed in another one, too.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace magneto::autograd {

/// For each value of `a` the value of `b` that is the same operators on the same inputs and constants, or an invalid
/// id. The graphs have the same inputs and constants, and begin with the same nodes: of what is drawn at random, only
/// those are the same.
std::vector<graph::ValueId> counterparts(const graph::Graph& a, const graph::Graph& b);

}  // namespace magneto::autograd
