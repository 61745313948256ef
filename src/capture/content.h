// capture/content.h: what a container holds, as its C type has it: no method of the program is asked, neither those of
// the container's class nor those of its keys. They run as often as in eager, so no guard, no copy and no recipe may.
#pragma once
#include <Python.h>

#include <utility>
#include <vector>

#include "capture/evaluator.h"

namespace magneto::capture {

/// The C type that its class is made of.
PyTypeObject* c_type(PyObject* object);

/// Its __hash__ or its __eq__ is the program's own: not C code, not the standard library's, not torch's.
bool runs_program(PyObject* key);
/// Of a dict or a set: one of its keys is such a one.
bool has_program_keys(PyObject* container);
/// What a dict has under it. A key that runs the program is found by identity. Borrowed; no error is set.
PyObject* quiet_entry(PyObject* dict, PyObject* key);

/// Of a dict, in its order. Fewer than it has: the hashes of an ordered dict's keys are not what they were.
std::vector<std::pair<Ref, Ref>> items_of(PyObject* dict);
/// The elements of a list, a tuple, a set or a deque, the keys of a dict; none of anything else.
std::vector<Ref> elements_of(PyObject* container);
/// How many; -1: it is none of these.
Py_ssize_t count_of(PyObject* container);
/// A plain container with the same content: a dict or an ordered one, a set, a list of what a list or a deque has.
/// New reference; nullptr and an error: there is no memory, or it is none of these.
PyObject* content_of(PyObject* container);

}  // namespace magneto::capture
