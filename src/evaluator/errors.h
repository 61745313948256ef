// evaluator/errors.h: errors that CPython's eval loop raises itself, with the same words.
#pragma once
#include "evaluator/frame_abi.h"

namespace magneto::evaluator {

void raise_name_error(PyObject* name);              ///< name 'x' is not defined
void raise_unbound(PyCodeObject* code, int local);  ///< a local, cell or free variable without value
/// An error of filling keyword arguments is set: the same for the user of `callable`.
void reword_keyword_error(PyObject* callable, PyObject* keywords);
/// False with an error set: what follows * in a call cannot be iterated.
bool check_star_arguments(PyObject* callable, PyObject* arguments);
/// False with an error set: `type` cannot be caught by except (star: except*).
bool check_caught_type(PyObject* type, bool star);

}  // namespace magneto::evaluator
