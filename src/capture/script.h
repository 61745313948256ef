// capture/script.h: TorchScript functions, as the operators they run.
//
// A scripted function is a graph of torch's own, which its executor profiles, optimises and fuses. Where it is recorded
// torch's interpreter runs it from its plain graph: then whatever it computes passes the dispatcher, operator by
// operator, and the trace sees it. That holds for operators of the dispatcher. The interpreter has others of its own
// (arithmetic of numbers, lists, sizes, print, tolist ...), and a function is recorded only if all of these are known
// to neither read data, nor make tensors that nobody sees, nor do anything outside.
#pragma once
#include <Python.h>

#include <memory>
#include <string>

#include "capture/stop_reasons.h"

namespace torch::jit {
struct Graph;
struct Function;
struct CompilationUnit;
}  // namespace torch::jit

namespace magneto::capture {

class Script {
 public:
  static void prepare();  ///< once, at import
  /// torch.jit.script(f), torch.jit.trace(f), or a method of such a module.
  static bool is_scripted(PyObject* callable);

  explicit Script(PyObject* callable);
  Stop stop() const { return stop_; }  ///< kNone: it can be recorded
  const std::string& detail() const { return detail_; }
  /// As a call of the function itself; new reference, or nullptr with an error.
  PyObject* run(PyObject* const* args, size_t nargsf, PyObject* kwnames) const;

 private:
  PyObject* callable_;
  std::shared_ptr<torch::jit::CompilationUnit> owner_;
  torch::jit::Function* function_ = nullptr;
  std::shared_ptr<torch::jit::Graph> graph_;
  Stop stop_ = Stop::kNone;
  std::string detail_;
};

}  // namespace magneto::capture
