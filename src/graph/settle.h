// graph/settle.h: a graph without the symbols that its conditions tell.
//
// Where a condition says s0 - 1 == 1, a size s0 - 1 is one. Passes ask how a size looks (== 1: it is broadcast), so
// what is equal must look equal before the first of them runs.
#pragma once
#include "graph/graph.h"

namespace magneto::graph {

/// The conditions stay as they are: the caller's sizes are still to be compared.
Graph settle(Graph graph);

}  // namespace magneto::graph
