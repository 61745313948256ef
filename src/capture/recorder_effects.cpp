// Changes of objects from outside: repeated on replay, in order.
#include <algorithm>

#include "capture/content.h"
#include "capture/faults.h"
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/recorder_ends_internal.h"
#include "capture/substitutes.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

/// A dict with the same entries, in the order that one sees.
static PyObject* plain_copy(PyObject* dict) {
  if (!PyODict_Check(dict)) return content_of(dict);
  Ref copy = Ref::take(PyDict_New());
  for (const auto& [key, value] : items_of(dict))
    if (!copy || PyDict_SetItem(copy.get(), key.get(), value.get()) < 0) return nullptr;
  return copy.release();
}

/// Whether a container may lose what it holds by this method.
static bool takes_out(PyObject* container, const std::string& method) {
  if (!PyList_Check(container) && !PyDict_Check(container) && !PyAnySet_Check(container)) return true;
  for (const char* adds : {"append", "extend", "insert", "reverse", "sort", "setdefault", "move_to_end", "set.add"})
    if (method.find(adds) != std::string::npos) return false;
  return true;
}

PyObject* Recorder::call_effect(Activation& self, PyObject* callable, CallClass cls, PyObject* const* args,
                                size_t nargsf, PyObject* kwnames, PyObject* bound) {
  size_t count = total_count(nargsf, kwnames);
  PyObject* target = bound ? bound : count > 0 ? args[0] : nullptr;
  size_t first = bound ? 0 : 1;
  if (!target) return Semantics::call(self, callable, args, nargsf, kwnames);
  std::string name = callable_name(callable);
  if (is_older(target)) return stop(self, Stop::kEffect, name);
  for (size_t i = first; i < count; ++i) {
    if (cls == CallClass::kEffectCopy ? !readable(self, args[i]) : !slot_known(self, args[i]))
      return stop(self, unreadable_stop_, unreadable_detail_);
    if (asks_program(target, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
    const bool is_key = PyAnySet_Check(target) || (PyDict_Check(target) && i == first);
    if (is_key || ((PyLong_CheckExact(args[i]) || is_text(args[i])) && name.find("append") == std::string::npos))
      specialise(args[i]);
  }
  if (const bool sorts = name == "list.sort"; sorts || name.starts_with("_heapq.") || name.starts_with("_bisect.")) {
    // compares, and calls its key
    if (!is_made(target) || !PyList_CheckExact(target)) return stop(self, Stop::kEffect, name);
    for (size_t i = first; i < count; ++i)
      if (sorts ? !callable_from_c(self, args[i]) : !readable(self, args[i]))
        return stop(self, unreadable_stop_, unreadable_detail_);
    if (!readable(self, target)) return stop(self, unreadable_stop_, unreadable_detail_);
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
  if (PyExceptionInstance_Check(target) || kwnames || name.find("__init__") != std::string::npos)
    return stop(self, Stop::kEffect, name);
  // The methods of OrderedDict call those of a subclass, which would be repeated by themselves.
  if (PyODict_Check(target))
    for (const char* method :
         {"__setitem__", "__delitem__", "__getitem__", "__iter__", "__contains__", "keys", "get", "pop", "__missing__"})
      if (!inherits(Py_TYPE(target), method, &PyODict_Type)) return stop(self, Stop::kEffect, name);
  if (hides_content(c_type(target)) && !is_deque(target)) return stop(self, Stop::kEffect, name);
  for (size_t i = first; PyAnySet_Check(target) && i < count; ++i)
    if (!is_value(args[i]) && cls == CallClass::kEffect) return stop(self, Stop::kEffect, name);
  for (size_t i = first; i < count; ++i)
    if (cls == CallClass::kEffectCopy && (PyDict_Check(target) || PyAnySet_Check(target)) && has_program_keys(args[i]))
      return stop(self, Stop::kProgramKey, Py_TYPE(args[i])->tp_name);
  guard_class(target);
  bool reads = cls == CallClass::kEffect && name.find("append") == std::string::npos &&
               name.find("set.add") == std::string::npos && name.find("discard") == std::string::npos &&
               name.find("clear") == std::string::npos;
  bool sets_one_key = PyDict_Check(target) && (name.find("__setitem__") != std::string::npos) && count - first == 2;
  if (is_deque(target)) loosen(target);
  if (reads && !sets_one_key) guard_all(self, target);
  snapshot(target);
  // Repeated through the type's own method, on whatever object stands there at replay.
  Ref method = Ref::take(unbound(callable));
  if (!method) return stop(self, Stop::kEffect, name);
  const auto is_copied = [&](PyObject* arg) { return cls == CallClass::kEffectCopy && !is_value(arg); };
  // At once, and not one by one: code of the program that runs meanwhile could change the target.
  const auto is_walked = [&](PyObject* arg) { return PyIter_Check(arg) && is_made(arg) && runs_no_python(arg); };
  for (size_t i = first; i < count; ++i)
    if (is_copied(args[i]) && !PyDict_Check(args[i]) && !PyList_Check(args[i]) && !PyTuple_Check(args[i]) &&
        !PyAnySet_Check(args[i]) && !is_walked(args[i]))
      return stop(self, Stop::kEffect, name);
  // What is copied is copied now; the container it comes from may change later.
  std::vector<Ref> frozen;
  std::vector<PyObject*> repeated{target}, now(args, args + count);
  for (size_t i = first; i < count; ++i) {
    PyObject* arg = args[i];
    if (is_copied(arg)) {
      Ref copy = Ref::take(PyDict_Check(arg) ? plain_copy(arg) : PySequence_List(arg));
      if (!copy) return nullptr;
      if (is_walked(arg)) now[i] = copy.get();
      if (active_) enter_made(copy.get());
      if (active_) enter_elements(copy.get());
      arg = copy.get();
      frozen.push_back(std::move(copy));
    }
    repeated.push_back(arg);
  }
  PyObject* result = PyObject_Vectorcall(callable, now.data(), count, kwnames);
  if (!active_) return result;
  if (!result) return nullptr;
  const int number = record_call(method.get(), repeated.data(), repeated.size());
  if (number >= 0) effects_[static_cast<size_t>(number)].takes_out = takes_out(target, name);
  if (PyDict_Check(target)) {
    if (sets_one_key) {
      make_dirty(target, args[first]);
    } else {
      guard_all(self, target);  // from the snapshot; later reads see the recording's own state
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

PyObject* Recorder::call_telling(Activation& self, const char* name, PyObject* callable, PyObject* const* args,
                                 size_t nargsf, PyObject* kwnames) {
  PyObject* result = call_unrecorded(callable, args, nargsf, kwnames);
  if (result) return result;
  const ErrorAside aside;
  invalidate(self, Stop::kRaised, name);
  return nullptr;
}

/// functools.partial(callable, **words).
static PyObject* partial_of(PyObject* callable, PyObject* words) {
  static PyObject* const partial = PyObject_GetAttrString(PyImport_ImportModule("functools"), "partial");
  const Ref one = Ref::take(PyTuple_Pack(1, callable));
  return one && words ? PyObject_Call(partial, one.get(), words) : nullptr;
}

// A warning is given again at each replay, as of the same line: whether it is shown, the filters and the registry of
// its module decide each time. Which filters there are is guarded, for one may make an exception of it.
PyObject* Recorder::call_warning(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames) {
  const size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  PyObject* given[] = {nullptr, nullptr, nullptr};  // message, category, stacklevel
  static constexpr std::string_view kNames[] = {"message", "category", "stacklevel"};
  bool is_plain = positional <= 3;
  for (size_t i = 0; is_plain && i < positional; ++i) given[i] = args[i];
  for (size_t i = positional; is_plain && i < total_count(nargsf, kwnames); ++i) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - positional)));
    const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
    is_plain = found != std::end(kNames);
    if (is_plain) given[found - std::begin(kNames)] = args[i];
  }
  auto [message, category, level] = given;
  if (category == Py_None) category = nullptr;
  is_plain = is_plain && message && PyUnicode_CheckExact(message) && (!category || PyType_Check(category)) &&
             (!level || PyLong_CheckExact(level));
  Activation* where = &self;  // the frame that the warning is about
  if (is_plain && level)
    for (long n = PyLong_AsLong(level); n > 1 && where; --n) where = where == &root_ ? nullptr : where->outer();
  if (!is_plain || !where || rehearsal_) return stop(self, Stop::kEffect, "warnings.warn");

  static PyObject* const module = PyImport_ImportModule("warnings");
  static PyObject* const name = PyUnicode_InternFromString("filters");
  if (!info(module)) enter_outside(module, guards().sources.pinned({}, nullptr));
  const Ref filters = Ref::take(load_attr(self, module, name));
  if (!filters || filters.get() == kStop || !PyList_CheckExact(filters.get()))
    return stop(self, Stop::kEffect, "warnings.warn");
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters.get()); ++i) {
    PyObject* filter = PyList_GET_ITEM(filters.get(), i);
    PyObject* action = PyTuple_Check(filter) && PyTuple_GET_SIZE(filter) ? PyTuple_GET_ITEM(filter, 0) : nullptr;
    if (!action || !PyUnicode_Check(action) || PyUnicode_CompareWithASCIIString(action, "error") == 0)
      return stop(self, Stop::kEffect, "warnings.warn");
  }
  if (is_outside(filters.get())) guard_all(self, filters.get());
  if (!active_) return Semantics::call(self, callable, args, nargsf, kwnames);
  PyObject* result = call_telling(self, "warnings.warn", callable, args, nargsf, kwnames);
  if (!result) return nullptr;
  // A module without a registry has only had warnings that are ignored.
  PyObject* const globals = where->frame()->f_globals;
  PyObject* const registry = PyDict_GetItemString(globals, "__warningregistry__");
  PyObject* const of_module = PyDict_GetItemString(globals, "__name__");
  static PyObject* const explicitly = PyObject_GetAttrString(module, "warn_explicit");
  if (!registry || !of_module) return result;
  const Ref words = Ref::take(Py_BuildValue("{s:O, s:O}", "registry", registry, "module", of_module));
  const Ref again = Ref::take(partial_of(explicitly, words.get()));
  const Ref line = Ref::take(PyLong_FromLong(where->current_line()));
  PyObject* const repeated[] = {message, category ? category : PyExc_UserWarning, where->code()->co_filename,
                                line.get()};
  if (again && line) record_call(again.get(), repeated, 4);
  return result;
}

