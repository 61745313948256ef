#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "aten/backward_node_internal.h"
#include "aten/boxed_internal.h"
#include "aten/convert_internal.h"
#include "aten/generators_internal.h"
#include "aten/sight_internal.h"
#include "aten/storage_flags_internal.h"
#include "aten/trace.h"
#include "base/text.h"

namespace magneto::aten {

namespace autograd = torch::autograd;
using graph::ValueId;

namespace {

/// Nobody asked for this run: what it has to say was said, or will be, by the run for the user.
class Silent final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

c10::DispatchKeySet keys_of(c10::Device device) {
  return c10::DispatchKeySet(device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
}

/// A tensor of bytes over memory that somebody else keeps.
at::Tensor bytes_at(const void* memory, size_t count, c10::Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), count, c10::DataPtr(const_cast<void*>(memory), device), nullptr,
                       false);
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys_of(device), caffe2::TypeMeta::Make<uint8_t>());
  made.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(count)});
  return made;
}

/// Memory that several tensors lie in, and its copy.
struct Region {
  const char *begin, *end;
  c10::Device device;
  at::Tensor copy;  ///< bytes; may be longer
  char* copied = nullptr;
};

constexpr uintptr_t kAlignment = 64;

void copy(Region& region) {
  const auto count = static_cast<int64_t>(region.end - region.begin);
  region.copy =
      at::empty({count + static_cast<int64_t>(kAlignment)}, at::TensorOptions(at::kByte).device(region.device));
  char* const base = static_cast<char*>(region.copy.mutable_data_ptr());
  const auto shift = static_cast<int64_t>(
      (reinterpret_cast<uintptr_t>(region.begin) - reinterpret_cast<uintptr_t>(base)) % kAlignment);
  region.copied = base + shift;
  region.copy.narrow(0, shift, count).copy_(bytes_at(region.begin, static_cast<size_t>(count), region.device));
}

std::vector<Region> copied_regions(std::span<const at::Tensor> tensors) {
  std::vector<Region> regions;
  for (const at::Tensor& tensor : tensors) {
    const c10::StorageImpl& storage = *storage_of(tensor);
    const char* begin = static_cast<const char*>(storage.data());
    if (begin && storage.nbytes() > 0) regions.push_back({begin, begin + storage.nbytes(), tensor.device(), {}});
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  std::vector<Region> merged;
  for (Region& region : regions) {
    if (!merged.empty() && region.begin < merged.back().end && region.device == merged.back().device)
      merged.back().end = std::max(merged.back().end, region.end);
    else
      merged.push_back(std::move(region));
  }
  for (Region& region : merged) copy(region);
  return merged;
}

NodePtr make_identity() {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  return c10::make_intrusive<autograd::Identity>();
#else
  return NodePtr(new autograd::Identity, autograd::deleteNode);
#endif
}

/// As `original` is for autograd: a leaf, or the result of something.
void share_history(const at::Tensor& original, at::Tensor& copy) {
  if (!original.requires_grad()) return;
  if (original.is_leaf())
    copy.set_requires_grad(true);
  else
    autograd::set_history(copy, make_identity());
}

at::Tensor over(const at::Tensor& like, c10::Storage storage) {
  const c10::InferenceMode mode(like.is_inference());
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys_of(like.device()), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

}  // namespace

std::vector<at::Tensor> copies_of(std::span<const at::Tensor> tensors) {
  std::vector<Region> regions;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    regions = copied_regions(tensors);
  }
  std::map<const c10::StorageImpl*, c10::Storage> storages;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    const c10::StorageImpl& storage = *storage_of(tensor);
    c10::Storage& made = storages[&storage];
    if (!made) {
      const char* begin = static_cast<const char*>(storage.data());
      const auto region = std::find_if(regions.begin(), regions.end(), [&](const Region& r) {
        return r.device == tensor.device() && begin && r.begin <= begin && begin < r.end;
      });
      c10::DataPtr memory(nullptr, tensor.device());
      if (region != regions.end())
        memory = c10::DataPtr(
            region->copied + (begin - region->begin), new at::Tensor(region->copy),
            [](void* keeper) { delete static_cast<at::Tensor*>(keeper); }, tensor.device());
      made = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(memory),
                          c10::GetAllocator(tensor.device().type()), storage.resizable());
    }
    copies.push_back(over(tensor, made));
    share_history(tensor, copies.back());
    for (size_t k = 0; k + 1 < copies.size(); ++k)
      if (share_version(*tensor.unsafeGetTensorImpl(), *tensors[k].unsafeGetTensorImpl())) {
        autograd::impl::set_version_counter(copies.back(), autograd::impl::version_counter(copies[k]));
        break;
      }
  }
  return copies;
}

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& fault) {
    return fault.what_without_backtrace();
  } catch (const std::exception& fault) {
    return fault.what();
  } catch (...) {
    return "an error";
  }
}

