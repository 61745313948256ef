#include "aten/kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <new>

#include "aten/calls.h"
#include "aten/convert_internal.h"
#include "aten/generators_internal.h"
#include "aten/threads_internal.h"
#include "base/check.h"
#include "runtime/cuda.h"
#include "runtime/sort.h"

namespace magneto::aten {

using plan::BufferId;
using plan::Place;
using types::TensorType;

namespace {

/// Sizes and strides of a tensor, numbers where they are.
struct Layout {
  explicit Layout(const TensorType& type) : type(type), dtype(to_scalar_type(type.dtype)) {
    const auto is_number = [](const types::Expr& e) { return e.is_constant(); };
    fixed = std::all_of(type.sizes.begin(), type.sizes.end(), is_number) &&
            std::all_of(type.strides.begin(), type.strides.end(), is_number) && type.offset.is_constant();
    if (fixed) numbers = extents_of(type, {});
  }
  /// Calls `use` with sizes and strides.
  template <class Use>
  auto with(std::span<const int64_t> symbols, const Use& use) const {
    if (fixed) return use(c10::IntArrayRef(numbers.sizes), c10::IntArrayRef(numbers.strides));
    const Extents now = extents_of(type, symbols);
    return use(c10::IntArrayRef(now.sizes), c10::IntArrayRef(now.strides));
  }

  TensorType type;
  c10::ScalarType dtype;
  bool fixed = false;
  Extents numbers;  ///< where they are fixed
};

at::Tensor empty(const Layout& layout, c10::Device device, std::span<const int64_t> symbols) {
  return layout.with(symbols, [&](c10::IntArrayRef sizes, c10::IntArrayRef strides) -> at::Tensor {
    if (device.is_cpu()) return at::detail::empty_strided_cpu(sizes, strides, layout.dtype);
    return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(device.type()),
                                             c10::DispatchKeySet(c10::DispatchKey::CUDA), layout.dtype);
  });
}

/// A tensor over memory that somebody else keeps.
at::Tensor over(void* memory, const Layout& layout, c10::Device device, std::span<const int64_t> symbols) {
  return layout.with(symbols, [&](c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    const size_t item = c10::elementSize(layout.dtype);
    const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, item);
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(memory, device), nullptr, false);
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA),
        c10::scalarTypeToTypeMeta(layout.dtype));
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return made;
  });
}

/// As codegen/abi.h says.
bool is_aligned(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 16 == 0; }

/// How a tensor agrees with a layout: not at all, in dtype and sizes, or in strides, too.
enum class Fit : uint8_t { kNone, kType, kLayout };

Fit fit_of(const at::Tensor& tensor, const Layout& layout, std::span<const int64_t> symbols) {
  if (tensor.scalar_type() != layout.dtype) return Fit::kNone;
  return layout.with(symbols, [&](c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    if (tensor.sizes() != sizes) return Fit::kNone;
    for (size_t d = 0; d < sizes.size(); ++d)  // torch does not care for strides of one element
      if (sizes[d] > 1 && tensor.strides()[d] != strides[d]) return tensor.numel() == 0 ? Fit::kLayout : Fit::kType;
    return Fit::kLayout;
  });
}

}  // namespace

