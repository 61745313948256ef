// Normalisation layers, forward and backward, with the statistics that they save.
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

bool on_cpu(const TensorType& type) { return type.device.kind == Device::Kind::kCpu; }

// An optional parameter: absent, or of these sizes, device and dtype.
bool parameter_fits(const Call& call, size_t i, const TensorType& input, const Sizes& sizes) {
  if (is_absent(call, i)) return true;
  const TensorType* given = tensor(call, i);
  return given && same(call, given->sizes, sizes) && given->device == input.device && given->dtype == input.dtype;
}

std::optional<std::vector<bool>> mask(const Call& call, size_t i, size_t size) {
  const auto* list = i < call.args.size() ? std::get_if<std::vector<bool>>(&call.args[i]) : nullptr;
  if (!list || list->size() != size) return std::nullopt;
  return *list;
}

// Statistics are kept in the input's type on the CPU, in f32 for the short types elsewhere.
Dtype statistics_dtype(const TensorType& input) {
  const bool is_short = input.dtype == Dtype::kF16 || input.dtype == Dtype::kBF16;
  return !on_cpu(input) && is_short ? Dtype::kF32 : input.dtype;
}

// The trailing sizes of the input are the normalised ones.
bool ends_with(const Call& call, const Sizes& sizes, const Sizes& tail) {
  if (tail.empty() || tail.size() > sizes.size()) return false;
  return same(call, tail, Sizes(sizes.end() - static_cast<ptrdiff_t>(tail.size()), sizes.end()));
}

Results layer_norm(const Call& call) {
  const TensorType* input = tensor(call, 0);
  const Sizes* tail = integers(call, 1);
  if (!input || !tail || !accepts(kFloats, input->dtype) || !ends_with(call, input->sizes, *tail)) return std::nullopt;
  if (!parameter_fits(call, 2, *input, *tail) || !parameter_fits(call, 3, *input, *tail)) return std::nullopt;
  Sizes stats = input->sizes;
  for (size_t i = stats.size() - tail->size(); i < stats.size(); ++i) stats[i] = 1;
  const Dtype dtype = statistics_dtype(*input);
  return std::vector<Result>{fresh(input->dtype, input->device, input->sizes), fresh(dtype, input->device, stats),
                             fresh(dtype, input->device, stats)};
}

Results layer_norm_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *input = tensor(call, 1);
  const Sizes* tail = integers(call, 2);
  const auto wanted = mask(call, 7, 3);
  if (!grad || !input || !tail || !wanted || !on_cpu(*input) || !ends_with(call, input->sizes, *tail))
    return std::nullopt;
  if (!accepts(kFloats, input->dtype) || grad->dtype != input->dtype || !same(call, grad->sizes, input->sizes))
    return std::nullopt;
  if (!parameter_fits(call, 5, *input, *tail) || !parameter_fits(call, 6, *input, *tail)) return std::nullopt;
  std::vector<Result> results;
  results.push_back((*wanted)[0] ? fresh(input->dtype, input->device, input->sizes) : undefined());
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const TensorType* parameter = tensor(call, 4 + i);
    if ((*wanted)[i] && !parameter) return std::nullopt;
    if ((*wanted)[i] && !known(contiguous(call, *parameter))) return std::nullopt;
    results.push_back((*wanted)[i] ? fresh(parameter->dtype, parameter->device, parameter->sizes) : undefined());
  }
  return results;
}

bool fits_channels(const Call& call, const TensorType& input, std::initializer_list<size_t> parameters) {
  if (input.sizes.size() < 2 || !accepts(kFloats, input.dtype) || !on_cpu(input)) return false;
  for (const size_t i : parameters)
    if (!parameter_fits(call, i, input, {input.sizes[1]})) return false;
  return is_empty(call, input.sizes) == false;
}

// Channels last is kept only when the input is exactly that; other layouts give a row-major result.
std::optional<MemoryFormat> batch_norm_format(const Call& call, const TensorType& input) {
  if (known(contiguous(call, input))) return MemoryFormat::kContiguous;
  for (const MemoryFormat format : {MemoryFormat::kChannelsLast, MemoryFormat::kChannelsLast3d})
    if (known(contiguous_in(call, input, format))) return format;
  return std::nullopt;
}

// input, weight, bias, running mean and variance at these arguments
Results batch_norm_of(const Call& call, bool training, bool has_running) {
  const TensorType* input = tensor(call, 0);
  if (!input || !fits_channels(call, *input, {1, 2})) return std::nullopt;
  if (has_running && !fits_channels(call, *input, {3, 4})) return std::nullopt;
  if (!training && (!has_running || is_absent(call, 3) || is_absent(call, 4))) return std::nullopt;
  const auto format = batch_norm_format(call, *input);
  auto output = format ? fresh_like(call, *input, input->dtype, *format) : std::nullopt;
  if (!output) return std::nullopt;
  if (known(contiguous(call, *input)) && *suggested_format(call, *input) != MemoryFormat::kContiguous)
    return std::nullopt;
  const Result stats = fresh(input->dtype, input->device, {training ? input->sizes[1] : Expr(0)});
  return std::vector<Result>{std::move(*output), stats, stats};
}
Results batch_norm(const Call& call) {
  const auto training = flag(call, 5);
  return training ? batch_norm_of(call, *training, true) : std::nullopt;
}
Results batch_norm_no_stats(const Call& call) {
  const auto training = flag(call, 3);
  return training ? batch_norm_of(call, *training, false) : std::nullopt;
}
Results batch_norm_inference(const Call& call) { return batch_norm_of(call, false, true); }