bool is_no_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {  // the CPU's allocator raises a plain error
    return words_of(error).find("can't allocate memory") != std::string::npos;
  }
}

// ------------------------------------------------------------------------------------------------------------- a run

namespace {

at::Tensor random_numbers(c10::IntArrayRef sizes, uint64_t seed) {
  at::AutoDispatchBelowADInplaceOrView below;
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kFloat));
}

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad() && (tensor.is_floating_point() || tensor.is_complex());
}

/// The gradients of the inputs, from random ones of the outputs and of inputs that the run has given a history.
void run_backward(Sight& sight, const Case& at, const std::vector<autograd::Edge>& edges) {
  struct Work {
    autograd::edge_list roots, captures;
    autograd::variable_list tangents, gradients;
    std::exception_ptr error;
  } work;
  const auto add_root = [&](const at::Tensor& tensor, types::Dtype dtype, uint64_t seed) {
    at::AutoDispatchBelowADInplaceOrView below;
    work.roots.push_back(autograd::impl::gradient_edge(tensor));
    at::Tensor tangent = random_numbers(tensor.sizes(), seed);
    work.tangents.push_back(tangent.to(to_scalar_type(dtype)).to(tensor.device(), tensor.scalar_type()));
  };
  const auto type = [&](ValueId id) { return at.graph.value(id).type.dtype; };
  for (size_t o = 0; o < sight.outputs.size(); ++o)
    if (is_differentiable(sight.outputs[o])) add_root(sight.outputs[o], type(at.graph.outputs[o]), 1000 + o);
  for (size_t i = 0; i < sight.before.size(); ++i)
    if (is_differentiable(sight.before[i]) && autograd::impl::gradient_edge(sight.before[i]) != edges[i])
      add_root(sight.before[i], type(at.graph.inputs()[i]), 2000 + i);
  std::vector<size_t> wanted;
  for (size_t i = 0; i < edges.size(); ++i)
    if (edges[i].is_valid()) {
      wanted.push_back(i);
      work.captures.push_back(edges[i]);
    }
  if (work.roots.empty() || wanted.empty()) return;
  if (at.number > 0 && work.roots.size() > 1) {
    const size_t chosen = (at.number - 1) % work.roots.size();
    work.roots = {work.roots[chosen]};
    work.tangents = {work.tangents[chosen]};
  }
  run_waiting(
      [](void* argument) {
        Work& job = *static_cast<Work*>(argument);
        try {
          job.gradients = autograd::Engine::get_default_engine().execute(job.roots, job.tangents, /*keep_graph=*/false,
                                                                         /*create_graph=*/false,
                                                                         /*accumulate_grad=*/false, job.captures);
        } catch (...) {
          job.error = std::current_exception();
        }
      },
      &work);
  if (work.error) std::rethrow_exception(work.error);
  sight.has_gradients = true;
  sight.gradients.resize(edges.size());
  for (size_t w = 0; w < wanted.size(); ++w) sight.gradients[wanted[w]] = work.gradients[w];
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

using Run = std::function<Executable::Failure(std::span<at::Tensor> inputs, Tensors& outputs)>;

Sight look_at(const Run& run, const Case& at, std::vector<at::Tensor> inputs) {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  const GeneratorsAsTheyWere generators(at.random_on, at.generators);
  Sight sight;
  sight.before = std::move(inputs);
  std::vector<autograd::Edge> edges;
  for (const at::Tensor& input : sight.before) {
    edges.push_back(input.requires_grad() ? autograd::impl::gradient_edge(input) : autograd::Edge());
    sight.versions.push_back(version_of(input));
  }
  try {
    std::vector<at::Tensor> taken = sight.before;
    c10::SmallVector<at::Tensor, 8> outputs;
    const Executable::Failure failure = run(taken, outputs);
    if (failure.error) std::rethrow_exception(failure.error);
    sight.outputs.assign(outputs.begin(), outputs.end());
    for (size_t i = 0; i < sight.before.size(); ++i)
      sight.versions[i] = version_of(sight.before[i]) - sight.versions[i];
    sight.generators = generator_states(at.random_on);
    run_backward(sight, at, edges);
  } catch (...) {
    if (is_no_memory(std::current_exception())) throw;
    sight.error = std::current_exception();
  }
  return sight;
}

/// Operator by operator, with a look at what each makes. `made` gets the results of a node, and may change them.
using Made = std::function<void(const Operator& op, std::span<const at::Tensor> arguments, size_t node,
                                std::vector<at::Tensor>& results)>;
void step_through(const graph::Graph& graph, std::span<const at::Tensor> constants, std::span<at::Tensor> inputs,
                  std::span<const int64_t> symbols, const Made& made, Tensors& outputs) {
  std::vector<size_t> last(graph.values().size(), 0);
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    graph::for_each_read(graph.nodes()[n], [&](ValueId id) { last[id.index()] = n; });
  for (const ValueId output : graph.outputs)
    if (output.valid()) last[output.index()] = graph.nodes().size();
  std::vector<at::Tensor> values(graph.values().size());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = inputs[i];
  for (size_t c = 0; c < constants.size(); ++c) values[graph.constants()[c].index()] = constants[c];

  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  torch::jit::Stack stack;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const graph::Node& node = graph.nodes()[n];
    const Operator& op = operator_named(node.op);
    const c10::AutoGradMode grad_mode(node.grad);
    std::vector<at::Tensor> arguments, results;
    graph::for_each_read(node, [&](ValueId id) { arguments.push_back(values[id.index()]); });
    stack.clear();
    for (const Slot& slot : make_slots(op, node.args)) push(slot, values, symbols, stack);
    call(op, stack);
    for_each_result(stack, [&](at::Tensor&& tensor) { results.push_back(std::move(tensor)); });
    made(op, arguments, n, results);
    for (size_t r = 0; r < results.size() && r < node.outputs.size(); ++r)
      if (node.outputs[r].valid()) values[node.outputs[r].index()] = std::move(results[r]);
    graph::for_each_read(node, [&](ValueId id) {
      if (last[id.index()] == n) values[id.index()].reset();
    });
  }
  for (const ValueId output : graph.outputs) outputs.push_back(output.valid() ? values[output.index()] : at::Tensor());
}

