// evaluator/groups.h: what except* does to exception groups. CPython keeps these functions to itself.
#pragma once
#include "evaluator/frame_abi.h"

namespace magneto::evaluator {

/// Splits `exception` (or None) by a checked `type`: new references, None for an empty part. False with an error set.
/// `frame` is the one that catches.
bool split_group(Frame* frame, PyObject* exception, PyObject* type, PyObject** match, PyObject** rest);

/// What the clauses of one except* left over (`raised`, a list with None for nothing) as one exception or None:
/// re-raised parts of `original` become one group of its shape, new exceptions stand beside it. New reference; nullptr
/// with an error.
PyObject* join_group(PyObject* original, PyObject* raised);

}  // namespace magneto::evaluator
