// Opcodes that end or suspend a frame, and those of generators and coroutines.
#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

Step return_value(Evaluator& e, int) {
  e.set_result(Py_NewRef(e.peek(1)));
  return Step::kReturn;
}

Step return_const(Evaluator& e, int index) {
  e.set_result(Py_NewRef(e.constant(index)));
  return Step::kReturn;
}

// CPython moves the frame into a new generator and returns that; nothing of the body has run.
Step return_generator(Evaluator&, int) { return Step::kYield; }

Step yield_value(Evaluator& e, int) {
  if (Step step = e.ask("YIELD_VALUE"); step != Step::kNext) return step;
  e.set_result(Py_NewRef(e.peek(1)));
  return Step::kYield;
}

Step send(Evaluator& e, int distance) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* value = nullptr;
  PySendResult how = PyIter_Send(e.peek(2), e.peek(1), &value);
  if (how == PYGEN_ERROR) return Step::kError;
  e.replace(1, value);
  if (how == PYGEN_NEXT) return Step::kNext;
  if (e.fact() == 0) end_send(e, 0);  // an instruction of its own in later versions
  e.jump(distance);
  return Step::kNext;
}

Step end_send(Evaluator& e, int) {
  PyObject* value = e.pop();
  e.replace(1, value);
  return Step::kNext;
}

static Step raise_top_again(Evaluator& e) {
  set_error(Py_NewRef(e.peek(1)));
  return Step::kReraise;
}

Step cleanup_throw(Evaluator& e, int) {
  PyObject* exception = e.peek(1);
  if (!PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) return raise_top_again(e);
  PyObject* value = Py_NewRef(reinterpret_cast<PyStopIterationObject*>(exception)->value);
  e.drop(3);
  e.push(Py_NewRef(Py_None));
  e.push(value);
  return Step::kNext;
}

Step get_yield_from_iter(Evaluator& e, int) {
  PyObject* object = e.peek(1);
  if (PyCoro_CheckExact(object)) {
    if (e.code()->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) return Step::kNext;
    PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
    return Step::kError;
  }
  if (PyGen_CheckExact(object)) return Step::kNext;
  return e.finish(1, e.semantics().iter(e.activation(), object));
}

static bool is_coroutine(PyObject* object) {
  if (PyCoro_CheckExact(object)) return true;
  return PyGen_CheckExact(object) && (generator_code_flags(object) & CO_ITERABLE_COROUTINE) != 0;
}

static unaryfunc async_slot(PyObject* object, unaryfunc PyAsyncMethods::*slot) {
  PyAsyncMethods* methods = Py_TYPE(object)->tp_as_async;
  return methods != nullptr ? methods->*slot : nullptr;
}

/// What `await object` iterates; new reference.
static PyObject* await_iterator(PyObject* object) {
  if (kFindsAwaitables) return await_by_cpython(object);
  if (is_coroutine(object)) return Py_NewRef(object);
  unaryfunc await = async_slot(object, &PyAsyncMethods::am_await);
  if (await == nullptr) {
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  PyObject* iterator = await(object);
  if (iterator == nullptr) return nullptr;
  if (is_coroutine(iterator)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    Py_CLEAR(iterator);
  } else if (!PyIter_Check(iterator)) {
    PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'", Py_TYPE(iterator)->tp_name);
    Py_CLEAR(iterator);
  }
  return iterator;
}

/// A coroutine that somebody awaits already cannot be awaited again.
static bool is_awaited(PyObject* coroutine) {
  PyObject* awaited = PyObject_GetAttrString(coroutine, "cr_await");
  if (awaited == nullptr) {
    PyErr_Clear();
    return false;
  }
  Py_DECREF(awaited);  // only compared below
  return awaited != Py_None;
}

Step get_awaitable(Evaluator& e, int where) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* object = e.peek(1);
  PyObject* iterator = await_iterator(object);
  if (iterator == nullptr) {
    if (where != 0 && async_slot(object, &PyAsyncMethods::am_await) == nullptr)
      PyErr_Format(PyExc_TypeError, "'async with' received an object from %s that does not implement __await__: %.100s",
                   where == 1 ? "__aenter__" : "__aexit__", Py_TYPE(object)->tp_name);
    return Step::kError;
  }
  if (PyCoro_CheckExact(iterator) && is_awaited(iterator)) {
    Py_DECREF(iterator);
    PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
    return Step::kError;
  }
  e.replace(1, iterator);
  return Step::kNext;
}

Step get_aiter(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* object = e.peek(1);
  unaryfunc aiter = async_slot(object, &PyAsyncMethods::am_aiter);
  if (aiter == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an object with __aiter__ method, got %.100s",
                 Py_TYPE(object)->tp_name);
    return Step::kError;
  }
  PyObject* iterator = aiter(object);
  if (iterator == nullptr) return Step::kError;
  if (async_slot(iterator, &PyAsyncMethods::am_anext) == nullptr) {
    PyErr_Format(PyExc_TypeError,
                 "'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
                 Py_TYPE(iterator)->tp_name);
    Py_DECREF(iterator);
    return Step::kError;
  }
  e.replace(1, iterator);
  return Step::kNext;
}

Step get_anext(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* iterator = e.peek(1);
  unaryfunc anext = async_slot(iterator, &PyAsyncMethods::am_anext);
  if (anext == nullptr) {
    PyErr_Format(PyExc_TypeError, "'async for' requires an iterator with __anext__ method, got %.100s",
                 Py_TYPE(iterator)->tp_name);
    return Step::kError;
  }
  PyObject* next = anext(iterator);
  if (next == nullptr) return Step::kError;
  if (PyAsyncGen_CheckExact(iterator)) {  // its awaitable is one of CPython's own
    e.push(next);
    return Step::kNext;
  }
  PyObject* awaitable = await_iterator(next);
  if (awaitable == nullptr)
    _PyErr_FormatFromCause(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                           Py_TYPE(next)->tp_name);
  Py_DECREF(next);
  return e.finish(0, awaitable);
}

Step end_async_for(Evaluator& e, int) {
  if (!PyErr_GivenExceptionMatches(e.peek(1), PyExc_StopAsyncIteration)) return raise_top_again(e);
  e.drop(2);
  return Step::kNext;
}

}  // namespace magneto::evaluator::op
