// Calls: Python functions come through the hook and are inlined; C functions are looked up in the table of call
// classes.
#include <algorithm>
#include <cmath>

#include "capture/compiled.h"
#include "capture/hook.h"
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/recorder_ends_internal.h"
#include "capture/recorder_torch_internal.h"
#include "capture/script.h"
#include "capture/substitutes.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

namespace {

/// module.name, for as long as the process lives; null where there is none.
PyObject* lasting(const char* module, const char* name) {
  Ref from = Ref::take(PyImport_ImportModule(module));
  PyObject* found = from ? PyObject_GetAttrString(from.get(), name) : nullptr;
  PyErr_Clear();
  return found;
}

bool is_operator(PyTypeObject* type) {
  static PyObject* const one = lasting("torch._ops", "OpOverload");
  static PyObject* const packet = lasting("torch._ops", "OpOverloadPacket");
  return reinterpret_cast<PyObject*>(type) == one || reinterpret_cast<PyObject*>(type) == packet;
}

bool is_getter(PyTypeObject* type) {
  for (const char* name : {"operator.itemgetter", "operator.attrgetter", "operator.methodcaller"})
    if (strcmp(type->tp_name, name) == 0) return true;
  return false;
}

/// torch.compiler.disable has marked it: it runs as in eager, and so does all that it calls.
bool is_disabled(PyFunctionObject* function) {
  static PyObject* const mark = PyUnicode_InternFromString("_torchdynamo_disable");
  return function->func_dict && PyDict_GetItemWithError(function->func_dict, mark) == Py_True;
}

/// Optimizers ask for breaks around a step that TorchDynamo could not hold.
bool is_torch_itself(PyFunctionObject* function) {
  PyObject* const name = PyDict_GetItemString(function->func_globals, "__name__");
  const char* const text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) PyErr_Clear();
  return text && (strcmp(text, "torch") == 0 || strncmp(text, "torch.", 6) == 0);
}

/// torch.compiler.allow_in_graph has marked it, or one of its callers. It is recorded like any other function; only
/// what it says to TorchDynamo is not meant.
bool is_allowed_in_graph(const Activation& frame) {
  const Ref name = Ref::take(PyUnicode_FromString("torch._dynamo.trace_rules"));
  const Ref rules = Ref::take(PyImport_GetModule(name.get()));  // not imported: nobody has marked anything
  const Ref marked = Ref::take(rules ? PyObject_GetAttrString(rules.get(), "_allowed_callable_ids") : nullptr);
  const Ref ids = Ref::take(marked ? PyObject_GetAttrString(marked.get(), "function_ids") : nullptr);
  PyErr_Clear();
  for (const Activation* at = &frame; at && ids && PySet_Check(ids.get()); at = at->outer()) {
    const Ref id = Ref::take(PyLong_FromVoidPtr(at->function()));
    if (PySet_Contains(ids.get(), id.get()) > 0) return true;
  }
  return false;
}

}  // namespace

PyObject* Recorder::call_ex(Activation& self, PyObject* callable, PyObject* args, PyObject* kwargs) {
  if (!active_) return Semantics::call_ex(self, callable, args, kwargs);
  for (PyObject* given : {args, kwargs})  // f(*xs): how many there are, and which, comes from outside
    if (given && is_outside(given)) guard_all(self, given);
  if (!active_) return Semantics::call_ex(self, callable, args, kwargs);
  size_t positional = static_cast<size_t>(PyTuple_GET_SIZE(args));
  std::vector<PyObject*> all = with_gap(&PyTuple_GET_ITEM(args, 0), positional);
  Ref names;
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    names = Ref::take(PyTuple_New(PyDict_GET_SIZE(kwargs)));
    Py_ssize_t position = 0, at = 0;
    PyObject *key, *value;
    while (PyDict_Next(kwargs, &position, &key, &value)) {
      if (!PyUnicode_CheckExact(key)) return Semantics::call_ex(self, callable, args, kwargs);  // the callee's error
      PyTuple_SET_ITEM(names.get(), at++, Py_NewRef(key));
      all.push_back(value);
    }
  }
  return call(self, callable, all.data() + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, names.get());
}

