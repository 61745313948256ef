// aten/kernels.h: a plan of kernels and extern calls on torch's tensors, below autograd.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aten/executable.h"
#include "plan/plan.h"
#include "runtime/run.h"

namespace magneto::aten {

class Program;

class Kernels : public Executable {
 public:
  /// `program` computes the same graph: it serves inputs that overlap where one is written to, and calls that fail, so
  /// that errors are eager's. `find` gives the function of a kernel by its name; `code` is what keeps them.
  Kernels(plan::Plan plan, plan::Signature signature, const std::function<runtime::Kernel*(const std::string&)>& find,
          std::shared_ptr<const void> code, std::shared_ptr<const Program> program);
  ~Kernels() override;

  Failure run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const override;
  bool writes_inputs() const override;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace magneto::aten
