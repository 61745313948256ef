#include "evaluator/groups.h"

namespace magneto::evaluator {

static bool is_group(PyObject* object) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
}

static PyObject* parts_of(PyObject* group) { return reinterpret_cast<PyBaseExceptionGroupObject*>(group)->excs; }

static PyObject* make_group(PyObject* parts) {
  return PyObject_CallFunction(PyExc_BaseExceptionGroup, "sO", "", parts);
}

bool split_group(Frame* frame, PyObject* exception, PyObject* type, PyObject** match, PyObject** rest) {
  *match = *rest = nullptr;
  if (kSplitsGroups) return split_by_cpython(frame, exception, type, match, rest);
  if (exception != Py_None && PyErr_GivenExceptionMatches(exception, type)) {
    if (is_group(exception)) {
      *match = Py_NewRef(exception);
    } else {  // except* binds a group always
      PyObject* parts = PyTuple_Pack(1, exception);
      if (parts == nullptr) return false;
      *match = make_group(parts);
      Py_DECREF(parts);
    }
    *rest = Py_NewRef(Py_None);
    return *match != nullptr;
  }
  if (exception != Py_None && is_group(exception)) {
    PyObject* pair = PyObject_CallMethod(exception, "split", "(O)", type);
    if (pair == nullptr) return false;
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) < 2) {
      PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple", Py_TYPE(exception)->tp_name);
      Py_DECREF(pair);
      return false;
    }
    *match = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    *rest = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    Py_DECREF(pair);
    return true;
  }
  *match = Py_NewRef(Py_None);
  *rest = Py_NewRef(exception);
  return true;
}

/// A part that was re-raised carries the very traceback, cause, context and notes of the group it came from.
static bool is_reraised(PyObject* part, PyObject* original) {
  auto* a = reinterpret_cast<PyBaseExceptionObject*>(part);
  auto* b = reinterpret_cast<PyBaseExceptionObject*>(original);
  return a->notes == b->notes && a->traceback == b->traceback && a->cause == b->cause && a->context == b->context;
}

static bool add_leaves(PyObject* exception, PyObject* leaves) {
  if (exception == Py_None) return true;
  if (!is_group(exception)) {
    PyObject* id = PyLong_FromVoidPtr(exception);
    int status = id != nullptr ? PySet_Add(leaves, id) : -1;
    Py_XDECREF(id);
    return status == 0;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts_of(exception)); ++i)
    if (!add_leaves(PyTuple_GET_ITEM(parts_of(exception), i), leaves)) return false;
  return true;
}

static bool copy_notes(PyObject* from, PyObject* to) {
  PyObject* notes = nullptr;
  static PyObject* const name = PyUnicode_InternFromString("__notes__");
  if (_PyObject_LookupAttr(from, name, &notes) < 0) return false;
  if (notes == nullptr) return true;
  int status = 0;
  if (PySequence_Check(notes)) {
    PyObject* copy = PySequence_List(notes);
    status = copy != nullptr ? PyObject_SetAttr(to, name, copy) : -1;
    Py_XDECREF(copy);
  }
  Py_DECREF(notes);
  return status == 0;
}

/// A group like `group` with other parts.
static PyObject* derive(PyObject* group, PyObject* parts) {
  PyObject* derived = PyObject_CallMethod(group, "derive", "(O)", parts);
  if (derived == nullptr) return nullptr;
  if (!is_group(derived)) {
    PyErr_SetString(PyExc_TypeError, "derive must return an instance of BaseExceptionGroup");
    Py_DECREF(derived);
    return nullptr;
  }
  if (PyObject* traceback = PyException_GetTraceback(group)) {
    PyException_SetTraceback(derived, traceback);
    Py_DECREF(traceback);
  }
  PyException_SetContext(derived, PyException_GetContext(group));
  PyException_SetCause(derived, PyException_GetCause(group));
  if (!copy_notes(group, derived)) Py_CLEAR(derived);
  return derived;
}

/// `exception` with only those leaves; None: with none of them.
static PyObject* project(PyObject* exception, PyObject* leaves) {
  if (!is_group(exception)) {
    PyObject* id = PyLong_FromVoidPtr(exception);
    int kept = id != nullptr ? PySet_Contains(leaves, id) : -1;
    Py_XDECREF(id);
    return kept < 0 ? nullptr : Py_NewRef(kept ? exception : Py_None);
  }
  PyObject* kept = PyList_New(0);
  if (kept == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts_of(exception)); ++i) {
    PyObject* part = project(PyTuple_GET_ITEM(parts_of(exception), i), leaves);
    int status = part == nullptr ? -1 : part == Py_None ? 0 : PyList_Append(kept, part);
    Py_XDECREF(part);
    if (status == 0) continue;
    Py_DECREF(kept);
    return nullptr;
  }
  PyObject* result = PyList_GET_SIZE(kept) == 0 ? Py_NewRef(Py_None) : derive(exception, kept);
  Py_DECREF(kept);
  return result;
}

/// Sorts what was raised: leaves of re-raised parts go to `leaves`, new exceptions to `fresh`.
static bool sort(PyObject* original, PyObject* raised, PyObject* leaves, PyObject* fresh) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(raised); ++i) {
    PyObject* exception = PyList_GET_ITEM(raised, i);
    if (exception == Py_None) continue;
    bool sorted =
        is_reraised(exception, original) ? add_leaves(exception, leaves) : PyList_Append(fresh, exception) == 0;
    if (!sorted) return false;
  }
  return true;
}

PyObject* join_group(PyObject* original, PyObject* raised) {
  if (PyList_GET_SIZE(raised) == 0) return Py_NewRef(Py_None);
  if (!is_group(original)) return Py_NewRef(PyList_GET_ITEM(raised, 0));  // it was wrapped, so one clause can have run
  PyObject* leaves = PySet_New(nullptr);
  PyObject* fresh = PyList_New(0);
  PyObject* rest = nullptr;
  if (leaves != nullptr && fresh != nullptr && sort(original, raised, leaves, fresh)) rest = project(original, leaves);
  PyObject* result = nullptr;
  if (rest != nullptr) {
    if (PyList_GET_SIZE(fresh) == 0)
      result = Py_NewRef(rest);
    else if (rest == Py_None || PyList_Append(fresh, rest) == 0)
      result = PyList_GET_SIZE(fresh) > 1 ? make_group(fresh) : Py_NewRef(PyList_GET_ITEM(fresh, 0));
  }
  Py_XDECREF(rest);
  Py_XDECREF(fresh);
  Py_XDECREF(leaves);
  return result;
}

}  // namespace magneto::evaluator