bool shares_memory(const at::Tensor& tensor, std::span<const at::Tensor> others) {
  return std::any_of(others.begin(), others.end(), [&](const at::Tensor& other) {
    return other.defined() && storage_of(other) == storage_of(tensor);
  });
}

}  // namespace

Sight look(const Executable& executable, const Case& at) {
  return look_at(
      [&](std::span<at::Tensor> inputs, Tensors& outputs) { return executable.run(inputs, at.symbols, outputs); }, at,
      copies_of(at.inputs));
}

Sight seen(std::span<const at::Tensor> inputs, std::span<const uint32_t> versions_before,
           std::span<const at::Tensor> outputs, const Case& at) {
  Sight sight;
  sight.before.assign(inputs.begin(), inputs.end());
  for (size_t i = 0; i < inputs.size(); ++i) sight.versions.push_back(version_of(inputs[i]) - versions_before[i]);
  sight.outputs.assign(outputs.begin(), outputs.end());
  sight.generators = generator_states(at.random_on);
  return sight;
}

std::vector<at::Tensor> values_of(const Case& at) {
  const GeneratorsAsTheyWere generators(at.random_on, at.generators);
  std::vector<at::Tensor> inputs = copies_of(at.inputs), values(at.graph.values().size());
  for (size_t i = 0; i < inputs.size(); ++i) values[at.graph.inputs()[i].index()] = at.inputs[i];
  for (size_t c = 0; c < at.constants.size(); ++c) values[at.graph.constants()[c].index()] = at.constants[c];
  c10::SmallVector<at::Tensor, 8> outputs;
  step_through(
      at.graph, at.constants, inputs, at.symbols,
      [&](const Operator&, std::span<const at::Tensor>, size_t node, std::vector<at::Tensor>& results) {
        const graph::Node& made = at.graph.nodes()[node];
        for (size_t r = 0; r < results.size() && r < made.outputs.size(); ++r)
          if (made.outputs[r].valid() && results[r].defined() && !values[made.outputs[r].index()].defined())
            values[made.outputs[r].index()] = copies_of({&results[r], 1})[0];
      },
      outputs);
  return values;
}

