#include "autograd/counterparts.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/text.h"
#include "graph/text.h"
#include "ops/op.h"

namespace magneto::autograd {

namespace {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::ValueId;

bool same_types(const Graph& a, const Node& one, const Graph& b, const Node& other) {
  if (one.outputs.size() != other.outputs.size()) return false;
  for (size_t k = 0; k < one.outputs.size(); ++k) {
    const ValueId x = one.outputs[k], y = other.outputs[k];
    if (x.valid() != y.valid() || (x.valid() && !(a.value(x).type == b.value(y).type))) return false;
  }
  return true;
}

/// What a node computes, as text; empty: it reads a value that has no name here.
template <class Name>
std::string text_of(const Node& node, const Name& name) {
  std::string text = node.op;
  bool known = true;
  for (const Arg& arg : node.args) {
    Arg copy = arg;
    const auto rename = [&](ValueId& id) {
      if (!id.valid()) return;
      id = name(id);
      known = known && id.valid();
    };
    if (auto* one = std::get_if<ValueId>(&copy)) rename(*one);
    if (auto* list = std::get_if<std::vector<ValueId>>(&copy))
      for (ValueId& id : *list) rename(id);
    if (known) text += base::concat("\n", arg.index(), " ", print(copy));
  }
  return known ? text : std::string();
}

}  // namespace

std::vector<ValueId> counterparts(const Graph& a, const Graph& b) {
  std::vector<ValueId> same(a.values().size());
  for (const auto ids : {&Graph::inputs, &Graph::constants})
    for (size_t k = 0; k < std::min((a.*ids)().size(), (b.*ids)().size()); ++k)
      same[(a.*ids)()[k].index()] = (b.*ids)()[k];
  const auto in_b = [&](ValueId id) { return same[id.index()]; };
  const auto itself = [](ValueId id) { return id; };
  const auto pair = [&](const Node& one, const Node& other) {
    for (size_t k = 0; k < one.outputs.size(); ++k)
      if (one.outputs[k].valid()) same[one.outputs[k].index()] = other.outputs[k];
  };
  size_t begin = 0;
  for (; begin < std::min(a.nodes().size(), b.nodes().size()); ++begin) {
    const Node &one = a.nodes()[begin], &other = b.nodes()[begin];
    if (!same_types(a, one, b, other) || text_of(one, in_b) != text_of(other, itself)) break;
    pair(one, other);
  }
  std::unordered_map<std::string, const Node*> known;
  for (size_t n = begin; n < b.nodes().size(); ++n) known.emplace(text_of(b.nodes()[n], itself), &b.nodes()[n]);
  for (size_t n = begin; n < a.nodes().size(); ++n) {
    const Node& one = a.nodes()[n];
    const ops::Op* op = ops::find(one.op);
    if (!op || op->random) continue;
    const std::string text = text_of(one, in_b);
    const auto found = text.empty() ? known.end() : known.find(text);
    if (found != known.end() && same_types(a, one, b, *found->second)) pair(one, *found->second);
  }
  return same;
}

}  // namespace magneto::autograd
