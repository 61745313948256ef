// capture/substitutes.h: functions that a recording enters in the place of others, whose own code cannot be recorded.
#pragma once
#include <Python.h>

namespace magneto::capture {

/// From now on recordings call `replacement`. Both live as long as the process.
void substitute(PyObject* original, PyObject* replacement);

/// What stands for a callable; nullptr: nothing does. Borrowed.
bool is_substitute(PyFunctionObject* function);  ///< one of ours
PyObject* substitute_of(PyObject* callable);
/// A function of _substitutes.py; nullptr: there is none. New reference.
PyObject* own_function(const char* name);

}  // namespace magneto::capture
