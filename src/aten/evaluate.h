// aten/evaluate.h: graphs and operators on plain memory, run by torch: what compiled code is compared with.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "types/sample.h"

namespace magneto::aten {

class Executable;

types::Sample sample_of(const at::Tensor& tensor);  ///< a copy, from the begin of its storage on
at::Tensor tensor_of(const types::Sample& sample);  ///< on the device of its type

/// The outputs of a graph, operator by operator. Inputs that it writes or stores to are changed. Throws what an
/// operator throws.
std::vector<types::Sample> evaluate(const graph::Graph& graph, std::span<const at::Tensor> constants,
                                    std::span<const int64_t> symbols, std::vector<types::Sample>& inputs);
/// The same of something that was compiled.
std::vector<types::Sample> evaluate(const Executable& executable, std::span<const int64_t> symbols,
                                    std::vector<types::Sample>& inputs);
/// One operator, as Call takes it (calls.h).
std::vector<types::Sample> evaluate_call(const std::string& op, const std::string& arguments,
                                         std::span<const types::Sample> reads, std::span<const int64_t> symbols);

/// Random numbers that others draw stay as they would have been.
class OwnRandom {
 public:
  explicit OwnRandom(types::Device device);
  ~OwnRandom();
  void restart();  ///< the same numbers again

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace magneto::aten
