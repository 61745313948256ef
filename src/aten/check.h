// aten/check.h: the shadow check. Eager runs beside a compiled graph, and whatever a caller can see is compared.
//
// In a run that is checked, the caller's own tensors are eager's: the program runs on them operator by operator, so the
// answer, what is written to inputs and the autograd graph are right, whatever comes out of the check. What was
// compiled runs on copies, with the same random numbers. Where outputs have gradients, both run once more on copies and
// backward from random ones; nothing of the caller's (.grad, hooks) is touched.
//
// When the two differ, the case is shrunk to the few operators that matter (shrink_internal.h) and written down as a
// script (script_internal.h), somebody is told, and the graph runs operator by operator from then on.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aten/executable.h"
#include "aten/program.h"
#include "graph/graph.h"

namespace magneto::aten {

/// A compiled graph that does not do what eager does.
struct Finding {
  std::string what;                    ///< "output 0: 3 of 6 numbers differ, by 2 at most; eager's largest is 1"
  std::vector<std::string> operators;  ///< that are left of it, in order
  graph::Place place;                  ///< of the last of them
  std::string pass;                    ///< without which nothing differs; empty: not one of those that can be left out
  std::string script;                  ///< text of a program that shows it
  std::vector<std::pair<std::string, std::string>> files;  ///< that it reads: the end of the name, the bytes
};

struct Check {
  static constexpr int kFirst = -1;
  int every = 1;      ///< n: the first run and each n-th after it; kFirst: the first
  std::string title;  ///< of scripts
  /// Compiles another program as this one, without one pass (empty: with all of them).
  std::function<std::shared_ptr<Executable>(const std::shared_ptr<Program>& program,
                                            std::span<const at::Tensor> examples, const std::string& without)>
      build;
  std::vector<std::string> passes;  ///< that can be left out
  double seconds = 60;              ///< for making it smaller
  // Both are called in the thread of the run, without the GIL, and must not throw.
  std::function<void()> checked;  ///< a run was compared
  std::function<void(const Finding&)> found;
};

/// `executable`, made from `program`, under the check.
std::shared_ptr<Executable> make_checked(std::shared_ptr<Program> program, std::shared_ptr<Executable> executable,
                                         Check check);

}  // namespace magneto::aten
