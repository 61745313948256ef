// Activations and their derivatives: one output element for each input element, floats only.
#include <cmath>
#include <limits>

#include "ops/bodies_internal.h"
#include "ops/pointwise_internal.h"

namespace magneto::ops {

namespace {

std::optional<std::vector<Operand>> halves(const Call& call, const TensorType& self, size_t dim) {
  const auto size = fixed_size(call, self.sizes[dim]);
  if (!size || *size % 2 != 0) return std::nullopt;
  Operand half{self, false};
  half.type.sizes[dim] = *size / 2;
  return std::vector<Operand>{half, half};
}

// glu(x) = first half * sigmoid(second half): elementwise over two views of the same tensor.
Results glu(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || self->sizes.empty() || !accepts(kFloats, self->dtype)) return std::nullopt;
  const auto dim = dimension(call, 1, self->sizes.size());
  const auto parts = dim ? halves(call, *self, *dim) : std::nullopt;
  return parts ? elementwise(call, *parts, self->dtype, self->dtype) : std::nullopt;
}

Results glu_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *self = tensor(call, 1);
  if (!grad || !self || self->sizes.empty() || grad->dtype != self->dtype || !accepts(kFloats, self->dtype))
    return std::nullopt;
  const auto dim = dimension(call, 2, self->sizes.size());
  const auto parts = dim ? halves(call, *self, *dim) : std::nullopt;
  if (!parts || !on_cpu(*self) || !same(call, parts->front().type.sizes, grad->sizes)) return std::nullopt;
  return just(fresh(self->dtype, self->device, self->sizes));
}

// Made with empty_like, not by TensorIterator.
Results like_itself(const Call& call) {
  const TensorType* self = tensor(call, 0);
  if (!self || !accepts(kFloats, self->dtype)) return std::nullopt;
  auto result = fresh_like(call, *self, self->dtype, MemoryFormat::kPreserve);
  return result ? just(std::move(*result)) : std::nullopt;
}
Results prelu(const Call& call) {
  const TensorType *self = tensor(call, 0), *weight = tensor(call, 1);
  if (!self || !weight || self->dtype != weight->dtype || self->device != weight->device) return std::nullopt;
  const auto shape = broadcast(call, self->sizes, weight->sizes);
  if (!shape || !same(call, *shape, self->sizes)) return std::nullopt;
  return like_itself(call);
}

Results dropout_backward(const Call& call) {
  takes_real(call, 2);
  const TensorType *grad = tensor(call, 0), *mask = tensor(call, 1);
  if (!grad || !mask || !accepts(kFloats, grad->dtype) || mask->dtype != Dtype::kBool) return std::nullopt;
  return elementwise(call, {{*grad, false}, {*mask, false}}, grad->dtype, grad->dtype);
}

// ---- bodies: the functions ----------------------------------------------------------------------------------------

Element cut_at_six(Element x) { return min(max(x + 3, 0.0), 6.0); }  // 6 * hardsigmoid
// On a GPU torch multiplies by a sixth in f32, also where it computes in f64.
Element sixth_of(const Body& b, Element x) {
  return b.type.device.kind == types::Device::Kind::kCuda ? x * static_cast<double>(1.0F / 6.0F) : x / 6;
}
Element hardsigmoid_body(Body& b) {
  b.promote({0});
  return sixth_of(b, cut_at_six(b.x(0)));
}
Element hardswish_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0);
  return sixth_of(b, x * cut_at_six(x));
}
Element mish_of(Element x) { return x * tanh(log1p(exp(x))); }
Element silu_of(Element x) { return x / (1 + exp(-x)); }

