// capture/recorder_ends_internal.h: objects that run code when they end.
#pragma once
#include <Python.h>

namespace magneto::capture {

/// It has a __del__, or is a generator with handlers that its end runs.
bool ends_with_code(PyObject* object);
/// Such an object is held by this one alone, or by what it alone holds.
bool holds_an_end(PyObject* object);

}  // namespace magneto::capture
