// autograd/functionalise.h: recorded views and in-place operators become values, graph -> graph.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "types/dtype.h"

namespace magneto::autograd {

/// What an output of the graph shares its memory with.
struct Alias {
  enum class Kind : uint8_t {
    kFresh,   ///< memory of its own
    kItself,  ///< it is the input or constant `of`, the same object
    kView,  ///< a view of `of`: an input, a constant, or a value of the graph whose memory other outputs may show, too
  };
  Kind kind = Kind::kFresh;
  graph::ValueId of;
  friend bool operator==(const Alias&, const Alias&) = default;
};

/// From this recorded node on, the memory that this recorded tensor shows is this value.
struct Held {
  size_t node = 0;
  graph::ValueId recorded, value;
};

struct Functional {
  graph::Graph graph;
  std::vector<Alias> outputs;  ///< one for each output of the graph
  std::vector<size_t> ends;    ///< for each recorded node: the count of nodes that stand for those up to it
  std::vector<Held> held;      ///< in the order of nodes: of tensors that an operator made or wrote to, and their views
  std::string reason;          ///< not empty: why it cannot be expressed; the rest has no meaning then
};

/// No operator of the result writes its arguments. A tensor that was written to is a new value; what was written to an
/// input is stored at the end to the input or to the view of it that was written through (Graph::stores). Views are
/// values of their own that read the value they are taken of, so that writing through one is a new value of what it
/// views, seen by every reader after it. Operators keep their order. An output has the sizes, strides and offset that
/// were recorded; one that is an input, or a view of one, stands as the input or as a view of it, also where that input
/// is stored to: it means the memory after the stores. Inputs must not overlap in memory: the graph cannot tell.
Functional functionalise(const graph::Graph& graph, types::Dtype default_dtype = types::Dtype::kF32);

}  // namespace magneto::autograd
