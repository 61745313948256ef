#include "ops/op.h"

#include <algorithm>
#include <unordered_map>

#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

struct Table {
  std::vector<const Op*> sorted;
  std::unordered_map<std::string_view, const Op*> by_name;

  Table() {
    for (const auto family : {activation_ops, attention_ops, convolution_ops, distance_ops, factory_ops, indexing_ops,
                              joining_ops, loss_ops, matmul_ops, norm_ops, pointwise_ops, pooling_ops, random_ops,
                              reduction_ops, scan_ops, scattered_view_ops, unary_ops, view_ops})
      for (const Op& op : family()) {
        sorted.push_back(&op);
        by_name.emplace(op.name, &op);
      }
    std::sort(sorted.begin(), sorted.end(), [](const Op* a, const Op* b) { return a->name < b->name; });
  }
};

const Table& table() {
  static const Table kTable;
  return kTable;
}

}  // namespace

bool works_by_element(const Op& op) {
  const Op* functional = op.functional.empty() ? nullptr : find(op.functional);
  return functional && functional->body;
}

const Op* find(std::string_view name) {
  const auto found = table().by_name.find(name);
  return found == table().by_name.end() ? nullptr : found->second;
}

std::span<const Op* const> all() { return table().sorted; }

}  // namespace magneto::ops
