// aten/chain_internal.h: a program in pieces that run one after the other, each on what those before it made, or
// entered in the middle.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "aten/executable.h"
#include "aten/reading.h"
#include "graph/graph.h"

namespace magneto::aten {

class Program;

/// The nodes between two cuts, as a program of their own.
struct Piece {
  std::shared_ptr<Program> program;
  std::vector<graph::ValueId> inputs, outputs;  ///< values of the whole program's graph
  struct Read {
    graph::ValueId tensor;
    int64_t dim = -1;  ///< this size; -1: the elements
  };
  std::vector<Read> reads;  ///< after it, in order
  /// Of each input, where its executable was made for that; a run in which it is otherwise goes operator by operator.
  std::vector<bool> needs_gradient;
};

/// `cuts` are counts of nodes, rising. What reads numbers is no part of a piece: it stands at the end of one.
std::vector<Piece> cut_into_pieces(const Program& program, const std::vector<size_t>& cuts);

/// A tensor as the pieces before will make it: no data, and a history where it has one.
at::Tensor example_of(const types::TensorType& type, std::span<const int64_t> hints, bool requires_grad);

/// A value of a program that is known from outside.
struct Entry {
  graph::ValueId value;
  size_t history_complete = 0;  ///< its history, once so many nodes have run
  size_t complete = 0;          ///< its numbers, once so many have
};
/// The program with these outputs, on its inputs and, after them, on these values: whoever reads one of them once its
/// history is complete reads what was given, or its own numbers with that history as long as they are not complete,
/// also by a view that was made before. But an output is what the program computes. The last inputs are the numbers of
/// `known`: tensors get them as soon as they are complete, quietly, so that whoever saved one has them, too. `idle`
/// nodes do not run: what they would make is zeros. Nor do those that only check numbers, which have passed once. All
/// others stay, so that random numbers are drawn as before.
std::unique_ptr<Program> enter_at(const Program& program, std::span<const Entry> entries, std::span<const Entry> known,
                                  const std::vector<bool>& idle, std::span<const graph::ValueId> outputs);

/// Runs the pieces; `executables` are what computes them, in order; nullptr: there is nothing to do.
std::shared_ptr<Reading> make_chain(std::shared_ptr<Program> whole, std::vector<Piece> pieces,
                                    std::vector<std::shared_ptr<Executable>> executables);

}  // namespace magneto::aten
