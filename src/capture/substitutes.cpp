// capture/substitutes.cpp
#include "capture/substitutes.h"

#include <unordered_map>

#include "capture/evaluator.h"

namespace magneto::capture {

namespace {

std::unordered_map<PyObject*, PyObject*>& substitutes() {
  static auto* const made = new std::unordered_map<PyObject*, PyObject*>;
  return *made;
}

}  // namespace

void substitute(PyObject* original, PyObject* replacement) {
  PyObject*& known = substitutes()[original];
  if (!known) Py_INCREF(original);
  Py_XSETREF(known, Py_NewRef(replacement));
}

bool is_substitute(PyFunctionObject* function) {
  return function->func_module && PyUnicode_Check(function->func_module) &&
         PyUnicode_CompareWithASCIIString(function->func_module, "magneto._substitutes") == 0;
}

PyObject* own_function(const char* name) {
  const Ref module = Ref::take(PyImport_ImportModule("magneto._substitutes"));
  PyObject* const found = module ? PyObject_GetAttrString(module.get(), name) : nullptr;
  PyErr_Clear();
  return found;
}

PyObject* substitute_of(PyObject* callable) {
  const auto found = substitutes().find(callable);
  return found == substitutes().end() ? nullptr : found->second;
}

PyObject* substitute_of(PyObject* callable, size_t positional, PyObject* kwnames) {
  PyObject* const found = substitute_of(callable);
  if (!found || !PyFunction_Check(found)) return found;
  auto* const function = reinterpret_cast<PyFunctionObject*>(found);
  const auto* const code = reinterpret_cast<PyCodeObject*>(function->func_code);
  const Py_ssize_t given = static_cast<Py_ssize_t>(positional), named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  const Py_ssize_t optional = function->func_defaults ? PyTuple_GET_SIZE(function->func_defaults) : 0;
  const bool too_many = given > code->co_argcount && !(code->co_flags & CO_VARARGS);
  return too_many || given + named < code->co_argcount - optional ? nullptr : found;
}

}  // namespace magneto::capture
