// aten/values.cpp: who is who. Tensor objects <-> values, storages <-> their records, and the tensors we make.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "aten/state_internal.h"
#include "aten/storage_flags_internal.h"
#include "aten/watch_internal.h"
#include "base/check.h"

namespace magneto::aten {

using graph::ValueId;

namespace {

c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

c10::DispatchKeySet backend_keys(c10::Device device) {
  return c10::DispatchKeySet(device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
}

// Another tensor object over the same memory, for our own use: what happens to it (t_, resize_, a version) does not
// happen to the original. It has the layout of its value: the original may have another one by now.
at::Tensor alias_of(const c10::TensorImpl& impl, const types::TensorType& type) {
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(impl.unsafe_storage()),
                                                              backend_keys(impl.device()), impl.dtype());
  set_layout(*alias.unsafeGetTensorImpl(), type);
  return alias;
}

const Operator& named_operator(const char* name, const char* overload) {
  return operator_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

}  // namespace

const char* not_plain(const c10::TensorImpl& impl) {
  static const uint64_t allowed =
      (c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCPU,
                            c10::DispatchKey::AutogradCUDA, c10::DispatchKey::ADInplaceOrView,
                            c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}) |
       c10::DispatchKeySet(kTensorKey))
          .raw_repr();
  if (impl.key_set().raw_repr() & ~allowed) {
    if (impl.key_set().has(c10::DispatchKey::Python)) return "a tensor subclass";
    return "a tensor that is not plain, dense and strided";
  }
  if (!impl.unsafe_storage() || (impl.has_symbolic_sizes_strides() && !as_pending(&impl)))
    return "a tensor without storage or with symbolic sizes";
  if (!impl.device().is_cpu() && !impl.device().is_cuda()) return "a tensor on a device that is neither CPU nor CUDA";
  if (!to_dtype(c10::typeMetaToScalarType(impl.dtype()))) return "a tensor of an unusual dtype";
  return nullptr;
}

std::optional<ValueId> Trace::State::find(const at::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  std::optional<ValueId> known;
  if (PendingImpl* pending = as_pending(impl); pending && pending->made_by(id)) {
    if (pending->is_copy()) return own_value(*pending, tensor);
    known = pending->value();
  } else if (const auto outsider = outsiders.find(impl); outsider != outsiders.end()) {
    known = outsider->second;
  }
  if (!known) return std::nullopt;
  // Something that was not recorded (x.data = y, x.t_() under a dispatch mode) made another tensor of the object.
  const StorageRecord& record = storages[values[known->index()].storage];
  if (record.storage._unsafe_get_target() != storage_impl(tensor) || !has_type(*impl, graph.value(*known).type))
    return std::nullopt;
  return known;
}

ValueId Trace::State::value_of(const at::Tensor& tensor) {
  if (auto known = find(tensor)) return *known;
  forget(tensor);
  const auto storage = by_storage.find(storage_impl(tensor));
  if (storage != by_storage.end() && !storages[storage->second].filled)
    return value_over_pending(tensor, storage->second);
  const ValueId value = add_input(tensor, "");
  unclaimed.push_back(value);
  return value;
}

ValueId Trace::State::add_input(const at::Tensor& tensor, std::string name) {
  if (auto known = find(tensor)) {
    if (!name.empty()) graph.value(*known).name = std::move(name);
    return *known;
  }
  const ValueId value = graph.add_input(type_of(*tensor.unsafeGetTensorImpl()), std::move(name));
  values.resize(value.index() + 1);
  values[value.index()].storage = storage_of(tensor.unsafeGetTensorImpl()->unsafe_storage());
  values[value.index()].ready = true;
  return add_outsider(tensor, value);
}

ValueId Trace::State::add_outsider(const at::Tensor& tensor, ValueId value) {
  ValueRecord& record = values[value.index()];
  record.outsider = tensor;
  outsiders[tensor.unsafeGetTensorImpl()] = value;
  StorageRecord& storage = storages[record.storage];
  storage.outsiders.push_back(value);
  if (storage.written) watch(tensor);
  return value;
}

