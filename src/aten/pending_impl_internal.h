// aten/pending_impl_internal.h: the tensors that a trace makes.
//
// A PendingImpl has true sizes, strides, dtype and device over an ordinary StorageImpl that may have no data yet. A
// flush moves data into the storage, and the tensor is an ordinary one from then on; its class stays, and remembers
// which value of which trace it is. Whoever wants data asks has_storage() or storage() first, both virtual: if the
// storage is sealed, we flush the trace that can fill it.
#pragma once
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aten/trace.h"

namespace magneto::aten {

/// On a pending tensor, so that operators of threads that do not trace reach us. (Fake would make is_fake() true
/// in 2.15.)
inline constexpr c10::DispatchKey kTensorKey = c10::DispatchKey::CustomRNGKeyId;
/// In thread-local state while a trace is entered: above BackendSelect, so that factories come to us, and below
/// autograd.
inline constexpr c10::DispatchKey kTraceKey = c10::DispatchKey::Fake;

class PendingImpl;

/// Guards the lists of living PendingImpls and everything through which a thread finds a trace that is not its own.
std::mutex& links_mutex();

/// The PendingImpls of one trace that are alive, newest first. Guarded by links_mutex().
struct Links {
  PendingImpl* first = nullptr;
};

class PendingImpl final : public c10::TensorImpl {
 public:
  /// A tensor of its own. `state` knows it as `value`.
  PendingImpl(Trace::State& state, graph::ValueId value, c10::Storage storage, c10::DispatchKeySet keys,
              caffe2::TypeMeta dtype);
  /// A view (or a kernel's result): takes over exactly the keys of `like`, so that a view of a normal tensor is a
  /// normal tensor in inference mode, too.
  PendingImpl(Trace::State& state, graph::ValueId value, const c10::TensorImpl& like, caffe2::TypeMeta dtype);
  ~PendingImpl() override;

  bool has_storage() const override;
  const c10::Storage& storage() const override;
  const char* tensorimpl_type_name() const override { return "PendingImpl"; }
  void release_resources() override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) override;  ///< x.data = y

  // Of a symbolic trace whose sizes are symbols: who wants numbers gets them, and they are fixed from then on.
  c10::IntArrayRef sizes_custom() const override;
  c10::IntArrayRef strides_custom() const override;
  int64_t numel_custom() const override;
  int64_t storage_offset_custom() const override;

  std::shared_ptr<Trace::State> owner() const;  ///< the trace that can fill it; nullptr once that is gone
  bool made_by(uint64_t trace) const { return trace_ == trace; }
  graph::ValueId value() const { return value_; }
  void set_value(graph::ValueId value) { value_ = value, is_copy_ = false; }
  bool is_copy() const { return is_copy_; }  ///< x.data: the value is that of x, and this is another tensor object
  void set_dtype(caffe2::TypeMeta dtype) { data_type_ = dtype; }

  /// The trace forgets it: from now on an outside tensor. With links_mutex().
  void forget() { trace_ = 0; }
  /// The storage has data: an ordinary tensor for other threads. With links_mutex().
  void settle() { key_set_ = key_set_.remove(kTensorKey), young_ = false; }
  bool young() const { return young_; }
  PendingImpl* next() const { return next_; }
  void unlink_locked();

  static std::atomic<int64_t> living;

 private:
  template <class Version>
  c10::intrusive_ptr<TensorImpl> copy(Version&& version, bool allow_change, bool is_copy) const;
  void link();
  void link_locked(Trace::State& state);
  void unlink();

  Trace::State* state_;  ///< guarded by links_mutex(); nullptr once the trace is gone
  uint64_t trace_;
  graph::ValueId value_;
  bool is_copy_ = false;
  bool young_ = true;  ///< made since the last flush
  PendingImpl *next_ = nullptr, *previous_ = nullptr;
  mutable std::vector<int64_t> fixed_sizes_, fixed_strides_;

  friend struct Links;
};

/// The PendingImpl behind a tensor, or nullptr.
PendingImpl* as_pending(const c10::TensorImpl* impl);

/// Fills a sealed storage whose data somebody wants, by flushing the trace that recorded it. `trace` may be nullptr.
void fill_for_reader(const c10::StorageImpl& storage, std::shared_ptr<Trace::State> trace, const char* reader);

}  // namespace magneto::aten
