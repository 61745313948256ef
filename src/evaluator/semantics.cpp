#include "evaluator/semantics.h"

#include <utility>

#include "evaluator/activation.h"
#include "evaluator/errors.h"

namespace magneto::evaluator {

static char stop_marker;
PyObject* const kStop = reinterpret_cast<PyObject*>(&stop_marker);

Semantics& plain_semantics() {
  static Semantics plain;
  return plain;
}

// Names.

/// namespace[name], new reference; nullptr without error: missing.
static PyObject* look_up(PyObject* space, PyObject* name) {
  if (PyDict_CheckExact(space)) return Py_XNewRef(PyDict_GetItemWithError(space, name));
  PyObject* value = PyObject_GetItem(space, name);
  if (value == nullptr && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
  return value;
}

PyObject* Semantics::load_global(Activation& self, PyObject* name) {
  PyObject* value = look_up(self.frame()->f_globals, name);
  return value != nullptr || PyErr_Occurred() ? value : look_up(self.frame()->f_builtins, name);
}

int Semantics::store_global(Activation& self, PyObject* name, PyObject* value) {
  PyObject* globals = self.frame()->f_globals;
  if (value != nullptr) return PyDict_SetItem(globals, name, value);
  int status = PyDict_DelItem(globals, name);
  if (status < 0 && PyErr_ExceptionMatches(PyExc_KeyError)) raise_name_error(name);
  return status;
}

PyObject* Semantics::load_name(Activation& self, PyObject* name) {
  PyObject* locals = self.frame()->f_locals;
  if (locals == nullptr) {
    PyErr_Format(PyExc_SystemError, "no locals found when loading %R", name);
    return nullptr;
  }
  PyObject* value = look_up(locals, name);
  if (value != nullptr || PyErr_Occurred()) return value;
  value = Py_XNewRef(PyDict_GetItemWithError(self.frame()->f_globals, name));
  return value != nullptr || PyErr_Occurred() ? value : look_up(self.frame()->f_builtins, name);
}

int Semantics::store_name(Activation& self, PyObject* name, PyObject* value) {
  PyObject* locals = self.frame()->f_locals;
  if (locals == nullptr) {
    PyErr_Format(PyExc_SystemError, value != nullptr ? "no locals found when storing %R" : "no locals when deleting %R",
                 name);
    return -1;
  }
  if (value != nullptr)
    return PyDict_CheckExact(locals) ? PyDict_SetItem(locals, name, value) : PyObject_SetItem(locals, name, value);
  int status = PyObject_DelItem(locals, name);
  if (status < 0) raise_name_error(name);
  return status;
}

PyObject* Semantics::load_cell(Activation&, PyObject* cell) { return Py_XNewRef(PyCell_GET(cell)); }

int Semantics::store_cell(Activation&, PyObject* cell, PyObject* value) {
  PyObject*& content = reinterpret_cast<PyCellObject*>(cell)->ob_ref;
  PyObject* old = std::exchange(content, Py_XNewRef(value));
  Py_XDECREF(old);
  return 0;
}

// Attributes and items.

PyObject* Semantics::load_attr(Activation&, PyObject* owner, PyObject* name) { return PyObject_GetAttr(owner, name); }

int Semantics::load_method(Activation&, PyObject* owner, PyObject* name, PyObject** method) {
  int unbound = _PyObject_GetMethod(owner, name, method);
  return *method != nullptr ? unbound : -1;
}

PyObject* Semantics::load_special(Activation&, PyObject* owner, PyObject* name) {
  PyObject* found = _PyType_Lookup(Py_TYPE(owner), name);
  if (found == nullptr) return nullptr;
  Py_INCREF(found);
  descrgetfunc bind = Py_TYPE(found)->tp_descr_get;
  if (bind == nullptr) return found;
  PyObject* bound = bind(found, owner, reinterpret_cast<PyObject*>(Py_TYPE(owner)));
  Py_DECREF(found);
  return bound;
}

PyObject* Semantics::load_super_attr(Activation&, PyObject* super_global, PyObject* cls, PyObject* owner,
                                     PyObject* name) {
  PyObject* arguments[] = {cls, owner};
  PyObject* super = PyObject_Vectorcall(super_global, arguments, cls != nullptr ? 2 : 0, nullptr);
  if (super == nullptr) return nullptr;
  PyObject* value = PyObject_GetAttr(super, name);
  Py_DECREF(super);
  return value;
}

int Semantics::store_attr(Activation&, PyObject* owner, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(owner, name, value);
}

PyObject* Semantics::load_item(Activation&, PyObject* container, PyObject* key) {
  return PyObject_GetItem(container, key);
}

int Semantics::store_item(Activation&, PyObject* container, PyObject* key, PyObject* value) {
  return value != nullptr ? PyObject_SetItem(container, key, value) : PyObject_DelItem(container, key);
}

// Operators.

PyObject* Semantics::unary(Activation& self, int which, PyObject* operand) {
  switch (static_cast<Unary>(which)) {
    case Unary::kNegative:
      return PyNumber_Negative(operand);
    case Unary::kPositive:
      return PyNumber_Positive(operand);
    case Unary::kInvert:
      return PyNumber_Invert(operand);
    case Unary::kNot:
      break;
  }
  int truth = Semantics::truth(self, operand);
  return truth < 0 ? nullptr : Py_NewRef(truth ? Py_False : Py_True);
}

static PyObject* power(PyObject* base, PyObject* exponent) { return PyNumber_Power(base, exponent, Py_None); }
static PyObject* in_place_power(PyObject* base, PyObject* exponent) {
  return PyNumber_InPlacePower(base, exponent, Py_None);
}

PyObject* Semantics::binary(Activation&, int which, PyObject* left, PyObject* right) {
  static constexpr binaryfunc kOperators[] = {// NB_ADD ... NB_INPLACE_XOR
                                              PyNumber_Add,
                                              PyNumber_And,
                                              PyNumber_FloorDivide,
                                              PyNumber_Lshift,
                                              PyNumber_MatrixMultiply,
                                              PyNumber_Multiply,
                                              PyNumber_Remainder,
                                              PyNumber_Or,
                                              power,
                                              PyNumber_Rshift,
                                              PyNumber_Subtract,
                                              PyNumber_TrueDivide,
                                              PyNumber_Xor,
                                              PyNumber_InPlaceAdd,
                                              PyNumber_InPlaceAnd,
                                              PyNumber_InPlaceFloorDivide,
                                              PyNumber_InPlaceLshift,
                                              PyNumber_InPlaceMatrixMultiply,
                                              PyNumber_InPlaceMultiply,
                                              PyNumber_InPlaceRemainder,
                                              PyNumber_InPlaceOr,
                                              in_place_power,
                                              PyNumber_InPlaceRshift,
                                              PyNumber_InPlaceSubtract,
                                              PyNumber_InPlaceTrueDivide,
                                              PyNumber_InPlaceXor};
  return kOperators[which](left, right);
}

PyObject* Semantics::compare(Activation&, PyObject* left, PyObject* right, int op) {
  return PyObject_RichCompare(left, right, op);
}

int Semantics::contains(Activation&, PyObject* container, PyObject* item) {
  return PySequence_Contains(container, item);
}

int Semantics::truth(Activation&, PyObject* object) { return PyObject_IsTrue(object); }

PyObject* Semantics::identical(Activation&, PyObject* left, PyObject* right, bool negate) {
  return Py_NewRef((left == right) != negate ? Py_True : Py_False);
}

PyObject* Semantics::convert(Activation&, PyObject* value, int conversion) {
  switch (conversion) {
    case 0:
      return Py_NewRef(value);
    case 1:
      return PyObject_Str(value);
    case 2:
      return PyObject_Repr(value);
    default:
      return PyObject_ASCII(value);
  }
}

PyObject* Semantics::format(Activation& self, PyObject* value, int conversion, PyObject* spec) {
  PyObject* text = Semantics::convert(self, value, conversion);
  if (text == nullptr || (spec == nullptr && PyUnicode_CheckExact(text))) return text;
  PyObject* formatted = PyObject_Format(text, spec);
  Py_DECREF(text);
  return formatted;
}

PyObject* Semantics::join(Activation&, PyObject* const* pieces, int count) {
  static PyObject* const empty = PyUnicode_InternFromString("");
  return _PyUnicode_JoinArray(empty, pieces, count);
}

// Iteration.

PyObject* Semantics::iter(Activation&, PyObject* object) { return PyObject_GetIter(object); }

PyObject* Semantics::next(Activation&, PyObject* iterator) {
  const iternextfunc step = Py_TYPE(iterator)->tp_iternext;
  if (step == nullptr) {  // somebody put it into the frame of a generator
    PyErr_Format(PyExc_TypeError, "'%.100s' object is not an iterator", Py_TYPE(iterator)->tp_name);
    return nullptr;
  }
  PyObject* value = step(iterator);
  if (value == nullptr && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
  return value;
}

PyObject* Semantics::length(Activation&, PyObject* object) {
  Py_ssize_t length = PyObject_Length(object);
  return length < 0 ? nullptr : PyLong_FromSsize_t(length);
}

// Calls.

PyObject* Semantics::call(Activation&, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return PyObject_Vectorcall(callable, args, nargsf, kwnames);
}

PyObject* Semantics::call_ex(Activation&, PyObject* callable, PyObject* args, PyObject* kwargs) {
  return PyObject_Call(callable, args, kwargs);
}

PyObject* Semantics::import_name(Activation& self, PyObject* name, PyObject* fromlist, PyObject* level) {
  static PyObject* const import_key = PyUnicode_InternFromString("__import__");
  PyObject* import = look_up(self.frame()->f_builtins, import_key);
  if (import == nullptr) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return nullptr;
  }
  PyObject* locals = self.frame()->f_locals;
  PyObject* arguments[] = {name, self.frame()->f_globals, locals != nullptr ? locals : Py_None, fromlist, level};
  PyObject* module = PyObject_Vectorcall(import, arguments, 5, nullptr);
  Py_DECREF(import);
  return module;
}

PyObject* Semantics::import_from(Activation&, PyObject* module, PyObject* name) {
  PyObject* value = nullptr;
  if (_PyObject_LookupAttr(module, name, &value) != 0) return value;
  // A circular import: the submodule is there already, but not yet an attribute of its package.
  PyObject* package = nullptr;
  static PyObject* const name_key = PyUnicode_InternFromString("__name__");
  if (_PyObject_LookupAttr(module, name_key, &package) <= 0) return nullptr;
  if (PyUnicode_Check(package)) {
    PyObject* full_name = PyUnicode_FromFormat("%U.%U", package, name);
    value = full_name != nullptr ? PyImport_GetModule(full_name) : nullptr;
    Py_XDECREF(full_name);
  }
  Py_DECREF(package);
  return value;
}

// Containers.

int Semantics::extend_list(Activation&, PyObject* list, PyObject* source) {
  PyObject* none = _PyList_Extend(reinterpret_cast<PyListObject*>(list), source);
  if (none != nullptr) {
    Py_DECREF(none);
    return 0;
  }
  if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(source)->tp_iter == nullptr && !PySequence_Check(source)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(source)->tp_name);
  }
  return -1;
}

