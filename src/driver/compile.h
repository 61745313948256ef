// driver/compile.h: the pipeline from a graph to a plan and the text of its kernels, without torch.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "codegen/unit.h"
#include "driver/passes.h"
#include "driver/unproved.h"
#include "graph/graph.h"
#include "loop/program.h"
#include "plan/plan.h"

namespace magneto::driver {

class Validator;

/// A graph on its way to machine code: everything but the code itself.
struct Compilation {
  graph::Graph functional;  ///< values only, composite operators expanded
  std::string equations;    ///< the loop program before scheduling, where somebody wants to read it
  loop::Program program;    ///< scheduled; the units point into it
  plan::Plan plan;
  plan::Signature signature;
  std::vector<codegen::Unit> units;  ///< the kernels to compile
  /// Nodes of `functional` that are calls although they have equations: a place that these touch is not proved to lie
  /// inside of its memory.
  Calls unproved;
};

struct Request {
  types::Dtype default_dtype = types::Dtype::kF32;
  schedule::Shape shape;
  types::Device device;            ///< that kernels compute on
  bool is_functional = false;      ///< the graph needs no functionalise
  bool keeps_texts = false;        ///< for whoever reads Compilation::equations
  Validator* validator = nullptr;  ///< compares the program before and after each stage; it has run the recorded one
};

/// Throws base::Fault when the graph cannot be expressed: its message is the reason, for users; base::Violation when a
/// verifier found a fault of ours.
std::unique_ptr<Compilation> compile(const graph::Graph& graph, const Request& request, Passes& passes);

}  // namespace magneto::driver
