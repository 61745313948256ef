// aten/sight_internal.h: all that a caller can see of a run of a graph, on copies of its inputs, so that two
// executables can be compared: outputs with dtype, sizes, strides and aliases, what became of the inputs, errors, the
// state of the generators, and gradients.
//
// When are two answers the same? Kernels sum in another order than eager and leave out some rounding, so their numbers
// may differ by a few units of the last place of the largest number of the tensor. What is further apart is right all
// the same where eager's own rounding is as coarse: in a difference of nearly equal numbers, after a threshold. Two
// judges know that: eager with every result moved by a unit of the last place, at random, and eager in double
// precision.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "graph/graph.h"

namespace magneto::aten {

/// A graph, and everything that it is run with.
struct Case {
  graph::Graph graph;
  std::vector<at::Tensor> constants;
  std::vector<at::Tensor> inputs;  ///< as they are before the run; requires_grad of each counts
  std::vector<int64_t> symbols;
  std::vector<c10::Device> random_on;
  std::vector<at::Tensor> generators;  ///< their states before the run
  size_t number = 0;                   ///< chooses the gradients: 0 of all outputs, n of one
};

/// The same tensors over memory of their own: sizes, strides, offsets, aliases among them and alignment are as they
/// were, and so is whether they need gradients and have a history.
std::vector<at::Tensor> copies_of(std::span<const at::Tensor> tensors);

struct Sight {
  std::exception_ptr error;         ///< nothing below is there then
  std::vector<at::Tensor> before;   ///< the copies: the caller's tensors
  std::vector<uint32_t> versions;   ///< of each: how often it was written to
  std::vector<at::Tensor> outputs;  ///< of the graph
  std::vector<at::Tensor> generators;
  bool has_gradients = false;
  std::vector<at::Tensor> gradients;  ///< of each input; undefined: none
};

/// Runs it on copies, and its backward where an output has one. The generators are what they were before. Throws where
/// there is no memory for that (is_no_memory).
Sight look(const Executable& executable, const Case& at);
/// The same for a run on the caller's own tensors that is over, without gradients.
Sight seen(std::span<const at::Tensor> inputs, std::span<const uint32_t> versions_before,
           std::span<const at::Tensor> outputs, const Case& at);

/// What differs, in words; empty: nothing. `eager` and `ours` are runs of `at`.
std::string difference(const Sight& eager, const Sight& ours, const Case& at);

/// What each node of the graph makes, on copies of the inputs: clones, taken when the node has run. By value.
std::vector<at::Tensor> values_of(const Case& at);

/// The words of an exception, without the lines of C++ that torch adds.
std::string words_of(const std::exception_ptr& error);
bool is_no_memory(const std::exception_ptr& error);

}  // namespace magneto::aten
