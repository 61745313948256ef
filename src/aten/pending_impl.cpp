// aten/pending_impl.cpp
#include "aten/pending_impl_internal.h"

#include <typeinfo>

#include "aten/state_internal.h"
#include "aten/storage_flags_internal.h"
#include "aten/watch_internal.h"

namespace magneto::aten {

std::atomic<int64_t> PendingImpl::living{0};

std::mutex& links_mutex() {
  static auto* mutex = new std::mutex;  // tensors may die after static objects did
  return *mutex;
}

PendingImpl::PendingImpl(Trace::State& state, graph::ValueId value, c10::Storage storage, c10::DispatchKeySet keys,
                         caffe2::TypeMeta dtype)
    : TensorImpl(std::move(storage), keys.add(kTensorKey), dtype), state_(&state), trace_(state.id), value_(value) {
  link();
}

PendingImpl::PendingImpl(Trace::State& state, graph::ValueId value, const c10::TensorImpl& like, caffe2::TypeMeta dtype)
    : TensorImpl(TensorImpl::VIEW, c10::Storage(like.unsafe_storage()), like.key_set().add(kTensorKey), dtype),
      state_(&state),
      trace_(state.id),
      value_(value) {
  link();
}

PendingImpl::~PendingImpl() {
  unlink();
  --living;
}

void PendingImpl::release_resources() {
  unlink();
  TensorImpl::release_resources();
}

bool PendingImpl::has_storage() const {
  const c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  if (storage && is_sealed(*storage)) {
    fill_for_reader(*storage, owner(), "data of a tensor");
  }
  return TensorImpl::has_storage();
}

std::shared_ptr<Trace::State> PendingImpl::owner() const {
  std::lock_guard<std::mutex> lock(links_mutex());
  return state_ ? state_->weak_from_this().lock() : nullptr;
}

const c10::Storage& PendingImpl::storage() const {
  has_storage();
  return TensorImpl::storage();
}

// detach() is an operator and never comes here. x.data comes, and is another tensor object with a version counter of
// its own. Autograd comes to save an output: that copy shares the version counter, stands for the very same tensor, and
// nobody ever sees it.
template <class Version>
c10::intrusive_ptr<c10::TensorImpl> PendingImpl::copy(Version&& version, bool allow_change, bool is_copy) const {
  const auto trace = trace_ ? owner() : nullptr;
  if (!trace) return TensorImpl::shallow_copy_and_detach(std::forward<Version>(version), allow_change);
  auto result = c10::make_intrusive<PendingImpl>(*trace, value_, *this, data_type_);
  copy_tensor_metadata(this, result.get(), std::forward<Version>(version), allow_change);
  result->is_copy_ = (is_copy && !trace->repeats_autograd && !trace->runs_engine) || is_copy_;
  return result;
}

// With a counter of somebody's: autograd makes its own object of what a kernel gave it, as for a view that has no
// gradient (view(dtype)) and counts the versions of its base. The first object is gone then.
c10::intrusive_ptr<c10::TensorImpl> PendingImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                         bool allow_change) const {
  return copy(version, allow_change, false);
}

// With a counter of its own: x.data.
c10::intrusive_ptr<c10::TensorImpl> PendingImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                         bool allow_change) const {
  return copy(std::move(version), allow_change, true);
}

void PendingImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) {
  TensorImpl::shallow_copy_from(impl);
  const PendingImpl* other = as_pending(impl.get());
  std::lock_guard<std::mutex> lock(links_mutex());
  unlink_locked();
  trace_ = 0;
  if (!other || !other->state_) return;
  trace_ = other->trace_;
  value_ = other->value_;
  is_copy_ = true;
  link_locked(*other->state_);
}

static c10::IntArrayRef fix(c10::SymIntArrayRef numbers, std::vector<int64_t>& into) {
  if (into.empty())
    for (const c10::SymInt& number : numbers) into.push_back(number.guard_int(__FILE__, __LINE__));
  return into;
}

c10::IntArrayRef PendingImpl::sizes_custom() const {
  return has_symbolic_sizes_strides() ? fix(sym_sizes_default(), fixed_sizes_) : TensorImpl::sizes_custom();
}

c10::IntArrayRef PendingImpl::strides_custom() const {
  return has_symbolic_sizes_strides() ? fix(sym_strides_default(), fixed_strides_) : TensorImpl::strides_custom();
}

int64_t PendingImpl::numel_custom() const {
  return has_symbolic_sizes_strides() ? sym_numel_default().guard_int(__FILE__, __LINE__) : TensorImpl::numel_custom();
}

int64_t PendingImpl::storage_offset_custom() const {
  return has_symbolic_sizes_strides() ? sym_storage_offset_default().guard_int(__FILE__, __LINE__)
                                      : TensorImpl::storage_offset_custom();
}

void PendingImpl::link() {
  ++living;
  std::lock_guard<std::mutex> lock(links_mutex());
  link_locked(*state_);
}

void PendingImpl::link_locked(Trace::State& state) {
  state_ = &state;
  young_ = true;
  next_ = state.links.first;
  if (next_) next_->previous_ = this;
  state.links.first = this;
}

void PendingImpl::unlink() {
  std::lock_guard<std::mutex> lock(links_mutex());
  unlink_locked();
}

void PendingImpl::unlink_locked() {
  if (!state_) return;
  (previous_ ? previous_->next_ : state_->links.first) = next_;
  if (next_) next_->previous_ = previous_;
  state_ = nullptr;
  next_ = previous_ = nullptr;
}

PendingImpl* as_pending(const c10::TensorImpl* impl) {
  return typeid(*impl) == typeid(PendingImpl) ? const_cast<PendingImpl*>(static_cast<const PendingImpl*>(impl))
                                              : nullptr;
}

void fill_for_reader(const c10::StorageImpl& storage, std::shared_ptr<Trace::State> trace, const char* reader) {
  if (auto writer = writer_of(storage)) trace = std::move(writer);
  if (trace) trace->read_data(&storage, reader);
}

}  // namespace magneto::aten
