// aten/shapes.cpp
#include "aten/shapes_internal.h"

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/MemoryFormat.h>

#include "aten/convert_internal.h"
#include "aten/state_internal.h"

namespace magneto::aten {

using Kind = ops::Result::Kind;

namespace {

bool share_storage(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  return a.unsafe_storage().unsafeGetStorageImpl() == b.unsafe_storage().unsafeGetStorageImpl();
}

// A tensor on the device "meta" for each tensor argument, over one meta storage for each storage. They live until the
// results are understood: the address of a dead twin could be that of a result.
class Twins {
 public:
  at::Tensor twin_of(const at::Tensor& tensor, int argument, int item) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const c10::StorageImpl* original = impl.unsafe_storage().unsafeGetStorageImpl();
    c10::Storage storage;
    for (const Twin& twin : twins_)
      if (twin.original == original) storage = twin.tensor.unsafeGetTensorImpl()->unsafe_storage();
    if (!storage)
      storage = c10::Storage(c10::Storage::use_byte_size_t(), impl.unsafe_storage().nbytes(),
                             c10::GetAllocator(c10::kMeta), /*resizable=*/true);
    at::Tensor twin = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), impl.dtype());
    // Where it begins says nothing of the shapes of others.
    const types::Expr offset = type_of(impl).offset;
    twin.unsafeGetTensorImpl()->set_sizes_and_strides(impl.sizes(), impl.strides(), offset.value_or(0));
    twins_.push_back({twin, original, argument, item, offset});
    return twin;
  }

  /// A result on the device "meta", as a result of the operator. Nothing: memory that two new results share.
  std::optional<ops::Result> understand(const at::Tensor& meta, c10::Device device) {
    if (!meta.defined()) return ops::Result{.kind = Kind::kUndefined, .type = {}};
    const c10::TensorImpl& impl = *meta.unsafeGetTensorImpl();
    if (!impl.unsafe_storage() || impl.layout() != c10::kStrided || impl.is_sparse() || meta.is_conj() ||
        meta.is_neg() || impl.has_symbolic_sizes_strides() || !to_dtype(meta.scalar_type()))
      return std::nullopt;
    ops::Result result{.kind = Kind::kFresh, .type = type_of(impl)};
    result.type.device = *to_device(device);
    for (const Twin& twin : twins_) {
      const bool same = twin.tensor.is_same(meta);
      if (!same && !share_storage(*twin.tensor.unsafeGetTensorImpl(), impl)) continue;
      result.kind = same ? Kind::kSame : Kind::kView;
      result.of = twin.argument;
      result.item = twin.item;
      if (same) {
        result.type.offset = twin.offset;
        return result;
      }
      if (!twin.offset.is_constant()) return std::nullopt;
    }
    if (result.kind == Kind::kFresh) {
      for (const c10::Storage& storage : fresh_)
        if (storage.unsafeGetStorageImpl() == impl.unsafe_storage().unsafeGetStorageImpl()) return std::nullopt;
      fresh_.push_back(impl.unsafe_storage());
    }
    return result;
  }

 private:
  struct Twin {
    at::Tensor tensor;
    const c10::StorageImpl* original;
    int argument, item;
    types::Expr offset;
  };
  c10::SmallVector<Twin, 6> twins_;
  c10::SmallVector<c10::Storage, 2> fresh_;
};

// The device on which results will be: that of an argument `device`, else that of the tensors. A tensor without
// dimensions follows the others. Nothing: tensors on different devices, which most operators refuse.
std::optional<c10::Device> device_of(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> device, weak;
  bool mixed = false;
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (op.arguments[a] == ArgKind::kDevice && arguments[a].isDevice()) return arguments[a].toDevice();
    each_tensor(arguments[a], [&](const at::Tensor& tensor, int) {
      if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      std::optional<c10::Device>& place = tensor.dim() == 0 && tensor.is_cpu() ? weak : device;
      mixed = mixed || (place && *place != tensor.device());
      place = tensor.device();
    });
  }
  if (mixed) return std::nullopt;
  return device ? device : weak ? weak : c10::Device(c10::kCPU);
}

bool refuses_dtypes(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.same_dtypes) return false;
  std::optional<c10::ScalarType> first;
  bool differ = false;
  for (const c10::IValue& argument : arguments)
    each_tensor(argument, [&](const at::Tensor& tensor, int) {
      if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      differ = differ || (first && *first != tensor.scalar_type());
      first = tensor.scalar_type();
    });
  return differ;
}

