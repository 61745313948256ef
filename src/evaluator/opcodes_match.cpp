// Opcodes of the match statement.
#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

static Step match_flag(Evaluator& e, unsigned long flag) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  e.push_bool(PyType_HasFeature(Py_TYPE(e.peek(1)), flag));
  return Step::kNext;
}

Step match_sequence(Evaluator& e, int) { return match_flag(e, Py_TPFLAGS_SEQUENCE); }
Step match_mapping(Evaluator& e, int) { return match_flag(e, Py_TPFLAGS_MAPPING); }

/// Remembers a name or key; false with an error set, and `message` formatted if it was there before.
static bool is_first(PyObject* seen, PyObject* key, PyObject* error, const char* message, const char* who) {
  int known = PySet_Contains(seen, key);
  if (known < 0) return false;
  if (known == 0) return PySet_Add(seen, key) == 0;
  if (who != nullptr)
    PyErr_Format(error, message, who, key);
  else
    PyErr_Format(error, message, key);
  return false;
}

/// map.get(key, dummy) for every key; None if one is missing; nullptr with an error set.
static PyObject* values_of_keys(PyObject* map, PyObject* keys) {
  Py_ssize_t count = PyTuple_GET_SIZE(keys);
  PyObject* values = PyTuple_New(count);
  if (values == nullptr || count == 0) return values;
  static PyObject* const get_name = PyUnicode_InternFromString("get");
  PyObject* get = nullptr;
  int unbound = _PyObject_GetMethod(map, get_name, &get);
  PyObject* seen = get != nullptr ? PySet_New(nullptr) : nullptr;
  PyObject* dummy = seen != nullptr ? PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)) : nullptr;
  bool failed = dummy == nullptr;
  for (Py_ssize_t i = 0; i < count && !failed; ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    PyObject* value = nullptr;
    if (is_first(seen, key, PyExc_ValueError, "mapping pattern checks duplicate key (%R)", nullptr)) {
      PyObject* arguments[] = {map, key, dummy};
      value = unbound ? PyObject_Vectorcall(get, arguments, 3, nullptr)
                      : PyObject_Vectorcall(get, arguments + 1, 2, nullptr);
    }
    failed = value == nullptr;
    if (value == dummy && value != nullptr) {
      Py_DECREF(value);
      Py_SETREF(values, Py_NewRef(Py_None));
      break;
    }
    if (!failed) PyTuple_SET_ITEM(values, i, value);
  }
  Py_XDECREF(dummy);
  Py_XDECREF(seen);
  Py_XDECREF(get);
  if (failed) Py_CLEAR(values);
  return values;
}

Step match_keys(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* const values = values_of_keys(e.peek(2), e.peek(1));
  if (values != nullptr && values != Py_None) e.semantics().made(e.activation(), values);
  return e.finish(0, values);
}

/// The attributes of a class pattern; nullptr without error: no match.
class ClassPattern {
 public:
  ClassPattern(PyObject* subject, PyTypeObject* type)
      : subject_(subject), type_(type), seen_(PySet_New(nullptr)), values_(PyList_New(0)) {}
  ~ClassPattern() {
    Py_XDECREF(seen_);
    Py_XDECREF(values_);
  }

  PyObject* match(Py_ssize_t positional, PyObject* names) {
    if (seen_ == nullptr || values_ == nullptr) return nullptr;
    if (positional > 0 && !take_positional(positional)) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i)
      if (!take(PyTuple_GET_ITEM(names, i))) return nullptr;
    return PyList_AsTuple(values_);
  }

 private:
  bool take(PyObject* name) {
    if (!is_first(seen_, name, PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R", type_->tp_name))
      return false;
    PyObject* value = PyObject_GetAttr(subject_, name);
    if (value == nullptr) {
      if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
      return false;
    }
    int status = PyList_Append(values_, value);
    Py_DECREF(value);
    return status == 0;
  }

  bool take_positional(Py_ssize_t count) {
    PyObject* names = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type_), "__match_args__");
    bool is_itself = false;  // int(x), str(x) ...: the one positional pattern is the subject
    if (names == nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
      PyErr_Clear();
      names = PyTuple_New(0);
      is_itself = PyType_HasFeature(type_, _Py_TPFLAGS_MATCH_SELF);
    } else if (!PyTuple_CheckExact(names)) {
      PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", type_->tp_name,
                   Py_TYPE(names)->tp_name);
      Py_DECREF(names);
      return false;
    }
    bool taken = names != nullptr && take_named(count, names, is_itself);
    Py_XDECREF(names);
    return taken;
  }

  bool take_named(Py_ssize_t count, PyObject* names, bool is_itself) {
    Py_ssize_t allowed = is_itself ? 1 : PyTuple_GET_SIZE(names);
    if (allowed < count) {
      PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%zd given)", type_->tp_name, allowed,
                   allowed == 1 ? "" : "s", count);
      return false;
    }
    if (is_itself) return PyList_Append(values_, subject_) == 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      if (!PyUnicode_CheckExact(name)) {
        PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", Py_TYPE(name)->tp_name);
        return false;
      }
      if (!take(name)) return false;
    }
    return true;
  }

  PyObject* subject_;
  PyTypeObject* type_;
  PyObject* seen_;
  PyObject* values_;
};

static PyObject* match_against(PyObject* subject, PyObject* type, Py_ssize_t positional, PyObject* names) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a class");
    return nullptr;
  }
  if (PyObject_IsInstance(subject, type) <= 0) return nullptr;
  return ClassPattern(subject, reinterpret_cast<PyTypeObject*>(type)).match(positional, names);
}

Step match_class(Evaluator& e, int positional) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* values = match_against(e.peek(3), e.peek(2), positional, e.peek(1));
  if (values == nullptr && PyErr_Occurred()) return Step::kError;
  if (values != nullptr) e.semantics().made(e.activation(), values);
  e.replace(3, values != nullptr ? values : Py_NewRef(Py_None));
  return Step::kNext;
}

}  // namespace magneto::evaluator::op