PyObject* Recorder::call(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                         PyObject* kwnames) {
  if (!active_) return Semantics::call(self, callable, args, nargsf, kwnames);
  PyTypeObject* type = Py_TYPE(callable);
  size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf)), count = total_count(nargsf, kwnames);
  // A substitute may call what it stands for.
  if (PyObject* other = substitute_of(callable); other && other != reinterpret_cast<PyObject*>(self.function())) {
    if (floating(callable)) pin(callable);
    if (!info(other)) enter_outside(other, guards().sources.pinned({}, nullptr));
    return call(self, other, args, nargsf, kwnames);
  }
  if (type == &PyFunction_Type) return call_function(self, callable, args, nargsf, kwnames);
  if (type == &PyMethod_Type) {
    PyObject* bound = PyMethod_GET_SELF(callable);
    Ref held = Ref::share(bound),
        held_function = Ref::share(PyMethod_GET_FUNCTION(callable));  // old, however few references there are
    adopt(self, bound, Source::Kind::kSelf, callable, nullptr, 0, "a bound method");
    adopt(self, PyMethod_GET_FUNCTION(callable), Source::Kind::kSelf, callable, nullptr, 1, "a bound method");
    if (floating(callable)) {
      guard_class(callable);
      if (floating(PyMethod_GET_FUNCTION(callable))) pin(PyMethod_GET_FUNCTION(callable));
    }
    if (!active_) return Semantics::call(self, callable, args, nargsf, kwnames);
    std::vector<PyObject*> all = with_gap(args, count, bound);
    return call(self, PyMethod_GET_FUNCTION(callable), all.data() + 1,
                (positional + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  }
  if (floating(callable) && !is_python_class(type)) pin(callable);  // what is called is part of the program
  if (PyType_Check(callable)) return call_type(self, reinterpret_cast<PyTypeObject*>(callable), args, nargsf, kwnames);
  if (PyCFunction_Check(callable) || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
      type == &PyClassMethodDescr_Type || is_method_wrapper(callable))
    return call_c(self, callable, args, nargsf, kwnames);
  if (is_partial(callable)) return call_partial(self, callable, args, nargsf, kwnames);
  if (is_compiled(callable)) return call_compiled(self, callable, args, nargsf, kwnames);
  if (type == &_PyWeakref_RefType && count == 0) return call_reference(self, callable);
  if (is_getter(type) && count == 1 && !kwnames) return call_getter(self, callable, args[0]);
  if (strcmp(type->tp_name, "functools._lru_cache_wrapper") == 0)
    return call_cached(self, callable, args, nargsf, kwnames);
  if (Script::is_scripted(callable)) return call_script(self, callable, args, nargsf, kwnames);
  if (is_operator(type)) return call_operator(self, callable, args, nargsf, kwnames);
  if (strcmp(type->tp_name, "numpy.ufunc") == 0 || strcmp(type->tp_name, "numpy._ArrayFunctionDispatcher") == 0)
    return call_numpy(self, callable, args, nargsf, kwnames);
  if (type->tp_call && is_python_class(type)) {
    // __call__ of a Python class, as slot_tp_call finds it.
    static PyObject* name = PyUnicode_InternFromString("__call__");
    PyObject* function = _PyType_Lookup(type, name);
    if (function && PyFunction_Check(function)) {
      if (!info(callable)) return stop(self, Stop::kUnknownObject, type->tp_name);
      guard_class(callable);
      if (!info(function)) enter_outside(function, guards().sources.pinned({}, name));
      std::vector<PyObject*> all = with_gap(args, count, callable);
      return call_function(self, function, all.data() + 1, (positional + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
    }
    if (function) {
      guard_class(callable);
      if (is_compiled(function) && is_outside(callable)) {  // whose state it has decides what is called
        if (floating(callable)) pin(callable);
        if (PyObject* dict = instance_dict(callable)) dict_guard(dict, callable, source_of(callable));
      }
      descrgetfunc get = Py_TYPE(function)->tp_descr_get;
      Ref bound = get ? Ref::take(get(function, callable, reinterpret_cast<PyObject*>(type))) : Ref::share(function);
      if (!bound) return nullptr;
      adopt(self, bound.get(), Source::Kind::kPinned, nullptr, name, -1, "__call__");
      return active_ ? call(self, bound.get(), args, nargsf, kwnames)
                     : Semantics::call(self, callable, args, nargsf, kwnames);
    }
  }
  if (!type->tp_call) return Semantics::call(self, callable, args, nargsf, kwnames);  // not callable: CPython's error
  return stop(self, Stop::kOpaqueCall, callable_name(callable));
}

/// A function of numpy's own by this name, which makes a number of numbers.
static bool is_numpy_function(PyObject* callable) {
  const Ref name = Ref::take(PyObject_GetAttrString(callable, "__name__"));
  PyErr_Clear();
  PyObject* const module = PyImport_GetModule(Ref::take(PyUnicode_FromString("numpy")).get());
  const Ref held = Ref::take(module);
  if (!name || !module || PyDict_GetItem(PyModule_GetDict(module), name.get()) != callable) return false;
  if (strcmp(Py_TYPE(callable)->tp_name, "numpy.ufunc") == 0) return true;
  for (const char* reduces : {"prod", "sum", "max", "min", "mean", "round"})
    if (PyUnicode_CompareWithASCIIString(name.get(), reduces) == 0) return true;
  return false;
}

// np.sqrt(d), np.prod(shape): of numbers that are the same in each call, a number.
PyObject* Recorder::call_numpy(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                               PyObject* kwnames) {
  const auto is_number = [&](PyObject* object) {
    return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object) ||
           (is_numpy_number(Py_TYPE(object)) && !floating(object));
  };
  const size_t count = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  bool is_known = !kwnames && count > 0 && is_numpy_function(callable);
  for (size_t i = 0; is_known && i < count; ++i) {
    if (PyTuple_Check(args[i]) || PyList_CheckExact(args[i])) {
      for (Py_ssize_t k = 0; is_known && k < PySequence_Fast_GET_SIZE(args[i]); ++k)
        is_known = is_number(PySequence_Fast_GET_ITEM(args[i], k));
      is_known = is_known && readable(self, args[i]);
    } else {
      is_known = is_number(args[i]);
      if (is_known) specialise(args[i]);
    }
  }
  if (!is_known || !active_)
    return active_ ? stop(self, Stop::kOpaqueCall, callable_name(callable))
                   : Semantics::call(self, callable, args, nargsf, kwnames);
  PyObject* result = call_unrecorded(callable, args, nargsf, kwnames);
  if (!result || !active_) return result;
  const double value = is_numpy_number(Py_TYPE(result)) ? PyFloat_AsDouble(result) : Py_NAN;
  PyErr_Clear();
  if (std::isfinite(value))
    enter_made(result);
  else  // an array, or it has warned
    invalidate(self, Stop::kOpaqueCall, callable_name(callable));
  return result;
}

PyObject* Recorder::call_function(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) {
  auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
  if (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) return stop(self, Stop::kAsync, callable_name(function));
  if (function == autograd_apply() && PyVectorcall_NARGS(nargsf) > 0 && PyType_Check(args[0]) &&
      builds_node(args + 1, total_count(nargsf, kwnames) - 1) && !is_rehearsable(args[0]))
    return stop(self, Stop::kAutogradFunction,
                reinterpret_cast<PyTypeObject*>(args[0])->tp_name + why_not_rehearsed(args[0]));
  auto* const python = reinterpret_cast<PyFunctionObject*>(function);
  const FunctionClass cls = function_class(python);
  if (is_disabled(python)) return stop(self, Stop::kDisabled, callable_name(function));
  if (cls == FunctionClass::kBreak && !is_torch_itself(self.function()) && !is_allowed_in_graph(self))
    return stop(self, Stop::kAsked, callable_name(function));
  guard_function(python);
  const size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf)), count = total_count(nargsf, kwnames);
  switch (cls) {
    case FunctionClass::kInlined:
    case FunctionClass::kBreak:
      break;
    case FunctionClass::kIsCompiling:
      // torch's own code computes in eager's ways: optimizers, encoders with padding, hooks.
      if (!tells_of_compiler || is_torch_itself(self.function()) || count > 0) break;
      has_told_ = true;
      return Py_NewRef(Py_True);
    case FunctionClass::kImport: {
      if (kwnames || count == 0 || !std::all_of(args, args + count, is_value)) break;
      std::for_each(args, args + count, [&](PyObject* arg) { specialise(arg); });
      PyObject* const module = call_unrecorded(function, args, nargsf, kwnames);
      if (module) return imported(self, module, args[0]);
      PyErr_Clear();
      return stop(self, Stop::kImport, "");
    }
    case FunctionClass::kDifferentiate:
      if (uses_func_) return call_func(self, function, args, nargsf, kwnames);
      break;
    case FunctionClass::kBookkeeping:
      return call_unrecorded(function, args, nargsf, kwnames);
    case FunctionClass::kClearFrames:
      if (count == 1 && !is_outside(args[0])) return call_unrecorded(function, args, nargsf, kwnames);
      break;
    case FunctionClass::kLog:
      return call_log(self, function, args, nargsf, kwnames);
    case FunctionClass::kCopies: {
      const bool deep = callable_name(function) == "deepcopy";
      if (count > 0 && !copies_known(self, args[0], deep ? count > 1 ? args[1] : Py_None : nullptr))
        return stop(self, Stop::kOpaqueCall, deep ? "copy.deepcopy of such a tensor" : "copy.copy of a tensor");
      break;
    }
    case FunctionClass::kCopiesTensor:
      if (count == 2 && !kwnames && is_tensor(args[0])) return copy_tensor(self, args[0], args[1]);
      break;
    case FunctionClass::kMakesClass:
      if (PyObject* made = finish_class(self, function, args, nargsf, kwnames)) return made;
      if (PyErr_Occurred()) return nullptr;
      break;
    case FunctionClass::kDeviceName:
      if (positional > 0 && args[0] != Py_None) return call_of_a_device(self, function, args, nargsf, kwnames);
      break;
    case FunctionClass::kHigherOrder:  // torch.cond of a Python number only chooses
      if (positional > 0 && (PyLong_Check(args[0]) || PyFloat_Check(args[0]))) break;
      return stop(self, Stop::kHigherOrder, callable_name(function));
  }
  PyObject* result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  if (result && active_) {
    if (PyGen_CheckExact(result) && !info(result))
      enter_made(result);
    else
      adopt_result(self, result, callable_name(function));
  }
  return result;
}

struct PartialObject {
  PyObject_HEAD PyObject *function, *args, *keywords;
};

// What a partial holds is guarded at once: C code that calls one says nothing of it.
void Recorder::guard_partial(PyObject* object) {
  auto* partial = reinterpret_cast<PartialObject*>(object);
  if (floating(object)) pin(object);
  if (!is_outside(object)) return;
  SourceId source = source_of(object);
  static PyObject* const names[] = {PyUnicode_InternFromString("func"), PyUnicode_InternFromString("args"),
                                    PyUnicode_InternFromString("keywords")};
  PyObject* const parts[] = {partial->function, partial->args, partial->keywords};
  for (int i = 0; i < 3; ++i) guard_member(object, names[i], parts[i]);  // __setstate__ gives it others
  auto known = [&](PyObject* part) {
    if (is_value(part)) return;
    if (!info(part)) enter_outside(part, guards().sources.pinned(source, nullptr));
    if (floating(part)) pin(part);
  };
  known(partial->function);
  known(partial->keywords);
  guard_all(*Activation::innermost(), partial->keywords);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(partial->args); ++i) known(PyTuple_GET_ITEM(partial->args, i));
  guard_callee(partial->function);
}

