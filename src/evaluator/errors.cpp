#include "evaluator/errors.h"

namespace magneto::evaluator {

static void raise_about_name(PyObject* kind, const char* format, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) return;
  PyErr_Format(kind, format, text);
  if (kind != PyExc_NameError) return;
  PyObject* exception = take_error();  // the name lets the interpreter suggest another one
  if (PyErr_GivenExceptionMatches(exception, PyExc_NameError) && PyObject_SetAttrString(exception, "name", name) < 0)
    PyErr_Clear();
  set_error(exception);
}

void raise_name_error(PyObject* name) { raise_about_name(PyExc_NameError, "name '%.200s' is not defined", name); }

void raise_unbound(PyCodeObject* code, int local) {
  PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, local);
  if (local < code->co_nlocalsplus - code->co_nfreevars)
    raise_about_name(PyExc_UnboundLocalError,
                     "cannot access local variable '%s' where it is not associated with a value", name);
  else
    raise_about_name(PyExc_NameError,
                     "cannot access free variable '%s' where it is not associated with a value in enclosing scope",
                     name);
}

void reword_keyword_error(PyObject* callable, PyObject* keywords) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {  // no method keys()
    PyErr_Clear();
    PyObject* who = _PyObject_FunctionStr(callable);
    if (who == nullptr) return;
    PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", who,
                 Py_TYPE(keywords)->tp_name);
    Py_DECREF(who);
    return;
  }
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return;
  PyObject *type, *value, *traceback;  // a duplicate: the arguments of the KeyError are the key
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* arguments = fetched_arguments(value);
  if (arguments == nullptr || !PyTuple_Check(arguments) || PyTuple_GET_SIZE(arguments) != 1) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  PyObject* who = _PyObject_FunctionStr(callable);
  if (who != nullptr) {
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", who,
                 PyTuple_GET_ITEM(arguments, 0));
    Py_DECREF(who);
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

bool check_star_arguments(PyObject* callable, PyObject* arguments) {
  if (Py_TYPE(arguments)->tp_iter != nullptr || PySequence_Check(arguments)) return true;
  PyObject* who = _PyObject_FunctionStr(callable);
  if (who == nullptr) return false;
  PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", who,
               Py_TYPE(arguments)->tp_name);
  Py_DECREF(who);
  return false;
}

static bool check_one_caught_type(PyObject* type, bool star) {
  if (!PyExceptionClass_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
    return false;
  }
  if (!star) return true;
  int is_group = PyObject_IsSubclass(type, PyExc_BaseExceptionGroup);
  if (is_group > 0)
    PyErr_SetString(PyExc_TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.");
  return is_group == 0;
}

bool check_caught_type(PyObject* type, bool star) {
  if (!PyTuple_Check(type)) return check_one_caught_type(type, star);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type); ++i)
    if (!check_one_caught_type(PyTuple_GET_ITEM(type, i), star)) return false;
  return true;
}

}  // namespace magneto::evaluator