ValueId Trace::State::add_value(types::TensorType type, StorageIndex storage) {
  const ValueId value = graph.add_value(std::move(type));
  values.resize(value.index() + 1);
  values[value.index()].storage = storage;
  return value;
}

StorageIndex Trace::State::storage_of(const c10::Storage& storage) {
  const auto [place, is_new] =
      by_storage.emplace(storage.unsafeGetStorageImpl(), static_cast<StorageIndex>(storages.size()));
  if (is_new)
    storages.push_back({.storage = storage.getWeakStorageImpl(), .maker = {}, .filled = true, .outsiders = {}});
  return place->second;
}

// x.data of a tensor of ours: the value of another object. When it is looked at, it becomes a value of its own.
ValueId Trace::State::own_value(PendingImpl& copy, const at::Tensor& tensor) {
  const ValueId original = copy.value();
  const ValueId value = add_value(type_of(copy), values[original.index()].storage);
  copy.set_value(value);
  const Operator& data = named_operator("aten::data", "");
  if (calls.empty()) {  // after a flush: there is nothing to run, the object exists
    add_node(data, {original}, {value});
    values[value.index()].ready = true;
    done = graph.nodes().size();
  } else {
    add_call(data, {original}, {c10::IValue()}, TensorPlace{tensor, 0, -1}, {value});
  }
  return value;
}

// The caller's own object over memory that we have not computed: parameter.data = pending.
ValueId Trace::State::value_over_pending(const at::Tensor& tensor, StorageIndex storage) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const types::TensorType type = type_of(impl);
  const ValueId maker = storages[storage].maker;
  const ValueId value = add_value(type, storage);
  add_call(named_operator("aten::as_strided", ""), {maker, type.sizes, type.strides, type.offset},
           {c10::IValue(), impl.sizes().vec(), impl.strides().vec(), impl.storage_offset()}, TensorPlace{tensor, 0, -1},
           {value});
  return add_outsider(tensor, value);
}

void Trace::State::rename(const at::Tensor& tensor, ValueId value) {
  PendingImpl* pending = as_pending(tensor.unsafeGetTensorImpl());
  if (pending && pending->made_by(id))
    pending->set_value(value);
  else
    add_outsider(tensor, value);
}

void Trace::State::forget(const at::Tensor& tensor) {
  std::lock_guard<std::mutex> lock(links_mutex());
  if (PendingImpl* pending = as_pending(tensor.unsafeGetTensorImpl())) pending->forget();
  outsiders.erase(tensor.unsafeGetTensorImpl());
}

void Trace::State::forget_nodes(size_t kept) {
  base::check(kept <= done && calls.empty(), "trace: rewind to node ", kept, " of ", graph.nodes().size(), ", ",
              calls.size(), " of them not run");
  drop_nodes(kept);
}

bool Trace::State::drop_nodes(size_t kept) {
  if (symbols || done > kept) {
    run_recorded();
    if (symbols) done = graph.nodes().size();
  } else {
    calls.resize(kept - done);
    const auto renew = [&](ValueId value) { values[value.index()].last_reader = 0; };
    for (size_t n = kept; n < graph.nodes().size(); ++n) graph::for_each_read(graph.nodes()[n], renew);
    for (size_t k = 0; k < calls.size(); ++k)
      graph::for_each_read(graph.nodes()[done + k], [&](ValueId value) { values[value.index()].last_reader = k + 1; });
    const auto release = [&](ValueId value) {
      if (values[value.index()].last_reader == 0) values[value.index()].run.reset();
    };
    for (size_t n = kept; n < graph.nodes().size(); ++n) graph::for_each_read(graph.nodes()[n], release);
  }
  const auto is_dropped = [&](ValueId value) {
    const graph::NodeId maker = graph.value(value).maker;
    return maker.valid() && maker.index() >= kept;
  };
  bool any_alive = false;
  {
    std::lock_guard<std::mutex> lock(links_mutex());
    for (PendingImpl* impl = links.first; impl; impl = impl->next())
      if (impl->made_by(id) && is_dropped(impl->value())) {
        impl->forget();
        any_alive = true;
      }
  }
  std::erase_if(outsiders, [&](const auto& known) { return is_dropped(known.second); });
  std::erase_if(unclaimed, is_dropped);
  graph.truncate(kept);
  done = std::min(done, kept);
  return !any_alive;
}

