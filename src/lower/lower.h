// lower/lower.h: functional graph -> loop equations.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "loop/program.h"
#include "types/device.h"
#include "types/dtype.h"
#include "types/tensor_type.h"

namespace magneto::lower {

/// One output of the graph: a tensor of `type` over the memory of `buffer`. The strides and the offset of the type
/// count in that memory. It is fresh when the buffer is an `out`; else it is a view of an input or constant, or that
/// itself.
struct Output {
  loop::BufferId buffer;  ///< invalid: an undefined tensor
  types::TensorType type;
  bool is_itself = false;  ///< the input, not a view of it: the caller gives back the same object
};

/// The elements of `value` (an `out`) become those of a tensor of `type` over the memory of `into`, the buffer of an
/// input, once everything that reads the input has run. Stores happen in order.
struct Store {
  loop::BufferId value, into;
  types::TensorType type;
};

struct Lowered {
  loop::Program program;
  std::vector<loop::BufferId> inputs, constants;  ///< in the order of the graph; invalid: it is never read
  std::vector<Output> outputs;
  std::vector<Store> stores;
  std::vector<graph::NodeId> makers;   ///< by equation: the node that it computes; invalid: it copies something
  std::vector<graph::ValueId> values;  ///< by buffer: the value that it holds; invalid: a copy of one
};

/// Runs after functionalise (no operator writes its arguments) and expand (no composite operator is left that has
/// simpler parts). Views become index arithmetic; an operator with a declaration becomes an equation; any other becomes
/// an extern equation. Every tensor that is no view has a buffer with the sizes and strides that the graph gives it.
/// What an extern call gets beyond its buffers stands in its text (see lower.cpp).
/// Kernels compute on one device: an operator with a tensor on another one is an extern call, and so is a node that
/// `as_calls` names.
Lowered lower(const graph::Graph& graph, types::Dtype default_dtype = types::Dtype::kF32, types::Device device = {},
              const std::set<graph::NodeId>& as_calls = {});

}  // namespace magneto::lower
