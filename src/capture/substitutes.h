// capture/substitutes.h: functions that a recording enters in the place of others, whose own code cannot be recorded.
#pragma once
#include <Python.h>

namespace magneto::capture {

/// From now on recordings call `replacement`. Both live as long as the process.
void substitute(PyObject* original, PyObject* replacement);

bool is_substitute(PyFunctionObject* function);  ///< one of ours
/// What stands for a callable; nullptr: nothing does. Borrowed.
PyObject* substitute_of(PyObject* callable);
/// The same for a call with so many arguments by position, and these by name: nullptr if it does not take them.
PyObject* substitute_of(PyObject* callable, size_t positional, PyObject* kwnames);
/// A function of _substitutes.py; nullptr: there is none. New reference.
PyObject* own_function(const char* name);

}  // namespace magneto::capture
