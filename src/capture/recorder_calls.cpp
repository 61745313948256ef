// Calls: Python functions come through the hook and are inlined; C functions are looked up in the table of call
// classes.
#include <algorithm>
#include <cmath>

#include "capture/compiled.h"
#include "capture/evaluator.h"
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
  if (PyObject* other = substitute_of(callable, positional, kwnames);
      other && other != reinterpret_cast<PyObject*>(self.function())) {
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
  PyObject* const bound = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  if (bound && !PyModule_Check(bound) && !PyType_Check(bound) && floating(callable)) {
    guard_method(self, callable, bound);
    if (!active_) return Semantics::call(self, callable, args, nargsf, kwnames);
  } else if (floating(callable) && !is_python_class(type)) {
    pin(callable);  // what is called is part of the program
  }
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
      if (!active_) return Semantics::call(self, callable, args, nargsf, kwnames);
      if (Py_EnterRecursiveCall(" while calling a Python object")) return nullptr;  // A.__call__ = A()
      PyObject* const result = call(self, bound.get(), args, nargsf, kwnames);
      Py_LeaveRecursiveCall();
      return result;
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
    case FunctionClass::kRegistersHook:
      return attach(self, function, args, nargsf, kwnames);
    case FunctionClass::kRemovesHook:
      if (count == 1 && is_effect(args[0])) return detach_hook(self, function, args[0]);
      break;
    case FunctionClass::kRunsEngine:
      return run_engine(self, function, args, nargsf, kwnames);
    case FunctionClass::kRunsBackward:
      return stop(self, Stop::kRunsBackward, callable_name(function));
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

/// A partial that calls itself, as __setstate__ can make one.
static bool is_endless(PyObject* partial) {
  constexpr int kMost = 50;
  PyTypeObject* const type = Py_TYPE(partial);
  for (int depth = 0; depth < kMost && Py_TYPE(partial) == type; ++depth)
    partial = reinterpret_cast<PartialObject*>(partial)->function;
  return Py_TYPE(partial) == type;
}

static constexpr const char* kEndlessPartial = "a partial that calls itself";

// What a partial holds is guarded at once: C code that calls one says nothing of it.
void Recorder::guard_partial(PyObject* object) {
  auto* partial = reinterpret_cast<PartialObject*>(object);
  if (is_endless(object)) return invalidate(*Activation::innermost(), Stop::kOpaqueCall, kEndlessPartial);
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

// append = items.append, a local of a frame that goes on here, or an argument: another one at each call, of the same
// function of C, bound to what is found in it.
void Recorder::guard_method(Activation& self, PyObject* method, PyObject* bound) {
  const SourceId source = source_of(method);
  if (!reads_.insert({method, nullptr}).second) return;
  resolve(method);
  guards().steps.push_back({FloatingStep::Kind::kFunction, source, {}, Ref::share(method), {}, {}, 0, {}});
  const Ref held = Ref::share(bound);  // it is old, however few references there are
  if (!is_value(bound)) return adopt(self, bound, Source::Kind::kSelf, method, nullptr, 0, "a bound method");
  const SourceId part = guards().sources.part(Source::Kind::kSelf, source, nullptr, 0);
  guards().steps.push_back({FloatingStep::Kind::kValue, part, {}, Ref::share(bound), {}, {}, 0, {}});
}

// append = items.append, before the compiled function: the method is known by address, and so is what it is bound to.
void Recorder::enter_receiver(PyObject* method, PyObject* bound) {
  if (!bound || !is_outside(method) || is_value(bound)) return;
  if (floating(method)) pin(method);
  if (!info(bound) && !(is_tensor(bound) && made_here(tensor_of(bound))))
    enter_outside(bound, guards().sources.pinned(source_of(method), nullptr));
  pin(bound);
}

// sorted(xs, key=f), map(f, xs): a Python function comes through the hook; what C code does to C code nobody sees.
bool Recorder::callable_from_c(Activation& self, PyObject* object) {
  if (is_partial(object)) {
    unreadable_stop_ = Stop::kOpaqueCall;
    unreadable_detail_ = kEndlessPartial;
    if (is_endless(object) || !callable_from_c(self, reinterpret_cast<PartialObject*>(object)->function)) return false;
  }
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
  const CallClass known = call_rule(object, &bound).cls;
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
PyObject* Recorder::call_generator(const CCall& call) {
  Activation& self = call.self;
  PyObject* const generator = call.first;
  if (!generator || !is_made(generator) || is_older(generator)) return stop(self, Stop::kOutsideIterator, call.name());
  for (PyObject* arg : call.all())
    if (!slot_known(self, arg)) return stop(self, unreadable_stop_, unreadable_detail_);
  const size_t before = throwing_.size();
  if (call.rule.has(CallTrait::kThrows))
    for (Ref at = Ref::share(generator); at && PyGen_CheckExact(at.get());) {  // and whoever they delegate to
      Ref inner = Ref::take(PyObject_GetAttrString(at.get(), "gi_yieldfrom"));
      throwing_.push_back(std::exchange(at, std::move(inner)));
    }
  PyObject* result = call.run();
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

}  // namespace magneto::capture
