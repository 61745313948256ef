// aten/undo.h: what a run that failed has written, taken back.
//
// An operator that refuses the data of this call (an index out of range) fails in the middle of a graph. Eager raises
// at that line: what the program did before has been done, handlers run. So the graph must leave no trace, and the call
// is made again as eager makes it. Inputs that are written to before such an operator, or by it, are kept. (For random
// numbers see Drawn.)
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace magneto::aten {

class Undo {
 public:
  struct Plan {
    struct Input {
      size_t index = 0;
      bool whole_storage = false;  ///< as_strided may write beside the input's own elements
    };
    std::vector<Input> inputs;  ///< those to keep
    size_t last_refusal = 0;    ///< the last node that may refuse its data
    bool is_complete = true;    ///< no input is written to after it
  };

  Undo(const Plan& plan, std::span<const at::Tensor> inputs);
  /// False: an input got other sizes or other memory, or a view another history.
  bool take_back();
  bool keeps_views() const;

 private:
  struct Kept {
    at::Tensor tensor;
    at::Tensor memory, content;                    ///< what may be written to, and what was there
    at::Tensor detached;                           ///< sizes, strides and storage as they were
    std::optional<torch::autograd::Edge> history;  ///< without a function: it has no grad_fn
    uint32_t version = 0;
  };
  std::vector<Kept> kept_;
};

Undo::Plan undo_plan(const graph::Graph& graph);

/// Follows a graph that grows: whether what it does could be taken back at little cost.
class Reversible {
 public:
  /// Nothing of another library is called, no input becomes another tensor in place, and what is written of inputs is
  /// small.
  /// `part`: only these nodes of it are done.
  bool look(const graph::Graph& graph, const std::vector<bool>* part = nullptr);
  /// The inputs that are written to, by themselves or through views.
  const std::vector<graph::ValueId>& written() const { return written_; }

 private:
  size_t nodes_ = 0;
  int64_t elements_ = 0;               ///< of inputs that are written to
  std::vector<graph::ValueId> shows_;  ///< of each value: the input whose memory it is; invalid: none
  std::vector<graph::ValueId> written_;
  bool is_final_ = false;
};
/// Of each input: whether its storage is looked at by strides (as_strided), which may leave the input itself.
std::vector<bool> inputs_shown_by_strides(const graph::Graph& graph);

}  // namespace magneto::aten
