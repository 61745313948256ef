#include "driver/unproved.h"

#include "base/text.h"
#include "base/violation.h"
#include "ops/op.h"

namespace magneto::driver {

namespace {

using graph::NodeId;
using graph::ValueId;

/// The value that a chain of views looks at.
ValueId root(const graph::Graph& graph, ValueId id) {
  while (graph.value(id).maker.valid()) {
    const graph::Node& node = graph.node(graph.value(id).maker);
    const ops::Op* op = ops::find(node.op);
    const auto* of = op && op->view && !node.args.empty() ? std::get_if<ValueId>(&node.args[0]) : nullptr;
    if (!of || !of->valid() || *of == id) break;
    id = *of;
  }
  return id;
}

std::vector<NodeId> makers_and_readers(const graph::Graph& graph, ValueId value) {
  std::vector<NodeId> list;
  if (const NodeId maker = graph.value(value).maker; maker.valid()) list.push_back(maker);
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    graph::for_each_read(graph.nodes()[n], [&](ValueId id) {
      if (id.valid() && root(graph, id) == value) list.emplace_back(n);
    });
  return list;
}

}  // namespace

bool call_instead(const std::vector<loop::Unproved>& places, bool scheduled, const graph::Graph& graph,
                  const lower::Lowered& lowered, Calls& calls) {
  const Calls before = calls;
  for (const loop::Unproved& place : places) {
    std::vector<NodeId> nodes;
    if (!scheduled && place.equation < lowered.makers.size()) {
      if (lowered.makers[place.equation].valid()) nodes = {lowered.makers[place.equation]};
    } else if (place.buffer.valid() && place.buffer.index() < lowered.values.size()) {
      if (const ValueId value = lowered.values[place.buffer.index()]; value.valid())
        nodes = makers_and_readers(graph, value);
    }
    bool some = false;
    for (const NodeId id : nodes) {
      const ops::Op* op = ops::find(graph.node(id).op);
      if (before.contains(id) || !op || op->view || !(op->body || op->equation)) continue;
      calls.emplace(id, base::concat("not known to stay inside of its memory: ", place.what));
      some = true;
    }
    base::check(some || graph.conditions.empty(), "not proved for all sizes: ", place.what);
    if (!some) throw base::Violation(base::concat("bounds: ", place.what, ", in ", place.where));
  }
  return !places.empty();
}

}  // namespace magneto::driver
