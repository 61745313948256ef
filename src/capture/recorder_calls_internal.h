// capture/recorder_calls_internal.h: arguments as the vectorcall protocol has them.
#pragma once
#include <vector>

#include "capture/recorder.h"

namespace magneto::capture {

/// Room in front, which a callee may write to; then `first`, then the arguments.
inline std::vector<PyObject*> with_gap(PyObject* const* args, size_t count, PyObject* first = nullptr) {
  std::vector<PyObject*> all{nullptr};
  if (first) all.push_back(first);
  all.insert(all.end(), args, args + count);
  return all;
}

inline size_t total_count(size_t nargsf, PyObject* kwnames) {
  return static_cast<size_t>(PyVectorcall_NARGS(nargsf)) +
         (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
}

inline bool has_finalizer(PyTypeObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__del__");
  return is_python_class(type) && _PyType_Lookup(type, name) != nullptr;
}

}  // namespace magneto::capture