struct Kernels::Body {
  Body(plan::Plan plan, plan::Signature given, const runtime::MakeLauncher& launcher)
      : signature(std::move(given)), runner(std::move(plan), launcher) {
    const std::vector<plan::Buffer>& buffers = runner.plan().buffers;
    for (const TensorType& type : signature.types) layouts.emplace_back(type);
    of_buffer.resize(buffers.size(), {From::kMade, 0});
    for (size_t i = 0; i < signature.inputs.size(); ++i)
      if (signature.inputs[i].valid()) of_buffer[signature.inputs[i].index()] = {From::kInput, i};
    for (size_t c = 0; c < signature.constants.size(); ++c)
      if (signature.constants[c].valid()) of_buffer[signature.constants[c].index()] = {From::kConstant, c};
    for (const plan::Step& step : runner.plan().steps) {
      calls.emplace_back();
      if (step.kind != plan::Step::Kind::kCall || step.name == "magneto::sort") continue;
      calls.back() = std::make_unique<Call>(step.name, step.arguments);
    }
    std::vector<bool> given_out(buffers.size());
    for (const plan::Signature::Output& output : signature.outputs) {
      output_layouts.emplace_back(output.type);
      bool whole = false;
      if (output.buffer.valid()) {
        whole = output.is_itself || (output.type == signature.types[output.buffer.index()] && is_made(output.buffer) &&
                                     !given_out[output.buffer.index()]);
        if (whole) given_out[output.buffer.index()] = true;
      }
      // as_strided knows neither other dtypes nor bits of a tensor that conjugate it
      base::check(whole || !output.buffer.valid() ||
                      (output.type.dtype == signature.types[output.buffer.index()].dtype &&
                       !c10::isComplexType(to_scalar_type(output.type.dtype))),
                  "an output looks at memory as another dtype, or conjugated");
      is_whole.push_back(whole);
    }
    is_kept.resize(buffers.size());
    for (const plan::Signature::Output& output : signature.outputs)
      if (output.buffer.valid()) is_kept[output.buffer.index()] = true;
    is_written.resize(signature.inputs.size());
    for (const plan::Signature::Store& store : signature.stores) {
      store_layouts.emplace_back(store.type);
      is_kept[store.value.index()] = true;
      is_written[of_buffer[store.into.index()].index] = true;  // only inputs are stored to
    }
  }

  enum class From : uint8_t { kInput, kConstant, kMade };
  struct Origin {
    From from;
    size_t index;
  };
  bool is_made(BufferId id) const { return of_buffer[id.index()].from == From::kMade; }

  plan::Signature signature;
  runtime::Runner runner;
  std::vector<Layout> layouts;         ///< of buffers
  std::vector<Layout> output_layouts;  ///< of outputs
  std::vector<Layout> store_layouts;   ///< of what is stored to
  std::vector<bool> is_whole;          ///< of outputs: the tensor of the buffer itself, not a view of it
  std::vector<bool> is_kept;           ///< of buffers: an output or a store wants it at the end
  std::vector<bool> is_written;        ///< of inputs: it is stored to
  std::vector<Origin> of_buffer;
  std::vector<std::unique_ptr<Call>> calls;  ///< by step
  c10::Device device = c10::kCPU;
  Around around;

  struct Run;
};

/// One run: the tensors behind the buffers.
struct Kernels::Body::Run {
  const Body& body;
  std::span<at::Tensor> inputs;
  std::span<const int64_t> symbols;
  c10::SmallVector<at::Tensor, 16> made;  ///< by buffer: outputs, large temporaries, and what calls made
  std::vector<void*> memory;
  bool changed = false;
  bool allocates = false;  ///< just now
  Drawn drawn = {};

  /// After a failure: whether nothing has happened.
  bool take_back() const { return drawn.take_back() && !changed; }

  const at::Tensor& tensor(BufferId id) const {
    const Origin origin = body.of_buffer[id.index()];
    if (origin.from == From::kInput) return inputs[origin.index];
    if (origin.from == From::kConstant) return body.around.constants[origin.index];
    return made[id.index()];
  }

  /// False: memory of somebody else is not aligned as kernels of a GPU want it.
  bool prepare() {
    const std::vector<plan::Buffer>& buffers = body.runner.plan().buffers;
    made.resize(buffers.size());
    memory.resize(buffers.size());
    bool aligned = true;
    for (size_t b = 0; b < buffers.size(); ++b) {
      if (body.is_made(BufferId(b))) continue;
      memory[b] = const_cast<void*>(tensor(BufferId(b)).storage().data());
      aligned = aligned && is_aligned(memory[b]);
    }
    return aligned || body.device.is_cpu();
  }

  /// Of an output or of a large temporary, when it is needed: what the first steps want and the last ones make are not
  /// there at the same time.
  void* provide(BufferId id) {
    allocates = true;
    at::Tensor& output = made[id.index()];
    output = empty(body.layouts[id.index()], body.device, symbols);
    allocates = false;
    return const_cast<void*>(output.storage().data());
  }

