// aten/flush.cpp: runs the calls that were recorded and not run, and moves their results into the storages that wait.
//
// The calls run on tensor objects of our own (ValueRecord::run), never on objects a user can see: what a recorded
// x.t_() did to the caller's object happened when it was recorded. A result is moved as data: the StorageImpl that live
// tensors share takes over the memory that the kernel allocated, and our object is put over that StorageImpl, so that
// later calls of the batch read and write the same memory. A value is dropped after its last reader.
#include <ATen/Functions.h>

#include "aten/state_internal.h"
#include "aten/storage_flags_internal.h"
#include "aten/watch_internal.h"

namespace magneto::aten {

using graph::ValueId;

namespace {

template <class Visit>
void each_value(const std::vector<graph::Arg>& args, Visit visit) {
  for (const graph::Arg& arg : args) {
    if (const auto* value = std::get_if<ValueId>(&arg); value && value->valid()) visit(*value);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&arg))
      for (ValueId value : *list)
        if (value.valid()) visit(value);
  }
}

}  // namespace

Lies& lies() {
  static auto* counter = new Lies;
  return *counter;
}

void Trace::State::must_compute(const std::string& what) const {
  if (symbols) throw std::runtime_error("a symbolic trace has no data: " + what);
}

void Trace::State::note_data_read(std::string what, std::string refusal) {
  must_compute(what);
  ++data_reads;
  last_data_read = std::move(what);
  last_refusal = std::move(refusal);
}

void Trace::State::read_data(const c10::StorageImpl* storage, const std::string& what) {
  Lock lock(*this);
  if (internal || repeats_autograd || (storage && !is_sealed(*storage))) return;
  note_data_read(what);
  run_recorded();
}

void Trace::State::run_recorded() {
  if (internal) return;  // an operator in the middle of a batch cannot start another one
  if (calls.empty()) return;
  if (before_run) before_run();
  if (calls.empty()) return;  // the end of an object may have read data
  Internal ours(*this);
  for (StorageIndex index : written) {
    StorageRecord& record = storages[index];
    for (ValueId outsider : record.outsiders) unwatch(values[outsider.index()].outsider);
    if (auto storage = record.storage.lock()) open(*storage, record.checked_before);
    set_writer(*record.storage._unsafe_get_target(), nullptr);
    record.written = false;
  }
  written.clear();

  std::vector<c10::IValue> stack;
  size_t call = 0;
  for (size_t k = 0; k < calls.size(); ++k)
    if (calls[k].op->random)
      for (const c10::Device device : random_devices(graph, graph.nodes()[done + k])) drawn.note(device);
  try {
    BareDispatch bare;
    for (; call < calls.size(); ++call) run_call(call, stack);
  } catch (const std::exception& error) {
    give_up_calls(call, calls[call].op->name + ": " + error.what());
    finish_batch();
    throw;
  } catch (...) {
    give_up_calls(call, calls[call].op->name + " failed");
    finish_batch();
    throw;
  }
  done = graph.nodes().size();
  finish_batch();
}

void Trace::State::run_call(size_t index, std::vector<c10::IValue>& stack) {
  Call& call = calls[index];
  const size_t node_index = done + index;
  const auto node = [&]() -> const graph::Node& { return graph.nodes()[node_index]; };
  stack.clear();
  for (size_t a = 0; a < call.arguments.size(); ++a) {
    const graph::Arg& arg = node().args[a];
    if (const auto* value = std::get_if<ValueId>(&arg); value && value->valid()) {
      stack.emplace_back(values[value->index()].run);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      if (call.op->arguments[a] == ArgKind::kTensors) {
        c10::List<at::Tensor> tensors;
        for (ValueId item : *list) tensors.push_back(item.valid() ? values[item.index()].run : at::Tensor());
        stack.emplace_back(std::move(tensors));
      } else {
        c10::List<std::optional<at::Tensor>> tensors;
        for (ValueId item : *list)
          tensors.push_back(item.valid() ? std::optional<at::Tensor>(values[item.index()].run) : std::nullopt);
        stack.emplace_back(std::move(tensors));
      }
    } else {
      stack.push_back(std::move(call.arguments[a]));
    }
  }
  {
    const KeptVersions kept(*call.op, stack);
    call.op->handle.callBoxed(stack);
  }

  size_t output = 0;
  for (c10::IValue& result : stack)
    each_tensor(result, [&](const at::Tensor& tensor, int) { settle(node().outputs[output++], tensor, index); });
  stack.clear();
  each_value(node().args, [&](ValueId value) {
    if (values[value.index()].last_reader == index + 1) values[value.index()].run.reset();
  });
}