// ----------------------------------------------------------------------------------------------------------- judges

namespace {

/// Of the last place, relative to the number; and what two right answers may differ by, relative to the largest.
struct Precision {
  double unit, tolerance;
};
std::optional<Precision> precision_of(c10::ScalarType type) {
  switch (c10::toRealValueType(type)) {
    case at::kDouble:
      return Precision{2.3e-16, 2e-13};
    case at::kFloat:
      return Precision{1.2e-7, 1e-5};
    case at::kHalf:
      return Precision{9.8e-4, 4e-3};
    case at::kBFloat16:
      return Precision{7.9e-3, 3e-2};
    default:
      if (!c10::isFloatingType(type)) return std::nullopt;
      return Precision{0.25, 0.5};  // eight bits
  }
}

/// Moves each number by a unit of the last place or leaves it, at random.
void add_noise(const at::Tensor& tensor, uint64_t seed) {
  const auto precision = precision_of(tensor.scalar_type());
  if (!precision || tensor.numel() == 0) return;
  at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor noise =
      at::randint(-1, 2, tensor.sizes(), at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble))
          .mul_(precision->unit)
          .add_(1.0);
  tensor.copy_(tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble).mul_(noise.to(tensor.device())));
}

Sight noisy_sight(const Case& at, uint64_t seed) {
  uint64_t next = seed << 32;
  std::vector<at::Tensor> inputs = copies_of(at.inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!shares_memory(inputs[i], {inputs.data(), i})) add_noise(inputs[i], ++next);
  const auto run = [&](std::span<at::Tensor> taken, Tensors& outputs) -> Executable::Failure {
    try {
      step_through(
          at.graph, at.constants, taken, at.symbols,
          [&](const Operator& op, std::span<const at::Tensor> arguments, size_t, std::vector<at::Tensor>& results) {
            for (const at::Tensor& result : results)
              if (result.defined() && (op.writes_anything || !shares_memory(result, arguments)))
                add_noise(result, ++next);
          },
          outputs);
      return {};
    } catch (...) {
      return {std::current_exception()};
    }
  };
  return look_at(run, at, std::move(inputs));
}

c10::ScalarType wide(c10::ScalarType type) {
  if (c10::isComplexType(type)) return at::kComplexDouble;
  return c10::isFloatingType(type) ? at::kDouble : type;
}

std::vector<at::Tensor> widened(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> wider;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor made;
    {
      at::AutoDispatchBelowADInplaceOrView below;
      made = tensor.to(tensor.options().dtype(wide(tensor.scalar_type())), /*non_blocking=*/false, /*copy=*/true);
    }
    wider.push_back(made.detach());
    share_history(tensor, wider.back());
  }
  return wider;
}

/// In double precision. Nothing where that is another program: random numbers, memory that inputs share.
std::optional<Sight> exact_sight(const Case& at) {
  if (!at.random_on.empty()) return std::nullopt;
  for (size_t i = 0; i < at.inputs.size(); ++i)
    if (shares_memory(at.inputs[i], {at.inputs.data(), i})) return std::nullopt;
  graph::Graph graph = at.graph;
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    for (graph::Arg& arg : graph.node(graph::NodeId(n)).args)
      if (auto* dtype = std::get_if<types::Dtype>(&arg)) *dtype = *to_dtype(wide(to_scalar_type(*dtype)));
  const auto run = [&](std::span<at::Tensor> taken, Tensors& outputs) -> Executable::Failure {
    try {
      step_through(
          graph, widened(at.constants), taken, at.symbols,
          [](const Operator&, std::span<const at::Tensor>, size_t, std::vector<at::Tensor>&) {}, outputs);
      return {};
    } catch (...) {
      return {std::current_exception()};
    }
  };
  Sight sight = look_at(run, at, widened(at.inputs));
  return sight.error ? std::nullopt : std::optional<Sight>(std::move(sight));
}

/// Real numbers in double precision, on the CPU.
at::Tensor numbers_of(const at::Tensor& tensor) {
  at::Tensor plain = tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
  return plain.to(at::TensorOptions(at::kCPU).dtype(at::kDouble));
}