  void call(const plan::Step& step, void** buffers) {
    const Call* call = body.calls[static_cast<size_t>(&step - body.runner.plan().steps.data())].get();
    if (!call) return sort(step, buffers);
    c10::SmallVector<at::Tensor, 8> reads, results;
    for (size_t r = 0; r < step.reads.size(); ++r) {
      const BufferId id = step.reads[r];
      const bool is_tensor = body.runner.plan()[id].place != Place::kTemp;
      reads.push_back(is_tensor ? tensor(id) : over(buffers[r], body.layouts[id.index()], body.device, symbols));
    }
    if (call->random())
      for (const BufferId id : step.writes) drawn.note(to_torch(body.signature.types[id.index()].device));
    call->run({reads.data(), reads.size()}, symbols, results);
    base::check(results.size() == step.writes.size(), "kernels: ", step.name, " gave ", results.size(),
                " tensors, not ", step.writes.size());
    for (size_t w = 0; w < results.size(); ++w) {
      const size_t b = step.writes[w].index();
      at::Tensor& result = results[w];
      const Fit fit = fit_of(result, body.layouts[b], symbols);
      base::check(fit != Fit::kNone, "kernels: ", step.name,
                  " gave a tensor of other sizes or of another dtype than when it was recorded");
      // views of it count from the begin of its storage
      const bool is_own = result.storage_offset() == 0 && !shares(result, reads) && is_aligned(result.data_ptr());
      if (fit != Fit::kLayout || !is_own) {
        at::Tensor copy = empty(body.layouts[b], result.device(), symbols);
        copy.copy_(result);
        result = std::move(copy);
      } else {
        set_strides(result, body.layouts[b]);
      }
      buffers[step.reads.size() + w] = result.data_ptr();
      made[b] = std::move(result);
    }
  }
  /// Strides of one element, or of none: no kernel reads them, but the user may see them.
  void set_strides(const at::Tensor& result, const Layout& layout) const {
    layout.with(symbols, [&](c10::IntArrayRef sizes, c10::IntArrayRef strides) {
      if (result.strides() != strides)
        result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, result.storage_offset());
    });
  }
  void sort(const plan::Step& step, void** buffers) const {
    if (body.device.is_cpu()) return runtime::sort(step, buffers, {symbols.begin(), symbols.end()});
    const auto tensor = [&](size_t k, BufferId id) {
      return over(buffers[k], body.layouts[id.index()], body.device, symbols);
    };
    const at::Tensor source = tensor(0, step.reads[0]), sorted = tensor(1, step.writes[0]);
    const std::string_view how = std::string_view(step.arguments).substr(step.arguments.rfind("; along ") + 8);
    int64_t dimension = 0;
    std::from_chars(how.data(), how.data() + how.size(), dimension);
    auto [values, positions] = at::sort(source, true, dimension, how.ends_with("descending"));
    sorted.copy_(values);
    if (step.writes.size() > 1) tensor(2, step.writes[1]).copy_(positions);
  }
  /// A result over the memory of an argument that will be something else later.
  bool shares(const at::Tensor& result, const c10::SmallVector<at::Tensor, 8>& reads) const {
    return std::any_of(reads.begin(), reads.end(), [&](const at::Tensor& read) {
      return read.storage().data() == result.storage().data() && result.storage().nbytes() > 0;
    });
  }

  void drop(BufferId id) {
    if (body.is_kept[id.index()]) return;
    const Origin origin = body.of_buffer[id.index()];
    if (origin.from == From::kMade) made[id.index()].reset();
    if (origin.from != From::kInput || !body.around.lets_inputs_go || body.is_written[origin.index]) return;
    at::Tensor& input = inputs[origin.index];
    const size_t own = input.is_view() ? 2 : 1;                              // a view keeps its base
    if (input.use_count() > 1 || input.storage().use_count() > own) return;  // that would free nothing
    input.reset();
    changed = true;
  }

  /// At the end. An output without elements may have been touched by no step.
  const at::Tensor& finished(BufferId id) {
    if (body.is_made(id) && !made[id.index()].defined()) provide(id);
    return tensor(id);
  }

  /// A tensor of this type over the memory of another.
  at::Tensor shown(const at::Tensor& tensor, const TensorType& type, const Layout& layout) const {
    return layout.with(symbols, [&](c10::IntArrayRef sizes, c10::IntArrayRef strides) {
      return tensor.as_strided(sizes, strides, type.offset.evaluate(symbols));
    });
  }

  /// Who writes to the view is refused where eager refuses it.
  static at::Tensor as_made(at::Tensor tensor, OutputView view) {
    namespace autograd = torch::autograd;
    if (view == OutputView::kPlain) return tensor;
    auto* meta = tensor.is_inference() ? nullptr : autograd::impl::get_view_autograd_meta(tensor);
    if (meta && meta->has_bw_view())
      meta->set_creation_meta(view == OutputView::kNoGrad ? autograd::CreationMeta::NO_GRAD_MODE
                                                          : autograd::CreationMeta::MULTI_OUTPUT_NODE);
    return tensor;
  }

  void store() {
    c10::impl::ExcludeDispatchKeyGuard below_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    for (size_t k = 0; k < body.signature.stores.size(); ++k) {
      const plan::Signature::Store& store = body.signature.stores[k];
      changed = true;
      shown(tensor(store.into), store.type, body.store_layouts[k]).copy_(finished(store.value));
    }
    for (size_t i = 0; i < body.around.bumps.size(); ++i)
      for (int n = 0; n < body.around.bumps[i]; ++n) inputs[i].unsafeGetTensorImpl()->bump_version();
  }

  /// What counts its versions apart.
  at::Tensor data(const at::Tensor& whole, size_t k) const {
    c10::impl::ExcludeDispatchKeyGuard below_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    at::Tensor made = shown(whole, body.signature.outputs[k].type, body.output_layouts[k]);
    for (int n = made.is_inference() ? 0 : body.around.output_bumps[k]; n > 0; --n)
      made.unsafeGetTensorImpl()->bump_version();
    return made;
  }

  at::Tensor output(size_t k) {
    const plan::Signature::Output& output = body.signature.outputs[k];
    if (!output.buffer.valid()) return {};
    const at::Tensor& whole = finished(output.buffer);
    const OutputView view = !body.around.output_views.empty() ? body.around.output_views[k]
                            : body.is_whole[k]                ? OutputView::kNone
                                                              : OutputView::kPlain;
    if (view == OutputView::kData) return data(whole, k);
    if (!body.around.output_bumps.empty() && body.is_made(output.buffer))
      while (!whole.is_inference() && static_cast<int>(whole._version()) < body.around.output_bumps[k])
        whole.unsafeGetTensorImpl()->bump_version();
    if (view != OutputView::kNone) return as_made(shown(whole, output.type, body.output_layouts[k]), view);
    if (body.is_whole[k]) return whole;
    // What was detached, or looked at otherwise in place, has no base, and counts its versions with its memory.
    c10::impl::ExcludeDispatchKeyGuard below_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    at::Tensor made = shown(whole, output.type, body.output_layouts[k]);
    if (!whole.is_inference() && !made.is_inference())
      torch::autograd::impl::set_version_counter(made, torch::autograd::impl::version_counter(whole));
    return made;
  }
};

