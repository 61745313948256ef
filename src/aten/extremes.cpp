// aten/extremes.cpp: max() and min() of a whole tensor in a symbolic trace. torch's gradient for a CPU reads whether
// the result is NaN, which a trace without data cannot answer: the same numbers, without the question.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/symbolic_key_internal.h"

namespace magneto::aten {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Extreme = at::Tensor (*)(const at::Tensor&);

/// The gradient goes to all elements that are the result, in equal parts; where that is NaN, to all that are NaN.
struct Evenly : torch::autograd::Function<Evenly> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self, Extreme extreme) {
    at::Tensor result = extreme(self);
    context->save_for_backward({self, result});
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &self = saved[0], &result = saved[1];
    const at::Tensor chosen = (self == result).logical_or(self.isnan().logical_and(result.isnan()));
    const at::Tensor part = gradients[0] / chosen.sum();
    return {at::where(chosen, part, at::zeros({}, part.options())), at::Tensor()};
  }
};

template <Extreme extreme>
at::Tensor whole(const at::Tensor& self) {
  const c10::impl::ExcludeDispatchKeyGuard once(kSymbolicKey);
  const bool has_gradient = self.requires_grad() && c10::GradMode::is_enabled();
  return has_gradient && self.is_cpu() ? Evenly::apply(self, extreme) : extreme(self);
}

at::Tensor greatest(const at::Tensor& self) { return self.max(); }
at::Tensor least(const at::Tensor& self) { return self.min(); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("max", whole<greatest>);
  library.impl("min", whole<least>);
}

}  // namespace magneto::aten
