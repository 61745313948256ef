// aten/state_internal.h: what a trace keeps while it records.
//
//   values     one record for each value of the graph: the storage it lies in, and while calls wait to be run the
//   tensor
//              they are run with
//   storages   one for each StorageImpl the trace met: does it have data, does a recorded write to it wait
//   calls      the recorded calls that were not run yet: the nodes after `done`
//
// The trace holds the caller's tensors (inputs) but never the tensors it made: who lets go of a pending tensor makes it
// dead, and a flush drops the value after its last reader, as eager does. All fields are guarded by `mutex`.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aten/foreign_internal.h"
#include "aten/generators_internal.h"
#include "aten/operators_internal.h"
#include "aten/pending_impl_internal.h"
#include "aten/trace.h"
#include "aten/undo.h"

namespace magneto::aten {

using StorageIndex = uint32_t;

struct StorageRecord {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  graph::ValueId maker;         ///< the value whose node makes the data; only while not filled
  bool filled = false;          ///< has data (perhaps not the newest: see written)
  bool written = false;         ///< filled, and a recorded write to it was not run yet: sealed
  bool checked_before = false;  ///< what open() needs
  bool zeros = false;           ///< torch's own tensor would have no memory (Zeros)
  bool known = false;           ///< each call computes the same data, of numbers that stand in the graph
  c10::SmallVector<graph::ValueId, 1> outsiders;  ///< tensors of the caller over it
};

struct ValueRecord {
  StorageIndex storage = 0;
  bool ready = false;      ///< an input, or made by a node that was run
  size_t last_reader = 0;  ///< number of the last call of this batch that reads it; from 1
  at::Tensor run;          ///< what the calls of this batch are run with: never an object that a user can see
  at::Tensor outsider;     ///< the caller's own object
};

struct Call {
  const Operator* op = nullptr;
  std::vector<c10::IValue> arguments;  ///< without the tensors, whose ids the node has
};

/// One tensor argument of a call: which argument, and which item when that is a list.
struct TensorPlace {
  at::Tensor tensor;
  int argument = -1;
  int item = -1;
};

struct Trace::State : std::enable_shared_from_this<Trace::State> {
  explicit State(Trace& handle);
  ~State();

  // values.cpp: who is who.
  std::optional<graph::ValueId> find(const at::Tensor& tensor);
  graph::ValueId value_of(const at::Tensor& tensor);  ///< an unknown tensor becomes an input
  graph::ValueId add_input(const at::Tensor& tensor, std::string name);
  graph::ValueId add_value(types::TensorType type, StorageIndex storage);
  StorageIndex storage_of(const c10::Storage& storage);         ///< an unknown one has data
  void rename(const at::Tensor& tensor, graph::ValueId value);  ///< the object is this value from now on
  void forget(const at::Tensor& tensor);                        ///< an outside tensor from now on
  void forget_nodes(size_t kept);
  bool drop_nodes(size_t kept);  ///< as Trace::drop
  /// Whether data of this argument wait in another trace.
  std::shared_ptr<State> foreign_owner(const at::Tensor& tensor);
  at::Tensor make_fresh(types::TensorType type, graph::ValueId* value);
  at::Tensor make_view(const at::Tensor& of, types::TensorType type, graph::ValueId* value);
  /// `tensor` undefined: it shares its memory with nobody.
  at::Tensor make_stand_in(const at::Tensor& tensor, types::TensorType type, std::string name);
  at::Tensor make_ready(const at::Tensor& result, graph::ValueId* value);  ///< a kernel's own result
  graph::ValueId add_constant(const at::Tensor& tensor);
  graph::ValueId add_outsider(const at::Tensor& tensor, graph::ValueId value);

  /// Writes a call down that is to be run at the next flush. `tensors` are those among its arguments.
  void add_call(const Operator& op, std::vector<graph::Arg> args, std::vector<c10::IValue> boxed,
                c10::ArrayRef<TensorPlace> tensors, std::vector<graph::ValueId> outputs,
                std::vector<int64_t> numbers = {});
  void add_node(const Operator& op, std::vector<graph::Arg> args, std::vector<graph::ValueId> outputs,
                std::vector<int64_t> numbers = {});
  void note_write(graph::ValueId value);
  void note_known(const Operator& op, const graph::Node& node);  ///< StorageRecord::known of what it made and wrote to

  // flush.cpp: running what was recorded.
  void run_recorded();
  void note_data_read(std::string what, std::string refusal = "");
  void read_data(const c10::StorageImpl* storage, const std::string& what);  ///< takes the lock itself

  /// Throws where a symbolic trace would have to compute something.
  void must_compute(const std::string& what) const;

  Trace* const handle;
  const uint64_t id;
  std::recursive_mutex mutex;
  int internal = 0;  ///< our own code runs: whoever asks for a storage is we ourselves
  std::atomic<bool> entered{false};
  Links links;  ///< guarded by links_mutex()

