#include "capture/iterators.h"

#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/evaluator.h"

namespace magneto::capture {

bool is_reducible_iterator(PyTypeObject* type) {
  static const std::unordered_set<std::string_view> names = {"list_iterator",
                                                             "tuple_iterator",
                                                             "range_iterator",
                                                             "longrange_iterator",
                                                             "iterator",
                                                             "list_reverseiterator",
                                                             "str_iterator",
                                                             "str_ascii_iterator",
                                                             "bytes_iterator",
                                                             "enumerate",
                                                             "reversed",
                                                             "map",
                                                             "filter",
                                                             "zip",
                                                             "dict_keyiterator",
                                                             "dict_valueiterator",
                                                             "dict_itemiterator",
                                                             "dict_reversekeyiterator",
                                                             "dict_reversevalueiterator",
                                                             "dict_reverseitemiterator",
                                                             "odict_iterator",
                                                             "itertools.islice",
                                                             "itertools.chain",
                                                             "itertools.repeat",
                                                             "itertools.count",
                                                             "itertools.product",
                                                             "itertools.accumulate",
                                                             "itertools.zip_longest",
                                                             "itertools.starmap",
                                                             "itertools.takewhile",
                                                             "itertools.permutations",
                                                             "itertools.combinations",
                                                             "itertools.cycle",
                                                             "itertools.compress",
                                                             "itertools.dropwhile",
                                                             "itertools.filterfalse"};
  return names.count(type->tp_name) > 0;
}

/// iterator.name(argument). Those of itertools warn that they will not for ever.
static PyObject* call_silently(PyObject* iterator, const char* name, PyObject* argument) {
  const Ref method = Ref::take(PyObject_GetAttrString(iterator, name));
  if (!method) return nullptr;
#if PY_VERSION_HEX >= 0x030C0000
  if (strncmp(Py_TYPE(iterator)->tp_name, "itertools.", 10) == 0) {
    const Ref warnings = Ref::take(PyImport_ImportModule("warnings"));
    const Ref quiet = Ref::take(warnings ? PyObject_CallMethod(warnings.get(), "catch_warnings", nullptr) : nullptr);
    const Ref entered = Ref::take(quiet ? PyObject_CallMethod(quiet.get(), "__enter__", nullptr) : nullptr);
    const Ref ignored =
        Ref::take(entered ? PyObject_CallMethod(warnings.get(), "simplefilter", "s", "ignore") : nullptr);
    Ref result = Ref::take(ignored ? PyObject_CallFunctionObjArgs(method.get(), argument, nullptr) : nullptr);
    if (entered) {
      const ErrorAside error;
      Ref::take(PyObject_CallMethod(quiet.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    }
    return result.release();
  }
#endif
  return PyObject_CallFunctionObjArgs(method.get(), argument, nullptr);
}

// ---------------------------------------------------------------------------------------------------- of dicts

/// Which view of its dict an iterator walks, and from which end; nullptr: it is none of a dict.
static const char* view_of(PyTypeObject* type, bool* reverse) {
  std::string_view name = type->tp_name;
  constexpr std::string_view kReverse = "dict_reverse";
  *reverse = name.starts_with(kReverse);
  name.remove_prefix(*reverse ? kReverse.size() : name.starts_with("dict_") ? 5 : name.size());
  return name == "keyiterator"     ? "keys"
         : name == "valueiterator" ? "values"
         : name == "itemiterator"  ? "items"
                                   : nullptr;
}

/// Its __reduce__ would make a list of what is left, which no longer knows whether the dict has changed.
static PyObject* reduce_dict_iterator(PyObject* iterator) {
  PyObject* dict = nullptr;
  Py_TYPE(iterator)->tp_traverse(
      iterator,
      [](PyObject* held, void* found) {
        if (PyDict_Check(held)) *static_cast<PyObject**>(found) = held;
        return 0;
      },
      &dict);
  const Py_ssize_t left = dict ? PyObject_LengthHint(iterator, -1) : -1;
  if (left < 0 || left > PyDict_GET_SIZE(dict)) return nullptr;
  // 0: it is at its end, or the dict has changed, and to walk on is an error
  if (left == 0 && !Ref::take(call_silently(iterator, "__reduce__", nullptr))) return nullptr;
  return Py_BuildValue("O(O)n", Py_TYPE(iterator), dict, PyDict_GET_SIZE(dict) - left);
}

static PyObject* make_dict_iterator(PyTypeObject* type, PyObject* dict, PyObject* state) {
  bool reverse = false;
  const char* const name = view_of(type, &reverse);
  const Ref method = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyDict_Type), name));
  const Ref view = Ref::take(method ? PyObject_CallOneArg(method.get(), dict) : nullptr);
  if (!view) return nullptr;
  Ref iterator = Ref::take(reverse ? PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyReversed_Type), view.get())
                                   : PyObject_GetIter(view.get()));
  if (reverse && iterator && Py_TYPE(iterator.get()) != type)  // reversed() asks the view
    iterator = Ref::take(PyObject_CallMethod(view.get(), "__reversed__", nullptr));
  for (Py_ssize_t done = PyLong_AsSsize_t(state); iterator && done > 0; --done)
    if (!Ref::take(PyIter_Next(iterator.get()))) break;
  return PyErr_Occurred() ? nullptr : iterator.release();
}

// ---------------------------------------------------------------------------------------------------- all

PyObject* reduce_iterator(PyObject* iterator) {
  bool reverse = false;
  Ref reduced;
  if (view_of(Py_TYPE(iterator), &reverse)) reduced = Ref::take(reduce_dict_iterator(iterator));
  if (!reduced) reduced = Ref::take(call_silently(iterator, "__reduce__", nullptr));
  PyErr_Clear();
  const bool is_known = reduced && PyTuple_Check(reduced.get()) && PyTuple_GET_SIZE(reduced.get()) >= 2 &&
                        PyTuple_Check(PyTuple_GET_ITEM(reduced.get(), 1));
  return is_known ? reduced.release() : nullptr;
}

PyObject* make_iterator(PyObject* callable, PyObject* arguments, PyObject* state) {
  bool reverse = false;
  if (PyType_Check(callable) && view_of(reinterpret_cast<PyTypeObject*>(callable), &reverse))
    return make_dict_iterator(reinterpret_cast<PyTypeObject*>(callable), PyTuple_GET_ITEM(arguments, 0), state);
  Ref iterator = Ref::take(PyObject_CallObject(callable, arguments));
  // 3.12 leaves no state where the arguments tell it all.
  if (iterator && state && state != Py_None && !Ref::take(call_silently(iterator.get(), "__setstate__", state)))
    return nullptr;
  return iterator.release();
}

}  // namespace magneto::capture
