// Changes of objects from outside: repeated on replay, in order.
#include "capture/faults.h"
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

PyObject* Recorder::call_effect(Activation& self, PyObject* callable, CallClass cls, PyObject* const* args,
                                size_t nargsf, PyObject* kwnames, PyObject* bound) {
  size_t count = total_count(nargsf, kwnames);
  PyObject* target = bound ? bound : count > 0 ? args[0] : nullptr;
  size_t first = bound ? 0 : 1;
  if (!target) return Semantics::call(self, callable, args, nargsf, kwnames);
  std::string name = callable_name(callable);
  for (size_t i = first; i < count; ++i) {
    if (cls == CallClass::kEffectCopy ? !readable(self, args[i]) : !slot_known(self, args[i]))
      return stop(self, unreadable_stop_, unreadable_detail_);
    const bool is_key = PyAnySet_Check(target) || (PyDict_Check(target) && i == first);
    if (is_key || (PyLong_CheckExact(args[i]) && name.find("append") == std::string::npos)) specialise(args[i]);
  }
  if (is_made(target)) {
    PyObject* result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    if (result && active_) {
      if (!is_value(result) && !info(result))
        adopt(self, result, Source::Kind::kItem, target, nullptr, -1, name.c_str());
    }
    return result;
  }
  if (!is_outside(target)) return stop(self, Stop::kUnknownObject, name);
  if (kwnames || name.find("__init__") != std::string::npos) return stop(self, Stop::kEffect, name);
  if (PyAnySet_Check(target) || strcmp(Py_TYPE(target)->tp_name, "collections.deque") == 0)
    for (size_t i = first; i < count; ++i)
      if (!is_value(args[i]) && cls == CallClass::kEffect && PyAnySet_Check(target))
        return stop(self, Stop::kEffect, name);
  note_class(target);
  bool reads = cls == CallClass::kEffect && name.find("append") == std::string::npos &&
               name.find("set.add") == std::string::npos && name.find("discard") == std::string::npos &&
               name.find("clear") == std::string::npos;
  bool sets_one_key = PyDict_Check(target) && (name.find("__setitem__") != std::string::npos) && count - first == 2;
  if (strcmp(Py_TYPE(target)->tp_name, "collections.deque") == 0 && reads) return stop(self, Stop::kEffect, name);
  if (reads && !sets_one_key) note_all(self, target);
  snapshot(target);
  // What is copied is copied now; the container it comes from may change later.
  std::vector<Ref> frozen;
  std::vector<PyObject*> repeated{target};
  for (size_t i = first; i < count; ++i) {
    PyObject* arg = args[i];
    if (cls == CallClass::kEffectCopy && !is_value(arg)) {
      Ref copy;
      if (PyDict_Check(arg))
        copy = Ref::take(PyDict_Copy(arg));
      else if (PyList_Check(arg) || PyTuple_Check(arg) || PyAnySet_Check(arg))
        copy = Ref::take(PySequence_List(arg));
      else
        return stop(self, Stop::kEffect, name);
      if (!copy) return nullptr;
      enter_made(copy.get());
      arg = copy.get();
      frozen.push_back(std::move(copy));
    }
    repeated.push_back(arg);
  }
  // Repeated through the type's own method, on whatever object stands there at replay.
  Ref method = Ref::take(unbound(callable));
  if (!method) return stop(self, Stop::kEffect, name);
  PyObject* result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
  if (!result) return nullptr;
  record_call(method.get(), repeated.data(), repeated.size());
  if (PyDict_Check(target)) {
    if (sets_one_key) {
      make_dirty(target, args[first]);
    } else {
      note_all(self, target);  // from the snapshot; later reads see the recording's own state
      PyObject *key, *value;
      Py_ssize_t position = 0;
      while (PyDict_Next(target, &position, &key, &value)) make_dirty(target, key);
      position = 0;
      while (PyDict_Next(originals_[target], &position, &key, &value)) make_dirty(target, key);
    }
  }
  if (!is_value(result) && !info(result)) adopt(self, result, Source::Kind::kItem, target, nullptr, -1, name.c_str());
  return result;
}

void Recorder::record_set(Effect::Kind kind, PyObject* target, PyObject* key, PyObject* value, bool generic) try {
  fault_point("note");
  Pending effect;
  effect.kind = kind;
  effect.generic = generic;
  effect.target = Ref::share(target);
  effect.key = Ref::share(key);
  effect.value = Ref::share(value);
  effects_.push_back(std::move(effect));
} catch (const std::exception& error) {
  fault(error.what());
}

int Recorder::record_call(PyObject* callable, PyObject* const* args, size_t count) try {
  fault_point("note");
  Pending effect;
  effect.kind = Effect::Kind::kCall;
  effect.callable = Ref::share(callable);
  for (size_t i = 0; i < count; ++i) effect.args.push_back(Ref::share(args[i]));
  effects_.push_back(std::move(effect));
  return static_cast<int>(effects_.size()) - 1;
} catch (const std::exception& error) {
  fault(error.what());
  return -1;
}

}  // namespace magneto::capture
