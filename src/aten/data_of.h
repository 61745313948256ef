// aten/data_of.h: x.data: the same memory without a history, whose versions are counted apart.
#pragma once

#include <ATen/core/Tensor.h>

namespace magneto::aten {

/// An operator, which a graph can hold. `aten::data` is none: it never comes to a dispatcher.
inline constexpr const char* kDataOf = "magneto::data";

at::Tensor data_of(const at::Tensor& tensor);

}  // namespace magneto::aten