void Trace::State::settle(ValueId value, at::Tensor result, size_t call) {
  if (!value.valid()) return;
  ValueRecord& record = values[value.index()];
  StorageRecord& storage = storages[record.storage];
  if (result.defined()) {
    if (!storage.filled && storage.maker == value) adopt(storage, result);
    if (!has_type(*result.unsafeGetTensorImpl(), graph.value(value).type)) correct(value, result);
  } else {
    ++lies().count;  // a tensor was promised
  }
  record.ready = true;
  if (record.last_reader > call + 1) record.run = std::move(result);
}

// `result` comes out of a kernel; live tensors wait for its memory.
void Trace::State::adopt(StorageRecord& record, at::Tensor& result) {
  record.filled = true;
  const auto waiting = record.storage.lock();
  if (!waiting) return;  // nobody looks at it but the calls of this batch
  // A kernel that returns memory of somebody else though nothing says so: live tensors must get memory of their own.
  if (result.unsafeGetTensorImpl()->unsafe_storage().use_count() > 1) {
    ++lies().count;
    result = result.clone();
  }
  c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
  c10::StorageImpl& source = *impl.unsafe_storage().unsafeGetStorageImpl();
  const size_t bytes = source.nbytes();
  open(*waiting, record.checked_before);
  if (source.allocator()) waiting->set_allocator(source.allocator());
  waiting->set_data_ptr_noswap(std::move(source._mutable_data_ptr_no_checks()));
  waiting->set_nbytes(bytes);
  impl.set_storage_keep_dtype(c10::Storage(waiting));
}

// The type that a rule or a shape kernel gave to a result was wrong: a bug, but the program must go on with the truth.
void Trace::State::correct(ValueId value, const at::Tensor& result) {
  const c10::TensorImpl& truth = *result.unsafeGetTensorImpl();
  {
    Lies& record = lies();
    ++record.count;
    std::lock_guard<std::mutex> lock(record.mutex);
    const graph::NodeId maker = graph.value(value).maker;
    record.last = (maker.valid() ? graph.node(maker).op : std::string("an input")) + ": recorded as " +
                  types::to_string(graph.value(value).type);
    if (!not_plain(truth)) record.last += ", is " + types::to_string(type_of(truth));
  }
  if (!not_plain(truth)) graph.value(value).type = type_of(truth);
  std::lock_guard<std::mutex> lock(links_mutex());
  for (PendingImpl* impl = links.first; impl && impl->young(); impl = impl->next()) {
    if (!impl->made_by(id) || impl->value() != value) continue;
    impl->set_dtype(truth.dtype());
    impl->set_sizes_and_strides(truth.sizes(), truth.strides(), truth.storage_offset());
  }
}

// A kernel failed although the shapes were right. What was recorded after it is lost: eager would have raised the
// error before. Tensors that wait for it say why whenever somebody looks at them.
void Trace::State::give_up_calls(size_t first, const std::string& why) {
  const size_t kept = done + first;
  const auto node_failed = [&](ValueId value) {
    const graph::NodeId maker = graph.value(value).maker;
    return maker.valid() && maker.index() >= kept;
  };
  {
    std::lock_guard<std::mutex> lock(links_mutex());
    for (PendingImpl* impl = links.first; impl; impl = impl->next())
      if (impl->made_by(id) && node_failed(impl->value())) impl->forget();
  }
  std::erase_if(outsiders, [&](const auto& known) { return node_failed(known.second); });
  for (size_t node = kept; node < graph.nodes().size(); ++node) {
    each_value(graph.nodes()[node].args, [&](ValueId value) { values[value.index()].run.reset(); });
    for (ValueId output : graph.nodes()[node].outputs) {
      if (!output.valid()) continue;
      values[output.index()].run.reset();
      StorageRecord& record = storages[values[output.index()].storage];
      if (record.filled) continue;
      if (auto storage = record.storage.lock())
        storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
            "magneto: this tensor was never computed, because an "
            "operator before it failed: " +
            why);
    }
  }
  graph.truncate(kept);
  done = kept;
}

void Trace::State::finish_batch() {
  calls.clear();
  for (; first_unseen < storages.size(); ++first_unseen) {  // dead ones: their addresses may be used again
    StorageRecord& record = storages[first_unseen];
    if (!record.storage.expired()) continue;
    by_storage.erase(record.storage._unsafe_get_target());
    record.storage.reset();
  }
  std::lock_guard<std::mutex> lock(links_mutex());
  for (PendingImpl* impl = links.first; impl && impl->young(); impl = impl->next()) impl->settle();
}

}  // namespace magneto::aten