// A floating object that C code is about to call.
void Recorder::guard_callee(PyObject* object) {
  if (is_partial(object)) {
    guard_partial(object);
  } else if (floating(object) && PyFunction_Check(object)) {
    if (!functions_.count(object)) pin(object);  // else its code is guarded: another one of the same definition will do
  } else if (floating(object) && PyMethod_Check(object)) {
    resolve(object);
    guards().steps.push_back({FloatingStep::Kind::kValue, source_of(object), {}, Ref::share(object), {}, {}, 0, {}});
  } else if (!is_value(object)) {
    guard_class(object);
  }
}

// append = items.append, add = x.add, before the compiled function: the method is known by address, and so is what it
// is bound to.
void Recorder::enter_receiver(PyObject* method, PyObject* bound) {
  if (!bound || !is_outside(method) || is_value(bound)) return;
  if (floating(method)) pin(method);
  if (!info(bound) && !(is_tensor(bound) && made_here(tensor_of(bound))))
    enter_outside(bound, guards().sources.pinned(source_of(method), nullptr));
  pin(bound);
}

// sorted(xs, key=f), map(f, xs): a Python function comes through the hook; what C code does to C code nobody sees.
bool Recorder::callable_from_c(Activation& self, PyObject* object) {
  if (is_partial(object) && !callable_from_c(self, reinterpret_cast<PartialObject*>(object)->function)) return false;
  if (!PyCallable_Check(object) || PyFunction_Check(object) || is_partial(object)) {
    guard_callee(object);
    return true;
  }
  PyTypeObject* type = Py_TYPE(object);
  if (PyMethod_Check(object)) {
    guard_callee(object);
    return PyFunction_Check(PyMethod_GET_FUNCTION(object)) || callable_from_c(self, PyMethod_GET_FUNCTION(object));
  }
  unreadable_stop_ = Stop::kOpaqueCall;
  unreadable_detail_ = callable_name(object);
  if (is_compiled(object)) {
    if (floating(object)) pin(object);
    return info(object) && !compile_options(object).fullgraph;  // its frame comes through the hook
  }
  if (PyType_Check(object)) {
    auto* made = reinterpret_cast<PyTypeObject*>(object);
    return is_python_class(made) || is_known_constructor(made) || made == &PyType_Type ||
           PyType_IsSubtype(made, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
  }
  if (is_python_class(type) || is_operator(type) || strcmp(type->tp_name, "operator.itemgetter") == 0) {
    guard_callee(object);
    return true;
  }
  PyObject* bound = nullptr;
  const CallClass known = call_class(object, &bound);
  enter_receiver(object, bound);
  switch (known) {
    case CallClass::kPure:
    case CallClass::kOperator:
    case CallClass::kTorch:
    case CallClass::kStateWord:
    case CallClass::kIgnore:
    case CallClass::kNext:
    case CallClass::kReadKey:
      return !bound || readable(self, bound);
    case CallClass::kEffect:
    case CallClass::kEffectCopy:
      unreadable_stop_ = Stop::kEffect;
      return bound && is_made(bound);
    case CallClass::kData:
      unreadable_stop_ = Stop::kTensorData;
      return false;
    default:
      return false;
  }
}

// A compiled function inside of another one is a part of it, unless it must have no breaks: then it watches itself.
PyObject* Recorder::call_compiled(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) {
  if (!info(callable) || compile_options(callable).fullgraph)
    return stop(self, Stop::kOpaqueCall, callable_name(callable));
  PyObject *function = compiled_function(callable), *bound = compiled_self(callable);
  static PyObject* name = PyUnicode_InternFromString("self");
  for (PyObject* part : {function, bound})
    if (part && !is_value(part) && !info(part))
      enter_outside(part, guards().sources.pinned(source_of(callable), part == bound ? name : nullptr));
  if (!function) return call(self, bound, args, nargsf, kwnames);
  if (!bound) return call(self, function, args, nargsf, kwnames);
  std::vector<PyObject*> all = with_gap(args, total_count(nargsf, kwnames), bound);
  return call(self, function, all.data() + 1,
              (static_cast<size_t>(PyVectorcall_NARGS(nargsf)) + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
}

PyObject* Recorder::call_partial(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames) {
  auto* partial = reinterpret_cast<PartialObject*>(callable);
  if (!info(callable)) return stop(self, Stop::kUnknownObject, "functools.partial");
  guard_partial(callable);
  std::vector<PyObject*> all{nullptr};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(partial->args); ++i) all.push_back(PyTuple_GET_ITEM(partial->args, i));
  size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  all.insert(all.end(), args, args + positional);
  Ref merged = Ref::take(PyDict_Copy(partial->keywords));
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i)
    PyDict_SetItem(merged.get(), PyTuple_GET_ITEM(kwnames, i), args[positional + static_cast<size_t>(i)]);
  Ref names;
  size_t total = all.size() - 1;
  if (PyDict_GET_SIZE(merged.get())) {
    names = Ref::take(PyTuple_New(PyDict_GET_SIZE(merged.get())));
    Py_ssize_t position = 0, at = 0;
    PyObject *key, *value;
    while (PyDict_Next(merged.get(), &position, &key, &value)) {
      PyTuple_SET_ITEM(names.get(), at++, Py_NewRef(key));
      all.push_back(value);
    }
  }
  if (!active_) return Semantics::call(self, callable, args, nargsf, kwnames);
  return call(self, partial->function, all.data() + 1, total | PY_VECTORCALL_ARGUMENTS_OFFSET, names.get());
}

// What operator's getters do for an object, as the language says it. Of what they are made, they tell for pickle.
PyObject* Recorder::call_getter(Activation& self, PyObject* getter, PyObject* of) {
  const std::string_view type = Py_TYPE(getter)->tp_name;
  if (floating(getter)) pin(getter);
  if (!info(getter)) return stop(self, Stop::kUnknownObject, Py_TYPE(getter)->tp_name);
  const Ref reduced = Ref::take(PyObject_CallMethod(getter, "__reduce__", nullptr));
  if (!reduced) return nullptr;
  PyObject* const parts = PyTuple_GET_ITEM(reduced.get(), 1);
  const Py_ssize_t count = PyTuple_GET_SIZE(parts);
  PyObject* const first = count > 0 ? PyTuple_GET_ITEM(parts, 0) : nullptr;
  bool is_known = true;  // one from outside holds what no read has shown
  for (Py_ssize_t k = 0; k < count && is_outside(getter); ++k)
    is_known = is_known && (is_value(PyTuple_GET_ITEM(parts, k)) || info(PyTuple_GET_ITEM(parts, k)));
  if (is_known && type == "operator.itemgetter" && count == 1) return load_item(self, of, first);
  if (is_known && type == "operator.attrgetter" && count == 1 && !strchr(PyUnicode_AsUTF8(first), '.'))
    return load_attr(self, of, first);
  static PyObject* const call_name = PyUnicode_InternFromString("__call__");
  PyObject* const in_python = substitute_of(_PyType_Lookup(Py_TYPE(getter), call_name));
  if (is_known && in_python) {
    std::vector<PyObject*> all{nullptr, of};
    all.insert(all.end(), &PyTuple_GET_ITEM(parts, 0), &PyTuple_GET_ITEM(parts, 0) + count);
    Ref names;
    if (PyObject* const maker = PyTuple_GET_ITEM(reduced.get(), 0); is_partial(maker)) {  // with keywords
      auto* const partial = reinterpret_cast<PartialObject*>(maker);
      names = Ref::take(PySequence_Tuple(partial->keywords));
      all.insert(all.begin() + 2, PyTuple_GET_ITEM(partial->args, 0));  // the method's name
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names.get()); ++k)
        all.push_back(PyDict_GetItem(partial->keywords, PyTuple_GET_ITEM(names.get(), k)));
    }
    const size_t positional = all.size() - 1 - static_cast<size_t>(names ? PyTuple_GET_SIZE(names.get()) : 0);
    if (!info(in_python)) enter_outside(in_python, guards().sources.pinned({}, nullptr));
    return call(self, in_python, all.data() + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, names.get());
  }
  return stop(self, Stop::kOpaqueCall, callable_name(getter));
}

