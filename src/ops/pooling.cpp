// Pooling and upsampling of images. Results are channels last when the input suggests it.
#include "ops/pooling_internal.h"

namespace magneto::ops {

std::optional<Pair> pair_at(const Call& call, size_t i, std::optional<Pair> otherwise) {
  const auto list = numbers(call, i);
  if (!list) return std::nullopt;
  if (list->empty()) return otherwise;
  if (list->size() == 1) return Pair{(*list)[0], (*list)[0]};
  return list->size() == 2 ? std::optional(Pair{(*list)[0], (*list)[1]}) : std::nullopt;
}

std::optional<Window> max_window(const Call& call, size_t at) {
  const auto kernel = pair_at(call, at);
  const auto stride = pair_at(call, at + 1, kernel), padding = pair_at(call, at + 2), dilation = pair_at(call, at + 3);
  const auto ceil_mode = flag(call, at + 4);
  if (!kernel || !stride || !padding || !dilation || !ceil_mode) return std::nullopt;
  return Window{*kernel, *stride, *padding, *dilation, *ceil_mode};
}
std::optional<Window> average_window(const Call& call, size_t at) {
  const auto kernel = pair_at(call, at);
  const auto stride = pair_at(call, at + 1, kernel), padding = pair_at(call, at + 2);
  const auto ceil_mode = flag(call, at + 3);
  if (!kernel || !stride || !padding || !ceil_mode) return std::nullopt;
  return Window{*kernel, *stride, *padding, {1, 1}, *ceil_mode};
}

namespace {

// One dimension of the result. The last window starts inside the image or the padding to its left.
std::optional<Expr> windows(const Call& call, const Expr& size, int64_t kernel, int64_t stride, int64_t padding,
                            int64_t dilation, bool ceil_mode) {
  if (kernel <= 0 || stride <= 0 || dilation <= 0 || padding < 0 || padding > kernel / 2) return std::nullopt;
  const Expr rounded = size + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  if (less(call, rounded, 0) != false) return std::nullopt;
  Expr count = Expr::floor_div(rounded, stride) + 1;
  if (ceil_mode) {
    const Truth fits = less(call, (count - 1) * stride, size + padding);
    if (!fits) return std::nullopt;
    if (!*fits) count = count - 1;
  }
  return known(less(call, 0, count)) ? std::optional(count) : std::nullopt;
}

std::optional<Sizes> pooled(const Call& call, const TensorType& self, const Window& window) {
  const size_t rank = self.sizes.size();
  if ((rank != 3 && rank != 4) || is_empty(call, self.sizes) != false) return std::nullopt;
  const auto h = windows(call, self.sizes[rank - 2], window.kernel.h, window.stride.h, window.padding.h,
                         window.dilation.h, window.ceil_mode);
  const auto w = windows(call, self.sizes[rank - 1], window.kernel.w, window.stride.w, window.padding.w,
                         window.dilation.w, window.ceil_mode);
  if (!h || !w) return std::nullopt;
  Sizes sizes = self.sizes;
  sizes[rank - 2] = *h;
  sizes[rank - 1] = *w;
  return sizes;
}

Results max_pool(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto window = max_window(call, 1);
  if (!self || !window || !accepts(kFloats, self->dtype)) return std::nullopt;
  const auto sizes = pooled(call, *self, *window);
  auto values = sizes ? fresh_in_suggested(call, self->dtype, *sizes, *self) : std::nullopt;
  if (!values) return std::nullopt;
  Result positions = *values;
  positions.type.dtype = Dtype::kI64;
  return std::vector<Result>{std::move(*values), std::move(positions)};
}

Results average_pool(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto window = average_window(call, 1);
  if (!self || !window || !accepts(kFloats, self->dtype)) return std::nullopt;
  const auto sizes = pooled(call, *self, *window);
  auto result = sizes ? fresh_in_suggested(call, self->dtype, *sizes, *self) : std::nullopt;
  return result ? just(std::move(*result)) : std::nullopt;
}

// The gradient of the input, in the layout that the input suggests.
Results pool_backward(const Call& call, std::optional<Window> window) {
  const TensorType *grad = tensor(call, 0), *self = tensor(call, 1);
  if (!grad || !self || !window || grad->dtype != self->dtype || !accepts(kFloats, self->dtype)) return std::nullopt;
  if (pooled(call, *self, *window) != grad->sizes) return std::nullopt;
  auto result = fresh_in_suggested(call, self->dtype, self->sizes, *self);
  return result ? just(std::move(*result)) : std::nullopt;
}
Results max_pool_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *positions = tensor(call, 7);
  if (!grad || !positions || positions->dtype != Dtype::kI64 || positions->sizes != grad->sizes) return std::nullopt;
  return pool_backward(call, max_window(call, 2));
}
Results average_pool_backward(const Call& call) { return pool_backward(call, average_window(call, 2)); }

// Averages of integers are divided and rounded by rules of torch's own.
template <Element (*body)(Body&)>
Element of_floats(Body& b) {
  return types::is_floating(b.type.dtype) ? body(b) : b.decline();
}

Results adaptive(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const auto size = pair_at(call, 1);
  if (!self || !on_cpu(*self) || !size || size->h <= 0 || size->w <= 0 || !accepts(kFloats, self->dtype))
    return std::nullopt;
  const size_t rank = self->sizes.size();
  if ((rank != 3 && rank != 4) || is_empty(call, self->sizes) != false) return std::nullopt;
  Sizes sizes = self->sizes;
  sizes[rank - 2] = size->h;
  sizes[rank - 1] = size->w;
  auto result = fresh_in_suggested(call, self->dtype, std::move(sizes), *self);
  return result ? just(std::move(*result)) : std::nullopt;
}

Results adaptive_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *self = tensor(call, 1);
  if (!self || !on_cpu(*self) || !grad || grad->dtype != self->dtype || !accepts(kFloats, self->dtype))
    return std::nullopt;
  if (self->sizes.size() != 4 || grad->sizes.size() != 4 || is_empty(call, grad->sizes) != false) return std::nullopt;
  if (grad->sizes[0] != self->sizes[0] || grad->sizes[1] != self->sizes[1]) return std::nullopt;
  auto result = fresh_in_suggested(call, self->dtype, self->sizes, *self);
  return result ? just(std::move(*result)) : std::nullopt;
}

