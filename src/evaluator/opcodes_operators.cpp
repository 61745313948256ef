// Opcodes for operators, comparisons and formatting.
#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

Step unary(Evaluator& e, int) { return e.finish(1, e.semantics().unary(e.activation(), e.fact(), e.peek(1))); }

Step binary_op(Evaluator& e, int which) {
  constexpr int kItem = 26;  // an instruction of its own before 3.14
  if (which == kItem) return binary_subscr(e, 0);
  return e.finish(2, e.semantics().binary(e.activation(), which, e.peek(2), e.peek(1)));
}

Step compare_op(Evaluator& e, int argument) {
  return e.finish(2, e.semantics().compare(e.activation(), e.peek(2), e.peek(1), argument >> e.fact()));
}

Step to_bool(Evaluator& e, int) {
  int truth = e.semantics().truth(e.activation(), e.peek(1));
  if (truth < 0) return e.failed(truth);
  e.replace(1, Py_NewRef(truth ? Py_True : Py_False));
  return Step::kNext;
}

Step is_op(Evaluator& e, int negate) {
  return e.finish(2, e.semantics().identical(e.activation(), e.peek(2), e.peek(1), negate != 0));
}

Step contains_op(Evaluator& e, int negate) {
  int found = e.semantics().contains(e.activation(), e.peek(1), e.peek(2));
  if (found < 0) return e.failed(found);
  e.replace(2, Py_NewRef((found ^ negate) ? Py_True : Py_False));
  return Step::kNext;
}

Step format_value(Evaluator& e, int argument) {
  bool has_spec = (argument & 4) != 0;
  PyObject* spec = has_spec ? e.peek(1) : nullptr;
  PyObject* value = e.peek(has_spec ? 2 : 1);
  return e.finish(has_spec ? 2 : 1, e.semantics().format(e.activation(), value, argument & 3, spec));
}

// The parts of FORMAT_VALUE, on their own since 3.13.
Step convert_value(Evaluator& e, int conversion) {
  return e.finish(1, e.semantics().convert(e.activation(), e.peek(1), conversion));
}

Step format_simple(Evaluator& e, int) {
  return e.finish(1, e.semantics().format(e.activation(), e.peek(1), 0, nullptr));
}

Step format_with_spec(Evaluator& e, int) {
  return e.finish(2, e.semantics().format(e.activation(), e.peek(2), 0, e.peek(1)));
}

Step get_len(Evaluator& e, int) { return e.finish(0, e.semantics().length(e.activation(), e.peek(1))); }

}  // namespace magneto::evaluator::op