/// The table, a trace and effects hold an object, too. False: it may be that nobody else does, and eager would have let
/// it end.
bool Recorder::is_held_by_program(PyObject* object) {
  if (is_outside(object)) return true;
  for (const Pending& effect : effects_) {
    if (effect.target.get() == object || effect.key.get() == object || effect.value.get() == object) return false;
    for (const Ref& arg : effect.args)
      if (arg.get() == object) return false;
  }
  Py_ssize_t ours = info(object) ? 1 : 0;
  if (is_tensor(object) && tensor_of(object).use_count() > 1) ++ours;  // one for all owners that are no Python objects
  return Py_REFCNT(object) > ours;
}

// Only to what is known by address, and held by others: whatever else the table holds would not end in time.
PyObject* Recorder::call_reference(Activation& self, PyObject* reference) {
  PyObject* referent = PyWeakref_GET_OBJECT(reference);
  if (is_made(reference)) {
    if (referent == Py_None || !is_held_by_program(referent)) return stop(self, Stop::kOpaqueCall, "weakref.ref");
    return Py_NewRef(referent);
  }
  if (!is_outside(reference) || (!is_value(referent) && (!is_outside(referent) || floating(referent))))
    return stop(self, Stop::kOpaqueCall, "weakref.ref");
  guard_reference(reference);
  return Py_NewRef(referent);
}

