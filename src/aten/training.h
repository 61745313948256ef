// aten/training.h: a program with a backward of its own, one node of torch's autograd graph for the whole of it.
//
// Forward and backward are cut out of the joint graph (joint.h, autograd/partition.h) and computed by whatever
// `compile` makes of them, below autograd. Around them stays what only torch can do: views and aliases that leave are
// made by torch's own view operators on the node's outputs or on the caller's tensors, inputs are kept as autograd
// keeps them (who changes one before the backward gets eager's error), and a backward that is itself to be
// differentiated repeats the program above autograd.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "graph/graph.h"

namespace magneto::aten {

class Program;

/// What computes a functional graph: no operator writes its arguments, stores are listed at the end, no output shares
/// memory with an input or with another output. It runs below autograd (its keys are excluded): inputs may require
/// gradients, outputs have no history. It draws random numbers from torch's generators in the order of the graph.
/// `part` is "forward" or "backward". A backward may be asked for when gradients come (of a program with several
/// outputs it is not known before through which ones they will), from a thread of the autograd engine without the GIL.
using CompileGraph =
    std::function<std::shared_ptr<Executable>(graph::Graph graph, std::vector<at::Tensor> constants, const char* part)>;

/// `examples` are inputs as they will come: only sizes, strides and requires_grad count. nullptr: `reason` tells why
/// the program must build torch's own autograd graph, as it does when it is run itself.
std::shared_ptr<Executable> make_training(std::shared_ptr<Program> program, std::span<const at::Tensor> examples,
                                          const CompileGraph& compile, std::string* reason);

/// The plainest CompileGraph: operator by operator.
std::shared_ptr<Executable> compile_by_operators(graph::Graph graph, std::vector<at::Tensor> constants,
                                                 const char* part = "");

/// What was kept and how long it took, for the report and for tests.
struct TrainingFacts {
  int64_t saved_bytes = 0;  ///< of values that are no inputs, for the sizes of the examples
  size_t saved = 0;         ///< values, inputs among them
  double joint_ms = 0, functionalise_ms = 0, partition_ms = 0;
  graph::Graph forward, backward;
};
/// One for each node; none where it is not one of make_training's.
std::vector<const TrainingFacts*> training_facts(const Executable& executable);

}  // namespace magneto::aten