std::shared_ptr<Trace::State> Trace::State::foreign_owner(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = storage_impl(tensor);
  if (!storage || !is_sealed(*storage)) return nullptr;
  const auto known = by_storage.find(storage);
  if (known != by_storage.end() && (!storages[known->second].filled || storages[known->second].written)) return nullptr;
  auto owner = writer_of(*storage);
  if (!owner)
    if (PendingImpl* pending = as_pending(tensor.unsafeGetTensorImpl())) owner = pending->owner();
  return owner.get() == this ? nullptr : owner;
}

at::Tensor Trace::State::make_fresh(types::TensorType type, ValueId* value) {
  c10::Device device = to_torch(type.device);
  if (device.is_cuda() && !device.has_index()) {
    device = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
    type.device = *to_device(device);
  }
  const caffe2::TypeMeta dtype = c10::scalarTypeToTypeMeta(to_scalar_type(type.dtype));
  auto impl =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(nullptr, device),
                                            c10::GetAllocator(device.type()), /*resizable=*/true);
  const bool checked_before = seal(*impl);
  const c10::Storage storage(std::move(impl));
  const auto index = static_cast<StorageIndex>(storages.size());
  by_storage[storage.unsafeGetStorageImpl()] = index;
  *value = add_value(type, index);
  storages.push_back(
      {.storage = storage.getWeakStorageImpl(), .maker = *value, .checked_before = checked_before, .outsiders = {}});
  at::Tensor tensor = at::detail::make_tensor<PendingImpl>(*this, *value, storage, backend_keys(device), dtype);
  set_layout(*tensor.unsafeGetTensorImpl(), type, symbols.get());
  if (symbols) return tensor;  // it will never have data
  const c10::TensorImpl& made = *tensor.unsafeGetTensorImpl();
  storage.unsafeGetStorageImpl()->set_nbytes(
      at::detail::computeStorageNbytes(made.sizes(), made.strides(), dtype.itemsize(), made.storage_offset()));
  return tensor;
}

at::Tensor Trace::State::make_view(const at::Tensor& of, types::TensorType type, ValueId* value) {
  const c10::TensorImpl& base = *of.unsafeGetTensorImpl();
  const caffe2::TypeMeta dtype = c10::scalarTypeToTypeMeta(to_scalar_type(type.dtype));
  *value = add_value(type, storage_of(base.unsafe_storage()));
  at::Tensor tensor = at::detail::make_tensor<PendingImpl>(*this, *value, base, dtype);
  set_layout(*tensor.unsafeGetTensorImpl(), type, symbols.get());
  return tensor;
}

at::Tensor Trace::State::make_stand_in(const at::Tensor& tensor, types::TensorType type, std::string name) {
  at::Tensor alone;
  at::Tensor& first = tensor.defined() ? stand_ins[storage_impl(tensor)] : alone;
  const ValueId input = graph.add_input(type, std::move(name));
  values.resize(input.index() + 1);
  at::Tensor made;
  ValueId value;
  if (first.defined()) {
    made = make_view(first, std::move(type), &value);
  } else {
    made = make_fresh(std::move(type), &value);
    first = made;
  }
  // Made as any other tensor, but what it is called in the graph is the input.
  values[input.index()].storage = values[value.index()].storage;
  values[input.index()].ready = true;
  as_pending(made.unsafeGetTensorImpl())->set_value(input);
  return made;
}