// Its frame comes through the hook, where it is resumed.
PyObject* Recorder::call_generator(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames, PyObject* generator) {
  const size_t count = total_count(nargsf, kwnames);
  if (!generator || !is_made(generator) || is_older(generator))
    return stop(self, Stop::kOutsideIterator, callable_name(callable));
  for (size_t i = 0; i < count; ++i)
    if (!slot_known(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  const size_t before = throwing_.size();
  if (!callable_name(callable).ends_with(".send"))
    for (Ref at = Ref::share(generator); at && PyGen_CheckExact(at.get());) {  // and whoever they delegate to
      Ref inner = Ref::take(PyObject_GetAttrString(at.get(), "gi_yieldfrom"));
      throwing_.push_back(std::exchange(at, std::move(inner)));
    }
  PyObject* result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
  throwing_.resize(before);
  if (result && active_ && !is_value(result) && !info(result))
    adopt(self, result, Source::Kind::kItem, generator, nullptr, -1, Py_TYPE(generator)->tp_name);
  return result;
}

// A transform's own steps run natively: what its wrappers stand around are tensors that the trace knows, and the
// operators that come out at the bottom are recorded.
PyObject* Recorder::call_func(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
  const std::string name = callable_name(callable);
  const size_t count = total_count(nargsf, kwnames);
  const bool begins = name.ends_with("_increment_nesting"), ends = name.ends_with("_decrement_nesting");
  for (size_t i = 0; i < count; ++i)
    if (!torch_operand(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  if (symbolic_) symbolic_->give_up("torch.func counts with plain sizes");
  if (begins) ++func_depth_;
  uses_func_ = uses_func_ || begins;
  PyObject* result = torch_leaf(self, name, {args, count},
                                [&](PyObject* const*) { return PyObject_Vectorcall(callable, args, nargsf, kwnames); });
  if (ends && func_depth_ > 0) --func_depth_;
  return result;
}

// As eager makes it: neither its operators nor its frames are part of the recording.
PyObject* Recorder::call_unrecorded(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Hooked nobody(nullptr);
  leave_trace();  // what the call is asked for first may have ended the recording
  PyObject* result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
  if (active_) trace_->enter();
  return result;
}

// One that is made here looks for its arguments as a dict does: for values by what they are, for others by address.
// What it calls comes through the hook, and what it keeps is known.
PyObject* Recorder::call_own_cache(Activation& self, PyObject* wrapper, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames) {
  for (size_t i = 0; i < total_count(nargsf, kwnames); ++i) {
    PyObject* const known = known_by_address(args[i]);
    if (is_tensor(args[i]) ? !usable_tensor(args[i], "an unknown place")
                           : !is_value(args[i]) && !is_constant_tuple(args[i]) && !known)
      return stop(self, Stop::kOpaqueCall, "a cached function (functools.lru_cache)");
    specialise(args[i]);
    if (known && !is_tensor(known) && floating(known)) pin(known);
  }
  PyObject* result = PyObject_Vectorcall(wrapper, args, nargsf, kwnames);
  if (result && active_ && !is_value(result) && !info(result)) adopt_result(self, result, "a cached function");
  return result;
}

// functools.lru_cache: a hit gives the object of the last time. The guard calls the wrapper again, as eager would, and
// compares identities; a miss runs the function as in eager, unrecorded, once.
PyObject* Recorder::call_cached(Activation& self, PyObject* wrapper, PyObject* const* args, size_t nargsf,
                                PyObject* kwnames) {
  size_t count = total_count(nargsf, kwnames);
  if (is_made(wrapper)) return call_own_cache(self, wrapper, args, nargsf, kwnames);
  if (floating(wrapper)) pin(wrapper);
  if (!info(wrapper)) return stop(self, Stop::kOpaqueCall, "a cached function (functools.lru_cache)");
  for (size_t i = 0; i < count; ++i) {
    if (!is_value(args[i]) && !is_constant_tuple(args[i]) && strncmp(Py_TYPE(args[i])->tp_name, "torch.", 6) != 0 &&
        !(is_outside(args[i]) && !floating(args[i]) && !is_tensor(args[i]) && !PyList_Check(args[i]) &&
          !PyDict_Check(args[i])))
      return stop(self, Stop::kOpaqueCall, "a cached function (functools.lru_cache)");
    specialise(args[i]);
  }
  PyObject* result = call_unrecorded(wrapper, args, nargsf, kwnames);
  if (!result) return nullptr;
  if (is_tensor(result) || !info(result)) {
    guard_state(wrapper, args, count, result, "a cached function", kwnames);
    if (!is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, nullptr));
  }
  return result;
}

// Where no gradient is needed, torch.max_pool1d fills the memory of its result itself, and no operator tells. The one
// that gives positions, too, is an operator.
static bool pools_past_the_dispatcher(PyObject* input) {
  if (!is_tensor(input)) return false;
  const at::Tensor& tensor = tensor_of(input);
  return tensor.is_cpu() && at::isFloatingType(tensor.scalar_type()) &&
         !(tensor.requires_grad() && c10::GradMode::is_enabled());
}
static PyObject* max_pool1d(PyObject* plain, PyObject* const* args, size_t count, PyObject* kwnames) {
  static PyObject* const other = [] {
    const Ref torch = Ref::take(PyImport_ImportModule("torch"));
    return torch ? PyObject_GetAttrString(torch.get(), "max_pool1d_with_indices") : nullptr;
  }();
  // The result is contiguous, and so are the strides of dimensions of one element: a view has such.
  const Ref dense = Ref::take(PyObject_CallMethod(args[0], "contiguous", nullptr));
  const Ref shape = Ref::take(PyObject_GetAttrString(args[0], "shape"));
  const Ref input = Ref::take(dense && shape ? PyObject_CallMethod(dense.get(), "view", "O", shape.get()) : nullptr);
  std::vector<PyObject*> all(args, args + total_count(count, kwnames));
  all[0] = input.get();
  const Ref both = Ref::take(other && input ? PyObject_Vectorcall(other, all.data(), count, kwnames) : nullptr);
  if (both) return Py_NewRef(PyTuple_GET_ITEM(both.get(), 0));
  PyErr_Clear();  // it says so in its own words
  return PyObject_Vectorcall(plain, args, count, kwnames);
}

PyObject* Recorder::call_script(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                PyObject* kwnames) {
  size_t count = total_count(nargsf, kwnames);
  for (size_t i = 0; i < count; ++i)
    if (!torch_operand(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  // On a GPU torch fuses it after a few calls, and what it returns then may have other strides than before. Its
  // operators are recorded as the first call runs them.
  Script script(callable);
  if (script.stop() != Stop::kNone) return stop(self, script.stop(), script.detail());
  if (symbolic_) symbolic_->give_up("a scripted function counts with plain sizes");
  return torch_leaf(self, "a scripted function", {args, count},
                    [&](PyObject* const*) { return script.run(args, nargsf, kwnames); });
}

// torch.ops.aten.add, torch.ops.mine.op: what stands behind it goes through the dispatcher, where the trace sees it.
PyObject* Recorder::call_operator(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) {
  if (floating(callable)) pin(callable);
  const size_t count = total_count(nargsf, kwnames);
  for (size_t i = 0; i < count; ++i)
    if (!torch_operand(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  std::string name = "torch.ops.";
  {
    Hooked nobody(nullptr);
    if (Ref text = Ref::take(PyObject_Str(callable))) name += PyUnicode_AsUTF8(text.get());
    PyErr_Clear();
  }
  // The begin and the end of a region for the profiler: a graph is one step of its own there.
  if (name.starts_with("torch.ops.profiler._record_function_")) {
    PyObject* result = call_unrecorded(callable, args, nargsf, kwnames);
    if (result && !is_value(result) && !info(result)) enter_made(result);
    return result;
  }
  return torch_leaf(self, name, {args, count}, [&](PyObject* const* of) {
    return PyObject_Vectorcall(callable, of, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames);
  });
}

PyObject* Recorder::call_of_a_device(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                                     PyObject* kwnames) {
  for (size_t i = 0; i < total_count(nargsf, kwnames); ++i)
    if (!torch_operand(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  PyObject* result = call_unrecorded(function, args, nargsf, kwnames);
  if (result && !is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, nullptr));
  return result;
}

PyObject* Recorder::call_getattr(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames, PyObject* bound) {
  size_t count = total_count(nargsf, kwnames);
  PyObject* owner = bound ? bound : count > 0 ? args[0] : nullptr;
  size_t at = bound ? 0 : 1;
  PyObject* name = count > at ? args[at] : nullptr;
  if (!owner || !name || !PyUnicode_Check(name) || kwnames)
    return Semantics::call(self, callable, args, nargsf, kwnames);
  specialise(name);
  std::string which = callable_name(callable);
  bool has = which == "hasattr", get = which == "getattr";
  if (get || has) {
    PyObject* result = load_attr(self, owner, name);
    if (result == kStop) return kStop;
    if (!result) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
      if (has) {
        PyErr_Clear();
        return Py_NewRef(Py_False);
      }
      if (count > 2) {
        PyErr_Clear();
        return Py_NewRef(args[2]);
      }
      return nullptr;
    }
    if (!has) return result;
    Py_DECREF(result);
    return Py_NewRef(Py_True);
  }
  // object.__getattribute__(o, name): the generic look-up, below the class's own __getattribute__.
  if (is_tensor(owner)) {
    bool handled;
    PyObject* result = tensor_attr(self, owner, name, &handled);
    if (handled) return result;
  }
  int member = is_tensor(owner) ? 0 : guard_attr(self, owner, name, Reader::kTags);
  if (member == kStopStatus) return kStop;
  PyObject* result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
  if (!result || !active_) return result;
  if (member == 1 && strcmp(PyUnicode_AsUTF8(name), "__dict__") != 0) guard_member(owner, name, result);
  if (member == 1 && strcmp(PyUnicode_AsUTF8(name), "__dict__") == 0 && info(result)) return result;
  if (member == 1 && PyDict_Check(result) && !info(result)) {
    if (is_outside(owner)) {
      enter_outside(result, floating(owner) ? guards().sources.part(Source::Kind::kDict, source_of(owner), nullptr)
                                            : source_of(owner));
      if (!floating(owner)) dict_guard(result, owner, source_of(owner));
    } else {
      enter_made(result);
    }
    return result;
  }
  if (!PyType_Check(owner) && _PyType_Lookup(Py_TYPE(owner), name) == result) {
    if (!is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, name));
  } else {
    adopt(self, result, Source::Kind::kAttr, owner, name, -1, "object.__getattribute__");
  }
  return tagged(PyModule_CheckExact(owner) ? PyModule_GetDict(owner) : instance_dict(owner), name, result);
}

static bool holds_tensor(PyObject* object, int depth = 0) {
  if (depth > 6 || !(PyTuple_Check(object) || PyList_Check(object))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(object, i);
    if (is_tensor(item) || holds_tensor(item, depth + 1)) return true;
  }
  return false;
}

/// Functions that ask whether objects are equal, or for their hash.
static bool compares_elements(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {"index", "count", "__eq__", "__ne__",   "__contains__",
                                                             "eq",    "ne",    "hash",   "fromkeys", "__hash__"};
  return names.count(name.substr(name.rfind('.') + 1)) > 0;
}

/// torch.FloatTensor and its like: what is an instance of them follows from dtype and device, and from dispatch keys
/// that a pending tensor does not have yet.
static bool asks_for_tensor_type(PyObject* classes) {
  if (PyTuple_Check(classes)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i)
      if (asks_for_tensor_type(PyTuple_GET_ITEM(classes, i))) return true;
    return false;
  }
  return strcmp(Py_TYPE(classes)->tp_name, "torch.tensortype") == 0;
}

/// The one of a class, bound to it.
static bool is_instance_check(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  const auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
  return function->m_self && PyType_Check(function->m_self) &&
         strcmp(function->m_ml->ml_name, "__instancecheck__") == 0;
}

// The result follows from the arguments, which are read as a whole.
PyObject* Recorder::call_pure(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames, PyObject* bound) {
  size_t count = total_count(nargsf, kwnames);
  auto raw = [&] { return PyObject_Vectorcall(callable, args, nargsf, kwnames); };
  static PyObject *is_instance = nullptr, *is_subclass = nullptr, *is_callable = nullptr, *length = nullptr,
                  *iterate = nullptr, *smallest = nullptr, *largest = nullptr;
  if (!is_instance) {
    PyObject* builtins = PyEval_GetBuiltins();
    is_instance = PyDict_GetItemString(builtins, "isinstance");
    is_subclass = PyDict_GetItemString(builtins, "issubclass");
    is_callable = PyDict_GetItemString(builtins, "callable");
    length = PyDict_GetItemString(builtins, "len");
    iterate = PyDict_GetItemString(builtins, "iter");
    smallest = PyDict_GetItemString(builtins, "min");
    largest = PyDict_GetItemString(builtins, "max");
  }
  if ((callable == is_instance || callable == is_subclass) && count == 2) {
    if (is_tensor(args[0]) && asks_for_tensor_type(args[1]))
      return stop(self, Stop::kOpaqueCall, "torch.tensortype.__instancecheck__");
    guard_class(args[0]);
    if (PyType_Check(args[0])) guard_type(reinterpret_cast<PyTypeObject*>(args[0]));
    auto classes = [&](auto&& again, PyObject* cls) -> void {
      if (PyTuple_Check(cls)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cls); ++i) again(again, PyTuple_GET_ITEM(cls, i));
      } else {
        guard_class(cls);
        if (PyType_Check(cls)) guard_type(reinterpret_cast<PyTypeObject*>(cls));
      }
    };
    classes(classes, args[1]);
    return raw();
  }
  if (is_instance_check(callable) && count == 1 && !kwnames) {  // super().__instancecheck__(x) of a metaclass
    guard_class(args[0]);
    guard_type(reinterpret_cast<PyTypeObject*>(PyCFunction_GET_SELF(callable)));
    return raw();
  }
  if (callable == is_callable && count == 1) {
    guard_class(args[0]);
    return raw();
  }
  if (callable == length && count == 1) return this->length(self, args[0]);
  if (callable == iterate && count == 1) return iter(self, args[0]);
  bool torch_probe =
      Py_TYPE(callable) == &PyCFunction_Type &&
      strncmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "_has_torch_function", 19) == 0;
  if (torch_probe) {
    for (size_t i = 0; i < count; ++i) {
      PyObject* arg = args[i];
      if (PyTuple_Check(arg)) {
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(arg); ++k) guard_class(PyTuple_GET_ITEM(arg, k));
      } else {
        guard_class(arg);
      }
    }
    return raw();
  }
  if ((callable == smallest || callable == largest) && !kwnames && count > 0) {
    const bool is_one = count == 1 && (PyTuple_CheckExact(args[0]) || Py_TYPE(args[0]) == size_type());
    const std::span<PyObject* const> numbers =
        is_one ? std::span<PyObject* const>(&PyTuple_GET_ITEM(args[0], 0), PyTuple_GET_SIZE(args[0]))
               : std::span<PyObject* const>(args, count);
    if (numbers.size() > 1 && !(is_one && is_outside(args[0])) &&
        std::all_of(numbers.begin(), numbers.end(), [](PyObject* n) { return PyLong_CheckExact(n) && fits_symbol(n); }))
      return call_extremum(self, numbers, callable == smallest ? Py_LT : Py_GT);
  }
  if (PyObject* text =
          call_of_text(self, callable, {args, count}, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames, bound))
    return text;
  if (PyErr_Occurred()) return nullptr;
  if (!bound && !kwnames) {  // math.sqrt(lr), max(lr, 0.1)
    bool handled = false;
    PyObject* result = call_real(callable, {args, count}, &handled);
    if (handled) return result;
  }
  // Text of a tensor, order among tensors: their data. A sum of tensors is only operators.
  std::string pure_name = callable_name(callable);
  bool adds = pure_name == "sum" || pure_name == "_functools.reduce" || pure_name == "dict.fromkeys" ||
              pure_name == "all" || pure_name == "any" || pure_name.find("_has_torch") != std::string::npos ||
              pure_name.find("unwrap_if_dead") != std::string::npos;
  for (size_t i = 0; i < count && !adds; ++i)
    if (is_tensor(args[i])) return stop(self, Stop::kTensorData, pure_name);
  if (bound && !readable(self, bound)) return stop(self, unreadable_stop_, unreadable_detail_);
  for (size_t i = 0; i < count; ++i)
    if (!readable(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  if (compares_elements(pure_name)) {
    if (bound) guard_compared(bound);
    for (size_t i = 0; i < count; ++i) guard_compared(args[i]);
  }
  PyObject* result = raw();
  if (result && active_ && !is_value(result) && !info(result)) adopt_result(self, result, callable_name(callable));
  return result;
}

static bool is_recurrent(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return last == "lstm" || last == "gru" || last == "rnn_tanh" || last == "rnn_relu";
}

// torch.as_tensor of an array shares its memory; of numbers it is torch.tensor, of a tensor torch.Tensor.to.
static bool is_as_tensor(PyObject* callable, PyObject* const* args, size_t count) {
  if (count == 0 || !PyCFunction_Check(callable)) return false;
  if (strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "as_tensor") != 0) return false;
  const auto is_number = [](PyObject* object) {
    return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object);
  };
  if (callable_name(callable) != "torch.as_tensor") return false;
  if (is_tensor(args[0])) return true;
  if (!PyList_CheckExact(args[0]) && !PyTuple_CheckExact(args[0])) return is_number(args[0]);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(args[0]); ++i)
    if (!is_number(PySequence_Fast_GET_ITEM(args[0], i))) return false;
  return true;
}

