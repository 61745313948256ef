// capture/recorder_calls_internal.h: a call, and its arguments as the vectorcall protocol has them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "capture/call_rules.h"
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

/// A call of a C function.
struct Recorder::CCall {
  Activation& self;
  PyObject* callable;
  PyObject* const* args;
  size_t nargsf;
  PyObject* kwnames;
  CallRule rule;
  PyObject* bound;  ///< the object that a bound method carries; nullptr
  PyObject* first;  ///< what it is about: that object, or the first argument; nullptr: it has none
  size_t count;     ///< arguments without `bound`, those by keyword included

  std::span<PyObject* const> all() const { return {args, count}; }
  std::span<PyObject* const> rest() const { return all().subspan(bound || count == 0 ? 0 : 1); }  ///< after `first`
  size_t positional() const { return static_cast<size_t>(PyVectorcall_NARGS(nargsf)); }
  std::string name() const { return callable_name(callable); }
  PyObject* run() const { return PyObject_Vectorcall(callable, args, nargsf, kwnames); }  ///< as CPython would
};

inline bool has_finalizer(PyTypeObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__del__");
  return is_python_class(type) && _PyType_Lookup(type, name) != nullptr;
}

/// What torch.tensor and torch.as_tensor are given. Not known: something else, too.
struct TensorArguments {
  TensorArguments(std::span<PyObject* const> args, size_t positional, PyObject* kwnames);
  PyObject *data = nullptr, *dtype = nullptr, *device = nullptr;
  bool known = false;
};

/// The same tensor, made by operators: what Recorder::makes_tensor_of_reals allows.
PyObject* tensor_of_reals(std::span<PyObject* const> args, size_t positional, PyObject* kwnames);
/// tensor[place] = number, which becomes a tensor by an operator first.
int assign_real(PyObject* tensor, PyObject* place, PyObject* number);

}  // namespace magneto::capture
