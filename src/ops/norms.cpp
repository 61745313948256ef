// Normalisation layers, forward and backward, with the statistics that they save.
#include "ops/body.h"
#include "ops/expander.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

namespace {

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
  takes_real(call, 4);
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
// Batch norm on a GPU also takes parameters in f32 for an input of a half type.
bool fits_batch(const Call& call, const TensorType& input, std::initializer_list<size_t> parameters) {
  if (on_cpu(input)) return fits_channels(call, input, parameters);
  if (input.sizes.size() < 2 || !accepts(kFloats, input.dtype)) return false;
  TensorType wide = input;
  wide.dtype = statistics_dtype(input);
  for (const size_t i : parameters)
    if (!parameter_fits(call, i, input, {input.sizes[1]}) && !parameter_fits(call, i, wide, {input.sizes[1]}))
      return false;
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
  if (!input || !fits_batch(call, *input, {1, 2})) return std::nullopt;
  if (has_running && !fits_batch(call, *input, {3, 4})) return std::nullopt;
  if (!training && (!has_running || is_absent(call, 3) || is_absent(call, 4))) return std::nullopt;
  const auto format = batch_norm_format(call, *input);
  auto output = format ? fresh_like(call, *input, input->dtype, *format) : std::nullopt;
  if (!output) return std::nullopt;
  if (known(contiguous(call, *input)) && *suggested_format(call, *input) != MemoryFormat::kContiguous)
    return std::nullopt;
  const bool has_stats = training || !on_cpu(*input);
  const Result stats = fresh(statistics_dtype(*input), input->device, {has_stats ? input->sizes[1] : Expr(0)});
  return std::vector<Result>{std::move(*output), stats, stats};
}
// Which of a GPU's libraries is called depends on eps.
void takes_eps(const Call& call, size_t i) {
  if (const TensorType* input = tensor(call, 0); input && on_cpu(*input)) takes_real(call, i);
}
Results batch_norm(const Call& call) {
  takes_eps(call, 7);
  takes_real(call, 6);  // the momentum
  const auto training = flag(call, 5);
  return training ? batch_norm_of(call, *training, true) : std::nullopt;
}
Results batch_norm_no_stats(const Call& call) {
  takes_eps(call, 5);
  const auto training = flag(call, 3);
  return training ? batch_norm_of(call, *training, false) : std::nullopt;
}
Results batch_norm_inference(const Call& call) {
  takes_eps(call, 6);
  return batch_norm_of(call, false, true);
}

Results batch_norm_backward(const Call& call) {
  takes_eps(call, 8);
  const TensorType *grad = tensor(call, 0), *input = tensor(call, 1);
  const auto wanted = mask(call, 9, 3);
  if (!grad || !input || !wanted || !fits_batch(call, *input, {2, 3, 4}) || !same(call, grad->sizes, input->sizes) ||
      grad->dtype != input->dtype)
    return std::nullopt;
  const auto format = batch_norm_format(call, *input);
  const auto grad_format = batch_norm_format(call, *grad);
  if (!format || format != grad_format) return std::nullopt;
  if (*suggested_format(call, *input) != *format || *suggested_format(call, *grad) != *format) return std::nullopt;
  auto first = fresh_like(call, *input, input->dtype, *format);
  if (!first) return std::nullopt;
  const TensorType* weight = tensor(call, 2);
  if (!weight && !on_cpu(*input)) return std::nullopt;
  const Result of_channels = fresh(weight ? weight->dtype : input->dtype, input->device, {input->sizes[1]});
  return std::vector<Result>{(*wanted)[0] ? std::move(*first) : undefined(), (*wanted)[1] ? of_channels : undefined(),
                             (*wanted)[2] ? of_channels : undefined()};
}

Results group_norm(const Call& call) {
  takes_real(call, 7);
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

// ---- expansions: everything is computed in f32 or f64 and rounded where the operator returns it ---------------------

using graph::Arg;
using graph::ValueId;

Sizes last_dims(size_t rank, size_t count) {
  Sizes dims;
  for (size_t d = rank - count; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}
// A number that a sum takes: a constant, or a float that is known when the graph is called.
std::optional<Arg> scalar_at(const Call& call, size_t i) {
  if (const auto number = real(call, i)) return Arg(*number);
  return takes_real(call, i) ? std::optional(call.args[i]) : std::nullopt;
}
ValueId mean_of(Expander& e, ValueId x, const Sizes& dims) { return e.add("aten::mean.dim", {x, dims, true, Arg()}); }
struct Moments {
  ValueId away, rstd, mean;  // x - mean, 1 / sqrt(var + eps)
};
// On a CPU the sum of f32 is one of f64: it is finite wherever the mean is, and equal numbers have exactly that number
// as their mean. Both hold for the ways in which torch adds up there. Sums of half precision have room in f32.
ValueId exact_mean(Expander& e, ValueId input, const Sizes& dims) {
  if (!on_cpu(e.type(input)) || e.type(input).dtype != Dtype::kF32) return mean_of(e, e.widened(input), dims);
  return e.to(Dtype::kF32, mean_of(e, e.to(Dtype::kF64, input), dims));
}
Moments moments(Expander& e, ValueId input, const Sizes& dims, const Arg& eps) {
  const ValueId mean = exact_mean(e, input, dims), away = e.difference(e.widened(input), mean);
  const ValueId variance = mean_of(e, e.product(away, away), dims);
  return {away, e.apply("aten::rsqrt", e.sum_of(variance, eps)), mean};
}
// x * weight + bias, where they are there; each is shaped like `sizes` first.
ValueId scaled(Expander& e, ValueId x, size_t weight, size_t bias, const Sizes& sizes) {
  if (const ValueId w = e.tensor(weight); w.valid()) x = e.product(x, e.view(e.widened(w), sizes));
  if (const ValueId b = e.tensor(bias); b.valid()) x = e.sum_of(x, e.view(e.widened(b), sizes));
  return x;
}

Values layer_norm_expanded(Expander& e) {  // input, normalised sizes, weight, bias, eps
  const ValueId input = e.tensor(0);
  const Sizes* tail = integers(e.call, 1);
  const auto eps = scalar_at(e.call, 4);
  if (!input.valid() || !tail || !eps || !accepts(kFloats, e.type(input).dtype)) return {};
  const Moments m = moments(e, input, last_dims(e.type(input).sizes.size(), tail->size()), *eps);
  const ValueId y = scaled(e, e.product(m.away, m.rstd), 2, 3, *tail);
  return {e.to(e.results[0].dtype, y), e.to(e.results[1].dtype, m.mean), e.to(e.results[2].dtype, m.rstd)};
}

// With h = (x - mean) * rstd and g = grad * weight:  dx = rstd * (g - mean(g) - h * mean(g * h))
ValueId normalised_gradient(Expander& e, ValueId g, ValueId h, ValueId rstd, const Sizes& dims) {
  const ValueId along = mean_of(e, e.product(g, h), dims);
  return e.product(rstd, e.difference(e.difference(g, mean_of(e, g, dims)), e.product(h, along)));
}

Values layer_norm_backward_expanded(Expander& e) {  // grad, input, sizes, mean, rstd, weight, bias, mask
  const auto wanted = mask(e.call, 7, 3);
  const Sizes* tail = integers(e.call, 2);
  if (!wanted || !tail || !e.tensor(0).valid() || !e.tensor(1).valid() || !accepts(kFloats, e.type(e.tensor(1)).dtype))
    return {};
  const size_t rank = e.type(e.tensor(1)).sizes.size(), lead = rank - tail->size();
  const ValueId grad = e.widened(e.tensor(0)), rstd = e.widened(e.tensor(4));
  const ValueId h = e.product(e.difference(e.widened(e.tensor(1)), e.widened(e.tensor(3))), rstd);
  Values made(3);
  if ((*wanted)[0]) {
    ValueId g = grad;
    if (const ValueId weight = e.tensor(5); weight.valid()) g = e.product(grad, e.widened(weight));
    made[0] = e.to(e.results[0].dtype, normalised_gradient(e, g, h, rstd, last_dims(rank, tail->size())));
  }
  const Sizes rows = last_dims(lead, lead);
  const auto over_rows = [&](ValueId x) { return rows.empty() ? x : e.sum(x, rows, false); };
  if ((*wanted)[1]) made[1] = e.to(e.results[1].dtype, over_rows(e.product(grad, h)));
  if ((*wanted)[2]) made[2] = e.to(e.results[2].dtype, over_rows(grad));
  return made;
}

Sizes channel_shape(const TensorType& input) {
  Sizes shape(input.sizes.size(), Expr(1));
  shape[1] = input.sizes[1];
  return shape;
}
Sizes all_but_channels(size_t rank) {
  Sizes dims;
  for (size_t d = 0; d < rank; ++d)
    if (d != 1) dims.push_back(static_cast<int64_t>(d));
  return dims;
}
// A result that nobody reads: empty, or memory for a library's own use.
ValueId unread(Expander& e, size_t k) {
  return e.add("aten::zeros", {e.results[k].sizes, e.results[k].dtype, Arg(), e.results[k].device, Arg()},
               e.results[k]);
}

// With the running statistics; those of the batch are empty then.
Values batch_norm_by_running(Expander& e, const Arg& eps) {  // input, weight, bias, running mean, running variance
  const TensorType input = e.type(e.tensor(0));
  if (!e.tensor(3).valid() || !e.tensor(4).valid()) return {};
  const Sizes shape = channel_shape(input);
  const ValueId mean = e.view(e.widened(e.tensor(3)), shape), variance = e.view(e.widened(e.tensor(4)), shape);
  const ValueId h =
      e.product(e.difference(e.widened(e.tensor(0)), mean), e.apply("aten::rsqrt", e.sum_of(variance, eps)));
  const ValueId y = e.to(e.results[0].dtype, scaled(e, h, 1, 2, shape));
  return {y, unread(e, 1), unread(e, 2)};
}
// With the statistics of the batch; new running ones where they are asked for.
Values batch_norm_by_batch(Expander& e, const Arg& eps, std::optional<Arg> momentum) {
  const TensorType input = e.type(e.tensor(0));
  const Sizes dims = all_but_channels(input.sizes.size()), channels = {input.sizes[1]};
  const Moments m = moments(e, e.tensor(0), dims, eps);
  const ValueId y = scaled(e, e.product(m.away, m.rstd), 1, 2, channel_shape(input));
  Values made = {e.to(e.results[0].dtype, y), e.to(e.results[1].dtype, e.view(m.mean, channels)),
                 e.to(e.results[2].dtype, e.view(m.rstd, channels))};
  if (!momentum) return made;
  Expr count = 1;
  for (const Expr& dim : dims) count = count * input.sizes[static_cast<size_t>(dim.value_or(0))];
  const ValueId unbiased = e.quotient(e.sum(e.product(m.away, m.away), dims), count - 1);
  const auto tensor_of = [&](const Arg& number) {
    return e.add("aten::full", {Sizes(), number, Dtype::kF64, Arg(), input.device, Arg()});
  };
  const auto* plain = std::get_if<double>(&*momentum);
  const Arg rest = plain ? Arg(1 - *plain) : Arg(e.difference(tensor_of(1.0), tensor_of(*momentum)));
  const auto moved = [&](size_t running, ValueId now) {
    const ValueId old = e.tensor(running);
    const ValueId mixed = e.sum_of(e.product(e.view(now, channels), *momentum), e.product(e.widened(old), rest));
    return e.to(e.type(old).dtype, mixed);
  };
  made.push_back(moved(3, m.mean));
  made.push_back(moved(4, unbiased));
  return made;
}
bool has_batch(Expander& e) {
  return e.tensor(0).valid() && e.type(e.tensor(0)).sizes.size() >= 2 && accepts(kFloats, e.type(e.tensor(0)).dtype);
}
Values batch_norm_functional(Expander& e) {  // input, weight, bias, running mean, running variance, training, ...
  const auto training = flag(e.call, 5);
  const auto momentum = scalar_at(e.call, 6);
  const auto eps = scalar_at(e.call, 7);
  if (!has_batch(e) || !training || !momentum || !eps || !e.tensor(3).valid() || !e.tensor(4).valid()) return {};
  if (*training) return batch_norm_by_batch(e, *eps, momentum);
  Values made = batch_norm_by_running(e, *eps);
  if (made.empty()) return {};
  made.push_back(e.tensor(3));
  made.push_back(e.tensor(4));
  return made;
}
Values batch_norm_no_stats_expanded(Expander& e) {  // input, weight, bias, training, momentum, eps
  const auto training = flag(e.call, 3);
  const auto eps = scalar_at(e.call, 5);
  if (!has_batch(e) || !training || !*training || !eps) return {};
  return batch_norm_by_batch(e, *eps, std::nullopt);
}
Values batch_norm_inference_expanded(Expander& e) {  // ..., momentum, eps
  const auto eps = scalar_at(e.call, 6);
  return has_batch(e) && eps ? batch_norm_by_running(e, *eps) : Values();
}

// grad, input, weight, running mean and variance, saved mean and rstd, training, eps, mask
Values batch_norm_backward_expanded(Expander& e) {
  const auto training = flag(e.call, 7);
  const auto eps = scalar_at(e.call, 8);
  const auto wanted = mask(e.call, 9, 3);
  if (!training || !eps || !wanted || !e.tensor(0).valid() || !e.tensor(1).valid()) return {};
  const TensorType input = e.type(e.tensor(1));
  if (input.sizes.size() < 2 || !accepts(kFloats, input.dtype)) return {};
  const Sizes shape = channel_shape(input), dims = all_but_channels(input.sizes.size());
  ValueId mean, rstd;
  if (*training) {
    if (!e.tensor(5).valid() || !e.tensor(6).valid()) return {};
    mean = e.view(e.widened(e.tensor(5)), shape);
    rstd = e.view(e.widened(e.tensor(6)), shape);
  } else {
    if (!e.tensor(3).valid() || !e.tensor(4).valid()) return {};
    mean = e.view(e.widened(e.tensor(3)), shape);
    rstd = e.apply("aten::rsqrt", e.sum_of(e.view(e.widened(e.tensor(4)), shape), *eps));
  }
  const ValueId grad = e.widened(e.tensor(0)), h = e.product(e.difference(e.widened(e.tensor(1)), mean), rstd);
  Values made(3);
  if ((*wanted)[0]) {
    ValueId scale = rstd;
    if (const ValueId weight = e.tensor(2); weight.valid()) scale = e.product(rstd, e.view(e.widened(weight), shape));
    made[0] =
        e.to(e.results[0].dtype, *training ? normalised_gradient(e, grad, h, scale, dims) : e.product(grad, scale));
  }
  if ((*wanted)[1]) made[1] = e.to(e.results[1].dtype, e.sum(e.product(grad, h), dims, false));
  if ((*wanted)[2]) made[2] = e.to(e.results[2].dtype, e.sum(grad, dims, false));
  return made;
}

Values group_norm_expanded(Expander& e) {  // input, weight, bias, N, C, HxW, groups, eps
  const auto groups = number(e.call, 6);
  const auto eps = scalar_at(e.call, 7);
  if (!has_batch(e) || !groups || !eps) return {};
  const TensorType input = e.type(e.tensor(0));
  Sizes split = {input.sizes[0], Expr(*groups), Expr::floor_div(input.sizes[1], *groups)};
  split.insert(split.end(), input.sizes.begin() + 2, input.sizes.end());
  const Moments m = moments(e, e.view(e.tensor(0), split), last_dims(split.size(), split.size() - 2), *eps);
  const ValueId h = e.view(e.product(m.away, m.rstd), input.sizes);
  const Sizes stats = {input.sizes[0], Expr(*groups)};
  return {e.to(e.results[0].dtype, scaled(e, h, 1, 2, channel_shape(input))),
          e.to(e.results[1].dtype, e.view(m.mean, stats)), e.to(e.results[2].dtype, e.view(m.rstd, stats))};
}
Values group_norm_backward_expanded(Expander& e) {  // grad, input, mean, rstd, weight, N, C, HxW, groups, mask
  const auto groups = number(e.call, 8);
  const auto wanted = mask(e.call, 9, 3);
  if (!groups || !wanted || !e.tensor(0).valid() || !e.tensor(1).valid()) return {};
  const TensorType input = e.type(e.tensor(1));
  if (input.sizes.size() < 2) return {};
  if (!types::is_contiguous(input) || !types::is_contiguous(e.type(e.tensor(0)))) return {};  // torch reads it as such
  Sizes split = {input.sizes[0], Expr(*groups), Expr::floor_div(input.sizes[1], *groups)};
  split.insert(split.end(), input.sizes.begin() + 2, input.sizes.end());
  Sizes stats(split.size(), Expr(1));
  stats[0] = split[0];
  stats[1] = split[1];
  const ValueId grad = e.widened(e.tensor(0)), rstd = e.view(e.widened(e.tensor(3)), stats);
  const ValueId away = e.difference(e.view(e.widened(e.tensor(1)), split), e.view(e.widened(e.tensor(2)), stats));
  const ValueId h = e.product(away, rstd);
  const Sizes dims = all_but_channels(input.sizes.size());
  Values made(3);
  if ((*wanted)[0]) {
    ValueId g = grad;
    if (const ValueId weight = e.tensor(4); weight.valid())
      g = e.product(grad, e.view(e.widened(weight), channel_shape(input)));
    const ValueId dx = normalised_gradient(e, e.view(g, split), h, rstd, last_dims(split.size(), split.size() - 2));
    made[0] = e.to(e.results[0].dtype, e.view(dx, input.sizes));
  }
  if ((*wanted)[1]) made[1] = e.to(e.results[1].dtype, e.sum(e.product(grad, e.view(h, input.sizes)), dims, false));
  if ((*wanted)[2]) made[2] = e.to(e.results[2].dtype, e.sum(grad, dims, false));
  return made;
}

// v * (g / norm of v), the norm over all dimensions but one. v, g, dim -> w, norms
Values weight_norm_expanded(Expander& e) {
  const auto dim = number(e.call, 2);
  if (!e.tensor(0).valid() || !e.tensor(1).valid() || !dim) return {};
  const TensorType v = e.type(e.tensor(0)), g = e.type(e.tensor(1));
  if (!types::is_contiguous(v) || !types::is_contiguous(g)) return {};  // torch reads memory as if it were
  Sizes dims, kept(v.sizes.size(), Expr(1));
  for (size_t d = 0; d < v.sizes.size(); ++d)
    if (static_cast<int64_t>(d) != *dim) dims.push_back(static_cast<int64_t>(d));
  kept[static_cast<size_t>(*dim)] = v.sizes[static_cast<size_t>(*dim)];
  const ValueId wide = e.widened(e.tensor(0)), squares = e.product(wide, wide);
  const ValueId norms = e.apply("aten::sqrt", dims.empty() ? squares : e.sum(squares, dims));
  const ValueId w = e.product(wide, e.quotient(e.view(e.widened(e.tensor(1)), kept), norms));
  return {e.to(e.results[0].dtype, w), e.to(e.results[1].dtype, e.view(norms, g.sizes))};
}

// What is left when functionalisation found nothing to write.
Values batch_norm_without_writes(Expander& e) {
  const auto training = flag(e.call, 5);
  const auto eps = scalar_at(e.call, 7);
  if (!has_batch(e) || !training || !eps) return {};
  if (!*training) return batch_norm_by_running(e, *eps);
  return e.tensor(3).valid() || e.tensor(4).valid() ? Values() : batch_norm_by_batch(e, *eps, std::nullopt);
}
// cuDNN's has a fourth result, which only its own backward understands: whoever reads that must call the library.
template <ExpandRule rule>
Values with_reserve(Expander& e) {
  Values made = rule(e);
  if (!made.empty()) made.insert(made.begin() + 3, unread(e, 3));
  return made;
}
bool trains(const Call& call) { return flag(call, 5) != false; }

// The running statistics, which training changes; native_batch_norm's schema does not say so.
constexpr int kRunning[] = {3, 4};

constexpr Op kOps[] = {
    {.name = "aten::_native_batch_norm_legit",
     .type = batch_norm,
     .writes = kRunning,
     .expand = batch_norm_without_writes,
     .functional = "aten::_native_batch_norm_legit_functional",
     .writes_if = trains},
    {.name = "aten::_native_batch_norm_legit.no_stats",
     .type = batch_norm_no_stats,
     .expand = batch_norm_no_stats_expanded},
    {.name = "aten::_native_batch_norm_legit_no_training",
     .type = batch_norm_inference,
     .expand = batch_norm_inference_expanded},
    {.name = "aten::_weight_norm_interface", .type = weight_norm, .expand = weight_norm_expanded},
    {.name = "aten::_weight_norm_interface_backward", .type = weight_norm_backward},
    {.name = "aten::cudnn_batch_norm",
     .writes = kRunning,
     .expand = with_reserve<batch_norm_without_writes>,
     .functional = "aten::_cudnn_batch_norm_functional",
     .writes_if = trains,
     .same_as = "aten::native_batch_norm"},
    {.name = "aten::native_batch_norm",
     .type = batch_norm,
     .writes = kRunning,
     .expand = batch_norm_without_writes,
     .functional = "aten::_native_batch_norm_legit_functional",
     .writes_if = trains},
    {.name = "aten::native_batch_norm_backward", .type = batch_norm_backward, .expand = batch_norm_backward_expanded},
    {.name = "aten::native_group_norm", .type = group_norm, .expand = group_norm_expanded},
    {.name = "aten::native_group_norm_backward", .type = group_norm_backward, .expand = group_norm_backward_expanded},
    {.name = "aten::native_layer_norm", .type = layer_norm, .expand = layer_norm_expanded},
    {.name = "aten::native_layer_norm_backward", .type = layer_norm_backward, .expand = layer_norm_backward_expanded},
    // Only functionalisation writes this: the new running statistics are its last results.
    {.name = "aten::_native_batch_norm_legit_functional", .expand = batch_norm_functional},
    {.name = "aten::_cudnn_batch_norm_functional", .expand = with_reserve<batch_norm_functional>},
};

}  // namespace

std::span<const Op> norm_ops() { return kOps; }

}  // namespace magneto::ops
