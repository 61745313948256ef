// Opcodes for raising, handling and with blocks.
#include <utility>

#include "evaluator/errors.h"
#include "evaluator/groups.h"
#include "evaluator/opcodes.h"
#include "evaluator/ref.h"

namespace magneto::evaluator::op {

static PyObject* call_without_arguments(Evaluator& e, PyObject* callable) {
  PyObject* room[1] = {nullptr};
  return e.semantics().call(e.activation(), callable, room + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

static bool check_made(PyObject* cls, PyObject* made) {
  if (PyExceptionInstance_Check(made)) return true;
  PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", cls,
               Py_TYPE(made));
  return false;
}

/// raise X from cause: `cause` becomes an exception or nullptr (None). False with an error set.
static bool set_cause(PyObject* exception, PyObject* cause) {
  PyObject* fixed = nullptr;
  if (PyExceptionClass_Check(cause)) {
    fixed = PyObject_CallNoArgs(cause);
    if (fixed == nullptr) return false;
    if (kChecksMadeCauses && !check_made(cause, fixed)) {
      Py_DECREF(fixed);
      return false;
    }
  } else if (PyExceptionInstance_Check(cause)) {
    fixed = Py_NewRef(cause);
  } else if (cause != Py_None) {
    PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
    return false;
  }
  PyException_SetCause(exception, fixed);
  return true;
}

static Step raise_again(Evaluator&) {
  PyObject* handled = PyErr_GetHandledException();
  if (handled == nullptr || handled == Py_None) {
    Py_XDECREF(handled);
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return Step::kError;
  }
  set_error(handled);
  return Step::kReraise;
}

Step raise_varargs(Evaluator& e, int count) {
  if (count == 0) return raise_again(e);
  PyObject* raised = e.peek(count);
  PyObject* cause = count == 2 ? e.peek(1) : nullptr;
  if (Step step = e.ask(); step != Step::kNext)
    return step;  // an exception may leave the frame; a cause is a second call
  PyObject* exception;
  PyObject* type;
  if (PyExceptionClass_Check(raised)) {
    exception = call_without_arguments(e, raised);
    if (exception == nullptr || exception == kStop) return e.failed(exception);
    type = raised;
    if (!check_made(raised, exception)) {
      Py_DECREF(exception);
      return Step::kError;
    }
  } else if (PyExceptionInstance_Check(raised)) {
    exception = Py_NewRef(raised);
    type = reinterpret_cast<PyObject*>(Py_TYPE(raised));
  } else {
    PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
    return Step::kError;
  }
  if (cause == nullptr || set_cause(exception, cause)) PyErr_SetObject(type, exception);
  Py_DECREF(exception);
  return Step::kError;
}

Step reraise(Evaluator& e, int depth) {
  if (depth > 0) {  // the line of the traceback is the one that raised first
    int last;
    if (!e.slot(depth + 1).read_number(&last)) {
      PyErr_SetString(PyExc_SystemError, "lasti is not an int");
      return Step::kError;
    }
    frame_set_current(e.frame(), last);
  }
  set_error(Py_NewRef(e.peek(1)));
  return Step::kReraise;
}

Step push_exc_info(Evaluator& e, int) {
  PyObject*& handled = e.thread()->exc_info->exc_value;
  PyObject* exception = e.pop();
  e.push(handled != nullptr ? handled : Py_NewRef(Py_None));
  e.push(exception);
  handled = Py_NewRef(exception);
  return Step::kNext;
}

Step pop_except(Evaluator& e, int) {
  PyObject*& handled = e.thread()->exc_info->exc_value;
  PyObject* before = e.pop();
  if (kNoExceptionIsNull && before == Py_None) Py_CLEAR(before);
  PyObject* done = std::exchange(handled, before);
  Py_XDECREF(done);
  return Step::kNext;
}

Step check_exc_match(Evaluator& e, int) {
  if (!check_caught_type(e.peek(1), false)) return Step::kError;
  int matches = PyErr_GivenExceptionMatches(e.peek(2), e.peek(1));
  e.replace(1, Py_NewRef(matches ? Py_True : Py_False));
  return Step::kNext;
}

Step check_eg_match(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  if (!check_caught_type(e.peek(1), true)) return Step::kError;
  PyObject *match, *rest;
  if (!split_group(e.frame(), e.peek(2), e.peek(1), &match, &rest)) {
    Py_XDECREF(match);
    Py_XDECREF(rest);
    return Step::kError;
  }
  if (match == Py_None) {  // the exception stays for the next clause
    Py_DECREF(rest);
    e.replace(1, match);
    return Step::kNext;
  }
  e.drop(1);
  e.replace(1, rest);
  e.push(match);
  PyErr_SetHandledException(match);
  return Step::kNext;
}

Step prep_reraise_star(Evaluator& e, int) {
  if (Step step = e.ask("PREP_RERAISE_STAR"); step != Step::kNext) return step;
  return e.finish(2, join_group(e.peek(2), e.peek(1)));
}

/// Enters a context manager: leaves its bound exit method and the value of the enter method.
static Step enter_with(Evaluator& e, PyObject* enter_name, PyObject* exit_name, const char* no_enter,
                       const char* no_exit) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* manager = e.peek(1);
  PyObject* found[2] = {nullptr, nullptr};
  Step step = Step::kNext;
  for (int i = 0; i < 2 && step == Step::kNext; ++i) {
    found[i] = e.semantics().load_special(e.activation(), manager, i == 0 ? enter_name : exit_name);
    if (found[i] == nullptr && !PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, i == 0 ? no_enter : no_exit, Py_TYPE(manager)->tp_name);
    if (found[i] == nullptr || found[i] == kStop) step = e.failed(std::exchange(found[i], nullptr));
  }
  PyObject* value = nullptr;
  if (step == Step::kNext) {
    value = call_without_arguments(e, found[0]);
    if (value == nullptr || value == kStop) step = e.failed(value);
  }
  Py_XDECREF(found[0]);
  if (step != Step::kNext) {
    Py_XDECREF(found[1]);
    return step;
  }
  e.replace(1, found[1]);
  e.push(value);
  return Step::kNext;
}

/// Says which method a with statement misses, and whether the other kind of with statement would do.
static void raise_no_manager(PyObject* manager, const char* missing, bool is_async) {
  const auto has = [&](const char* method) {
    const Ref name = Ref::take(PyUnicode_InternFromString(method));
    PyObject* found = name ? _PyType_Lookup(Py_TYPE(manager), name.get()) : nullptr;
    return found != nullptr && Py_TYPE(found)->tp_descr_get != nullptr;
  };
  const bool has_other = is_async ? has("__enter__") && has("__exit__") : has("__aenter__") && has("__aexit__");
  PyErr_Format(PyExc_TypeError, "'%T' object does not support the %scontext manager protocol (missed %s method)%s",
               manager, is_async ? "asynchronous " : "", missing,
               !has_other ? ""
               : is_async ? " but it supports the context manager protocol. Did you mean to use 'with'?"
                          : " but it supports the asynchronous context manager protocol. Did you mean to use "
                            "'async with'?");
}

Step before_with(Evaluator& e, int) {
  static PyObject* const enter = PyUnicode_InternFromString("__enter__");
  static PyObject* const exit = PyUnicode_InternFromString("__exit__");
  return enter_with(e, enter, exit, "'%.200s' object does not support the context manager protocol",
                    "'%.200s' object does not support the context manager protocol (missed __exit__ method)");
}

Step before_async_with(Evaluator& e, int) {
  static PyObject* const enter = PyUnicode_InternFromString("__aenter__");
  static PyObject* const exit = PyUnicode_InternFromString("__aexit__");
  return enter_with(
      e, enter, exit, "'%.200s' object does not support the asynchronous context manager protocol",
      "'%.200s' object does not support the asynchronous context manager protocol (missed __aexit__ method)");
}

// Since 3.14 the parts of entering are instructions of their own. The recorder knows them by their old names.
Step load_special(Evaluator& e, int which) {
  constexpr const char* kNames[] = {"__enter__", "__exit__", "__aenter__", "__aexit__"};
  const bool is_async = which >= 2;
  if (Step step = e.ask(is_async ? "BEFORE_ASYNC_WITH" : "BEFORE_WITH"); step != Step::kNext) return step;
  PyObject* manager = e.peek(1);
  const Ref name = Ref::take(PyUnicode_InternFromString(kNames[which]));
  // With plain semantics a method and its `self` stay apart, as CPython leaves them.
  PyObject* method = e.may_borrow() ? _PyType_Lookup(Py_TYPE(manager), name.get()) : nullptr;
  if (method != nullptr && PyType_HasFeature(Py_TYPE(method), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
    const Slot self = e.pop_slot();
    e.push(Py_NewRef(method));
    e.push_slot(self);
    return Step::kNext;
  }
  PyObject* found = e.semantics().load_special(e.activation(), manager, name.get());
  if (found == nullptr && !PyErr_Occurred()) raise_no_manager(manager, kNames[which], is_async);
  if (found == nullptr || found == kStop) return e.failed(found);
  e.drop(1);
  e.push_callable(found);
  return Step::kNext;
}

Step with_except_start(Evaluator& e, int) {
  PyObject* exception = e.peek(1);
  PyObject* traceback = PyException_GetTraceback(exception);
  // The row's fact is the depth of the exit method. Where there is a place for its `self`, that is above it.
  PyObject* self = e.fact() == 5 ? e.peek(4) : nullptr;
  PyObject* room[5] = {nullptr, self, reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception,
                       traceback != nullptr ? traceback : Py_None};
  const int count = self != nullptr ? 4 : 3;
  PyObject* result = e.semantics().call(e.activation(), e.peek(e.fact()), room + 5 - count,
                                        static_cast<size_t>(count) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_XDECREF(traceback);
  return e.finish(0, result);
}

// A StopIteration that leaves a generator would look like its end.
Step stopiteration_error(Evaluator& e, int) {
  if (Step step = e.ask("STOPITERATION_ERROR"); step != Step::kNext) return step;
  PyObject* exception = e.peek(1);
  int flags = e.code()->co_flags;
  const char* message = nullptr;
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration))
    message = flags & CO_ASYNC_GENERATOR ? "async generator raised StopIteration"
              : flags & CO_COROUTINE     ? "coroutine raised StopIteration"
                                         : "generator raised StopIteration";
  else if ((flags & CO_ASYNC_GENERATOR) && PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration))
    message = "async generator raised StopAsyncIteration";
  if (message == nullptr) return Step::kNext;
  PyObject* error = PyObject_CallFunction(PyExc_RuntimeError, "s", message);
  if (error == nullptr) return Step::kError;
  PyException_SetCause(error, Py_NewRef(exception));
  PyException_SetContext(error, Py_NewRef(exception));
  e.replace(1, error);
  return Step::kNext;
}

}  // namespace magneto::evaluator::op
