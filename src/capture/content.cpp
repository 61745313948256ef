// capture/content.cpp
#include "capture/content.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "capture/libraries.h"
#include "capture/recipe.h"

namespace magneto::capture {

namespace {

/// Of modules that do no more in it than to compare and to hash: enumerations, paths, fractions, sizes.
bool is_of_a_library(PyObject* function) {
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const char* text = PyUnicode_AsUTF8(code->co_filename);
  if (!text) PyErr_Clear();
  const std::string_view file = text ? text : "";
  if (is_in_folder(file, torch_folder())) return true;
  return is_in_folder(file, standard_folder()) && file.find("/site-packages/") == file.npos &&
         file.find("/test/") == file.npos;
}

bool is_of_the_program(PyTypeObject* type, const char* name) {
  const Ref key = Ref::take(PyUnicode_InternFromString(name));
  PyObject* const method = key ? _PyType_Lookup(type, key.get()) : nullptr;
  if (!method || method == Py_None) return false;
  for (const PyTypeObject* of_c : {&PyWrapperDescr_Type, &PyMethodDescr_Type, &PyCFunction_Type})
    if (Py_TYPE(method) == of_c) return false;
  return !PyFunction_Check(method) || !is_of_a_library(method);
}

}  // namespace

PyTypeObject* c_type(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  while (is_python_class(type)) type = type->tp_base;
  return type;
}

bool runs_program(PyObject* key) {
  PyTypeObject* const type = Py_TYPE(key);
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (runs_program(PyTuple_GET_ITEM(key, i))) return true;
    return false;
  }
  if (PyFrozenSet_CheckExact(key)) return has_program_keys(key);
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  return is_of_the_program(type, "__hash__") || is_of_the_program(type, "__eq__");
}

PyObject* quiet_entry(PyObject* dict, PyObject* key) {
  if (!PyUnicode_CheckExact(key) && runs_program(key)) {
    Py_ssize_t position = 0;
    PyObject *known, *value;
    while (PyDict_Next(dict, &position, &known, &value))
      if (known == key) return value;
    return nullptr;
  }
  PyObject* const found = PyDict_GetItemWithError(dict, key);
  if (!found) PyErr_Clear();
  return found;
}

bool has_program_keys(PyObject* container) {
  if (PyDict_Check(container)) {  // in no order: not even an ordered one asks its keys for their hashes
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(container, &position, &key, &value))
      if (runs_program(key)) return true;
    return false;
  }
  const std::vector<Ref> keys = PyAnySet_Check(container) ? elements_of(container) : std::vector<Ref>();
  return std::any_of(keys.begin(), keys.end(), [](const Ref& key) { return runs_program(key.get()); });
}

std::vector<std::pair<Ref, Ref>> items_of(PyObject* dict) {
  std::vector<std::pair<Ref, Ref>> items;
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) items.emplace_back(Ref::share(key), Ref::share(value));
  if (!PyODict_Check(dict)) return items;
  std::unordered_map<PyObject*, Ref> values;
  for (auto& [name, of] : items) values.emplace(name.get(), std::move(of));
  items.clear();
  const Ref iterator = Ref::take(PyODict_Type.tp_iter(dict));
  while (Ref name = Ref::take(iterator ? PyIter_Next(iterator.get()) : nullptr))
    if (const auto found = values.find(name.get()); found != values.end())
      items.emplace_back(std::move(name), std::move(found->second));
  PyErr_Clear();
  return items;
}

std::vector<Ref> elements_of(PyObject* container) {
  std::vector<Ref> elements;
  if (PyDict_Check(container)) {
    for (auto& [key, value] : items_of(container)) elements.push_back(std::move(key));
    return elements;
  }
  if (PyList_Check(container) || PyTuple_Check(container)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(container); ++i)
      elements.push_back(Ref::share(PySequence_Fast_GET_ITEM(container, i)));
    return elements;
  }
  const Ref iterator = Ref::take(count_of(container) >= 0 ? c_type(container)->tp_iter(container) : nullptr);
  while (Ref element = Ref::take(iterator ? PyIter_Next(iterator.get()) : nullptr))
    elements.push_back(std::move(element));
  PyErr_Clear();
  return elements;
}

Py_ssize_t count_of(PyObject* container) {
  if (PyList_Check(container) || PyTuple_Check(container)) return PySequence_Fast_GET_SIZE(container);
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  if (PyAnySet_Check(container)) return PySet_GET_SIZE(container);
  return std::string_view(c_type(container)->tp_name) == "collections.deque" ? Py_SIZE(container) : -1;
}

PyObject* content_of(PyObject* container) {
  if (PyAnySet_Check(container)) return PySet_New(container);
  if (PyDict_Check(container) && Py_TYPE(container)->tp_iter == PyDict_Type.tp_iter) return PyDict_Copy(container);
  if (PyDict_Check(container)) {
    const bool is_ordered = PyODict_Check(container);
    Ref copy = Ref::take(is_ordered ? PyODict_New() : PyDict_New());
    for (const auto& [key, value] : items_of(container))
      if (!copy || (is_ordered ? PyODict_SetItem : PyDict_SetItem)(copy.get(), key.get(), value.get()) < 0)
        return nullptr;
    return copy.release();
  }
  if (count_of(container) < 0) {
    PyErr_BadInternalCall();
    return nullptr;
  }
  const std::vector<Ref> elements = elements_of(container);
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(elements.size()));
  for (size_t i = 0; list && i < elements.size(); ++i)
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), elements[i].borrow_new());
  return list;
}

}  // namespace magneto::capture
