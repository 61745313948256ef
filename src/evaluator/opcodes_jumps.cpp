// Opcodes for jumps, iteration and unpacking.
#include <vector>

#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

Step jump_forward(Evaluator& e, int distance) {
  e.jump(distance);
  return Step::kNext;
}

Step jump_backward_no_interrupt(Evaluator& e, int distance) {
  e.jump(-distance);
  return Step::kNext;
}

Step jump_backward(Evaluator& e, int distance) {
  e.jump(-distance);
  return e.serve_breaker();
}

/// A condition was popped; the row's fact is the direction of the jump.
static Step jump_where(Evaluator& e, bool taken, int distance) {
  if (!taken) return Step::kNext;
  e.jump(e.fact() * distance);
  return e.fact() < 0 ? e.serve_breaker() : Step::kNext;
}

static Step pop_jump_if(Evaluator& e, bool wanted, int distance) {
  int truth = e.semantics().truth(e.activation(), e.peek(1));
  if (truth < 0) return e.failed(truth);
  e.drop(1);
  return jump_where(e, (truth != 0) == wanted, distance);
}

Step pop_jump_if_true(Evaluator& e, int distance) { return pop_jump_if(e, true, distance); }
Step pop_jump_if_false(Evaluator& e, int distance) { return pop_jump_if(e, false, distance); }

static Step pop_jump_if_none_is(Evaluator& e, bool wanted, int distance) {
  PyObject* is_none = e.semantics().identical(e.activation(), e.peek(1), Py_None, false);
  if (is_none == nullptr || is_none == kStop) return e.failed(is_none);
  Py_DECREF(is_none);  // a bool: it lives on
  e.drop(1);
  return jump_where(e, (is_none == Py_True) == wanted, distance);
}

Step pop_jump_if_none(Evaluator& e, int distance) { return pop_jump_if_none_is(e, true, distance); }
Step pop_jump_if_not_none(Evaluator& e, int distance) { return pop_jump_if_none_is(e, false, distance); }

static Step jump_or_pop(Evaluator& e, bool wanted, int distance) {
  int truth = e.semantics().truth(e.activation(), e.peek(1));
  if (truth < 0) return e.failed(truth);
  if ((truth != 0) == wanted)
    e.jump(distance);
  else
    e.drop(1);
  return Step::kNext;
}

Step jump_if_true_or_pop(Evaluator& e, int distance) { return jump_or_pop(e, true, distance); }
Step jump_if_false_or_pop(Evaluator& e, int distance) { return jump_or_pop(e, false, distance); }

Step get_iter(Evaluator& e, int) { return e.finish(1, e.semantics().iter(e.activation(), e.peek(1))); }

static Step iterate(Evaluator& e, int distance, bool ends_it) {
  PyObject* value = e.semantics().next(e.activation(), e.peek(1));
  if (value == kStop) return Step::kStop;
  if (value != nullptr) {
    e.push(value);
    return Step::kNext;
  }
  if (PyErr_Occurred()) return Step::kError;
  if (ends_it) e.drop(1);
  e.jump(distance + e.fact());
  return Step::kNext;
}

Step for_iter(Evaluator& e, int distance) { return iterate(e, distance, true); }
Step for_iter_until(Evaluator& e, int distance) { return iterate(e, distance, false); }  // POP_ITER ends it

Step end_for(Evaluator& e, int) {
  e.drop(2);
  return Step::kNext;
}

static Step unpack(Evaluator& e, int before, int after) {
  int count = before + (after < 0 ? 0 : after + 1);
  PyObject* few[16];
  std::vector<PyObject*> many(count > 16 ? count : 0);
  PyObject** items = count > 16 ? many.data() : few;
  int status = e.semantics().unpack(e.activation(), e.peek(1), before, after, items);
  if (status < 0) return e.failed(status);
  PyObject* sequence = e.pop();
  for (int i = count; i-- > 0;) e.push(items[i]);
  if (after >= 0) e.semantics().made(e.activation(), items[before]);
  Py_DECREF(sequence);
  return Step::kNext;
}

Step unpack_sequence(Evaluator& e, int count) { return unpack(e, count, -1); }
Step unpack_ex(Evaluator& e, int counts) { return unpack(e, counts & 0xff, counts >> 8); }

}  // namespace magneto::evaluator::op