int Semantics::update_set(Activation&, PyObject* set, PyObject* source) { return _PySet_Update(set, source); }

int Semantics::update_dict(Activation&, PyObject* dict, PyObject* source) {
  int status = PyDict_Update(dict, source);
  if (status < 0 && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(source)->tp_name);
  return status;
}

int Semantics::merge_dict(Activation&, PyObject* dict, PyObject* source, PyObject* callable) {
  int status = _PyDict_MergeEx(dict, source, 2);  // 2: a key that is there already is an error
  if (status < 0) reword_keyword_error(callable, source);
  return status;
}

/// Takes `count` items of an iterator; the number that were there, or -1 with an error set and no item kept.
static int take_items(PyObject* iterator, int count, PyObject** items) {
  for (int i = 0; i < count; ++i) {
    items[i] = PyIter_Next(iterator);
    if (items[i] != nullptr) continue;
    if (!PyErr_Occurred()) return i;
    while (i-- > 0) Py_DECREF(items[i]);
    return -1;
  }
  return count;
}

/// The rest of the iterator as a list, its last `after` items apart; -1 with an error set.
static int take_rest(PyObject* iterator, int before, int after, PyObject** items) {
  PyObject* list = PySequence_List(iterator);
  if (list == nullptr) return -1;
  Py_ssize_t count = PyList_GET_SIZE(list);
  if (count < after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)", before + after,
                 before + count);
    Py_DECREF(list);
    return -1;
  }
  items[0] = list;
  for (int i = 0; i < after; ++i) items[1 + i] = Py_NewRef(PyList_GET_ITEM(list, count - after + i));
  if (PyList_SetSlice(list, count - after, count, nullptr) == 0) return 0;
  for (int i = 0; i <= after; ++i) Py_DECREF(items[i]);
  return -1;
}