namespace {

/// Whether one of the tensors that are written to may share memory with another input. `by_strides`: of these, all that
/// their storage holds counts.
bool overlap(const std::vector<bool>& written, const std::vector<bool>& by_strides, std::span<at::Tensor> inputs) {
  struct Piece {
    const char *begin, *end;
    bool written;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = inputs[i];
    if (by_strides[i]) {
      const char* begin = static_cast<const char*>(tensor.storage().data());
      pieces.push_back({begin, begin + tensor.storage().nbytes(), written[i]});
      continue;
    }
    if (tensor.numel() == 0) continue;
    int64_t last = 0;
    for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    const char* begin = static_cast<const char*>(tensor.const_data_ptr());
    pieces.push_back({begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size()), written[i]});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  const char *end = nullptr, *written_end = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.begin < (piece.written ? end : written_end)) return true;
    end = std::max(end, piece.end);
    if (piece.written) written_end = std::max(written_end, piece.end);
  }
  return false;
}

/// Of a call, or of the driver. An error of the CPU's allocator is like any other: see Run::allocates for ours.
bool is_no_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const runtime::NoMemory&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

static void (*warner)(const std::string& what) = nullptr;
void set_warner(void (*warn)(const std::string& what)) { warner = warn; }
void warn(const std::string& what) {
  if (warner) warner(what);
}

types::Dtype default_dtype() { return to_dtype(c10::get_default_dtype_as_scalartype()).value_or(types::Dtype::kF32); }

void give_memory_back(types::Device device) {
  if (auto* keeper = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(to_torch(device).type())))
    keeper->emptyCache();
}