struct Error {
  double largest = 0;  ///< infinite: one of them is no number
  double scale = 0;    ///< the largest number of `want`
  int64_t wrong = 0;   ///< how many are further apart than rounding explains
};

/// Two tensors of the same sizes.
Error error_of(const at::Tensor& want, const at::Tensor& have, double tolerance) {
  at::AutoDispatchBelowADInplaceOrView below;
  if (want.numel() == 0) return {};
  const at::Tensor w = numbers_of(want), h = numbers_of(have);
  const at::Tensor same = w.eq(h).logical_or_(w.isnan().logical_and_(h.isnan()));
  const at::Tensor apart = w.sub(h).abs_().masked_fill_(same, 0.0).nan_to_num_(INFINITY, INFINITY, INFINITY);
  Error error;
  error.scale = w.abs().masked_fill_(w.isfinite().logical_not_(), 0.0).max().item<double>();
  error.largest = apart.max().item<double>();
  error.wrong = apart.gt(tolerance * error.scale).sum().item<int64_t>();
  return error;
}

double mean_error(const at::Tensor& exact, const at::Tensor& have) {
  at::AutoDispatchBelowADInplaceOrView below;
  return numbers_of(exact).sub(numbers_of(have)).pow_(2).mean().sqrt_().item<double>();
}

/// All that is seen through one tensor, over its whole memory.
at::Tensor whole(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys_of(tensor.device()), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(storage.nbytes() / tensor.element_size())});
  return made;
}

class Comparison {
 public:
  Comparison(const Sight& eager, const Sight& ours, const Case& at) : eager_(eager), ours_(ours), at_(at) {}

  std::string run() {
    if (eager_.error || ours_.error) return errors();
    for (size_t o = 0; o < eager_.outputs.size(); ++o)
      if (std::string words = output(o); !words.empty()) return base::concat("output ", o, ": ", words);
    for (size_t i = 0; i < eager_.before.size(); ++i)
      if (std::string words = input(i); !words.empty()) return base::concat(name(i), " afterwards: ", words);
    for (size_t d = 0; d < at_.random_on.size(); ++d)
      if (eager_.generators[d].defined() && ours_.generators[d].defined() &&
          !eager_.generators[d].equal(ours_.generators[d]))
        return base::concat("the random numbers on ", at_.random_on[d].str(), " go on at another place");
    for (size_t i = 0; eager_.has_gradients && ours_.has_gradients && i < eager_.gradients.size(); ++i)
      if (std::string words = gradient(i); !words.empty())
        return base::concat("the gradient of ", name(i), ": ", words);
    return "";
  }

 private:
  using Pick = std::function<at::Tensor(const Sight&)>;

  std::string name(size_t i) const {
    const std::string& name = at_.graph.value(at_.graph.inputs()[i]).name;
    return name.empty() ? base::concat("input ", i) : name;
  }

  std::string errors() const {
    if (eager_.error && ours_.error) return "";  // whose words they are is seen where it is run again
    if (eager_.error) return base::concat("eager raises ", words_of(eager_.error));
    return base::concat("raises ", words_of(ours_.error));
  }

  static std::string layout(const at::Tensor& tensor, const Sight& sight) {
    std::string words =
        base::concat(c10::toString(tensor.scalar_type()), " ", list(tensor.sizes()), ", strides ",
                     list(tensor.strides()), ", offset ", tensor.storage_offset(), ", on ", tensor.device().str());
    if (tensor.requires_grad()) words += tensor.is_leaf() ? ", a leaf that needs a gradient" : ", needs a gradient";
    if (tensor.is_inference()) words += ", an inference tensor";
    for (size_t i = 0; i < sight.before.size(); ++i) {
      if (tensor.is_same(sight.before[i])) return base::concat(words, ", input ", i, " itself");
      if (storage_of(tensor) == storage_of(sight.before[i])) return base::concat(words, ", a view of input ", i);
    }
    for (size_t o = 0; o < sight.outputs.size() && !tensor.is_same(sight.outputs[o]); ++o)
      if (sight.outputs[o].defined() && storage_of(tensor) == storage_of(sight.outputs[o]))
        return base::concat(words, ", shares its memory with output ", o);
    return words;
  }

