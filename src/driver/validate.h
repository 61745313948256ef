// driver/validate.h: translation validation. Does a program after a pass compute what it computed before it?
//
// MAGNETO_VALIDATE=1. Every language can be run: graphs by torch, loops by their interpreter, a plan by the runtime
// with interpreted kernels. Each stage of a compilation is run on the same data as the one before it, on copies; the
// first whose results differ is named. That takes long, and is for tests, for fuzzers, and for users who doubt.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/unit.h"
#include "graph/graph.h"
#include "loop/program.h"
#include "lower/lower.h"
#include "plan/plan.h"
#include "types/sample.h"

namespace magneto::driver {

using types::Sample;

/// Runs graphs and single operators: by torch, where there is one. Throws what an operator throws.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// A stage begins: it draws the same random numbers as the one before it.
  virtual void begin() = 0;
  /// The outputs. Inputs that the graph writes or stores to are changed.
  virtual std::vector<Sample> run(const graph::Graph& graph, const std::vector<int64_t>& symbols,
                                  std::vector<Sample>& inputs) = 0;
  /// One operator, with arguments as lower.cpp writes them.
  virtual std::vector<Sample> call(const std::string& op, const std::string& arguments,
                                   const std::vector<Sample>& reads, const std::vector<int64_t>& symbols) = 0;
};

/// One compilation. Each stage throws base::Violation with its name when it changed what the program means. A stage
/// that cannot be run (it takes too long, an operator fails on these data) is left out and noted.
class Validator {
 public:
  /// `constants` are those of the graphs, in order.
  Validator(Evaluator& evaluator, std::vector<Sample> inputs, std::vector<Sample> constants,
            std::vector<int64_t> symbols);
  ~Validator();

  void graph(std::string_view stage, const graph::Graph& graph);
  /// `lowered` tells what the buffers are, not what they were when its program was made.
  void loops(std::string_view stage, const loop::Program& program, const lower::Lowered& lowered);
  void plan(std::string_view stage, const plan::Plan& plan, const plan::Signature& signature,
            const std::vector<codegen::Unit>& units);
  /// What somebody else ran.
  void results(std::string_view stage, const std::vector<Sample>& outputs, const std::vector<Sample>& inputs);

  /// Data for the caller to run something on.
  const std::vector<Sample>& inputs() const;
  const std::vector<int64_t>& symbols() const;
  /// Stages that were compared, and those that were left out, with the reason.
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Random data for inputs of these types: floats around zero, positions and masks of zeros and ones.
std::vector<Sample> random_samples(const std::vector<types::TensorType>& types, const std::vector<int64_t>& symbols,
                                   unsigned seed);
/// Whether there is a number for each symbol of the graph, none of them negative, and the conditions hold.
bool know_all(const graph::Graph& graph, const std::vector<int64_t>& symbols);
/// Small sizes for which the conditions hold, distinct where they may be; empty: none were found.
std::vector<int64_t> small_symbols(const graph::Graph& graph);

}  // namespace magneto::driver
