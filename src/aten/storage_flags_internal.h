// aten/storage_flags_internal.h: facts of torch's objects that have no public door: whether a storage refuses to hand
// out its data, the dispatch keys of a tensor, and with whom it shares its version.
//
// A storage that refuses ("sealed") is either not computed yet or has a recorded write that was not run yet. torch can
// seal a storage but, before 2.15, not open it again. An explicit template instantiation may name private members.
#pragma once
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

namespace magneto::aten {

template <auto Member>
struct SealFlag {
  friend bool& seal_flag(c10::StorageImpl& storage) { return storage.*Member; }
};
template <auto Member>
struct CheckFlag {
  friend bool& check_flag(c10::StorageImpl& storage) { return storage.*Member; }
};
bool& seal_flag(c10::StorageImpl& storage);
bool& check_flag(c10::StorageImpl& storage);
template struct SealFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;
template struct CheckFlag<&c10::StorageImpl::has_mutable_data_ptr_check_>;

inline bool is_sealed(const c10::StorageImpl& storage) { return seal_flag(const_cast<c10::StorageImpl&>(storage)); }

/// Returns what `open` needs to know: a copy-on-write storage checks its writers for reasons of its own.
inline bool seal(c10::StorageImpl& storage) {
  const bool checked_before = check_flag(storage);
  seal_flag(storage) = true;
  check_flag(storage) = true;
  return checked_before;
}
inline void open(c10::StorageImpl& storage, bool checked_before) {
  seal_flag(storage) = false;
  check_flag(storage) = checked_before;
}

template <auto Member>
struct CounterOf {
  friend const void* counter_of(const c10::VariableVersion& version) { return (version.*Member).get(); }
};
const void* counter_of(const c10::VariableVersion& version);
template struct CounterOf<&c10::VariableVersion::version_counter_>;

/// Who writes to one counts up the version of both: a view and its base, x.detach() and x.
inline bool share_version(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  const void* const counter = counter_of(a.version_counter());
  return counter && counter == counter_of(b.version_counter());
}

/// The dispatch keys of any tensor, to be changed. (A pointer to a protected member, taken through a derived class.)
struct KeysOf : c10::TensorImpl {
  static c10::DispatchKeySet& of(c10::TensorImpl& impl) { return impl.*(&KeysOf::key_set_); }
};

}  // namespace magneto::aten
