// bench/graphs.h: graphs for the benchmarks of the middle, made call by call; the table's shape rules give the types.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/graph.h"
#include "ops/op.h"
#include "types/expr.h"

namespace magneto::bench {

using graph::Arg;
using graph::ValueId;
using types::Dtype;
using types::Expr;

class Maker {
 public:
  graph::Graph graph;

  ValueId in(const types::Sizes& sizes, Dtype dtype = Dtype::kF32) {
    types::TensorType type;
    type.dtype = dtype;
    type.sizes = sizes;
    type.strides = types::contiguous_strides(sizes);
    return graph.add_input(type, "x");
  }
  std::vector<ValueId> all(const std::string& op, std::vector<Arg> args) {
    const ops::Op* known = ops::find(op);
    base::check(known && known->type, "bench: no shape rule for ", op);
    const auto results = known->type(ops::Call{.args = args, .graph = &graph});
    base::check(results.has_value(), "bench: the shape rule of ", op, " does not cover the call");
    std::vector<ValueId> made;
    for (const ops::Result& r : *results)
      made.push_back(r.kind == ops::Result::Kind::kUndefined ? ValueId() : graph.add_value(r.type));
    graph.add_node({.op = op, .args = std::move(args), .outputs = made});
    return made;
  }
  ValueId call(const std::string& op, std::vector<Arg> args) { return all(op, std::move(args)).front(); }
  void out(ValueId id) { graph.outputs.push_back(id); }
};

inline std::vector<Expr> list(std::initializer_list<int64_t> values) { return {values.begin(), values.end()}; }

/// Folders of Python packages in which a compiler may lie: those of the virtual environment in use.
inline std::vector<std::string> site_packages() {
  std::vector<std::string> found;
  const char* active = std::getenv("VIRTUAL_ENV");
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(active ? active : ".venv") + "/lib", ignored))
    found.push_back(entry.path().string() + "/site-packages");
  return found;
}

}  // namespace magneto::bench