/// Of a container whose size nobody can have redefined; else 0.
static Py_ssize_t known_size(PyObject* object) {
  if (PyDict_CheckExact(object)) return PyDict_GET_SIZE(object);
  return PyList_CheckExact(object) || PyTuple_CheckExact(object) ? Py_SIZE(object) : 0;
}

static int take_nothing_more(PyObject* sequence, PyObject* iterator, int before) {
  PyObject* more = PyIter_Next(iterator);
  if (more == nullptr) return PyErr_Occurred() ? -1 : 0;
  Py_DECREF(more);
  const Py_ssize_t size = kTellsHowMany ? known_size(sequence) : 0;
  if (size > before) {
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d, got %zd)", before, size);
    return -1;
  }
  PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
  return -1;
}

int Semantics::unpack(Activation&, PyObject* sequence, int before, int after, PyObject** items) {
  PyObject* iterator = PyObject_GetIter(sequence);
  if (iterator == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(sequence)->tp_iter == nullptr && !PySequence_Check(sequence))
      PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(sequence)->tp_name);
    return -1;
  }
  int taken = take_items(iterator, before, items);
  int status = -1;
  if (taken == before)
    status =
        after < 0 ? take_nothing_more(sequence, iterator, before) : take_rest(iterator, before, after, items + before);
  else if (taken >= 0 && after < 0)
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", before, taken);
  else if (taken >= 0)
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)", before + after, taken);
  if (status < 0)
    while (taken-- > 0) Py_DECREF(items[taken]);
  Py_DECREF(iterator);
  return status;
}

int Semantics::collect(Activation&, PyObject* container, PyObject* key, PyObject* value) {
  if (key != nullptr) return PyDict_SetItem(container, key, value);
  return PyList_Check(container) ? PyList_Append(container, value) : PySet_Add(container, value);
}

int Semantics::other(Activation&, const char*) { return 0; }

}  // namespace magneto::evaluator
