// Activations and their derivatives: one output element for each input element, floats only.
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
  if (!parts || self->device.kind != Device::Kind::kCpu || !same(call, parts->front().type.sizes, grad->sizes))
    return std::nullopt;
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
  const TensorType *grad = tensor(call, 0), *mask = tensor(call, 1);
  if (!grad || !mask || !accepts(kFloats, grad->dtype) || mask->dtype != Dtype::kBool) return std::nullopt;
  return elementwise(call, {{*grad, false}, {*mask, false}}, grad->dtype, grad->dtype);
}

#define ACTIVATION(op)                                                      \
  {.name = "aten::" op, .type = uniform<kFloats, 0>}, {                     \
    .name = "aten::" op "_", .type = uniform_<kFloats, 0>, .writes = kFirst \
  }

// A kernel refuses any other word: eager's error belongs to the line of the call.
template <TypeRule rule, size_t argument>
Results gelu(const Call& call) {
  const std::string* kind = text(call, argument);
  return kind && (*kind == "none" || *kind == "tanh") ? rule(call) : std::nullopt;
}

constexpr Op kOps[] = {
    ACTIVATION("celu"),
    ACTIVATION("elu"),
    ACTIVATION("hardsigmoid"),
    ACTIVATION("hardswish"),
    ACTIVATION("leaky_relu"),
    ACTIVATION("mish"),
    ACTIVATION("silu"),
    ACTIVATION("threshold"),
    {.name = "aten::gelu", .type = gelu<uniform<kFloats, 0>, 1>},
    {.name = "aten::gelu_", .type = gelu<uniform_<kFloats, 0>, 1>, .writes = kFirst},
    {.name = "aten::hardtanh", .type = like_itself},
    {.name = "aten::hardtanh_", .type = uniform_<kFloats, 0>, .writes = kFirst},
    {.name = "aten::hardshrink", .type = uniform<kFloats, 0>},
    {.name = "aten::softplus", .type = uniform<kFloats, 0>},
    {.name = "aten::softshrink", .type = uniform<kFloats, 0>},
    {.name = "aten::_prelu_kernel", .type = prelu},
    {.name = "aten::glu", .type = glu},

    {.name = "aten::elu_backward", .type = uniform<kFloats, 0, 5>},
    {.name = "aten::gelu_backward", .type = gelu<uniform<kFloats, 0, 1>, 2>},
    {.name = "aten::glu_backward", .type = glu_backward},
    {.name = "aten::hardsigmoid_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::hardswish_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::hardtanh_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::leaky_relu_backward", .type = uniform<kFloats, 1, 0>},
    {.name = "aten::mish_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::native_dropout_backward", .type = dropout_backward},
    {.name = "aten::sigmoid_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::silu_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::softplus_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::tanh_backward", .type = uniform<kFloats, 0, 1>},
    {.name = "aten::threshold_backward", .type = uniform<kFloats, 1, 0>},
};
#undef ACTIVATION

}  // namespace

std::span<const Op> activation_ops() { return kOps; }

}  // namespace magneto::ops
