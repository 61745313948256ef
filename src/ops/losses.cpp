// Losses and their derivatives. The reduction is a number: 0 none, 1 mean, 2 sum.
#include "ops/pointwise_internal.h"

namespace magneto::ops {

namespace {

// Of input and target, elementwise or reduced to one number.
Results pair_loss(const Call& call, size_t reduction_argument) {
  const auto reduction = number(call, reduction_argument);
  auto each = uniform<kFloats, 0, 1>(call);
  if (!each || !reduction || *reduction < 0 || *reduction > 2) return std::nullopt;
  if (*reduction == 0) return each;
  const TensorType& self = *tensor(call, 0);
  return just(fresh(self.dtype, self.device, {}));
}
Results loss(const Call& call) { return pair_loss(call, 2); }

// grad, input, target: as the input, broadcast with the others.
Results loss_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *self = tensor(call, 1), *target = tensor(call, 2);
  const auto reduction = number(call, 3);
  if (!grad || !self || !target || !reduction || !accepts(kFloats, self->dtype)) return std::nullopt;
  if (!same(call, self->sizes, target->sizes) || grad->dtype != self->dtype || target->dtype != self->dtype)
    return std::nullopt;
  if (*reduction == 0 ? !same(call, grad->sizes, self->sizes) : !grad->sizes.empty()) return std::nullopt;
  // made with zeros_like in the contiguous format
  return just(fresh(self->dtype, self->device, self->sizes));
}

bool class_weight_fits(const Call& call, size_t i, const TensorType& self, const Expr& classes) {
  if (is_absent(call, i)) return true;
  const TensorType* weight = tensor(call, i);
  return weight && weight->dtype == self.dtype && same(call, weight->sizes, Sizes{classes});
}

// Scores [N, C] or [C] and targets [N] or [].
bool is_nll(const Call& call, const TensorType* self, const TensorType* target, size_t weight_argument) {
  if (!self || !target || self->sizes.empty() || self->sizes.size() > 2 || !accepts(kFloats, self->dtype)) return false;
  if (target->dtype != Dtype::kI64 || self->device != target->device) return false;
  const Sizes batch(self->sizes.begin(), self->sizes.end() - 1);
  return same(call, target->sizes, batch) && class_weight_fits(call, weight_argument, *self, self->sizes.back());
}
Results nll(const Call& call) {
  const TensorType *self = tensor(call, 0), *target = tensor(call, 1);
  const auto reduction = number(call, 3);
  if (!reduction || !is_nll(call, self, target, 2)) return std::nullopt;
  return std::vector<Result>{fresh(self->dtype, self->device, *reduction == 0 ? target->sizes : Sizes()),
                             fresh(self->dtype, self->device, {})};
}
Results nll_backward(const Call& call) {
  const TensorType *grad = tensor(call, 0), *self = tensor(call, 1), *target = tensor(call, 2);
  const auto reduction = number(call, 4);
  if (!grad || !reduction || !is_nll(call, self, target, 3) || grad->dtype != self->dtype) return std::nullopt;
  if (*reduction == 0 ? !same(call, grad->sizes, target->sizes) : !grad->sizes.empty()) return std::nullopt;
  return just(fresh(self->dtype, self->device, self->sizes));
}

// The same for every place of an image: scores [N, C, H, W], targets [N, H, W].
Results nll2d(const Call& call) {
  const TensorType *self = tensor(call, 0), *target = tensor(call, 1);
  const auto reduction = number(call, 3);
  if (!self || !target || !reduction || self->sizes.size() != 4 || !accepts(kFloats, self->dtype)) return std::nullopt;
  if (target->dtype != Dtype::kI64 || !same(call, target->sizes, Sizes{self->sizes[0], self->sizes[2], self->sizes[3]}))
    return std::nullopt;
  if (!class_weight_fits(call, 2, *self, self->sizes[1]) || self->device.kind != Device::Kind::kCpu)
    return std::nullopt;
  return std::vector<Result>{fresh(self->dtype, self->device, *reduction == 0 ? target->sizes : Sizes()),
                             fresh(self->dtype, self->device, {})};
}

constexpr Op kOps[] = {
    {.name = "aten::huber_loss", .type = loss},
    {.name = "aten::mse_loss", .type = loss},
    {.name = "aten::mse_loss_backward", .type = loss_backward},
    {.name = "aten::nll_loss2d_forward", .type = nll2d, .may_raise_on_data = true},
    {.name = "aten::nll_loss_backward", .type = nll_backward, .may_raise_on_data = true},
    {.name = "aten::nll_loss_forward", .type = nll, .may_raise_on_data = true},
    {.name = "aten::smooth_l1_loss", .type = loss},
    {.name = "aten::smooth_l1_loss_backward", .type = loss_backward},
};

}  // namespace

std::span<const Op> loss_ops() { return kOps; }

}  // namespace magneto::ops
