// lower/expand.h: composite operators become simpler ones, graph -> graph.
#pragma once
#include "graph/graph.h"
#include "types/dtype.h"

namespace magneto::lower {

/// Replaces every call that the table knows to expand, and what comes out of it, until nothing is left to expand. A
/// call whose expansion does not cover it stays. Results keep their types, strides included. Runs after functionalise.
graph::Graph expand(const graph::Graph& graph, types::Dtype default_dtype = types::Dtype::kF32);

}  // namespace magneto::lower
