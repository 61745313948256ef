// capture/iterators.h: iterators written in C, taken apart and made again: what they walk, and how far they are.
#pragma once
#include <Python.h>

namespace magneto::capture {

/// It tells all of itself.
bool is_reducible_iterator(PyTypeObject* type);

/// What makes an equal one: (callable, arguments, state). nullptr: it does not tell. No error is set. The iterators
/// among the arguments are its own, not copies.
PyObject* reduce_iterator(PyObject* iterator);

/// New reference, or nullptr with an error. `state`: nullptr or None, where the arguments tell it all.
PyObject* make_iterator(PyObject* callable, PyObject* arguments, PyObject* state);

}  // namespace magneto::capture
