// Opcodes for attributes and items.
#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

Step load_attr(Evaluator& e, int name) {
  return e.finish(1, e.semantics().load_attr(e.activation(), e.peek(1), e.name(name)));
}

/// Leaves what a call expects: a method and its `self`, or a callable and nothing.
static Step load_method_named(Evaluator& e, PyObject* name) {
  PyObject* method = nullptr;
  int unbound = e.semantics().load_method(e.activation(), e.peek(1), name, &method);
  if (unbound < 0) return e.failed(unbound);
  PyObject* owner = e.pop();
  if (unbound) {
    e.push(method);
    e.push(owner);
  } else {
    e.push_callable(method);
    Py_DECREF(owner);
  }
  return Step::kNext;
}

Step load_method(Evaluator& e, int name) { return load_method_named(e, e.name(name)); }

Step load_attr_or_method(Evaluator& e, int argument) {
  return argument & 1 ? load_method_named(e, e.name(argument >> 1)) : load_attr(e, argument >> 1);
}

Step load_super_attr(Evaluator& e, int argument) {
  PyObject* super = e.peek(3);
  bool with_arguments = (argument & 2) != 0;
  bool usual = super == reinterpret_cast<PyObject*>(&PySuper_Type) || with_arguments;
  PyObject* value = e.semantics().load_super_attr(e.activation(), super, usual ? e.peek(2) : nullptr,
                                                  usual ? e.peek(1) : nullptr, e.name(argument >> 2));
  if (value == nullptr || value == kStop) return e.failed(value);
  e.drop(3);
  if (argument & 1)
    e.push_callable(value);
  else
    e.push(value);
  return Step::kNext;
}

Step store_attr(Evaluator& e, int name) {
  return e.finish(2, e.semantics().store_attr(e.activation(), e.peek(1), e.name(name), e.peek(2)));
}

Step delete_attr(Evaluator& e, int name) {
  return e.finish(1, e.semantics().store_attr(e.activation(), e.peek(1), e.name(name), nullptr));
}

Step binary_subscr(Evaluator& e, int) {
  return e.finish(2, e.semantics().load_item(e.activation(), e.peek(2), e.peek(1)));
}

Step store_subscr(Evaluator& e, int) {
  return e.finish(3, e.semantics().store_item(e.activation(), e.peek(2), e.peek(1), e.peek(3)));
}

Step delete_subscr(Evaluator& e, int) {
  return e.finish(2, e.semantics().store_item(e.activation(), e.peek(2), e.peek(1), nullptr));
}

/// The slice of the two topmost entries.
static PyObject* make_slice(Evaluator& e) {
  PyObject* slice = PySlice_New(e.peek(2), e.peek(1), nullptr);
  if (slice != nullptr) e.semantics().made(e.activation(), slice);
  return slice;
}

Step binary_slice(Evaluator& e, int) {
  PyObject* slice = make_slice(e);
  if (slice == nullptr) return Step::kError;
  PyObject* value = e.semantics().load_item(e.activation(), e.peek(3), slice);
  Py_DECREF(slice);
  return e.finish(3, value);
}

Step store_slice(Evaluator& e, int) {
  PyObject* slice = make_slice(e);
  if (slice == nullptr) return Step::kError;
  int status = e.semantics().store_item(e.activation(), e.peek(3), slice, e.peek(4));
  Py_DECREF(slice);
  return e.finish(4, status);
}

}  // namespace magneto::evaluator::op