// The strides of a convolution's result depend on the library that computes it: torch's own chooser tells which. It
// looks at sizes, dtypes and devices only, so it takes our pending tensors as they are. It also checks the call.
Results convolution_result(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor input = arguments[0].toTensor(), weight = arguments[1].toTensor();
  const auto bias = arguments[2].isTensor() ? std::optional<at::Tensor>(arguments[2].toTensor()) : std::nullopt;
  const auto stride = arguments[3].toIntVector(), padding = arguments[4].toIntVector(),
             dilation = arguments[5].toIntVector();
  const auto output_padding = arguments[7].toIntVector();
  const bool transposed = arguments[6].toBool();
  const int64_t groups = arguments[8].toInt();
  if (input.dim() < 3 || input.dim() != weight.dim()) return std::nullopt;
  if (input.numel() == 0 || weight.numel() == 0) return std::nullopt;  // eager's sizes follow another rule
  const size_t spatial = input.dim() - 2;
  // Of one dimension torch makes two, and strides of sizes of one may look like channels last then.
  const auto is_plain = [](const at::Tensor& tensor) {
    const types::TensorType type = type_of(*tensor.unsafeGetTensorImpl());
    return type.strides == types::contiguous_strides(type.sizes);
  };
  if (spatial == 1 && !(is_plain(input) && is_plain(weight))) return std::nullopt;
  for (const auto* list : {&stride, &padding, &dilation, &output_padding})
    if (list->size() != spatial) return std::nullopt;

  const auto symbolic = [](const std::vector<int64_t>& list) { return c10::fromIntArrayRefSlow(list); };
  const auto backend =
      at::native::select_conv_backend(input, weight, bias, symbolic(stride), symbolic(padding), symbolic(dilation),
                                      transposed, symbolic(output_padding), groups, std::nullopt);
  const auto format = at::native::_determine_backend_memory_format(input, weight, backend);
  const std::vector<int64_t> sizes =
      transposed ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride, dilation,
                                               groups)
                 : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  for (int64_t size : sizes)
    if (size < 0) return std::nullopt;
  ops::Result result{.kind = Kind::kFresh, .type = type_of(*input.unsafeGetTensorImpl())};
  result.type.sizes.assign(sizes.begin(), sizes.end());
  result.type.offset = 0;
  result.type.strides = types::contiguous_strides(result.type.sizes);
  if (format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d) {
    const auto strides = format == at::MemoryFormat::ChannelsLast ? c10::get_channels_last_strides_2d(sizes)
                                                                  : c10::get_channels_last_strides_3d(sizes);
    result.type.strides.assign(strides.begin(), strides.end());
  }
  return std::vector<ops::Result>{std::move(result)};
}

Results meta_results(const Operator& op, const c10::KernelFunction& kernel, c10::ArrayRef<c10::IValue> arguments,
                     c10::Device device) {
  Twins twins;
  std::vector<c10::IValue> stack;
  stack.reserve(arguments.size() + 2);
  bool has_tensors = false;
  for (size_t a = 0; a < arguments.size(); ++a) {
    const c10::IValue& argument = arguments[a];
    const int index = static_cast<int>(a);
    const auto twin = [&](const at::Tensor& tensor, int item) -> at::Tensor {
      // Wrapped numbers stay what they are: shape kernels ask them for their kind, not for their device.
      if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
      return twins.twin_of(tensor, index, item);
    };
    if (argument.isTensor()) {
      has_tensors = true;
      stack.emplace_back(twin(argument.toTensor(), -1));
    } else if (op.arguments[a] == ArgKind::kTensors && !argument.isNone()) {
      has_tensors = true;
      c10::List<at::Tensor> list;
      each_tensor(argument, [&](const at::Tensor& tensor, int item) { list.push_back(twin(tensor, item)); });
      stack.emplace_back(std::move(list));
    } else if (op.arguments[a] == ArgKind::kOptionalTensors && !argument.isNone()) {
      c10::List<std::optional<at::Tensor>> list;
      int item = 0;
      for (const c10::IValue& element : argument.toListRef()) {
        list.push_back(element.isTensor() ? std::optional<at::Tensor>(twin(element.toTensor(), item)) : std::nullopt);
        ++item;
      }
      stack.emplace_back(std::move(list));
    } else if (op.arguments[a] == ArgKind::kDevice && (argument.isDevice() || !has_tensors)) {
      stack.emplace_back(c10::Device(c10::kMeta));
    } else {
      stack.push_back(argument);
    }
  }
  kernel.callBoxed(op.handle, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);

  std::vector<ops::Result> results;
  bool understood = true;
  for (const c10::IValue& value : stack)
    each_tensor(value, [&](const at::Tensor& tensor, int) {
      auto result = understood ? twins.understand(tensor, device) : std::nullopt;
      understood = result.has_value();
      if (understood) results.push_back(std::move(*result));
    });
  if (!understood) return std::nullopt;
  return results;
}

}  // namespace