Element celu_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0), alpha = b.scalar(1);
  return where(x > 0, x, alpha * expm1(x / alpha));
}
Element elu_body(Body& b) {  // alpha, scale, input_scale
  b.promote({0});
  const Element x = b.x(0), scale = b.scalar(2);
  return where(x < 0, expm1(x * b.scalar(3)) * (b.scalar(1) * scale), x * scale);
}
Element leaky_relu_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0);
  return where(x > 0, x, x * b.scalar(1));
}
// torch's kernels for a GPU round it to the type of the elements.
Element limit(Body& b, size_t argument) {
  return b.on_cpu() || real(b.call, argument) == 0.0 ? b.scalar(argument) : b.as_half(b.scalar(argument));
}
Element threshold_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0);
  return where(x <= limit(b, 1), b.scalar(2), x);
}
bool by_tanh(Body& b, size_t argument) {
  const std::string* how = text(b.call, argument);
  return how && *how == "tanh";
}
constexpr double kCubic = 0.044715;
constexpr double kSlope = M_2_SQRTPI * M_SQRT1_2;  // sqrt(2 / pi)
Element gelu_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0);
  if (!by_tanh(b, 1)) return x * 0.5 * (1 + erf(x * M_SQRT1_2));
  return 0.5 * x * (1 + tanh(kSlope * (x + kCubic * (x * x * x))));
}
Element hardtanh_body(Body& b) {
  b.promote({0});
  return min(max(b.x(0), b.scalar(1)), b.scalar(2));
}
Element hardshrink_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0), bound = b.as_half(b.scalar(1));
  return where((x >= -bound) & (x <= bound), b.number(0), x);
}
Element softshrink_body(Body& b) {
  b.promote({0});
  const Element x = b.x(0), bound = limit(b, 1);
  return where(x > bound, x - bound, where(x < -bound, x + bound, x * 0));
}
Element shrink_backward_body(Body& b) {                             // grad, self, bound
  if (std::isnan(real(b.call, 2).value_or(0))) return b.decline();  // two answers
  b.promote({0, 1});
  const Element x = b.x(1), bound = b.as_half(b.scalar(2));
  return where((x >= -bound) & (x <= bound), b.number(0), b.x(0));
}
Element softplus_body(Body& b) {  // beta, threshold
  b.promote({0});
  const Element x = b.x(0), beta = b.scalar(1), scaled = x * beta;
  return where(scaled > b.scalar(2), x, log1p(exp(scaled)) / beta);
}
Element prelu_body(Body& b) {
  b.promote({0, 1});
  const Element x = b.x(0);
  return where(x > 0, x, b.x(1) * x);
}
Element glu_body(Body& b) {
  b.promote({0});
  const auto dim = dimension(b.call, 1, b.index.size());
  if (!dim) return b.decline();
  Index second = b.index;
  second[*dim] = second[*dim] + b.size(b.type.sizes[*dim]);
  return b.at(0, b.index) * sigmoid(b.at(0, second));
}

// ---- bodies: the derivatives ---------------------------------------------------------------------------------------

