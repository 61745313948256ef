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

}  // namespace magneto::capture