Results upsample(const Call& call) {
  const TensorType* self = tensor(call, 0);
  const Sizes* size = integers(call, 1);
  if (!self || !size || size->size() != 2 || self->sizes.size() != 4 || !accepts(kFloats, self->dtype))
    return std::nullopt;
  if (is_empty(call, self->sizes) != false) return std::nullopt;
  for (const Expr& one : *size)
    if (!known(less(call, 0, one))) return std::nullopt;
  auto result = fresh_in_suggested(call, self->dtype, {self->sizes[0], self->sizes[1], (*size)[0], (*size)[1]}, *self);
  return result ? just(std::move(*result)) : std::nullopt;
}
Results upsample_backward(const Call& call) {
  const TensorType* grad = tensor(call, 0);
  const Sizes *size = integers(call, 1), *input = integers(call, 2);
  if (!grad || !size || !input || size->size() != 2 || input->size() != 4 || !accepts(kFloats, grad->dtype))
    return std::nullopt;
  if (grad->sizes != Sizes{(*input)[0], (*input)[1], (*size)[0], (*size)[1]}) return std::nullopt;
  if (is_empty(call, *input) != false || is_empty(call, grad->sizes) != false) return std::nullopt;
  auto result = fresh_in_suggested(call, grad->dtype, *input, *grad);
  return result ? just(std::move(*result)) : std::nullopt;
}

constexpr Op kOps[] = {
    {.name = "aten::_adaptive_avg_pool2d", .type = adaptive, .body = of_floats<adaptive_pool_body>},
    {.name = "aten::_adaptive_avg_pool2d_backward",
     .type = adaptive_backward,
     .body = of_floats<adaptive_pool_backward_body>},
    {.name = "aten::avg_pool2d", .type = average_pool, .body = of_floats<average_pool_body>},
    {.name = "aten::avg_pool2d_backward", .type = average_pool_backward, .body = of_floats<average_pool_backward_body>},
    {.name = "aten::max_pool2d_with_indices", .type = max_pool, .body = max_pool_body},
    {.name = "aten::max_pool2d_with_indices_backward",
     .type = max_pool_backward,
     .may_raise_on_data = true,
     .equation = max_pool_backward_equation},
    {.name = "aten::upsample_bicubic2d", .type = upsample},
    {.name = "aten::upsample_bilinear2d", .type = upsample, .body = of_floats<bilinear_body>},
    {.name = "aten::upsample_bilinear2d_backward", .type = upsample_backward},
    {.name = "aten::upsample_nearest2d", .type = upsample, .body = nearest_body},
    {.name = "aten::upsample_nearest2d_backward", .type = upsample_backward, .body = nearest_backward_body},
};

}  // namespace

std::span<const Op> pooling_ops() { return kOps; }

}  // namespace magneto::ops
