// aten/custom_function_internal.h: the node of a custom function, when the program runs.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "aten/custom_function.h"
#include "aten/symbols.h"

namespace magneto::aten {

class Program;

/// A node `magneto::function`, made ready once.
class FunctionCode : public std::enable_shared_from_this<FunctionCode> {
 public:
  explicit FunctionCode(const graph::Node& node);
  ~FunctionCode();

  /// Values of the symbols of the backward: numbers, or those of a symbolic trace.
  struct Numbers {
    std::vector<int64_t> values = {};
    std::shared_ptr<Symbols> symbols = {};
  };
  /// The results, with a node of torch's autograd graph where one of the inputs needs a gradient. `is_joint`: of
  /// tensors without data, for the joint graph.
  std::vector<at::Tensor> attach(std::vector<at::Tensor> results, const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& saved, Numbers numbers, bool is_joint) const;
  /// The same for boxed arguments of the operator; what comes out takes their place.
  void attach(torch::jit::Stack& stack) const;
  /// Symbols of `symbols`' trace, where some argument is one.
  Numbers numbers_of(const graph::Node& node, const std::shared_ptr<Symbols>& symbols) const;

  /// The operators of the backward on gradients and what was saved. `differentiable`: their own gradients are wanted.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, const Numbers& numbers, bool differentiable) const;
  const CustomFunction& told() const { return told_; }
  const std::string& text() const { return text_; }

 private:
  std::vector<at::Tensor> run_symbolically(std::vector<at::Tensor> inputs, const Numbers& numbers) const;
  const Program& program(bool differentiable) const;

  CustomFunction told_;
  std::string text_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Program> plain_, differentiable_;
};

}  // namespace magneto::aten
