// The evaluator alone as a module `_evaluator`: builds in seconds and needs no torch.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace magneto::bindings {
void add_evaluator_testing(PyObject* module);
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_evaluator", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__evaluator() {
  PyObject* module = PyModule_Create(&definition);
  if (module != nullptr) magneto::bindings::add_evaluator_testing(module);
  return module;
}
