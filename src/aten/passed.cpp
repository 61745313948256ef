// aten/passed.cpp
#include "aten/passed_internal.h"

#include <ATen/Functions.h>
#include <ATen/ops/_neg_view.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "ops/op.h"
#include "types/overlap.h"

namespace magneto::aten {

using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {

/// The node that gives this value as a view; nullptr: no such.
const Node* maker_of_view(const Graph& graph, ValueId id) {
  const graph::NodeId maker = graph.value(id).maker;
  if (!maker.valid()) return nullptr;
  const Node& node = graph.node(maker);
  const ops::Op* op = ops::find(node.op);
  const auto* below = op && op->view && !node.args.empty() ? std::get_if<ValueId>(&node.args[0]) : nullptr;
  return below && below->valid() ? &node : nullptr;
}
/// The same for a view with elements of the same dtype.
const Node* view_that_makes(const Graph& graph, ValueId id) {
  const Node* node = maker_of_view(graph, id);
  const auto dtype = [&](ValueId of) { return graph.value(of).type.dtype; };
  return node && dtype(std::get<ValueId>(node->args[0])) == dtype(id) ? node : nullptr;
}

std::shared_ptr<const Program> program_of(const Graph& graph, ValueId bottom, std::span<const ValueId> way) {
  Graph views;
  ValueId last = views.add_input(graph.value(bottom).type, "");
  for (const ValueId id : way) {
    Node node = *view_that_makes(graph, id);
    node.args[0] = last;
    node.place = views.add_place(graph.places().at(node.place));
    for (ValueId& output : node.outputs) {
      if (!output.valid()) continue;
      const ValueId made = views.add_value(graph.value(output).type);
      if (output == id) last = made;
      output = made;
    }
    views.add_node(std::move(node));
  }
  views.outputs = {last};
  return std::make_shared<Program>(std::move(views), std::vector<at::Tensor>());
}

/// What makes a tensor other numbers than those in its memory.
bool has_bits(const at::Tensor& tensor) { return tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor(); }
at::Tensor with_bits_of(const at::Tensor& of, at::Tensor tensor) {
  if (of.is_conj()) tensor = at::_conj(tensor);
  return of.is_neg() ? at::_neg_view(tensor) : tensor;
}

}  // namespace

std::vector<Passed> find_passed(const Graph& backward, std::span<const size_t> tangents) {
  std::vector<Passed> found;
  const auto& inputs = backward.inputs();
  for (size_t g = 0; g < backward.outputs.size(); ++g) {
    ValueId id = backward.outputs[g];
    if (!id.valid()) continue;
    std::vector<ValueId> way;
    while (const Node* view = view_that_makes(backward, id)) {
      way.push_back(id);
      id = std::get<ValueId>(view->args[0]);
    }
    const auto at = std::lower_bound(inputs.begin(), inputs.end(), id);
    if (at == inputs.end() || *at != id) continue;
    const size_t from_end = static_cast<size_t>(inputs.end() - at);  // counted from the end
    if (from_end > tangents.size()) continue;
    const size_t input = tangents.size() - from_end;
    Passed& passed = found.emplace_back(Passed{.gradient = g, .tangent = tangents[input], .input = input});
    std::reverse(way.begin(), way.end());
    if (way.empty()) continue;
    passed.views = program_of(backward, id, way);
    passed.by_strides = std::any_of(way.begin(), way.end(), [&](ValueId view) {
      return ops::find(view_that_makes(backward, view)->op)->by_strides;
    });
  }
  return found;
}

// Which of these values, all over one memory, may have places in common with others. Parts of a cat have none. Places
// are counted in elements: real parts of complex numbers are not compared with these.
static std::vector<size_t> overlapping(const Graph& graph, std::vector<size_t> gradients) {
  constexpr size_t kMost = 64;  // that are compared one by one
  const auto type = [&](size_t g) -> const types::TensorType& { return graph.value(graph.outputs[g]).type; };
  const auto begin = [&](size_t g) { return type(g).offset.constant(); };
  const auto end = [&](size_t g) {  // past the last place
    std::optional<int64_t> last = begin(g);
    for (size_t d = 0; last && d < type(g).sizes.size(); ++d) {
      const auto size = type(g).sizes[d].constant(), stride = type(g).strides[d].constant();
      last = size && stride ? std::optional(*last + (*size - 1) * *stride) : std::nullopt;
    }
    return last ? std::optional(*last + 1) : std::nullopt;
  };
  std::vector<size_t> found;
  const auto compare = [&](std::span<const size_t> some) {
    for (const size_t a : some) {
      const bool is_alone = some.size() <= kMost && std::all_of(some.begin(), some.end(), [&](size_t b) {
                              return a == b || types::overlap(type(a), type(b)) == types::Overlap::kNone;
                            });
      if (!is_alone) found.push_back(a);
    }
  };
  const auto first_dtype = type(gradients.front()).dtype;
  if (!std::all_of(gradients.begin(), gradients.end(), [&](size_t g) { return type(g).dtype == first_dtype; }))
    return gradients;
  if (!std::all_of(gradients.begin(), gradients.end(), [&](size_t g) { return end(g).has_value(); })) {
    compare(gradients);
    return found;
  }
  std::stable_sort(gradients.begin(), gradients.end(), [&](size_t a, size_t b) { return begin(a) < begin(b); });
  for (size_t first = 0, next = 0; first < gradients.size(); first = next) {
    int64_t reached = *end(gradients[next++]);
    for (; next < gradients.size() && *begin(gradients[next]) < reached; ++next)
      reached = std::max(reached, *end(gradients[next]));
    compare(std::span(gradients).subspan(first, next - first));
  }
  return found;
}

SharedGradients find_shared(const Graph& backward) {
  SharedGradients found;
  std::unordered_map<ValueId, size_t> first;
  std::map<ValueId, std::vector<size_t>> of_root;
  for (size_t g = 0; g < backward.outputs.size(); ++g) {
    ValueId id = backward.outputs[g];
    if (!id.valid()) continue;
    if (const auto [place, is_new] = first.try_emplace(id, g); !is_new) {
      found.same.emplace_back(g, place->second);
      continue;
    }
    while (const Node* view = maker_of_view(backward, id)) id = std::get<ValueId>(view->args[0]);
    std::vector<size_t>& gradients = of_root[id];
    gradients.insert(id == backward.outputs[g] ? gradients.begin() : gradients.end(), g);
  }
  for (auto& [root, gradients] : of_root)
    if (auto views = overlapping(backward, std::move(gradients)); views.size() > 1)
      found.views.push_back(std::move(views));
  return found;
}

at::Tensor hand_on(const Passed& passed, const at::Tensor& tangent, const at::Tensor& laid_out,
                   std::span<const int64_t> symbols) {
  if (!tangent.defined() || tangent.is_same(laid_out)) return {};
  if (!passed.views) return tangent;
  if (tangent.layout() != c10::kStrided) return {};
  c10::SmallVector<at::Tensor, 1> gradient;
  at::Tensor as_it_came = tangent;
  if (!passed.by_strides && !passed.views->run({&as_it_came, 1}, symbols, gradient).error) {
    // A leaf copies what is not dense. Parts of an expanded tangent that are dense (single elements) are one memory.
    const bool is_taken_over = !has_bits(tangent) && gradient[0].is_non_overlapping_and_dense();
    return is_taken_over ? gradient[0].clone() : gradient[0];
  }
  if (!has_bits(tangent)) return {};
  // These views count on the layout: the same memory once more, the bits on top.
  at::Tensor copy = with_bits_of(tangent, at::empty_like(laid_out).copy_(with_bits_of(tangent, tangent)));
  const Executable::Failure failure = passed.views->run({&copy, 1}, symbols, gradient);
  return failure.error ? at::Tensor() : gradient[0];
}

}  // namespace magneto::aten
