// Calls of classes: instances of Python classes, and constructors of C types.
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

// type.__call__ spelled out, so that the instance is known before __init__ runs.
PyObject* Recorder::make_instance(Activation& self, PyTypeObject* type, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) {
  size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf)), count = total_count(nargsf, kwnames);
  if (has_finalizer(type)) return stop(self, Stop::kFinalizer, type->tp_name);
  if (PyType_IsSubtype(type, &PyType_Type))
    return build_named_class(self, reinterpret_cast<PyObject*>(type), args, nargsf, kwnames, 0);
  PyTypeObject* base = type;
  while (is_python_class(base)) base = base->tp_base;
  bool exception = PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
  if ((base == type && !exception) || !is_known_c_type(base) || !type->tp_new)
    return stop(self, Stop::kOpaqueType, type->tp_name);
  if (base != &PyBaseObject_Type && !exception)  // int, str, tuple, dict subclasses copy their arguments
    for (size_t i = 0; i < count; ++i)
      if (!readable(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  Ref tuple = Ref::take(PyTuple_New(static_cast<Py_ssize_t>(positional)));
  for (size_t i = 0; i < positional; ++i) PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(args[i]));
  Ref keywords;
  if (kwnames && PyTuple_GET_SIZE(kwnames)) {
    keywords = Ref::take(PyDict_New());
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); ++i)
      PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, i), args[positional + static_cast<size_t>(i)]);
  }
  // The C constructor reads the tuples; a Python __new__ or __init__ gets its own.
  enter_made(tuple.get());
  if (keywords) enter_made(keywords.get());
  Ref instance = Ref::take(type->tp_new(type, tuple.get(), keywords.get()));
  if (!instance) return nullptr;
  adopt_result(self, instance.get(), type->tp_name);
  PyTypeObject* actual = Py_TYPE(instance.get());
  if (PyType_IsSubtype(actual, type) && actual->tp_init &&
      actual->tp_init(instance.get(), tuple.get(), keywords.get()) < 0)
    return nullptr;
  return instance.release();
}

// To an object that is known by address, and that others hold: one without a callback is one for all.
PyObject* Recorder::make_reference(PyObject* referent) {
  PyObject* reference = PyWeakref_NewRef(referent, nullptr);
  if (reference && !info(reference)) enter_outside(reference, guards().sources.pinned(source_of(referent), nullptr));
  return reference;
}

