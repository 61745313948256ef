// aten/watch.cpp
#include "aten/watch_internal.h"

#include <mutex>
#include <typeinfo>
#include <unordered_map>

#include "aten/state_internal.h"
#include "aten/storage_flags_internal.h"
#include "base/check.h"

namespace magneto::aten {

namespace {

class WatchedImpl final : public c10::TensorImpl {
 public:
  using TensorImpl::TensorImpl;
  bool has_storage() const override {
    fill();
    return TensorImpl::has_storage();
  }
  const c10::Storage& storage() const override {
    fill();
    return TensorImpl::storage();
  }

 private:
  void fill() const {
    const c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
    if (storage && is_sealed(*storage)) fill_for_reader(*storage, nullptr, "data of an input");
  }
};
static_assert(sizeof(WatchedImpl) == sizeof(c10::TensorImpl));

using Vtable = void*;
Vtable& vtable_of(const c10::TensorImpl& impl) {
  return *reinterpret_cast<Vtable*>(const_cast<c10::TensorImpl*>(&impl));
}

template <class Impl>
c10::intrusive_ptr<c10::TensorImpl> specimen() {
  return c10::make_intrusive<Impl>(c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>(),
                                   c10::Device(c10::kCPU));
}

struct Vtables {
  Vtable plain, watched;
};

// Reads both from living objects and proves that the swap does what it should.
const Vtables& vtables() {
  static const Vtables tables = [] {
    auto plain = specimen<c10::TensorImpl>();
    auto watched = specimen<WatchedImpl>();
    const Vtables found{vtable_of(*plain), vtable_of(*watched)};
    vtable_of(*plain) = found.watched;
    c10::TensorImpl* volatile opaque = plain.get();  // the compiler must not know the class
    base::check(typeid(*opaque) == typeid(WatchedImpl), "watch: an object did not take the class of its vtable");
    vtable_of(*plain) = found.plain;
    return found;
  }();
  return tables;
}

auto& writers() {
  static auto* table = new std::unordered_map<const c10::StorageImpl*, Trace::State*>;
  return *table;
}

}  // namespace

bool is_watched(const c10::TensorImpl& impl) { return vtable_of(impl) == vtables().watched; }

bool is_plain_impl(const c10::TensorImpl& impl) {
  return vtable_of(impl) == vtables().plain || vtable_of(impl) == vtables().watched;
}

void watch(const at::Tensor& tensor) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (vtable_of(impl) != vtables().plain) return;  // ours flush by themselves; readers of strange classes meet the seal
  KeysOf::of(impl) = KeysOf::of(impl).add(kTensorKey);
  vtable_of(impl) = vtables().watched;
}

void unwatch(const at::Tensor& tensor) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!is_watched(impl)) return;
  KeysOf::of(impl) = KeysOf::of(impl).remove(kTensorKey);
  vtable_of(impl) = vtables().plain;
}

void set_writer(const c10::StorageImpl& storage, Trace::State* state) {
  std::lock_guard<std::mutex> lock(links_mutex());
  if (state)
    writers()[&storage] = state;
  else
    writers().erase(&storage);
}

std::shared_ptr<Trace::State> writer_of(const c10::StorageImpl& storage) {
  std::lock_guard<std::mutex> lock(links_mutex());
  const auto found = writers().find(&storage);
  return found == writers().end() ? nullptr : found->second->weak_from_this().lock();
}

}  // namespace magneto::aten
