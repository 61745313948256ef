// aten/testing.cpp
#include "aten/testing.h"

#include "aten/state_internal.h"
#include "aten/storage_flags_internal.h"

namespace magneto::aten {

Counters counters() {
  std::lock_guard<std::mutex> lock(lies().mutex);
  return {PendingImpl::living, lies().count, lies().last};
}

bool is_pending(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return storage && is_sealed(*storage);
}

}  // namespace magneto::aten
