// Opcodes that build the frame's own containers.
#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

static Step built(Evaluator& e, int count, PyObject* object) {
  if (object == nullptr) return Step::kError;
  e.replace(count, object);
  e.semantics().made(e.activation(), object);
  return Step::kNext;
}

Step build_tuple(Evaluator& e, int count) {
  PyObject* tuple = make_tuple(e.top() - count, count);
  if (tuple == nullptr) return Step::kError;
  for (int i = 0; i < count; ++i) e.pop_slot();  // the tuple has them
  return built(e, 0, tuple);
}

Step build_list(Evaluator& e, int count) {
  PyObject* list = PyList_New(count);
  if (list == nullptr) return Step::kError;
  for (int i = count; i-- > 0;) PyList_SET_ITEM(list, i, e.pop());
  return built(e, 0, list);
}

/// Hashing and comparing this key runs nobody's code and reads nothing but the key.
static bool is_quiet_key(PyObject* key) {
  PyTypeObject* type = Py_TYPE(key);
  if (PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBytes_CheckExact(key) || PyFloat_CheckExact(key) ||
      PyBool_Check(key) || key == Py_None || key == Py_Ellipsis)
    return true;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (!is_quiet_key(PyTuple_GET_ITEM(key, i))) return false;
    return true;
  }
  return type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

/// Asks about keys that are not quiet: `count` of them, the first at `depth` on the stack, one every `stride` entries.
static Step ask_about_keys(Evaluator& e, int depth, int count, int stride) {
  for (int i = 0; i < count; ++i)
    if (!is_quiet_key(e.peek(depth - i * stride))) return e.ask();
  return Step::kNext;
}

Step build_set(Evaluator& e, int count) {
  if (Step step = ask_about_keys(e, count, count, 1); step != Step::kNext) return step;
  PyObject* set = PySet_New(nullptr);
  if (set == nullptr) return Step::kError;
  for (int depth = count; depth > 0; --depth) {
    e.semantics().keyed(e.activation(), e.peek(depth));
    if (PySet_Add(set, e.peek(depth)) == 0) continue;
    Py_DECREF(set);
    return Step::kError;
  }
  return built(e, count, set);
}

Step build_map(Evaluator& e, int count) {
  if (Step step = ask_about_keys(e, 2 * count, count, 2); step != Step::kNext) return step;
  PyObject* dict = PyDict_New();
  if (dict == nullptr) return Step::kError;
  for (int depth = 2 * count; depth > 0; depth -= 2) {
    e.semantics().keyed(e.activation(), e.peek(depth));
    if (PyDict_SetItem(dict, e.peek(depth), e.peek(depth - 1)) == 0) continue;
    Py_DECREF(dict);
    return Step::kError;
  }
  return built(e, 2 * count, dict);
}

Step build_const_key_map(Evaluator& e, int count) {
  PyObject* keys = e.peek(1);
  if (!is_quiet_key(keys))
    if (Step step = e.ask(); step != Step::kNext) return step;
  PyObject* dict = PyDict_New();
  if (dict == nullptr) return Step::kError;
  for (int i = 0; i < count; ++i) {
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(keys, i), e.peek(count + 1 - i)) == 0) continue;
    Py_DECREF(dict);
    return Step::kError;
  }
  return built(e, count + 1, dict);
}

Step build_string(Evaluator& e, int count) {
  const Objects pieces(e.top() - count, count);
  return e.finish(count, e.semantics().join(e.activation(), pieces.data(), count));
}

// The parts of a t-string.
Step build_interpolation(Evaluator& e, int argument) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  const bool has_spec = (argument & 1) != 0;
  const int count = has_spec ? 3 : 2;
  static PyObject* const empty = PyUnicode_InternFromString("");
  PyObject* spec = has_spec ? e.peek(1) : empty;
  return built(e, count, make_interpolation(e.peek(count), e.peek(count - 1), argument >> 2, spec));
}

Step build_template(Evaluator& e, int) {
  if (Step step = e.ask(); step != Step::kNext) return step;
  return built(e, 2, make_template(e.peek(2), e.peek(1)));
}

Step build_slice(Evaluator& e, int count) {
  PyObject* slice =
      count == 3 ? PySlice_New(e.peek(3), e.peek(2), e.peek(1)) : PySlice_New(e.peek(2), e.peek(1), nullptr);
  return built(e, count, slice);
}

Step list_append(Evaluator& e, int depth) {
  return e.finish(1, e.semantics().collect(e.activation(), e.peek(depth + 1), nullptr, e.peek(1)));
}

Step set_add(Evaluator& e, int depth) {
  if (Step step = ask_about_keys(e, 1, 1, 1); step != Step::kNext) return step;
  return e.finish(1, e.semantics().collect(e.activation(), e.peek(depth + 1), nullptr, e.peek(1)));
}

Step map_add(Evaluator& e, int depth) {
  if (Step step = ask_about_keys(e, 2, 1, 1); step != Step::kNext) return step;
  return e.finish(2, e.semantics().collect(e.activation(), e.peek(depth + 2), e.peek(2), e.peek(1)));
}

Step list_extend(Evaluator& e, int depth) {
  return e.finish(1, e.semantics().extend_list(e.activation(), e.peek(depth + 1), e.peek(1)));
}

Step set_update(Evaluator& e, int depth) {
  return e.finish(1, e.semantics().update_set(e.activation(), e.peek(depth + 1), e.peek(1)));
}

Step dict_update(Evaluator& e, int depth) {
  return e.finish(1, e.semantics().update_dict(e.activation(), e.peek(depth + 1), e.peek(1)));
}

Step dict_merge(Evaluator& e, int depth) {
  // Below the dict are the positional arguments and the callable, whose name an error mentions.
  PyObject* callable = e.callable(depth + 3);
  return e.finish(1, e.semantics().merge_dict(e.activation(), e.peek(depth + 1), e.peek(1), callable));
}

Step list_to_tuple(Evaluator& e, int) { return built(e, 1, PyList_AsTuple(e.peek(1))); }

}  // namespace magneto::evaluator::op
