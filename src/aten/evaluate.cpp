#include "aten/evaluate.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>

#include <mutex>

#include "aten/calls.h"
#include "aten/convert_internal.h"
#include "aten/executable.h"
#include "aten/training.h"
#include "base/check.h"

namespace magneto::aten {

types::Sample sample_of(const at::Tensor& tensor) {
  types::Sample made;
  made.defined = tensor.defined();
  if (!made.defined) return made;
  made.type = type_of(*tensor.unsafeGetTensorImpl());
  if (tensor.numel() == 0) return made;
  int64_t last = tensor.storage_offset();
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const at::Tensor all = tensor.detach().as_strided({last + 1}, {1}, 0).to(at::kCPU, tensor.scalar_type());
  made.memory.resize(static_cast<size_t>(last + 1) * tensor.element_size());
  std::memcpy(made.memory.data(), all.contiguous().const_data_ptr(), made.memory.size());
  return made;
}

at::Tensor tensor_of(const types::Sample& sample) {
  if (!sample.defined) return {};
  const types::TensorType& type = sample.type;
  std::vector<int64_t> sizes, strides;
  for (const types::Expr& size : type.sizes) sizes.push_back(size.value_or(0));
  for (const types::Expr& stride : type.strides) strides.push_back(stride.value_or(0));
  const c10::ScalarType dtype = to_scalar_type(type.dtype);
  const auto count = static_cast<int64_t>(sample.memory.size() / c10::elementSize(dtype));
  at::Tensor all = at::empty({count}, at::TensorOptions(dtype));
  if (!sample.memory.empty()) std::memcpy(all.mutable_data_ptr(), sample.memory.data(), sample.memory.size());
  const c10::Device device = to_torch(type.device);
  if (!device.is_cpu()) all = all.to(device);
  if (count == 0) return at::empty_strided(sizes, strides, at::TensorOptions(dtype).device(device));
  return all.as_strided(sizes, strides, type.offset.value_or(0));
}

std::vector<types::Sample> evaluate(const Executable& executable, std::span<const int64_t> symbols,
                                    std::vector<types::Sample>& inputs) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> given, kept;
  for (const types::Sample& input : inputs) given.push_back(tensor_of(input));
  kept = given;
  c10::SmallVector<at::Tensor, 8> outputs;
  const Executable::Failure failure = executable.run(given, symbols, outputs);
  if (failure.error) std::rethrow_exception(failure.error);
  for (size_t k = 0; k < inputs.size(); ++k) inputs[k] = sample_of(kept[k]);
  std::vector<types::Sample> made;
  for (const at::Tensor& output : outputs) made.push_back(sample_of(output));
  return made;
}

std::vector<types::Sample> evaluate(const graph::Graph& graph, std::span<const at::Tensor> constants,
                                    std::span<const int64_t> symbols, std::vector<types::Sample>& inputs) {
  return evaluate(*compile_by_operators(graph, {constants.begin(), constants.end()}), symbols, inputs);
}

std::vector<types::Sample> evaluate_call(const std::string& op, const std::string& arguments,
                                         std::span<const types::Sample> reads, std::span<const int64_t> symbols) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> given;
  for (const types::Sample& read : reads) given.push_back(tensor_of(read));
  c10::SmallVector<at::Tensor, 8> results;
  Call(op, arguments).run(given, symbols, results);
  std::vector<types::Sample> made;
  for (const at::Tensor& result : results) made.push_back(sample_of(result));
  return made;
}

struct OwnRandom::State {
  std::vector<std::pair<at::Generator, at::Tensor>> generators;
};

OwnRandom::OwnRandom(types::Device device) : state_(std::make_unique<State>()) {
  const auto keep = [&](c10::Device of) {
    at::Generator generator = at::globalContext().defaultGenerator(of);
    const std::lock_guard lock(generator.mutex());
    state_->generators.emplace_back(generator, at::Tensor(generator.get_state()));
  };
  keep(c10::kCPU);
  if (device != types::Device{}) keep(to_torch(device));
}

OwnRandom::~OwnRandom() {
  for (auto& [generator, before] : state_->generators) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before);
  }
}

void OwnRandom::restart() {
  for (auto& [generator, before] : state_->generators) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(1234);
  }
}

}  // namespace magneto::aten