Element elu_backward_body(Body& b) {  // grad, alpha, scale, input_scale, is_result, self or result
  b.promote({0, 5});
  const Element grad = b.x(0), x = b.x(5), scale = b.scalar(2), slope = b.scalar(3), low = b.scalar(1) * scale;
  if (known(flag(b.call, 4))) return where(x <= 0, grad * slope * (x + low), grad * scale);
  return where(x <= 0, grad * slope * low * exp(x * slope), grad * scale);
}
Element gelu_backward_body(Body& b) {
  b.promote({0, 1});
  const Element grad = b.x(0), x = b.x(1);
  if (!by_tanh(b, 2)) {
    const Element below = 0.5 * (1 + erf(x * M_SQRT1_2)), density = exp(-0.5 * x * x) * (M_2_SQRTPI * M_SQRT1_2 * 0.5);
    return grad * (below + x * density);
  }
  const Element t = tanh(kSlope * (x + kCubic * (x * x * x)));
  const Element inner = kSlope * (1 + 3 * kCubic * (x * x));
  return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner);
}
Element glu_backward_body(Body& b) {
  b.promote({0, 1});
  const auto dim = dimension(b.call, 2, b.index.size());
  if (!dim) return b.decline();
  const Element half = b.size(Expr::floor_div(b.type.sizes[*dim], 2)), i = b.index[*dim];
  const Element in_first = i < half;
  Index first = b.index, second = b.index;
  first[*dim] = where(in_first, i, i - half);
  second[*dim] = first[*dim] + half;
  const Element grad = b.at(0, first), s = sigmoid(b.at(1, second));
  return where(in_first, s * grad, (1 - s) * s * grad * b.at(1, first));
}
Element hardsigmoid_backward_body(Body& b) {
  b.promote({0, 1});
  const Element x = b.x(1);
  return where((x > -3) & (x < 3), b.x(0) * static_cast<double>(1.0F / 6.0F), b.number(0));  // as torch, also in f64
}
Element hardswish_backward_body(Body& b) {
  b.promote({0, 1});
  const Element grad = b.x(0), x = b.x(1), middle = grad * (x / 3 + 0.5);
  if (b.on_cpu())  // a NaN stays one there
    return where(x <= -3, b.number(0), where(x >= 3, grad, middle));
  return where(x <= -3, b.number(0), where(x < 3, middle, grad));
}
// With a NaN as a limit torch's vectors give zero, and the elements after them the gradient.
bool is_nan_limit(const Call& call, size_t i) {
  const auto limit = real(call, i);
  return limit && std::isnan(*limit);
}
Element hardtanh_backward_body(Body& b) {
  if (is_nan_limit(b.call, 2) || is_nan_limit(b.call, 3)) return b.decline();
  b.promote({0, 1});
  const Element x = b.x(1), grad = b.x(0);
  if (b.on_cpu())  // a NaN has no gradient there
    return where((x > b.scalar(2)) & (x < b.scalar(3)), grad, b.number(0));
  return where((x <= b.scalar(2)) | (x >= b.scalar(3)), b.number(0), grad);
}
Element leaky_relu_backward_body(Body& b) {
  b.promote({0, 1});
  const Element grad = b.x(0);
  return where(b.x(1) > 0, grad, grad * b.scalar(2));
}
Element mish_backward_body(Body& b) {
  b.promote({0, 1});
  const Element x = b.x(1), t = tanh(log1p(exp(x)));
  return b.x(0) * (t + x * sigmoid(x) * (1 - t * t));
}
Element dropout_backward_body(Body& b) {
  b.promote({0});
  return b.x(0) * b.x(1) * b.scalar(2);
}
Element sigmoid_backward_of(Element grad, Element y) { return grad * (1 - y) * y; }
Element silu_backward_of(Element grad, Element x) {
  const Element s = sigmoid(x);
  return grad * s * (1 + x * (1 - s));
}
Element softplus_backward_body(Body& b) {
  b.promote({0, 1});
  const Element grad = b.x(0), scaled = b.x(1) * b.scalar(2), z = exp(scaled);
  return where(scaled > b.scalar(3), grad, grad * z / (z + 1));
}
Element tanh_backward_of(Element grad, Element y) { return grad * (1 - y * y); }
Element threshold_backward_body(Body& b) {
  b.promote({0, 1});
  return where(b.x(1) <= limit(b, 2), b.number(0), b.x(0));
}

// The arguments after the element's rule are numbers that may change from call to call.
#define ACTIVATION(op, element, ...)                                                                                \
  {.name = "aten::" op, .type = with_reals<uniform<kFloats, 0> __VA_OPT__(, ) __VA_ARGS__>, .body = element}, {     \
    .name = "aten::" op "_", .type = with_reals<uniform_<kFloats, 0> __VA_OPT__(, ) __VA_ARGS__>, .writes = kFirst, \
    .functional = "aten::" op                                                                                       \
  }

// The gradient of what was written over, from its result: with a slope below zero nobody can tell the sign of what was
// there, and torch raises, whoever reads the gradient.
template <TypeRule rule, size_t is_result, size_t slope>
Results from_result(const Call& call) {
  if (flag(call, is_result) == false) {
    takes_real(call, slope);
    return rule(call);
  }
  takes_unless_negative(call, slope);
  const auto number = real(call, slope);
  return number && *number < 0 ? std::nullopt : rule(call);
}

// A NaN as a limit is a constant: the gradient looks at it.
template <TypeRule rule>
Results within_limits(const Call& call) {
  for (const size_t limit : {1, 2}) orders_real(call, limit);
  return rule(call);
}

// torch's vectors and the elements after them differ for a NaN as the bound, and softshrink refuses one below zero
// or without end.
template <TypeRule rule, size_t bound, bool refuses = false>
Results shrinks(const Call& call) {
  if (const TensorType* x = tensor(call, 0); x && !loop::is_half(x->dtype)) {
    orders_real(call, bound);
    if (refuses) takes_between(call, bound, 0, std::numeric_limits<double>::max());
  }
  const auto number = real(call, bound);
  return refuses && number && !(*number >= 0 && std::isfinite(*number)) ? std::nullopt : rule(call);
}

