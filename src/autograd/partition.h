// autograd/partition.h: a joint graph becomes a forward and a backward graph, and what the one keeps for the other.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace magneto::autograd {

/// What the graph is made of: the first inputs are the forward's and the rest tangents, the first outputs are the
/// forward's and the rest gradients.
struct Halves {
  size_t inputs = 0, outputs = 0;
  size_t forward_nodes = 0;         ///< the forward's own: of these, what may raise stays in it, whoever needs it
  std::vector<int64_t> hints = {};  ///< values of symbols, to weigh sizes with
};

/// One value that the backward reads of the forward.
struct Saved {
  enum class From : uint8_t {
    kInput,   ///< the input of this index. Where it is stored to: after the stores
    kOutput,  ///< the output of this index, of the original ones
    kExtra,   ///< the output after the original ones, of this index; where a caller has the value, a copy of it
  };
  static constexpr size_t kNone = static_cast<size_t>(-1);
  From from = From::kExtra;
  size_t index = 0;
  size_t shares = kNone;  ///< the original output that is a view of it: who writes to the one changes the other
  graph::ValueId value;   ///< of the joint graph; invalid: another joint graph than the first one has no such value
  bool is_read = true;    ///< by this backward
  /// Eager notices when somebody writes to its memory. Not where all its operators saved is an _unsafe_view of it.
  bool is_checked = true;
};

struct Partition {
  graph::Graph forward;   ///< all inputs of the forward half; its outputs, then the extra ones; the stores
  graph::Graph backward;  ///< inputs: of the saved values, then of the tangents, those that it reads; gradients
  std::vector<Saved> saved;
  std::vector<size_t> tangents;  ///< those that are inputs of backward
  /// Positions of the constants of each half among those of the joint graph.
  std::vector<size_t> forward_constants, backward_constants;
  std::vector<std::vector<bool>> depends;  ///< for each gradient: on which tangents
  /// For each saved value: on which tangents the operators of the backward depend that read it, themselves or by way of
  /// what is computed again. Equal answers stand there once.
  std::vector<std::vector<std::vector<bool>>> readers;
  int64_t bytes = 0;   ///< of saved values that are no inputs
  std::string reason;  ///< not empty: why it cannot be cut; the rest has no meaning then
};

/// Runs after functionalise. Saves as few bytes as it can: a value that costs little to compute is computed again in
/// the backward where its own sources are kept anyway; what was drawn at random, products, convolutions and reductions
/// never are, unless the program asks for it: of a region of torch.utils.checkpoint only what it reads and what leaves
/// it is saved, and the backward computes the rest again where it needs it first. Views are not saved but what they are
/// taken of. What the recorded backward reads of the forward is always one of the choices, so no more bytes are kept
/// than eager keeps. Only what the forward computes is kept, nothing that the backward asks for alone (a mask in the
/// place of numbers): then any other backward of the same forward can do with what is kept, for some gradients, to some
/// place in the middle, or one that is differentiated itself. Inputs and outputs that eager keeps are kept as they are:
/// who writes to their memory changes the gradient, or gets an error, as in eager. Those that eager does not keep may
/// change before the backward: where one is needed, a copy is kept. Dead operators go, but what draws random numbers or
/// only checks something stays in the forward.
Partition partition(const graph::Graph& joint, const Halves& halves);

/// Another backward for what the same forward saved: through some of the tangents, or for some of the gradients (the
/// others are no outputs). `joint` is a joint graph of the same forward as `first`, which the values of `saved` are of:
/// up to the backward, their nodes are the same. The result has no forward; its saved values are in order.
Partition partition_again(const graph::Graph& joint, const Halves& halves, const graph::Graph& first,
                          std::vector<Saved> saved);

}  // namespace magneto::autograd
