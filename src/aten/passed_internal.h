// aten/passed_internal.h: gradients that a backward does not compute but hands on, and those that share memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aten/program.h"
#include "graph/graph.h"

namespace magneto::aten {

/// A gradient that is a tangent, or a view of one. Eager's operators give the tensor that came, in any layout and with
/// its bits (a lazy conjugate or negative, zeros without memory), and views keep the bits. What kernels read has none.
struct Passed {
  size_t gradient = 0, tangent = 0;
  size_t input = 0;                           ///< of the backward, counted from the first tangent that it reads
  std::shared_ptr<const Program> views = {};  ///< of the tangent, its input; nullptr: it is the tangent itself
  bool by_strides = false;                    ///< one of them tells strides
};

/// `backward`: the last of its inputs are these tangents.
std::vector<Passed> find_passed(const graph::Graph& backward, std::span<const size_t> tangents);

/// The gradient from the tangent as it came; `laid_out` is what the kernels read for it. Undefined: theirs will do.
at::Tensor hand_on(const Passed& passed, const at::Tensor& tangent, const at::Tensor& laid_out,
                   std::span<const int64_t> symbols);

/// Gradients in one memory. A leaf takes a gradient over as it is where nobody else holds that tensor, and adds to it
/// later: what two leaves take must not share memory. (Eager lets them, where both gradients are views.)
struct SharedGradients {
  std::vector<std::pair<size_t, size_t>> same;  ///< a gradient, and an earlier one that is the same tensor
  /// Different tensors over the same memory; what they are views of comes first.
  std::vector<std::vector<size_t>> views;
};
SharedGradients find_shared(const graph::Graph& backward);

}  // namespace magneto::aten
