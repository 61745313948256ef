// aten/chain_internal.h: a program in pieces that run one after the other, each on what those before it made.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "aten/executable.h"
#include "graph/graph.h"

namespace magneto::aten {

class Program;

/// The nodes between two cuts, as a program of their own.
struct Piece {
  std::shared_ptr<Program> program;
  std::vector<graph::ValueId> inputs, outputs;  ///< values of the whole program's graph
};

/// `cuts` are counts of nodes, rising.
std::vector<Piece> cut_into_pieces(const Program& program, const std::vector<size_t>& cuts);

/// Runs the pieces; `executables` are what computes them, in order.
std::shared_ptr<Executable> make_chain(std::shared_ptr<Program> whole, std::vector<Piece> pieces,
                                       std::vector<std::shared_ptr<Executable>> executables);

/// What computes the pieces; empty where it is no chain.
std::span<const std::shared_ptr<Executable>> pieces_of(const Executable& executable);

}  // namespace magneto::aten