/// x.new(2, 3), x.new(y.size()): memory, and no data.
static bool is_new_of_sizes(PyObject* callable, PyObject* const* args, size_t count) {
  if (!callable_name(callable).ends_with("Tensor.new")) return false;
  if (count == 1 && Py_TYPE(args[0]) == size_type()) return true;
  return std::all_of(args, args + count, [](PyObject* arg) { return PyLong_CheckExact(arg); });
}

/// x.requires_grad_(...), where that changes nothing.
static bool is_as_required(PyObject* tensor, const std::string& name, PyObject* const* args, size_t count) {
  if (!name.ends_with("Tensor.requires_grad_") || count > 1 || (count == 1 && !PyBool_Check(args[0]))) return false;
  return tensor_of(tensor).requires_grad() == (count == 0 || args[0] == Py_True);
}

/// Gives the data of a tensor as numbers.
static bool reads_numbers(std::string_view name) {
  const std::string_view method = name.substr(name.rfind('.') + 1);
  for (const char* known : {"item", "__bool__", "__int__", "__float__", "__index__", "is_nonzero"})
    if (method == known) return true;
  return false;
}

PyObject* Recorder::call_c(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) {
  PyObject* bound = nullptr;
  CallClass cls = call_class(callable, &bound);
  size_t count = total_count(nargsf, kwnames);
  auto raw = [&] { return PyObject_Vectorcall(callable, args, nargsf, kwnames); };
  PyObject* first = bound ? bound : count ? args[0] : nullptr;
  enter_receiver(callable, bound);
  if (cls == CallClass::kOpaque && is_as_tensor(callable, args, count)) cls = CallClass::kTorch;
  if (cls == CallClass::kOpaque && func_depth_ > 0 && first && is_tensor(first) && is_wrapped(tensor_of(first)) &&
      callable_name(callable).ends_with("Tensor.requires_grad_"))  // of a wrapper, which ends with its transform
    cls = CallClass::kTorch;
  if (cls == CallClass::kOpaque && first &&
      is_new_of_sizes(callable, args + (bound ? 0 : 1), count - (bound ? 0 : 1))) {
    std::vector<PyObject*> all(args, args + count);
    if (bound) all.insert(all.begin(), bound);
    for (PyObject* operand : all)
      if (!torch_operand(self, operand)) return stop(self, unreadable_stop_, unreadable_detail_);
    // torch's own asks a tensor for its device in a way that one which is not computed yet cannot answer
    return torch_leaf(self, callable_name(callable), all, [&](PyObject* const* of) {
      static PyObject* const name = PyUnicode_InternFromString("new_empty");
      static PyObject* const none = PyLong_FromLong(0);
      PyObject* const of_no_sizes[] = {of[0], none};
      return all.size() == 1 ? PyObject_VectorcallMethod(name, of_no_sizes, 2, nullptr)
                             : PyObject_VectorcallMethod(name, of, all.size(), nullptr);
    });
  }
  switch (cls) {
    case CallClass::kOpaque:
      if (first && is_tensor(first) &&
          is_as_required(first, callable_name(callable), args + (bound ? 0 : 1), count - (bound ? 0 : 1)) &&
          usable_tensor(first, "an unknown place"))
        return Py_NewRef(first);
      if (first && is_made(first) && strcmp(Py_TYPE(first)->tp_name, "functools._lru_cache_wrapper") == 0) {
        PyObject* result = raw();  // cache_info, cache_clear
        if (result && active_) adopt_result(self, result, callable_name(callable));
        return result;
      }
      return stop(self, Stop::kOpaqueCall, callable_name(callable));
    case CallClass::kData: {
      const std::string name = callable_name(callable);
      if (!reads_numbers(name) || !first || !is_tensor(first) || total_count(nargsf, kwnames) > (bound ? 0 : 1) ||
          !has_known_data(first))
        return stop(self, Stop::kTensorData, name);
      PyObject* result = raw();
      if (result && active_ && !is_value(result)) enter_made(result);
      return result;
    }
    case CallClass::kTorch: {
      std::string name = callable_name(callable);
      if (bound && !torch_operand(self, bound)) return stop(self, unreadable_stop_, unreadable_detail_);
      for (size_t i = 0; i < count; ++i)
        if (!torch_operand(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
      // It reads them past the dispatcher, where no trace sees it.
      if (name == "torch.tensor" && std::any_of(args, args + count, [](PyObject* arg) { return holds_tensor(arg); }))
        return stop(self, Stop::kTensorData, "torch.tensor of a list of tensors");
      const auto positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
      if ((name == "torch.tensor" || name == "torch.as_tensor") &&
          makes_tensor_of_reals({args, count}, positional, kwnames))
        return torch_leaf(self, name, {args, count}, [&](PyObject* const* of) {
          return tensor_of_reals({of, count}, positional, kwnames);
        });
      // torch takes its loop apart, step by step, and warns where a size is a symbol.
      if (symbolic_ && is_recurrent(name) &&
          std::any_of(args, args + count, [&](PyObject* arg) { return symbolic_->is_symbolic(arg); }))
        return stop(self, Stop::kRecurrent, name);
      if (name == "torch.max_pool1d" && count > 0 && pools_past_the_dispatcher(args[0]))
        return torch_leaf(self, name, {args, count}, [&](PyObject* const* of) {
          return max_pool1d(callable, of, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames);
        });
      if (!bound || !symbolic_)
        return torch_leaf(self, name, {args, count}, [&](PyObject* const* of) {
          return PyObject_Vectorcall(callable, of, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), kwnames);
        });
      Ref method = Ref::take(unbound(callable));
      if (!method) return stop(self, Stop::kOpaqueCall, name);
      std::vector<PyObject*> all{bound};
      all.insert(all.end(), args, args + count);
      return torch_leaf(self, name, all, [&](PyObject* const* of) {
        return PyObject_Vectorcall(method.get(), of, static_cast<size_t>(PyVectorcall_NARGS(nargsf)) + 1, kwnames);
      });
    }
    case CallClass::kOperator: {
      const OperatorCall& what = *operator_call(callable);
      if (kwnames || count != what.arguments) return call_pure(self, callable, args, nargsf, kwnames, bound);
      switch (what.kind) {
        case OperatorCall::Kind::kUnary:
          return unary(self, what.code, args[0]);
        case OperatorCall::Kind::kBinary:
          return binary(self, what.code, args[0], args[1]);
        case OperatorCall::Kind::kCompare:
          return compare(self, args[0], args[1], what.code);
        case OperatorCall::Kind::kIdentical:
          return identical(self, args[0], args[1], what.code != 0);
        case OperatorCall::Kind::kItem:
          return load_item(self, args[0], args[1]);
        case OperatorCall::Kind::kTotal:
          if (is_made_of_sizes(args[0])) return call_total(self, args[0], what.code);
          return call_pure(self, callable, args, nargsf, kwnames, bound);
        case OperatorCall::Kind::kDivmod:
          if (is_symbolic(args[0]) && PyLong_CheckExact(args[0]) && PyLong_CheckExact(args[1]))
            return call_divmod(self, args[0], args[1]);
          [[fallthrough]];
        case OperatorCall::Kind::kNumber:
          if (!is_tensor(args[0])) return call_pure(self, callable, args, nargsf, kwnames, bound);
          for (size_t i = 0; i < count; ++i)
            if (!torch_operand(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
          return torch_leaf(self, callable_name(callable), {args, count},
                            [&](PyObject* const* of) { return PyObject_Vectorcall(callable, of, count, nullptr); });
      }
      break;
    }
    case CallClass::kPure:
      return call_pure(self, callable, args, nargsf, kwnames, bound);
    case CallClass::kIdentity: {
      PyObject* result = raw();
      if (!result || !first || is_value(first)) return result;
      if (is_outside(first) && !floating(first)) return result;
      // The address is another one at the next call: good as a key of what is made here, and for nothing else.
      PyObject* fresh = unique_int(result);
      Py_DECREF(result);
      if (fresh) {
        enter_made(fresh);
        ids_.emplace(fresh, first);
      }
      return fresh;
    }
    case CallClass::kResume:
      return call_generator(self, callable, args, nargsf, kwnames, first);
    case CallClass::kNext: {
      PyObject* result = next(self, first);
      if (result || PyErr_Occurred()) return result;
      if (count > 1) return Py_NewRef(args[1]);
      PyErr_SetNone(PyExc_StopIteration);
      return nullptr;
    }
    case CallClass::kReadKey: {
      size_t at = bound ? 0 : 1;
      if (count <= at) return raw();
      PyObject* key = args[at];
      specialise(key);
      if (!slot_known(self, key)) return stop(self, unreadable_stop_, unreadable_detail_);
      guard_lookup(first, key);
      // What a class does for a key that it has not (__missing__) is done inside of dict.__getitem__, unseen.
      if (is_outside(first) && missing_method(first, key) && callable_name(callable).ends_with("__getitem__"))
        return stop(self, Stop::kEffect, callable_name(callable));
      if (is_outside(first))
        guard_key(self, first, key, nullptr, source_of(first), Reader::kTags);
      else if (!is_made(first) && PyDict_Check(first))
        return stop(self, Stop::kUnknownObject, callable_name(callable));
      PyObject* result = raw();
      if (!result || !active_) return result;
      if (!is_value(result) && !info(result) && !is_dirty(first, key))
        adopt(self, result, Source::Kind::kItem, first, key, -1, "an entry");
      return tagged(first, key, result);
    }
    case CallClass::kGetAttr:
      return call_getattr(self, callable, args, nargsf, kwnames, bound);
    case CallClass::kSetAttr: {
      std::string name = callable_name(callable);
      size_t at = bound ? 0 : 1;
      bool deletes = name.find("delattr") != std::string::npos;
      PyObject* attribute = count > at ? args[at] : nullptr;
      PyObject* value = deletes ? nullptr : count > at + 1 ? args[at + 1] : nullptr;
      if (kwnames || !attribute || !PyUnicode_Check(attribute) || (!deletes && !value)) return raw();
      specialise(attribute);
      if (name == "setattr" || name == "delattr") {
        int status = store_attr(self, first, attribute, value);
        return status == kStopStatus ? kStop : status < 0 ? nullptr : Py_NewRef(Py_None);
      }
      // object.__setattr__: below the class's own __setattr__.
      if (is_tensor(first) || (PyType_Check(first) && !is_made(first)) || is_older(first))
        return stop(self, Stop::kEffect, name);
      if (is_outside(first)) {
        guard_class(first);
        PyObject* descriptor = _PyType_Lookup(Py_TYPE(first), attribute);
        if (descriptor && Py_TYPE(descriptor)->tp_descr_set && Py_TYPE(descriptor) != &PyMemberDescr_Type) {
          if (Py_TYPE(descriptor) == &PyGetSetDescr_Type) return stop(self, Stop::kEffect, name);
          return raw();
        }
      } else if (!is_made(first)) {
        return stop(self, Stop::kUnknownObject, name);
      }
      if (is_outside(first)) {
        taken_away(attribute_there(first, attribute));
        remember(instance_dict(first), attribute);
      }
      PyObject* result = raw();
      if (result && is_outside(first)) {
        record_set(Effect::Kind::kSetAttr, first, attribute, value, true);
        if (PyObject* dict = instance_dict(first)) make_dirty(dict, attribute);
        make_dirty(first, attribute);
      }
      return result;
    }
    case CallClass::kEffect:
    case CallClass::kEffectCopy:
      return call_effect(self, callable, cls, args, nargsf, kwnames, bound);
    case CallClass::kStateWord:
      return raw();
    case CallClass::kState: {
      if (const std::string name = callable_name(callable);
          func_depth_ > 0 && (name.find("functorch") != name.npos || name.find("_saved_tensors_hooks") != name.npos)) {
        PyObject* result = raw();  // the program itself has made it so
        if (result && !is_value(result) && !info(result)) enter_made(result);
        return result;
      }
      for (size_t i = 0; i < count; ++i) {
        specialise(args[i]);
        if (is_outside(args[i])) {
          guard_class(args[i]);
          if (floating(args[i])) {
            if (is_tensor(args[i]) || callable_name(callable).find("_abc") == std::string::npos)
              return stop(self, Stop::kOpaqueCall, callable_name(callable));
            return raw();  // _abc checks ask for the class, which is guarded
          }
        }
        if (is_made(args[i])) guard_type(Py_TYPE(args[i]));
      }
      PyObject* result = raw();
      if (!result) return nullptr;
      bool keepable = true;
      for (size_t i = 0; i < count; ++i)
        keepable =
            keepable && (is_value(args[i]) || (is_outside(args[i]) && !floating(args[i])) || PyType_Check(args[i]));
      if (keepable) guard_state(callable, args, count, result, callable_name(callable));
      if (!is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, nullptr));
      return result;
    }
    case CallClass::kContextGet: {
      if (first) pin(first);
      PyObject* result = raw();
      if (!result) return nullptr;
      if (is_outside(first) && !floating(first) && !state_dirty_.count(first)) {
        Ref method = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(first)), "get"));
        std::vector<PyObject*> all{first};
        for (size_t i = bound ? 0 : 1; i < count; ++i) all.push_back(args[i]);
        guard_state(method.get(), all.data(), all.size(), result, "ContextVar.get");
        if (!is_value(result) && !info(result)) enter_outside(result, guards().sources.pinned({}, nullptr));
      } else {
        adopt_result(self, result, "ContextVar.get");
      }
      return result;
    }
    case CallClass::kStateSet: {
      if (kwnames) return stop(self, Stop::kEffect, callable_name(callable));
      for (size_t i = 0; i < count; ++i)
        if (!slot_known(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
      if (bound && !is_outside(bound)) return stop(self, Stop::kEffect, callable_name(callable));
      PyObject* result = raw();
      if (!result) return nullptr;
      Ref method = Ref::share(callable);
      std::vector<PyObject*> all;
      if (bound) {
        method = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(bound)),
                                                  reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name));
        all.push_back(bound);
      }
      all.insert(all.end(), args, args + count);
      int number = record_call(method.get(), all.data(), all.size());
      if (first) state_dirty_.insert(first);
      if (!is_value(result)) {
        Info entry;
        entry.cls = Info::Class::kEffect;
        entry.index = number;
        enter(result, entry);
      }
      return result;
    }
    case CallClass::kFunc:
      return call_func(self, callable, args, nargsf, kwnames);
    case CallClass::kCheckpoint: {
      const bool enters = callable_name(callable).ends_with("enter_checkpoint");
      checkpoint_depth_ += enters ? 1 : -1;
      if (enters && checkpoint_depth_ == 1) ++checkpoints_;
      const uint32_t region = checkpoint_depth_ > 0 ? checkpoints_ : 0;  // of regions inside of others, the outer one
      trace_->set_checkpoint(region);
      if (symbolic_) symbolic_->trace().set_checkpoint(region);
      return raw();
    }
    case CallClass::kWarn:
      return call_warning(self, callable, args, nargsf, kwnames);
    case CallClass::kPrint:
      return call_print(self, callable, args, nargsf, kwnames);
    case CallClass::kIgnore:
      return raw();
    case CallClass::kTypeCall: {
      // Called from a metaclass's __call__: make the instance the ordinary way.
      if (!first || !PyType_Check(first)) return raw();
      size_t skip = bound ? 0 : 1;
      return make_instance(self, reinterpret_cast<PyTypeObject*>(first), args + skip,
                           static_cast<size_t>(PyVectorcall_NARGS(nargsf)) - skip, kwnames);
    }
    case CallClass::kNew: {
      if (!count || !PyType_Check(args[0])) return raw();
      PyTypeObject* type = reinterpret_cast<PyTypeObject*>(args[0]);
      if (PyType_IsSubtype(type, tensor_base())) return stop(self, Stop::kOpaqueType, type->tp_name);
      if (PyType_IsSubtype(type, &PyType_Type))  // what a metaclass ends in
        return build_named_class(self, callable, args, nargsf, kwnames, 1);
      if (has_finalizer(type)) return stop(self, Stop::kFinalizer, type->tp_name);
      for (size_t i = 1; i < count; ++i)
        if (!readable(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
      PyObject* result = raw();
      if (result && active_ && !is_value(result) && !info(result)) adopt_result(self, result, type->tp_name);
      return result;
    }
    case CallClass::kInit:
      return raw();
    case CallClass::kGlobals: {
      PyObject* const globals = self.frame()->f_globals;
      if (count > 0 || !PyDict_CheckExact(globals)) return raw();
      if (!info(globals)) enter_outside(globals, guards().sources.pinned({}, nullptr));
      return Py_NewRef(globals);
    }
    case CallClass::kBuildClass: {
      constexpr size_t kBases = 2;  // after the body and the name
      const size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
      if (positional < kBases || !is_made(args[0])) return stop(self, Stop::kClassBody, "");
      return build_class(self, callable, args, nargsf, kwnames, {args + kBases, positional - kBases});
    }
    case CallClass::kOwnClass:
      return first && is_made(first) ? raw() : stop(self, Stop::kEffect, callable_name(callable));
    case CallClass::kAutograd:
      return call_autograd(self, callable, args, nargsf, kwnames, bound);
    case CallClass::kReduce: {
      if (!first) return raw();
      if (is_tensor(first) || !slot_known(self, first)) return stop(self, Stop::kOpaqueCall, callable_name(callable));
      keep_slot_names(first);
      guard_class(first);
      if (is_outside(first)) {
        // C reads the members of __slots__ where no guard sees it.
        for (PyTypeObject* type = Py_TYPE(first); is_python_class(type); type = type->tp_base)
          if (PyObject* slots = reinterpret_cast<PyHeapTypeObject*>(type)->ht_slots; slots && PyTuple_GET_SIZE(slots))
            return stop(self, Stop::kOpaqueCall, callable_name(callable));
        guard_all(self, first);  // what a subclass of dict or list holds
        if (PyObject* dict = instance_dict(first)) {
          if (floating(first)) {
            if (!info(dict)) enter_outside(dict, guards().sources.part(Source::Kind::kDict, source_of(first), nullptr));
          } else {
            if (!info(dict)) enter_outside(dict, source_of(first));
            dict_guard(dict, first, source_of(first));
          }
          guard_all(self, dict);
        }
        if (!active_) return raw();
      }
      PyObject* result = raw();
      if (result && active_) {
        adopt_result(self, result, "object.__reduce_ex__");
        // (copyreg function, arguments, state ...): functions of the library, and what the object holds
        if (PyTuple_Check(result))
          for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); ++i) {
            PyObject* part = PyTuple_GET_ITEM(result, i);
            if (is_value(part) || info(part)) continue;
            if (PyFunction_Check(part))
              enter_outside(part, guards().sources.pinned({}, nullptr));
            else
              enter_made(part);
          }
      }
      return result;
    }
  }
  return stop(self, Stop::kOpaqueCall, callable_name(callable));
}

}  // namespace magneto::capture
