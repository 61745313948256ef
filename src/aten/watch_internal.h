// aten/watch_internal.h: tensors of the caller whose memory has a recorded write that was not run yet.
//
// They are ordinary TensorImpls, so has_storage() is not ours. Until the flush their vtable pointer is swapped for that
// of a class of the same layout, whose has_storage() and storage() flush first. The language does not bless this; every
// compiler and ABI that torch supports does it right, and a self-test runs when the first trace is made.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "aten/trace.h"

namespace magneto::aten {

void watch(const at::Tensor& tensor);
void unwatch(const at::Tensor& tensor);
bool is_watched(const c10::TensorImpl& impl);
/// The class that has been swapped in counts as the plain one.
bool is_plain_impl(const c10::TensorImpl& impl);

/// A write to this storage is recorded in `state`; forgotten when state is nullptr.
void set_writer(const c10::StorageImpl& storage, Trace::State* state);
std::shared_ptr<Trace::State> writer_of(const c10::StorageImpl& storage);

}  // namespace magneto::aten
