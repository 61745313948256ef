// Opcodes that move references between stack, slots and namespaces.
#include <utility>

#include "evaluator/errors.h"
#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

Step nop(Evaluator&, int) { return Step::kNext; }

Step resume(Evaluator& e, int argument) {
  // 0: a function starts, 1: after yield. After `yield from` and await the delegate serves the breaker.
  return (argument & 3) < 2 ? e.serve_breaker() : Step::kNext;
}

Step pop_top(Evaluator& e, int) {
  e.drop(1);
  return Step::kNext;
}

Step push_null(Evaluator& e, int) {
  e.push(nullptr);
  return Step::kNext;
}

Step copy(Evaluator& e, int depth) {
  e.push_slot(e.slot(depth).again());
  return Step::kNext;
}

Step swap(Evaluator& e, int depth) {
  std::swap(e.slot(1), e.slot(depth));
  return Step::kNext;
}

Step load_const(Evaluator& e, int index) {
  e.push(Py_NewRef(e.constant(index)));
  return Step::kNext;
}

Step load_assertion_error(Evaluator& e, int) {
  e.push(Py_NewRef(PyExc_AssertionError));
  return Step::kNext;
}

Step load_common_constant(Evaluator& e, int which) {
  e.push(Py_NewRef(common_constant(e.thread(), which)));
  return Step::kNext;
}

Step load_small_int(Evaluator& e, int number) {
  e.push(PyLong_FromLong(number));
  return Step::kNext;
}

static Step unbound(Evaluator& e, int local) {
  raise_unbound(e.code(), local);
  return Step::kError;
}

Step load_fast(Evaluator& e, int local) {
  PyObject* value = e.local(local);
  if (value == nullptr) return unbound(e, local);
  e.push(Py_NewRef(value));
  return Step::kNext;
}

// Two instructions in one; the first slot is in the upper bits of the argument.
Step load_fast_load_fast(Evaluator& e, int locals) {
  for (int local : {locals >> 4, locals & 15})
    if (e.local(local) == nullptr) return unbound(e, local);
  load_fast(e, locals >> 4);
  return load_fast(e, locals & 15);
}

// CPython's compiler has seen that the local stays as it is for as long as the reference is on the stack.
Step load_fast_borrow(Evaluator& e, int local) {
  if (!e.may_borrow()) return load_fast(e, local);
  if (e.local_slot(local).is_empty()) return unbound(e, local);
  e.push_slot(e.local_slot(local).lend());
  return Step::kNext;
}

Step load_fast_borrow_load_fast_borrow(Evaluator& e, int locals) {
  if (!e.may_borrow()) return load_fast_load_fast(e, locals);
  for (int local : {locals >> 4, locals & 15})
    if (e.local_slot(local).is_empty()) return unbound(e, local);
  load_fast_borrow(e, locals >> 4);
  return load_fast_borrow(e, locals & 15);
}

Step load_fast_and_clear(Evaluator& e, int local) {
  // It may be empty: a comprehension's variable saves what was there.
  e.push_slot(std::exchange(e.local_slot(local), Slot::own(nullptr)));
  return Step::kNext;
}

Step store_fast(Evaluator& e, int local) {
  e.store_local(local, e.pop_slot());
  return Step::kNext;
}

Step store_fast_load_fast(Evaluator& e, int locals) {
  store_fast(e, locals >> 4);
  return load_fast(e, locals & 15);
}

Step store_fast_store_fast(Evaluator& e, int locals) {
  store_fast(e, locals >> 4);
  return store_fast(e, locals & 15);
}

Step delete_fast(Evaluator& e, int local) {
  if (e.local(local) == nullptr) return unbound(e, local);
  e.set_local(local, nullptr);
  return Step::kNext;
}

static Step missing(PyObject* name) {
  if (!PyErr_Occurred()) raise_name_error(name);
  return Step::kError;
}

Step load_global(Evaluator& e, int argument) {
  PyObject* name = e.name(argument >> 1);
  PyObject* value = e.semantics().load_global(e.activation(), name);
  if (value == kStop) return Step::kStop;
  if (value == nullptr) return missing(name);
  if (argument & 1)
    e.push_callable(value);
  else
    e.push(value);
  return Step::kNext;
}

Step store_global(Evaluator& e, int name) {
  return e.finish(1, e.semantics().store_global(e.activation(), e.name(name), e.peek(1)));
}

Step delete_global(Evaluator& e, int name) {
  return e.finish(0, e.semantics().store_global(e.activation(), e.name(name), nullptr));
}

Step load_name(Evaluator& e, int index) {
  PyObject* name = e.name(index);
  PyObject* value = e.semantics().load_name(e.activation(), name);
  if (value == kStop) return Step::kStop;
  if (value == nullptr) return missing(name);
  e.push(value);
  return Step::kNext;
}

Step store_name(Evaluator& e, int name) {
  return e.finish(1, e.semantics().store_name(e.activation(), e.name(name), e.peek(1)));
}