Results results_by_kernel(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto device = device_of(op, arguments);
  if (!device || !(device->is_cpu() || device->is_cuda()) || refuses_dtypes(op, arguments)) return std::nullopt;
  BareDispatch bare;
  try {
    if (op.name == "aten::convolution") return convolution_result(arguments);
    if (!op.meta) return std::nullopt;
    return meta_results(op, *op.meta, arguments, *device);
  } catch (const std::exception&) {
    return std::nullopt;  // eager will say it in its own words
  }
}

bool is_told(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  const c10::KernelFunction* const fake = fake_of(op);
  const auto device = device_of(op, arguments);
  if (!fake || !device) return false;
  BareDispatch bare;
  try {
    return meta_results(op, *fake, arguments, *device).has_value();
  } catch (const std::exception&) {
    return false;  // a size that depends on data
  }
}

Results results_by_trial(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  // Other libraries' kernels may read and write beside their tensors where numbers mean places: zeros mean the first.
  const bool may_run = op.way == Way::kRecord || (op.way == Way::kAtOnce && !op.is_foreign);
  if (!may_run || op.writes_anything || op.random) return std::nullopt;
  const auto zeros = [&](const at::Tensor& like) {
    if (!like.defined() || like.unsafeGetTensorImpl()->is_wrapped_number()) return like;
    at::Tensor made = at::empty_strided(like.sizes(), like.strides(), like.options()).zero_();
    if (made.dim() > 1 && made.is_floating_point() && !op.is_foreign)
      made.diagonal(0, -2, -1).fill_(1);  // it has an inverse
    return made;
  };
  BareDispatch bare;
  try {
    std::vector<c10::IValue> stack;
    for (size_t a = 0; a < arguments.size(); ++a) {
      const c10::IValue& argument = arguments[a];
      if (argument.isTensor()) {
        stack.emplace_back(zeros(argument.toTensor()));
      } else if (op.arguments[a] == ArgKind::kTensors && !argument.isNone()) {
        c10::List<at::Tensor> list;
        each_tensor(argument, [&](const at::Tensor& tensor, int) { list.push_back(zeros(tensor)); });
        stack.emplace_back(std::move(list));
      } else if (op.arguments[a] == ArgKind::kOptionalTensors) {
        return std::nullopt;
      } else {
        stack.push_back(argument);
      }
    }
    const std::vector<c10::IValue> given = stack;
    op.handle.callBoxed(stack);
    std::vector<ops::Result> results;
    bool plain = true;
    for (const c10::IValue& value : stack)
      each_tensor(value, [&](const at::Tensor& tensor, int) {
        ops::Result result{.kind = tensor.defined() ? Kind::kFresh : Kind::kUndefined, .type = {}};
        if (tensor.defined()) {
          plain = plain && !not_plain(*tensor.unsafeGetTensorImpl());
          for (const c10::IValue& argument : given)
            each_tensor(argument, [&](const at::Tensor& one, int) {
              plain =
                  plain && !(one.defined() && share_storage(*one.unsafeGetTensorImpl(), *tensor.unsafeGetTensorImpl()));
            });
          if (plain) result.type = type_of(*tensor.unsafeGetTensorImpl());
        }
        results.push_back(std::move(result));
      });
    if (!plain) return std::nullopt;
    return results;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Results results_by_view(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<c10::IValue> stack(arguments.begin(), arguments.end());
  try {
    BareDispatch bare;
    op.handle.callBoxed(stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  std::vector<ops::Result> results;
  bool understood = true;
  for (const c10::IValue& value : stack)
    each_tensor(value, [&](const at::Tensor& tensor, int) {
      if (!understood || !(understood = tensor.defined() && !not_plain(*tensor.unsafeGetTensorImpl()))) return;
      const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
      ops::Result result{.kind = Kind::kFresh, .type = type_of(impl)};
      for (size_t a = 0; a < arguments.size(); ++a)
        each_tensor(arguments[a], [&](const at::Tensor& argument, int item) {
          if (!argument.defined() || result.kind == Kind::kSame) return;
          if (!share_storage(*argument.unsafeGetTensorImpl(), impl)) return;
          result.kind = argument.is_same(tensor) ? Kind::kSame : Kind::kView;
          result.of = static_cast<int>(a);
          result.item = item;
        });
      understood = result.kind != Kind::kFresh;
      if (understood) results.push_back(std::move(result));
    });
  if (!understood) return std::nullopt;
  return results;
}

}  // namespace magneto::aten
