#include "aten/data_of.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace magneto::aten {

static at::Tensor on_memory(const at::Tensor& tensor) { return tensor.variable_data(); }

// No kernel for views comes to it: the result has no base, and counts versions of its own.
static at::Tensor without_history(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return data_of(tensor);
}

at::Tensor data_of(const at::Tensor& tensor) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(kDataOf, "").typed<at::Tensor(const at::Tensor&)>();
  return op.call(tensor);
}

TORCH_LIBRARY_FRAGMENT(magneto, library) {
  library.def("data(Tensor(a) self) -> Tensor(a)");
  library.impl("data", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(on_memory));
  library.impl("data", c10::DispatchKey::Autograd, TORCH_FN(without_history));
}

}  // namespace magneto::aten