// A kernel refuses any other word: eager's error belongs to the line of the call.
template <TypeRule rule, size_t argument>
Results gelu(const Call& call) {
  const std::string* kind = text(call, argument);
  return kind && (*kind == "none" || *kind == "tanh") ? rule(call) : std::nullopt;
}

constexpr Op kOps[] = {
    ACTIVATION("celu", celu_body),
    ACTIVATION("elu", elu_body, 1, 2, 3),
    ACTIVATION("hardsigmoid", hardsigmoid_body),
    ACTIVATION("hardswish", hardswish_body),
    ACTIVATION("leaky_relu", leaky_relu_body, 1),
    ACTIVATION("mish", of_one<mish_of>),
    ACTIVATION("silu", of_one<silu_of>),
    ACTIVATION("threshold", threshold_body, 1, 2),
    {.name = "aten::gelu", .type = gelu<uniform<kFloats, 0>, 1>, .body = gelu_body},
    {.name = "aten::gelu_", .type = gelu<uniform_<kFloats, 0>, 1>, .writes = kFirst, .functional = "aten::gelu"},
    {.name = "aten::hardtanh", .type = within_limits<like_itself>, .body = hardtanh_body},
    {.name = "aten::hardtanh_",
     .type = within_limits<uniform_<kFloats, 0>>,
     .writes = kFirst,
     .functional = "aten::hardtanh"},
    {.name = "aten::hardshrink", .type = shrinks<uniform<kFloats, 0>, 1>, .body = hardshrink_body},
    {.name = "aten::hardshrink_backward", .type = shrinks<uniform<kFloats, 0, 1>, 2>, .body = shrink_backward_body},
    {.name = "aten::softplus", .type = with_reals<uniform<kFloats, 0>, 1, 2>, .body = softplus_body},
    {.name = "aten::softshrink", .type = shrinks<uniform<kFloats, 0>, 1, true>, .body = softshrink_body},
    {.name = "aten::softshrink_backward",
     .type = shrinks<uniform<kFloats, 0, 1>, 2, true>,
     .body = shrink_backward_body},
    {.name = "aten::_prelu_kernel", .type = prelu, .body = prelu_body},
    {.name = "aten::glu", .type = glu, .body = glu_body},

    {.name = "aten::elu_backward",
     .type = from_result<with_reals<uniform<kFloats, 0, 5>, 2, 3>, 4, 1>,
     .body = elu_backward_body},
    {.name = "aten::gelu_backward", .type = gelu<uniform<kFloats, 0, 1>, 2>, .body = gelu_backward_body},
    {.name = "aten::glu_backward", .type = glu_backward, .body = glu_backward_body},
    {.name = "aten::hardsigmoid_backward", .type = uniform<kFloats, 0, 1>, .body = hardsigmoid_backward_body},
    {.name = "aten::hardswish_backward", .type = uniform<kFloats, 0, 1>, .body = hardswish_backward_body},
    {.name = "aten::hardtanh_backward",
     .type = with_reals<uniform<kFloats, 0, 1>, 2, 3>,
     .body = hardtanh_backward_body},
    {.name = "aten::leaky_relu_backward",
     .type = from_result<uniform<kFloats, 1, 0>, 3, 2>,
     .body = leaky_relu_backward_body},
    {.name = "aten::mish_backward", .type = uniform<kFloats, 0, 1>, .body = mish_backward_body},
    {.name = "aten::native_dropout_backward", .type = dropout_backward, .body = dropout_backward_body},
    {.name = "aten::sigmoid_backward", .type = uniform<kFloats, 0, 1>, .body = by_two<sigmoid_backward_of>},
    {.name = "aten::silu_backward", .type = uniform<kFloats, 0, 1>, .body = by_two<silu_backward_of>},
    {.name = "aten::softplus_backward",
     .type = with_reals<uniform<kFloats, 0, 1>, 2, 3>,
     .body = softplus_backward_body},
    {.name = "aten::tanh_backward", .type = uniform<kFloats, 0, 1>, .body = by_two<tanh_backward_of>},
    {.name = "aten::threshold_backward",
     .type = with_reals<uniform<kFloats, 1, 0>, 2>,
     .body = threshold_backward_body},
};
#undef ACTIVATION

}  // namespace

std::span<const Op> activation_ops() { return kOps; }

}  // namespace magneto::ops
