// copy.deepcopy: its Python code is recorded, and a tensor in it is a clone.
//
// A deep copy of a tensor is a copy of its storage, which tensors that share it share again. So a clone is right for a
// plain tensor without gradient, history and attributes, and for several of them where the recording knows that none
// shares with another. All others are copied as eager does it, as one break.
#include "capture/recorder.h"
#include "capture/recorder_torch_internal.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

bool Recorder::is_own_tensor(const at::Tensor& tensor) {
  return tensor.is_leaf() && !tensor.requires_grad() && tensor.is_non_overlapping_and_dense() &&
         tensor.storage_offset() == 0 && !tensor.grad().defined();
}

static bool has_attributes(PyObject* object) {
  PyObject** dict = _PyObject_GetDictPtr(object);
  return dict && *dict && PyDict_GET_SIZE(*dict) > 0;
}

bool Recorder::collect_copied(PyObject* object, int depth, std::vector<PyObject*>& tensors) {
  constexpr int kMostDepth = 8;
  if (is_value(object) || PyType_Check(object) || PyFunction_Check(object) || PyModule_Check(object)) return true;
  if (is_tensor(object)) {
    if (std::find(tensors.begin(), tensors.end(), object) == tensors.end()) tensors.push_back(object);
    return is_plain_tensor(object) && reinterpret_cast<PyObject*>(Py_TYPE(object)) == plain_tensor_class() &&
           !has_attributes(object) && is_own_tensor(tensor_of(object));
  }
  if (depth > kMostDepth) return false;
  bool all = true;
  PyObject *key, *value;
  if (PyTuple_Check(object) || PyList_Check(object))
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      all = all && collect_copied(PySequence_Fast_GET_ITEM(object, i), depth + 1, tensors);
  if (PyDict_Check(object))
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);)
      all = all && collect_copied(value, depth + 1, tensors);
  if (PyObject** dict = _PyObject_GetDictPtr(object); dict && *dict)
    all = all && collect_copied(*dict, depth + 1, tensors);
  return all;
}

// Whether tensors from outside share their storage may be otherwise at the next call.
bool Recorder::share_memory(PyObject* one, PyObject* other) {
  const auto storage = [](PyObject* of) { return tensor_of(of).storage().unsafeGetStorageImpl(); };
  const auto is_of_outside = [&](PyObject* of) {
    return is_outside(of) || !made_here(tensor_of(of)) ||
           std::any_of(table_.begin(), table_.end(), [&](const auto& entry) {
             return entry.second.cls == Info::Class::kOutside && is_tensor(entry.first) &&
                    tensor_of(entry.first).has_storage() && storage(entry.first) == storage(of);
           });
  };
  return storage(one) == storage(other) || (is_of_outside(one) && is_of_outside(other));
}

bool Recorder::copies_known(Activation& self, PyObject* object, PyObject* memo) {
  if (!memo) return !is_tensor(object);
  bool is_inner = false;  // a part of a copy that was looked at as a whole
  static PyObject* const own = [] {
    const Ref module = Ref::take(PyImport_ImportModule("copy"));
    return module ? PyModule_GetDict(module.get()) : nullptr;
  }();
  for (Activation* at = &self; at && !is_inner; at = at == &root_ ? nullptr : at->outer())
    is_inner = at->frame()->f_globals == own;
  if (is_inner) return true;
  if (memo != Py_None && (!PyDict_CheckExact(memo) || PyDict_GET_SIZE(memo) > 0)) return false;
  std::vector<PyObject*> tensors;
  if (!collect_copied(object, 0, tensors)) return false;
  for (size_t i = 1; i < tensors.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (share_memory(tensors[i], tensors[k])) return false;
  return true;
}

PyObject* Recorder::plain_tensor_class() {
  static PyObject* const found = [] {
    const Ref torch = Ref::take(PyImport_ImportModule("torch"));
    return torch ? PyObject_GetAttrString(torch.get(), "Tensor") : nullptr;
  }();
  return found;
}

PyObject* Recorder::copy_tensor(Activation& self, PyObject* tensor, PyObject* memo) {
  const auto refuse = [&] { return stop(self, Stop::kOpaqueCall, "copy.deepcopy of such a tensor"); };
  std::vector<PyObject*> tensors;
  if (!collect_copied(tensor, 0, tensors) || !is_made(memo) || !PyDict_CheckExact(memo) ||
      !usable_tensor(tensor, "a copy"))
    return refuse();
  for (const auto& [of, other] : copied_)
    if (of.get() == memo && share_memory(other.get(), tensor)) return refuse();
  if (is_outside(tensor)) {  // it has no attributes, and no gradient
    static PyObject* const grad = PyUnicode_InternFromString("grad");
    guard_member(tensor, grad, Py_None);
    PyObject** const dict = _PyObject_GetDictPtr(tensor);
    if (floating(tensor)) {
      const SourceId part = guards().sources.part(Source::Kind::kDict, source_of(tensor), nullptr);
      if (dict && *dict) resolve_source(part);
      guards().steps.push_back(
          {dict && *dict ? FloatingStep::Kind::kKeys : FloatingStep::Kind::kAbsent, part, {}, {}, {}, {}, 0, {}});
    } else {
      PyObject* const names = instance_dict(tensor);
      if (!names) return refuse();
      if (!info(names)) enter_outside(names, source_of(tensor));
      dict_guard(names, tensor, source_of(tensor));
      guard_all(self, names);
    }
  }
  if (!active_) return nullptr;
  const Ref id = Ref::take(PyLong_FromVoidPtr(tensor));
  Ref made = Ref::take(torch_leaf(self, "copy.deepcopy", std::span(&tensor, 1), [](PyObject* const* of) {
    const Ref detached = Ref::take(PyObject_CallMethod(of[0], "detach", nullptr));
    return detached ? PyObject_CallMethod(detached.get(), "clone", nullptr) : nullptr;
  }));
  if (!made || !active_) return made.release();
  copied_.emplace_back(Ref::share(memo), Ref::share(tensor));
  PyObject* fresh = unique_int(id.get());  // as id() gives it
  if (!fresh) return nullptr;
  if (!is_outside(tensor) || floating(tensor)) {
    enter_made(fresh);
    ids_.emplace(fresh, tensor);
  }
  const int status = PyDict_SetItem(memo, fresh, made.get());
  Py_DECREF(fresh);
  return status == 0 ? made.release() : nullptr;
}

// What copyreg looks up once for each class, and keeps there.
void Recorder::keep_slot_names(PyObject* object) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  PyObject* const names = type_dict(Py_TYPE(object));
  if (!is_python_class(Py_TYPE(object)) || !names || PyDict_GetItemString(names, "__slotnames__")) return;
  static PyObject* const look_up = [] {
    const Ref module = Ref::take(PyImport_ImportModule("copyreg"));
    return module ? PyObject_GetAttrString(module.get(), "_slotnames") : nullptr;
  }();
  PyObject* room[] = {nullptr, type};
  const Ref found =
      Ref::take(look_up ? call_unrecorded(look_up, room + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr) : nullptr);
  PyErr_Clear();
}

}  // namespace magneto::capture
