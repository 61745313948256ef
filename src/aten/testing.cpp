// aten/testing.cpp
#include "aten/testing.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <atomic>

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

namespace {

/// In front of torch's own, from the first test that asks for it.
class Refusing final : public c10::Allocator {
 public:
  explicit Refusing(c10::Allocator* behind) : behind_(behind) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes >= least) {
      const int64_t number = asked++ - spared;
      TORCH_CHECK_WITH(OutOfMemoryError, number < 0 || number >= refused, "a test has no memory for ", bytes, " bytes");
    }
    return behind_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { behind_->copy_data(to, from, bytes); }

  std::atomic<size_t> least = 0;
  std::atomic<int64_t> spared = 0, refused = 0, asked = 0;

 private:
  c10::Allocator* const behind_;
};

Refusing& refusing() {
  static auto* one = [] {
    auto* made = new Refusing(c10::GetAllocator(c10::kCPU));
    c10::SetAllocator(c10::kCPU, made, UINT8_MAX);
    return made;
  }();
  return *one;
}

}  // namespace

void refuse_memory(size_t bytes, int64_t spared, int64_t refused) {
  Refusing& one = refusing();
  one.least = bytes;
  one.spared = spared;
  one.refused = refused;
  one.asked = 0;
}

int64_t asked_for_memory() { return refusing().asked; }

}  // namespace magneto::aten