// print(...) of numbers, texts, shapes and plain containers of them: printed again by each replay, when the graph has
// run. Whoever raises before it in eager raises in the replay, too, and eager repeats the call.
PyObject* Recorder::call_print(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                               PyObject* kwnames) {
  const size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  std::vector<Ref> shown;
  for (size_t i = 0; i < positional; ++i)
    if (!shown.emplace_back(rehearsal_ ? Ref() : frozen(self, args[i]))) return stop(self, Stop::kOpaqueCall, "print");
  bool is_plain = !rehearsal_;
  const Ref words = Ref::take(PyDict_New());
  for (size_t i = positional; words && is_plain && i < total_count(nargsf, kwnames); ++i) {
    PyObject* const name = PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - positional));
    is_plain = is_value(args[i]) && PyDict_SetItem(words.get(), name, args[i]) == 0;
    specialise(args[i]);
  }
  if (!is_plain) return stop(self, Stop::kOpaqueCall, "print");
  const Ref again = kwnames ? Ref::take(partial_of(callable, words.get())) : Ref::share(callable);
  PyObject* result = again ? call_telling(self, "print", callable, args, nargsf, kwnames) : nullptr;
  if (!result) return nullptr;
  std::vector<PyObject*> repeated;
  for (const Ref& object : shown) repeated.push_back(object.get());
  record_call(again.get(), repeated.data(), repeated.size());
  return result;
}