Results batch_norm_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *input = tensor(call, 1);
  const auto wanted = mask(call, 9, 3);
  if (!grad || !input || !wanted || !fits_channels(call, *input, {2, 3, 4}) || !same(call, grad->sizes, input->sizes) ||
      grad->dtype != input->dtype)
    return std::nullopt;
  const auto format = batch_norm_format(call, *input);
  const auto grad_format = batch_norm_format(call, *grad);
  if (!format || format != grad_format) return std::nullopt;
  if (*suggested_format(call, *input) != *format || *suggested_format(call, *grad) != *format) return std::nullopt;
  auto first = fresh_like(call, *input, input->dtype, *format);
  if (!first) return std::nullopt;
  const Result of_channels = fresh(input->dtype, input->device, {input->sizes[1]});
  return std::vector<Result>{(*wanted)[0] ? std::move(*first) : undefined(), (*wanted)[1] ? of_channels : undefined(),
                             (*wanted)[2] ? of_channels : undefined()};
}

Results group_norm(const Call& call) {
  const TensorType* input = tensor(call, 0);
  const auto groups = number(call, 6);
  if (!input || !groups || *groups <= 0 || !fits_channels(call, *input, {1, 2})) return std::nullopt;
  if (integer(call, 3) != input->sizes[0] || integer(call, 4) != input->sizes[1]) return std::nullopt;
  if (Expr::mod(input->sizes[1], *groups) != Expr(0)) return std::nullopt;
  const auto format = batch_norm_format(call, *input);
  if (!format || suggested_format(call, *input) != format) return std::nullopt;
  auto output = fresh_like(call, *input, input->dtype, *format);
  if (!output) return std::nullopt;
  const Result stats = fresh(input->dtype, input->device, {input->sizes[0], Expr(*groups)});
  return std::vector<Result>{std::move(*output), stats, stats};
}

Results group_norm_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *input = tensor(call, 1);
  const auto wanted = mask(call, 9, 3);
  if (!grad || !input || !wanted || !fits_channels(call, *input, {4}) || grad->dtype != input->dtype ||
      !same(call, grad->sizes, input->sizes))
    return std::nullopt;
  if (!known(contiguous(call, *input)) || !known(contiguous(call, *grad))) return std::nullopt;
  if (suggested_format(call, *input) != MemoryFormat::kContiguous) return std::nullopt;
  const Result of_channels = fresh(input->dtype, input->device, {input->sizes[1]});
  return std::vector<Result>{(*wanted)[0] ? fresh(input->dtype, input->device, input->sizes) : undefined(),
                             (*wanted)[1] ? of_channels : undefined(), (*wanted)[2] ? of_channels : undefined()};
}

Results weight_norm(const Call& call) {
  const TensorType *v = tensor(call, 0), *g = tensor(call, 1);
  const auto dim = number(call, 2);
  if (!v || !g || !dim || v->sizes.empty() || !accepts(kFloats, v->dtype) || g->dtype != v->dtype || !on_cpu(*v))
    return std::nullopt;
  if (*dim != 0 && *dim != static_cast<int64_t>(v->sizes.size()) - 1) return std::nullopt;
  if (!known(contiguous(call, *v)) || !known(contiguous(call, *g)) || is_empty(call, v->sizes) != false)
    return std::nullopt;
  if (g->strides != types::contiguous_strides(g->sizes)) return std::nullopt;
  if (types::numel(g->sizes) != v->sizes[static_cast<size_t>(*dim)]) return std::nullopt;
  return std::vector<Result>{fresh(v->dtype, v->device, v->sizes), fresh(g->dtype, g->device, g->sizes)};
}

Results weight_norm_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *v = tensor(call, 1), *g = tensor(call, 2), *norms = tensor(call, 3);
  if (!grad || !v || !g || !norms || !accepts(kFloats, v->dtype) || !on_cpu(*v) || grad->sizes != v->sizes)
    return std::nullopt;
  for (const TensorType* one : {grad, v, g, norms})
    if (one->dtype != v->dtype || one->strides != types::contiguous_strides(one->sizes)) return std::nullopt;
  return std::vector<Result>{fresh(v->dtype, v->device, v->sizes), fresh(g->dtype, g->device, g->sizes)};
}

// The running statistics, which training changes; native_batch_norm's schema does not say so.
constexpr int kRunning[] = {3, 4};

constexpr Op kOps[] = {
    {.name = "aten::_native_batch_norm_legit", .type = batch_norm, .writes = kRunning},
    {.name = "aten::_native_batch_norm_legit.no_stats", .type = batch_norm_no_stats},
    {.name = "aten::_native_batch_norm_legit_no_training", .type = batch_norm_inference},
    {.name = "aten::_weight_norm_interface", .type = weight_norm},
    {.name = "aten::_weight_norm_interface_backward", .type = weight_norm_backward},
    {.name = "aten::native_batch_norm", .type = batch_norm, .writes = kRunning},
    {.name = "aten::native_batch_norm_backward", .type = batch_norm_backward},
    {.name = "aten::native_group_norm", .type = group_norm},
    {.name = "aten::native_group_norm_backward", .type = group_norm_backward},
    {.name = "aten::native_layer_norm", .type = layer_norm},
    {.name = "aten::native_layer_norm_backward", .type = layer_norm_backward},
};

}  // namespace

std::span<const Op> norm_ops() { return kOps; }

}  // namespace magneto::ops