struct OnDevice::Guard {
  c10::DeviceGuard device;
};
OnDevice::OnDevice(types::Device device) {
  if (device.kind != types::Device::Kind::kCuda) return;
  guard_.reset(new Guard{c10::DeviceGuard(to_torch(device))});
  if (runtime::cuda()) runtime::cuda()->enter(device.index);
}
OnDevice::~OnDevice() = default;

Kernels::Kernels(plan::Plan plan, plan::Signature signature, const runtime::MakeLauncher& launcher, Around around)
    : body_(std::make_unique<Body>(std::move(plan), std::move(signature), launcher)) {
  body_->around = std::move(around);
  for (size_t k = 0; k < body_->signature.outputs.size(); ++k) {
    const BufferId buffer = body_->signature.outputs[k].buffer;
    if (body_->is_whole[k] || !buffer.valid() || body_->around.leaves.empty()) continue;
    const Body::Origin origin = body_->of_buffer[buffer.index()];
    base::check(origin.from != Body::From::kInput || !body_->around.leaves[origin.index],
                "an output is a view of a tensor that needs gradients");
  }
  body_->device = to_torch(body_->around.device);
}
Kernels::~Kernels() = default;

bool Kernels::writes_inputs() const { return body_->around.fallback->writes_inputs(); }

Kernels::Failure Kernels::run(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs) const {
  if (!body_->signature.stores.empty() && overlap(body_->is_written, body_->around.by_strides, inputs))
    return body_->around.fallback->run(inputs, symbols, outputs);
  bool no_memory = false;
  Failure failure = attempt(inputs, symbols, outputs, no_memory);
  if (!no_memory || failure.changed) return failure;
  static std::atomic<bool> warned = false;
  if (!warned.exchange(true))
    warn(
        "there is not enough memory to run a graph as kernels. Its operators run one by one this time, which takes "
        "as much as eager takes; the next call tries kernels again");
  return body_->around.fallback->run(inputs, symbols, outputs);
}

Kernels::Failure Kernels::attempt(std::span<at::Tensor> inputs, std::span<const int64_t> symbols, Tensors& outputs,
                                  bool& no_memory) const {
  Body::Run run{*body_, inputs, symbols, {}, {}};
  try {
    const c10::OptionalDeviceGuard device(body_->device.is_cpu() ? std::nullopt : std::optional(body_->device));
    if (!run.prepare()) return body_->around.fallback->run(inputs, symbols, outputs);
    runtime::Environment with;
    if (body_->device.is_cpu()) {
      with.threads = &torch_team();
    } else {
      if (runtime::cuda()) runtime::cuda()->enter(body_->device.index());
      with.stream = c10::impl::VirtualGuardImpl(body_->device.type()).getStream(body_->device).native_handle();
    }
    with.call = [&run](const plan::Step& step, void** buffers, const std::vector<int64_t>&) {
      run.call(step, buffers);
    };
    with.drop = [&run](BufferId id) { run.drop(id); };
    with.provide = [&run](BufferId id) { return run.provide(id); };
    c10::Allocator* allocator = c10::GetAllocator(body_->device.type());
    with.allocate = [allocator, &run](size_t bytes) {
      run.allocates = true;
      void* const memory = allocator->raw_allocate(bytes);
      run.allocates = false;
      return memory;
    };
    with.release = [allocator](void* memory) { allocator->raw_deallocate(memory); };
    const runtime::Outcome outcome = body_->runner.run(run.memory, {symbols.begin(), symbols.end()}, with);
    if (outcome == runtime::Outcome::kCondition) {
      static std::atomic<bool> warned = false;
      if (!warned.exchange(true))
        warn(
            "a bug in Magneto: the sizes of a call lead beside the memory of a tensor, so its operators run one by "
            "one. The result is right, but please report it");
    }
    if (outcome != runtime::Outcome::kDone) {
      base::check(run.take_back(),
                  "kernels: an index is out of range, or an integer is divided by zero, and the call "
                  "cannot be repeated to say more: inputs were let go");
      return body_->around.fallback->run(inputs, symbols, outputs);
    }
    run.store();
    for (size_t k = 0; k < body_->signature.outputs.size(); ++k) outputs.push_back(run.output(k));
  } catch (...) {
    outputs.clear();
    no_memory = run.allocates || is_no_memory(std::current_exception());
    return {std::current_exception(), 0, !run.take_back()};
  }
  return {};
}

}  // namespace magneto::aten