/// A dict of values.
static bool holds_values(PyObject* object) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  if (!PyDict_CheckExact(object)) return false;
  while (PyDict_Next(object, &position, &key, &value))
    if (!is_value(key) || !is_value(value)) return false;
  return true;
}

// logger._log(level, message, args): told again at each replay, as of the same line. Whether the logger is enabled was
// asked, and guarded, before.
PyObject* Recorder::call_log(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                             PyObject* kwnames) {
  const auto refuse = [&] { return stop(self, Stop::kEffect, "logging"); };
  const size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  if (rehearsal_ || positional != 4 || !is_outside(args[0]) || !PyLong_CheckExact(args[1]) || !is_value(args[2]) ||
      !PyTuple_CheckExact(args[3]))
    return refuse();
  const Ref shown = frozen(self, args[3]);
  if (!shown) return refuse();
  long levels = 1;
  PyObject* extra = Py_None;
  for (size_t i = positional; i < total_count(nargsf, kwnames); ++i) {
    PyObject* const name = PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - positional));
    specialise(args[i]);
    if (PyUnicode_CompareWithASCIIString(name, "stacklevel") == 0 && PyLong_CheckExact(args[i]))
      levels = PyLong_AsLong(args[i]);
    else if (PyUnicode_CompareWithASCIIString(name, "extra") == 0 && holds_values(args[i]) && slot_known(self, args[i]))
      extra = args[i];
    else if (args[i] != Py_None && args[i] != Py_False)  // an exception, a stack
      return refuse();
  }
  auto* const own = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
  const auto is_of_logging = [&](Activation& frame) {
    return PyUnicode_Compare(frame.code()->co_filename, own->co_filename) == 0;
  };
  Activation* where = &self;
  while (where && (is_of_logging(*where) || --levels > 0)) where = where == &root_ ? nullptr : where->outer();
  static PyObject* const again = own_function("_log_again");
  if (!where || !again) return refuse();
  PyObject* result = call_telling(self, "logging", function, args, nargsf, kwnames);
  if (!result) return nullptr;
  const Ref line = Ref::take(PyLong_FromLong(where->current_line()));
  PyObject* const repeated[] = {
      args[0], args[1], args[2], shown.get(), where->code()->co_filename, line.get(), where->code()->co_name, extra};
  if (line) record_call(again, repeated, std::size(repeated));
  return result;
}