  graph::Graph graph;
  size_t done = 0;          ///< nodes that were run
  std::vector<Call> calls;  ///< of the nodes after done
  std::vector<ValueRecord> values;
  std::vector<StorageRecord> storages;
  size_t first_unseen = 0;  ///< storages after it were made since the last flush
  std::unordered_map<const c10::StorageImpl*, StorageIndex> by_storage;
  std::unordered_map<const c10::TensorImpl*, graph::ValueId> outsiders;
  std::vector<StorageIndex> written;  ///< storages with `written`
  std::vector<at::Tensor> constants;
  std::vector<graph::ValueId> unclaimed;
  uint32_t place = 0;
  uint32_t checkpoint = 0;                     ///< graph::Node::checkpoint of the next nodes
  std::optional<StorageIndex> rehearsed_from;  ///< a Rehearsal: storages before it are not to be changed

  Symbols* measures = nullptr;  ///< as Trace::set_measures
  bool measures_change = false;
  std::vector<Trace::Measure> measured;
  size_t measures_told = 0;

  Reversible reversible;  ///< as Trace::may_be_taken_back
  Drawn drawn;            ///< by what was recorded and run

  std::function<void()> before_run;  ///< as Trace::set_before_run

  uint64_t data_reads = 0;
  std::string last_data_read, last_refusal;

  std::shared_ptr<Symbols> symbols;  ///< of a symbolic trace
  /// SymbolicTrace: only torch's autograd is at work here. It asks who holds a storage and reads no data; a copy of a
  /// tensor that it makes is one that it saved, and the same value.
  bool repeats_autograd = false;
  bool runs_engine =
      false;  ///< a backward is recorded: what it has saved comes as copies, with the history of the result
  std::shared_ptr<State> live;     ///< of a symbolic trace: the trace that runs beside it
  std::optional<size_t> repeated;  ///< the node of `live` that is repeated now
  std::unordered_map<const c10::StorageImpl*, at::Tensor> stand_ins;  ///< symbolic: the first over each storage

 private:
  graph::ValueId own_value(PendingImpl& copy, const at::Tensor& tensor);
  graph::ValueId value_over_pending(const at::Tensor& tensor, StorageIndex storage);
  void run_call(size_t index, std::vector<c10::IValue>& stack);
  void settle(graph::ValueId value, at::Tensor result, size_t call);
  void adopt(StorageRecord& record, at::Tensor& result);
  void correct(graph::ValueId value, const at::Tensor& result);
  void give_up_calls(size_t first, const std::string& why);
  void finish_batch();
};

/// Holds a trace's mutex. A thread that must wait lets others run (Python: releases the GIL).
class Lock {
 public:
  explicit Lock(Trace::State& state);
  ~Lock() { state_.mutex.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Trace::State& state_;
};

/// Our own code runs: reads of storages are not a reader's.
struct Internal {
  explicit Internal(Trace::State& state) : state(state) { ++state.internal; }
  ~Internal() { --state.internal; }
  Trace::State& state;
};

/// Operators go to the kernels that eager would reach from the place where we stand: below autograd, past us.
struct BelowUs {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::DispatchKeySet({kTraceKey, kTensorKey, kForeignKey})};
};

/// The same where autograd has let an operator through that has no gradient: it looks at those inside.
struct PastUs {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::DispatchKeySet({kTraceKey, kTensorKey, kForeignKey})};
};

/// Operators run bare, whatever the thread is in the middle of (autocast, vmap, a dispatch mode).
struct BareDispatch {
  c10::impl::ForceDispatchKeyGuard guard{c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
                                         c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset |
                                             c10::DispatchKeySet({kTraceKey, kTensorKey})};
};

/// Calls `visit` for every tensor of a boxed argument; undefined ones, too.
template <class Visit>
void each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    visit(value.toTensor(), -1);
  } else if (value.isList()) {
    int item = 0;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor(), item);
      ++item;
    }
  }
}

/// Keeps the versions of what a foreach operator writes: the recording counts them, and kernels for lists of tensors on
/// a GPU count them once more, whatever the dispatch.
class KeptVersions {
 public:
  KeptVersions(const Operator& op, c10::ArrayRef<c10::IValue> arguments) {
    if (!op.bumps_versions) return;
    for (size_t a = 0; a < arguments.size(); ++a)
      if (op.writes[a])
        each_tensor(arguments[a], [&](const at::Tensor& tensor, int) {
          if (tensor.defined() && !tensor.is_inference())
            kept_.emplace_back(tensor.unsafeGetTensorImpl()->version_counter(), tensor._version());
        });
  }
  ~KeptVersions() {
    for (auto& [counter, version] : kept_) counter.set_version(version);
  }
  KeptVersions(const KeptVersions&) = delete;
  KeptVersions& operator=(const KeptVersions&) = delete;

 private:
  std::vector<std::pair<c10::VariableVersion, int64_t>> kept_;
};

/// Why a tensor cannot take part in a graph, or nullptr when it can: strided, dense, CPU or CUDA, no subclass, no
/// wrapper.
const char* not_plain(const c10::TensorImpl& impl);

/// The trace whose thread this is. In threads of the autograd engine: the only one that is entered anywhere.
Trace::State* entered_state(std::shared_ptr<Trace::State>& keep);
void set_entered(Trace::State& state, bool entered);

/// How often results differed from their recorded type, and the last such operator; for tests.
struct Lies {
  std::atomic<int64_t> count{0};
  std::mutex mutex;
  std::string last;
};
Lies& lies();

}  // namespace magneto::aten