Step delete_name(Evaluator& e, int name) {
  return e.finish(0, e.semantics().store_name(e.activation(), e.name(name), nullptr));
}

Step make_cell(Evaluator& e, int local) {
  PyObject* cell = PyCell_New(e.local(local));
  if (cell == nullptr) return Step::kError;
  e.set_local(local, cell);
  e.semantics().made(e.activation(), cell);
  return Step::kNext;
}

Step copy_free_vars(Evaluator& e, int count) {
  PyObject* closure = e.activation().function()->func_closure;
  int first = e.code()->co_nlocalsplus - count;
  for (int i = 0; i < count; ++i) e.local_slot(first + i) = Slot::own(Py_NewRef(PyTuple_GET_ITEM(closure, i)));
  return Step::kNext;
}

Step load_deref(Evaluator& e, int local) {
  PyObject* value = e.semantics().load_cell(e.activation(), e.local(local));
  if (value == kStop) return Step::kStop;
  if (value == nullptr) return unbound(e, local);
  e.push(value);
  return Step::kNext;
}

Step store_deref(Evaluator& e, int local) {
  return e.finish(1, e.semantics().store_cell(e.activation(), e.local(local), e.peek(1)));
}

Step delete_deref(Evaluator& e, int local) {
  if (PyCell_GET(e.local(local)) == nullptr) return unbound(e, local);
  return e.finish(0, e.semantics().store_cell(e.activation(), e.local(local), nullptr));
}

/// namespace[name], new reference; nullptr without error: missing.
static PyObject* look_up(PyObject* space, PyObject* name) {
  if (PyDict_CheckExact(space)) return Py_XNewRef(PyDict_GetItemWithError(space, name));
  PyObject* value = PyObject_GetItem(space, name);
  if (value == nullptr && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
  return value;
}

/// A variable of an enclosing function, read in a class body: the class's own names come first.
static PyObject* look_up_or_deref(Evaluator& e, PyObject* space, int local) {
  PyObject* value = look_up(space, PyTuple_GET_ITEM(e.code()->co_localsplusnames, local));
  if (value != nullptr || PyErr_Occurred()) return value;
  value = Py_XNewRef(PyCell_GET(e.local(local)));
  if (value == nullptr) raise_unbound(e.code(), local);
  return value;
}

static PyObject* locals_of(Evaluator& e) {
  PyObject* locals = e.frame()->f_locals;
  if (locals == nullptr) PyErr_Format(PyExc_SystemError, "no locals found in '%U'", e.code()->co_qualname);
  return locals;
}

Step load_classderef(Evaluator& e, int local) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* locals = locals_of(e);
  return locals == nullptr ? Step::kError : e.finish(0, look_up_or_deref(e, locals, local));
}

Step load_locals(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* locals = locals_of(e);
  if (locals == nullptr) return Step::kError;
  e.push(Py_NewRef(locals));
  return Step::kNext;
}

Step load_from_dict_or_deref(Evaluator& e, int local) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  return e.finish(1, look_up_or_deref(e, e.peek(1), local));
}

Step load_from_dict_or_globals(Evaluator& e, int index) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* name = e.name(index);
  PyObject* value = look_up(e.peek(1), name);
  if (value == nullptr && !PyErr_Occurred()) value = e.semantics().load_global(e.activation(), name);
  if (value == kStop) return Step::kStop;
  if (value == nullptr) return missing(name);
  e.replace(1, value);
  return Step::kNext;
}

Step load_build_class(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  static PyObject* const name = PyUnicode_InternFromString("__build_class__");
  PyObject* function = look_up(e.frame()->f_builtins, name);
  if (function == nullptr) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_NameError, "__build_class__ not found");
    return Step::kError;
  }
  e.push(function);
  return Step::kNext;
}

Step setup_annotations(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* locals = locals_of(e);
  if (locals == nullptr) return Step::kError;
  static PyObject* const name = PyUnicode_InternFromString("__annotations__");
  PyObject* there = look_up(locals, name);
  if (there != nullptr) {
    Py_DECREF(there);
    return Step::kNext;
  }
  if (PyErr_Occurred()) return Step::kError;
  PyObject* fresh = PyDict_New();
  if (fresh == nullptr) return Step::kError;
  int status = PyObject_SetItem(locals, name, fresh);
  e.semantics().made(e.activation(), fresh);
  Py_DECREF(fresh);
  return status < 0 ? Step::kError : Step::kNext;
}

Step import_name(Evaluator& e, int name) {
  return e.finish(2, e.semantics().import_name(e.activation(), e.name(name), e.peek(1), e.peek(2)));
}

Step import_from(Evaluator& e, int name) {
  PyObject* value = e.semantics().import_from(e.activation(), e.peek(1), e.name(name));
  if (value == nullptr && !PyErr_Occurred()) return Step::kHandOver;  // CPython explains circular imports
  return e.finish(0, value);
}

}  // namespace magneto::evaluator::op