// Reads were answered as the recording's own objects were at that time. Where an effect had changed one of them, the
// others stood as before: so no other may be that object at a later call. An object's attributes are also the entries
// of its dict.
void Recorder::guard_apart() {
  std::vector<std::pair<size_t, PyObject*>> outside;
  for (auto& [object, entry] : table_)
    if (entry.cls == Info::Class::kOutside && (entry.resolved || !guards().sources.floating(entry.source)))
      outside.emplace_back(entry.entered, object);
  std::sort(outside.begin(), outside.end());
  using Kind = FloatingStep::Kind;
  const auto other_objects = [&](PyObject* a, PyObject* b) {
    if (!floating(a)) std::swap(a, b);
    if (!floating(a)) return;
    if (floating(b))
      guards().steps.push_back({Kind::kIsNot, source_of(a), source_of(b), {}, {}, {}, 0, {}});
    else
      guards().steps.push_back({Kind::kNotPinned, source_of(a), {}, Ref::share(b), {}, {}, 0, {}});
  };
  const auto not_dict_of = [&](PyObject* dict, PyObject* owner) {
    if ((!floating(dict) && !floating(owner)) || instance_dict(owner) == dict) return;
    FloatingStep step{Kind::kNotDictOf, {}, {}, {}, {}, {}, PyDict_CheckExact(dict) ? 0 : 1, {}};
    if (floating(dict))
      step.target = source_of(dict);
    else
      step.object = Ref::share(dict);
    if (floating(owner))
      step.other = source_of(owner);
    else
      step.value = Ref::share(owner);
    guards().steps.push_back(std::move(step));
  };
  std::unordered_set<PyObject*> seen;
  for (const Pending& pending : effects_) {
    PyObject* target = pending.kind != Effect::Kind::kCall ? pending.target.get()
                       : pending.args.empty()              ? nullptr
                                                           : pending.args[0].get();
    if (!target || !is_outside(target) || !seen.insert(target).second) continue;
    const bool has_dict = pending.kind == Effect::Kind::kSetAttr && _PyObject_GetDictPtr(target);
    for (auto& [number, object] : outside) {
      if (object == target) continue;
      if (Py_TYPE(object) == Py_TYPE(target)) other_objects(target, object);
      if (has_dict && (PyDict_CheckExact(object) || _PyObject_GetDictPtr(object))) not_dict_of(object, target);
      if (PyDict_CheckExact(target) && _PyObject_GetDictPtr(object)) not_dict_of(target, object);
    }
  }
}

void Recorder::check_changed_dict(PyObject* target, bool by_attribute) {
  PyObject* dict = by_attribute && !PyModule_Check(target) ? instance_dict(target)
                   : PyDict_Check(target)                  ? target
                                                           : nullptr;
  if (dict && is_outside(target) && !reached_as_before(dict, dict == target ? nullptr : target, source_of(target)))
    invalidate(*Activation::innermost(), Stop::kUnknownObject, "a dict reached in two ways");
}

// An effect holds what it puts somewhere, here and on replay: nothing that must end in time.
void Recorder::record_set(Effect::Kind kind, PyObject* target, PyObject* key, PyObject* value, bool generic) try {
  fault_point("note");
  Pending effect;
  effect.kind = kind;
  effect.generic = generic;
  effect.target = Ref::share(target);
  effect.key = Ref::share(key);
  effect.value = Ref::share(value);
  effects_.push_back(std::move(effect));
  check_changed_dict(target, kind == Effect::Kind::kSetAttr);
  if (value && holds_an_end(value)) invalidate_by_end("it is put somewhere");
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
  if (count > 0) check_changed_dict(args[0], false);
  if (count > 1 && std::any_of(args + 1, args + count, [this](PyObject* arg) { return holds_an_end(arg); }))
    invalidate_by_end("it is put somewhere");
  return static_cast<int>(effects_.size()) - 1;
} catch (const std::exception& error) {
  fault(error.what());
  return -1;
}

}  // namespace magneto::capture
