// Losses and their derivatives. The reduction is a number: 0 none, 1 mean, 2 sum.
#include "ops/bodies_internal.h"
#include "ops/expander.h"
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
  if (!class_weight_fits(call, 2, *self, self->sizes[1]) || !on_cpu(*self)) return std::nullopt;
  return std::vector<Result>{fresh(self->dtype, self->device, *reduction == 0 ? target->sizes : Sizes()),
                             fresh(self->dtype, self->device, {})};
}

// ---- bodies: one element of the loss or of its gradient
// --------------------------------------------------------------

// Reduced as the argument says: the mean, the sum, or each element.
template <Element (*each)(Body&, Element, Element), size_t reduction_argument>
Element loss_body(Body& b) {
  b.promote({0, 1});
  const auto reduction = number(b.call, reduction_argument);
  const TensorType& self = b.type_of(0);
  if (!reduction || !same(b.call, self.sizes, b.type_of(1).sizes)) return b.decline();
  if (*reduction == 0) return each(b, b.x(0), b.x(1));
  const Element sum = b.fold(loop::Fold::kSum, self.sizes, [&](const Index& at) {
    return each(b, cast(b.dtype, b.at(0, at)), cast(b.dtype, b.at(1, at)));
  });
  return *reduction == 2 ? sum : sum / cast(sum.dtype(), b.size(types::numel(self.sizes)));
}
Element squared(Body&, Element x, Element y) { return square(x - y); }
Element smooth(Body& b, Element x, Element y) {  // beta
  const Element z = abs(x - y), beta = b.scalar(3);
  return where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta);
}
Element huber(Body& b, Element x, Element y) {  // delta
  const Element z = abs(x - y), delta = b.scalar(3);
  return where(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta));
}
// grad, input, target, reduction: the gradient of a mean is shared among its elements
Element share(Body& b) {
  const auto reduction = number(b.call, 3);
  const Element grad = b.x(0);
  if (!reduction) return b.decline();
  return *reduction == 1 ? grad / cast(grad.dtype(), b.size(types::numel(b.type_of(1).sizes))) : grad;
}
Element mse_backward_body(Body& b) {
  b.promote({0, 1, 2});
  return 2 * (b.x(1) - b.x(2)) * share(b);
}
Element smooth_backward_body(Body& b) {
  b.promote({0, 1, 2});
  const Element x = b.x(1) - b.x(2), beta = b.scalar(4), grad = share(b);
  return where(x <= -beta, -grad, where(x >= beta, grad, x * grad / beta));
}

Element huber_backward_body(Body& b) {
  b.promote({0, 1, 2});
  const Element x = b.x(1) - b.x(2), delta = b.scalar(4), grad = share(b);
  return where(x <= -delta, -grad * delta, where(x >= delta, grad * delta, x * grad));
}

// The classes lie along dimension `dim` of the scores; an ignored target counts nothing.
struct Target {
  Element ignored, row;  // the class, checked; 0 for an ignored one
};
Target target_at(Body& b, size_t argument, size_t ignore_argument, const Index& at, const Expr& classes) {
  const Element target = b.at(argument, at);
  const auto ignore = integer(b.call, ignore_argument);
  if (!ignore) b.decline();
  const Element ignored = target == b.size(ignore.value_or(Expr(0)));
  return {ignored, checked(where(ignored, b.whole(0), target), b.size(classes))};
}
Element weight_of(Body& b, size_t argument, const Target& target) {
  const Element one = is_absent(b.call, argument) ? b.number(1) : b.at(argument, {target.row});
  return where(target.ignored, b.number(0), one);
}
Index with_class(const Index& at, const Element& row) {
  Index full = at;
  full.insert(full.begin() + (at.empty() ? 0 : 1), row);
  return full;
}
Element nll_body(Body& b) {  // self, target, weight, reduction, ignore_index -> loss, total weight
  b.compute_as(b.type.dtype);
  const auto reduction = number(b.call, 3);
  if (!reduction) return b.decline();
  const TensorType &self = b.type_of(0), &target = b.type_of(1);
  const Expr& classes = self.sizes[self.sizes.size() == 1 ? 0 : 1];
  const auto loss_at = [&](const Index& at) {
    const Target t = target_at(b, 1, 4, at, classes);
    return where(t.ignored, b.number(0), -b.at(0, with_class(at, t.row)) * weight_of(b, 2, t));
  };
  const auto total = [&] {
    return b.fold(loop::Fold::kSum, target.sizes,
                  [&](const Index& at) { return weight_of(b, 2, target_at(b, 1, 4, at, classes)); });
  };
  // of single scores torch gives the weight even where nothing is reduced
  if (b.output == 1) return *reduction == 0 && self.sizes.size() > 1 ? b.number(0) : total();
  if (*reduction == 0) return loss_at(b.index);
  const Element sum = b.fold(loop::Fold::kSum, target.sizes, loss_at);
  return *reduction == 2 ? sum : sum / total();
}
Element nll_backward_body(Body& b) {  // grad, self, target, weight, reduction, ignore_index, total weight
  b.compute_as(b.type.dtype);
  const auto reduction = number(b.call, 4);
  if (!reduction) return b.decline();
  const size_t dim = b.index.size() == 1 ? 0 : 1;
  Index at = b.index;
  at.erase(at.begin() + static_cast<ptrdiff_t>(dim));
  const Target t = target_at(b, 2, 5, at, b.type.sizes[dim]);
  Element grad = b.at(0, *reduction == 0 ? at : Index());
  if (*reduction == 1) grad = grad / b.at(6, {});
  return where(t.ignored | (t.row != b.index[dim]), b.number(0), -grad * weight_of(b, 3, t));
}

// Where the loss turns from a square to a line: torch refuses numbers below zero, and zero is another formula.
template <TypeRule rule, size_t turn>
Results with_positive(const Call& call) {
  takes_positive(call, turn);
  return rule(call);
}

constexpr Op kOps[] = {
    {.name = "aten::huber_loss", .type = with_positive<loss, 3>, .body = loss_body<huber, 2>},
    {.name = "aten::huber_loss_backward", .type = with_positive<loss_backward, 4>, .body = huber_backward_body},
    {.name = "aten::mse_loss", .type = loss, .body = loss_body<squared, 2>},
    {.name = "aten::mse_loss_backward", .type = loss_backward, .body = mse_backward_body},
    {.name = "aten::nll_loss2d_forward", .type = nll2d, .may_raise_on_data = true, .body = nll_body},
    {.name = "aten::nll_loss_backward", .type = nll_backward, .may_raise_on_data = true, .body = nll_backward_body},
    {.name = "aten::nll_loss_forward", .type = nll, .may_raise_on_data = true, .body = nll_body},
    {.name = "aten::smooth_l1_loss", .type = with_positive<loss, 3>, .body = loss_body<smooth, 2>},
    {.name = "aten::smooth_l1_loss_backward", .type = with_positive<loss_backward, 4>, .body = smooth_backward_body},
};

}  // namespace

std::span<const Op> loss_ops() { return kOps; }

}  // namespace magneto::ops
