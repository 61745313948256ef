// capture/dict_versions.h: whether a dict has changed since it was looked at.
//
// Up to 3.12 CPython counts the changes of each dict in the dict itself. 3.13 overlooks those that come by way of the
// object whose attributes they are, later versions do not count at all: there we watch the dict (PyDict_Watch) and
// count ourselves, beside it.
#pragma once
#include <Python.h>

#include <cstdint>

namespace magneto::capture {

/// Where a number stands that changes with each change of the dict, and is never 0. It stays there as long as the dict
/// lives. nullptr: this dict cannot be watched.
const uint64_t* dict_version_place(PyObject* dict);
/// The number itself; one that never comes again where the dict cannot be watched.
uint64_t dict_version(PyObject* dict);

}  // namespace magneto::capture