PyObject* Recorder::call_type(Activation& self, PyTypeObject* type, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
  PyObject* object = reinterpret_cast<PyObject*>(type);
  size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf)), count = total_count(nargsf, kwnames);
  guard_type(type);
  if (floating(object)) pin(object);
  if (type == &PyType_Type && count == 1 && !kwnames) {
    guard_class(args[0]);
    specialise(args[0]);
    PyObject* result = Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(args[0])));
    if (!info(result)) enter_outside(result, guards().sources.pinned({}, nullptr));
    return result;
  }
  if (type == &PyType_Type) return build_named_class(self, object, args, nargsf, kwnames, 0);
  if (PyType_IsSubtype(type, tensor_base())) return stop(self, Stop::kOpaqueType, type->tp_name);
  if (Py_TYPE(type)->tp_call != PyType_Type.tp_call) {
    guard_type(Py_TYPE(type));
    static PyObject* name = PyUnicode_InternFromString("__call__");
    PyObject* function = _PyType_Lookup(Py_TYPE(type), name);
    if (function && PyType_Check(function))  // a TypedDict makes dicts
      return call_type(self, reinterpret_cast<PyTypeObject*>(function), args, nargsf, kwnames);
    if (!function || !PyFunction_Check(function)) return stop(self, Stop::kOpaqueType, type->tp_name);
    std::vector<PyObject*> all = with_gap(args, count, object);
    if (!info(object)) enter_outside(object, guards().sources.pinned({}, nullptr));
    return call_function(self, function, all.data() + 1, (positional + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  }
  if (is_python_class(type) || PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException)))
    return make_instance(self, type, args, nargsf, kwnames);
  if (type == &_PyWeakref_RefType && count == 1 && !kwnames && is_outside(args[0]) && !floating(args[0]))
    return make_reference(args[0]);
  if (type == &_PyWeakref_RefType && count == 1 && !kwnames) {
    if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(args[0])) ||
        !(is_made(args[0]) || is_outside(args[0]) || is_tensor(args[0])) ||
        (is_tensor(args[0]) && !usable_tensor(args[0], "an unknown place")))
      return stop(self, Stop::kOpaqueType, type->tp_name);
    PyObject* reference = PyObject_Vectorcall(object, args, nargsf, nullptr);
    if (reference && !info(reference)) enter_made(reference);
    return reference;
  }
  if (!is_known_constructor(type) && !is_struct_type(type)) return stop(self, Stop::kOpaqueType, type->tp_name);
  if (type == &PyBool_Type && count == 1 && !kwnames) {
    int result = truth(self, args[0]);
    if (result == kStopStatus) return kStop;
    return result < 0 ? nullptr : Py_NewRef(result ? Py_True : Py_False);
  }
  if (type == &PySuper_Type) {
    PyObject* result = PyObject_Vectorcall(object, args, nargsf, kwnames);
    if (result && active_) enter_made(result);
    return result;
  }
  if (type == &PyLong_Type && count == 1 && !kwnames && number(args[0])) return Py_NewRef(args[0]);
  if ((type == &PyFloat_Type || type == &PyLong_Type) && count == 1 && !kwnames) {
    if (type == &PyFloat_Type && real(args[0])) return Py_NewRef(args[0]);
    bool handled = false;
    PyObject* result = call_real(object, {args, 1}, &handled);
    if (handled) return result;
  }
  if ((type == &PyLong_Type || type == &PyFloat_Type || type == &PyComplex_Type) && count >= 1 && is_tensor(args[0]) &&
      !has_known_data(args[0])) {
    const std::string name = std::string(type->tp_name) + "()";
    const at::Tensor& tensor = tensor_of(args[0]);
    const bool is_one = count == 1 && !kwnames && type != &PyComplex_Type && tensor.numel() == 1;
    if (!is_one || tensor.requires_grad() /* torch warns of it */ || !can_read(self, args[0]))
      return active_ ? stop(self, Stop::kTensorData, name) : PyObject_Vectorcall(object, args, nargsf, kwnames);
    const Ref number = Ref::take(read_numbers(self, args[0], name));
    if (!number) return nullptr;
    PyObject* const numbers[] = {nullptr, number.get()};
    return active_ ? call_type(self, type, numbers + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)
                   : PyObject_CallOneArg(object, number.get());
  }
  if (type == &PyUnicode_Type && count >= 1 && is_tensor(args[0])) return stop(self, Stop::kTensorData, "str()");
  if (type == &PyUnicode_Type && count == 1 && !kwnames && may_change(args[0])) {
    const Ref text = Ref::take(PyObject_Str(args[0])), now = frozen(self, args[0]);
    constexpr int kStr = 1;
    PyObject* made = text && now ? shown_text(now.get(), kStr, nullptr, text.get()) : nullptr;
    if (made || !text) return made;
  }
  const bool copies = type == &PyTuple_Type || type == &PyList_Type || type == size_type() || is_struct_type(type);
  for (size_t i = 0; i < count; ++i) {
    const bool calls = type == &PyMap_Type || type == &PyFilter_Type;
    const bool walks = calls || type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type ||
                       type == &PyEnum_Type || type == &PyZip_Type;
    const bool keeps = walks || type == &PySlice_Type || type == &PyProperty_Type ||
                       strcmp(type->tp_name, "functools.partial") == 0 || strcmp(type->tp_name, "method") == 0;
    if (keeps && !PyList_Check(args[i]) && !PyDict_Check(args[i]) && !PyTuple_Check(args[i]) &&
        !PyAnySet_Check(args[i]) && !PyIter_Check(args[i]) && !is_tensor(args[i])) {
      const bool is_callee = calls && i == 0;
      if (walks && !is_callee ? !takes_apart(self, args[i]) : !slot_known(self, args[i]))
        return stop(self, unreadable_stop_, unreadable_detail_);
      if (type == &PyEnum_Type && i > 0) specialise(args[i]);  // it counts from there
      if (is_callee && args[i] != Py_None) {
        if (!callable_from_c(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
      } else if (is_partial(args[i])) {
        guard_callee(args[i]);  // a partial of a partial takes the inner one apart
      }
      continue;
    }
    if (PyTuple_CheckExact(args[i]) && is_made(args[i]) && (type == &PyTuple_Type || type == &PyList_Type)) continue;
    if (is_tensor(args[i])) {
      if (!touch_tensor(args[i])) return stop(self, Stop::kUnknownTensor, "an unknown place");
      continue;
    }
    // Containers and iterators that only hand references on leave numbers as they are, and so do arguments of Python
    // functions.
    const bool hands_on = copies || type == &PyZip_Type || type == &PyReversed_Type || (type == &PyEnum_Type && i == 0);
    if (hands_on || (type == &PyMap_Type && PyFunction_Check(args[0]))) {
      if (!takes_apart(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
      continue;
    }
    if (!readable(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
    if (type == &PySet_Type || type == &PyFrozenSet_Type) guard_compared(args[i]);
  }
  const Keeping keeping(*this, self, copies && count == 1 ? args[0] : nullptr);
  PyObject* result = PyObject_Vectorcall(object, args, nargsf, kwnames);
  if (result && active_ && !is_value(result) && !info(result)) {
    adopt_result(self, result, type->tp_name);
  }
  return result;
}

}  // namespace magneto::capture