  static std::string list(c10::IntArrayRef numbers) {
    std::string text = "[";
    for (size_t i = 0; i < numbers.size(); ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
    return text + "]";
  }

  std::string output(size_t o) {
    const at::Tensor &want = eager_.outputs[o], &have = ours_.outputs[o];
    if (want.defined() != have.defined())
      return have.defined() ? "a tensor, eager's is none" : "none, eager's is a tensor";
    if (!want.defined()) return "";
    const std::string wanted = layout(want, eager_), had = layout(have, ours_);
    if (wanted != had) return base::concat(had, "; eager's: ", wanted);
    return values([o](const Sight& sight) { return sight.outputs[o]; });
  }

  std::string input(size_t i) {
    if (eager_.versions[i] != ours_.versions[i])
      return base::concat("its version went up by ", ours_.versions[i], ", eager's by ", eager_.versions[i]);
    if (eager_.before[i].requires_grad() != ours_.before[i].requires_grad())
      return ours_.before[i].requires_grad() ? "needs a gradient, eager's does not" : "needs no gradient, eager's does";
    if (shares_memory(eager_.before[i], {eager_.before.data(), i})) return "";
    return values([i](const Sight& sight) { return whole(sight.before[i]); }, /*has_exact=*/false);
  }

  std::string gradient(size_t i) {
    const at::Tensor &want = eager_.gradients[i], &have = ours_.gradients[i];
    if (want.defined() != have.defined())
      return have.defined() ? "a tensor, eager's is None" : "None, eager's is a tensor";
    if (!want.defined()) return "";
    if (want.scalar_type() != have.scalar_type() || want.sizes() != have.sizes())
      return base::concat(c10::toString(have.scalar_type()), " ", list(have.sizes()), ", eager's ",
                          c10::toString(want.scalar_type()), " ", list(want.sizes()));
    return values([i](const Sight& sight) { return i < sight.gradients.size() ? sight.gradients[i] : at::Tensor(); });
  }

  std::string values(const Pick& pick, bool has_exact = true) {
    const at::Tensor want = pick(eager_), have = pick(ours_);
    const auto precision = precision_of(want.scalar_type());
    const double tolerance = precision ? precision->tolerance : 0;
    const Error error = error_of(want, have, tolerance);
    if (error.wrong == 0) return "";
    if (has_exact && precision && is_as_near(pick, want, have)) return "";
    if (is_as_rough(pick, want, error, tolerance)) return "";
    return base::concat(error.wrong, " of ", want.numel(), " numbers differ, by ", shown(error.largest),
                        " at most; eager's largest is ", shown(error.scale));
  }

  static std::string shown(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", number);
    return text;
  }

  /// As near to what double precision gives as eager's.
  bool is_as_near(const Pick& pick, const at::Tensor& want, const at::Tensor& have) {
    if (!exact_) exact_ = std::make_unique<std::optional<Sight>>(exact_sight(at_));
    if (!*exact_) return false;
    const at::Tensor exact = pick(**exact_);
    if (!exact.defined() || exact.sizes() != want.sizes()) return false;
    const double theirs = mean_error(exact, want), own = mean_error(exact, have);
    return std::isfinite(theirs) && own <= 2 * theirs;
  }

  /// As far away as eager's own answer moves when its rounding does.
  bool is_as_rough(const Pick& pick, const at::Tensor& want, const Error& error, double tolerance) {
    constexpr uint64_t kRuns = 3;
    constexpr int64_t kTimes = 10;
    while (noisy_.size() < kRuns) noisy_.push_back(noisy_sight(at_, noisy_.size() + 1));
    Error most;
    for (const Sight& sight : noisy_) {
      if (sight.error) continue;
      const at::Tensor moved = pick(sight);
      if (!moved.defined() || moved.sizes() != want.sizes()) continue;
      const Error own = error_of(want, moved, tolerance / kTimes);
      most.largest = std::max(most.largest, own.largest);
      most.wrong = std::max(most.wrong, own.wrong);
    }
    const bool is_near = tolerance == 0 || error.largest <= kTimes * most.largest;  // an index may be any other
    return is_near && error.wrong <= kTimes * most.wrong;
  }

  const Sight &eager_, &ours_;
  const Case& at_;
  std::unique_ptr<std::optional<Sight>> exact_;
  std::vector<Sight> noisy_;
};

}  // namespace

std::string difference(const Sight& eager, const Sight& ours, const Case& at) {
  return Comparison(eager, ours, at).run();
}

}  // namespace magneto::aten
