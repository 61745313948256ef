// driver/pipeline.h: a recorded program to what runs instead of it. The whole compiler on one page.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "aten/program.h"
#include "base/report.h"
#include "driver/code.h"

namespace magneto::driver {

class Pipeline {
 public:
  /// Of this process. Reads MAGNETO_SKIP_PASSES, MAGNETO_TOOLCHAINS, MAGNETO_COMPILER_SECONDS, MAGNETO_VALIDATE and
  /// MAGNETO_LOGS when it is first asked for.
  static Pipeline& instance();

  /// Kernels for the program, or the program itself where it cannot be compiled; the note tells which, and why. Throws
  /// nothing but what `poll` throws.
  std::shared_ptr<aten::Executable> build(const std::shared_ptr<aten::Program>& program,
                                          std::span<const at::Tensor> examples, base::GraphNote& note,
                                          const base::Poll& poll = {});

  Toolchains toolchains;
  std::set<std::string, std::less<>> skip;  ///< passes
  bool validates = false;                   ///< runs the program before and after each pass (validate.h)

  /// For tests of the check: kernels compute `instead` where the graph says `op`, unless `pass` is left out.
  struct Spoiled {
    std::string op, instead, pass;
    bool only_symbolic = false;  ///< graphs whose sizes may change
    bool concerns(const graph::Graph& graph, const std::set<std::string, std::less<>>& skip) const {
      return !skip.contains(pass) && (!only_symbolic || !graph.conditions.empty());
    }
  };
  std::optional<Spoiled> spoiled;

 private:
  Pipeline();
  /// A graph to be compiled, and what stands around it.
  struct Work {
    const graph::Graph& graph;
    std::vector<at::Tensor> constants;
    std::vector<int> bumps, output_bumps;
    std::vector<aten::OutputView> output_views;
    std::vector<bool> leaves;
    std::shared_ptr<const aten::Executable> fallback;
    types::Dtype default_dtype;  ///< torch's, when the program was recorded
    base::Poll poll;
    std::set<std::string, std::less<>> skip;    ///< passes
    std::span<const at::Tensor> examples = {};  ///< of its inputs, where there are some
  };
  /// `build`, without these passes, and without a check.
  std::shared_ptr<aten::Executable> compile(const std::shared_ptr<aten::Program>& program,
                                            std::span<const at::Tensor> examples, base::GraphNote& note,
                                            const base::Poll& poll, const std::set<std::string, std::less<>>& skip);
  std::shared_ptr<aten::Executable> checked(const std::shared_ptr<aten::Program>& program,
                                            std::shared_ptr<aten::Executable> made, const base::GraphNote& note);
  /// Throw base::Fault with the reason when it cannot be done. `training` gives nothing where nobody asks for
  /// gradients, or notes why torch's own autograd graph is needed.
  std::shared_ptr<aten::Executable> kernels(Work work, bool is_functional, const std::string& part,
                                            base::GraphNote& note);
  std::shared_ptr<aten::Executable> training(const std::shared_ptr<aten::Program>& program,
                                             std::span<const at::Tensor> examples, base::GraphNote& note,
                                             const base::Poll& poll, const std::set<std::string, std::less<>>& skip);
};

}  // namespace magneto::driver