at::Tensor Trace::State::make_ready(const at::Tensor& result, ValueId* value) {
  const c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
  *value = add_value(type_of(impl), storage_of(impl.unsafe_storage()));
  values[value->index()].ready = true;
  at::Tensor tensor = at::detail::make_tensor<PendingImpl>(*this, *value, impl, impl.dtype());
  auto* made = static_cast<PendingImpl*>(tensor.unsafeGetTensorImpl());
  made->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
  std::lock_guard<std::mutex> lock(links_mutex());
  made->settle();
  return tensor;
}

ValueId Trace::State::add_constant(const at::Tensor& tensor) {
  const ValueId value = graph.add_constant(type_of(*tensor.unsafeGetTensorImpl()));
  constants.push_back(tensor);
  values.resize(value.index() + 1);
  values[value.index()].storage = storage_of(tensor.unsafeGetTensorImpl()->unsafe_storage());
  values[value.index()].ready = true;
  storages[values[value.index()].storage].known = true;
  return value;
}

void Trace::State::note_known(const Operator& op, const graph::Node& node) {
  const auto storage = [&](ValueId id) -> StorageRecord& { return storages[values[id.index()].storage]; };
  const auto is_number = [](const types::Expr& expr) { return expr.is_constant(); };
  bool known = !op.random && !op.is_foreign && op.name.find("empty") == std::string::npos;
  std::vector<StorageIndex> read;
  graph::for_each_read(node, [&](ValueId id) {
    known = known && storage(id).known;
    read.push_back(values[id.index()].storage);
  });
  for (const graph::Arg& arg : node.args) {
    if (const auto* one = std::get_if<types::Expr>(&arg)) known = known && one->is_constant();
    if (const auto* list = std::get_if<types::Sizes>(&arg))
      known = known && std::all_of(list->begin(), list->end(), is_number);
    known = known && !std::holds_alternative<graph::Real>(arg);
  }
  for (const ValueId id : node.outputs)
    if (id.valid() && std::find(read.begin(), read.end(), values[id.index()].storage) == read.end())
      storage(id).known = known;
  if (!op.writes_anything || known) return;
  for (const StorageIndex index : read) storages[index].known = false;
}

void Trace::State::add_node(const Operator& op, std::vector<graph::Arg> args, std::vector<ValueId> outputs,
                            std::vector<int64_t> numbers) {
  graph.add_node({.op = op.name,
                  .args = std::move(args),
                  .outputs = std::move(outputs),
                  .grad = c10::GradMode::is_enabled(),
                  .place = place,
                  .checkpoint = checkpoint,
                  .numbers = std::move(numbers)});
  note_known(op, graph.nodes().back());
}

void Trace::State::add_call(const Operator& op, std::vector<graph::Arg> args, std::vector<c10::IValue> boxed,
                            c10::ArrayRef<TensorPlace> tensors, std::vector<ValueId> outputs,
                            std::vector<int64_t> numbers) {
  if (symbols) return add_node(op, std::move(args), std::move(outputs), std::move(numbers));
  const size_t number = calls.size() + 1;
  for (const TensorPlace& place : tensors) {
    const graph::Arg& arg = args[place.argument];
    const ValueId value = place.item < 0 ? std::get<ValueId>(arg) : std::get<std::vector<ValueId>>(arg)[place.item];
    ValueRecord& record = values[value.index()];
    record.last_reader = number;
    if (record.ready && !record.run.defined())
      record.run = alias_of(*place.tensor.unsafeGetTensorImpl(), graph.value(value).type);
  }
  calls.push_back({&op, std::move(boxed)});
  add_node(op, std::move(args), std::move(outputs), std::move(numbers));
}

void Trace::State::note_write(ValueId value) {
  const StorageIndex index = values[value.index()].storage;
  StorageRecord& record = storages[index];
  record.zeros = false;
  if (!record.filled || record.written) return;
  c10::StorageImpl& storage = *record.storage._unsafe_get_target();
  record.written = true;
  record.checked_before = seal(storage);
  written.push_back(index);
  set_writer(storage, this);
  for (ValueId outsider : record.outsiders) watch(values[outsider.index()].outsider);
}

}  // namespace magneto::aten
