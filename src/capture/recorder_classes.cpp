// Classes that are made here: their bodies, type(name, bases, names), namedtuple, dataclass.
//
// CPython makes the class, and every function of Python that it calls on the way (the body, __prepare__, a metaclass,
// __init_subclass__, __set_name__) comes through the hook. The class is an object like others that are made here: it
// may be changed, no guard holds it, and no replay makes one. So neither it nor an instance of it can leave the graph.
// What it inherits is guarded by the versions of the classes from outside.
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

bool Recorder::is_new_class(PyObject* object) const {
  if (building_.empty() || !PyType_Check(object)) return false;
  PyObject* const bases = reinterpret_cast<PyTypeObject*>(object)->tp_bases;
  PyObject* const first = bases && PyTuple_GET_SIZE(bases) ? PyTuple_GET_ITEM(bases, 0) : nullptr;
  const auto names = [](const std::vector<Ref>& list, PyObject* one) {
    return std::any_of(list.begin(), list.end(), [&](const Ref& known) { return known.get() == one; });
  };
  const Building& now = building_.back();
  return first && names(now.bases, first) && !names(now.known, object);
}

// What C code asks of a base before the class is there: its metaclass, __prepare__, __mro_entries__.
bool Recorder::allows_bases(std::span<PyObject* const> bases) {
  for (PyObject* base : bases) {
    if (!PyType_Check(base)) {  // typing.NamedTuple is a function
      const bool is_of_typing =
          PyFunction_Check(base) && PyUnicode_Check(reinterpret_cast<PyFunctionObject*>(base)->func_module) &&
          PyUnicode_CompareWithASCIIString(reinterpret_cast<PyFunctionObject*>(base)->func_module, "typing") == 0;
      if (!is_of_typing) return false;
      guard_function(reinterpret_cast<PyFunctionObject*>(base));
      continue;
    }
    auto* const type = reinterpret_cast<PyTypeObject*>(base);
    if (PyType_IsSubtype(type, tensor_base())) return false;
    if (floating(base)) pin(base);
    for (PyTypeObject* of : {type, Py_TYPE(type)})
      for (Py_ssize_t i = 0; of->tp_mro && i < PyTuple_GET_SIZE(of->tp_mro); ++i)
        guard_type(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(of->tp_mro, i)));
  }
  return active_;
}

PyObject* Recorder::build_class(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                PyObject* kwnames, std::span<PyObject* const> bases) {
  const auto refuse = [&] { return stop(self, Stop::kClassBody, ""); };
  if (rehearsal_ || !allows_bases(bases)) return refuse();
  for (size_t i = 0; i < total_count(nargsf, kwnames); ++i)
    if (!slot_known(self, args[i]) || (is_outside(args[i]) && PyDict_Check(args[i]))) return refuse();
  Building building;
  static PyObject* const object_class = reinterpret_cast<PyObject*>(&PyBaseObject_Type);
  std::vector<PyObject*> all(bases.begin(), bases.end());
  if (all.empty()) all.push_back(object_class);
  for (PyObject* base : all) {
    if (!PyType_Check(base)) continue;
    building.bases.push_back(Ref::share(base));
    const Ref known =
        Ref::take(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__", "O", base));
    if (!known) return nullptr;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(known.get()); ++i)
      building.known.push_back(Ref::share(PyList_GET_ITEM(known.get(), i)));
  }
  const size_t outer = building_.size();
  building_.push_back(std::move(building));
  PyObject* result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
  if (building_.size() > outer) building_.resize(outer);  // a recording that has ended has let them go
  if (!result || !active_ || info(result)) return result;
  if (PyType_Check(result))
    enter_made(result);
  else
    adopt_result(self, result, "a class body");
  return result;
}

PyObject* Recorder::build_named_class(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                      PyObject* kwnames, size_t skip) {
  const size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  PyObject* const bases = positional == skip + 3 ? args[skip + 1] : nullptr;
  if (!bases || !PyTuple_Check(bases) || !PyDict_Check(args[skip + 2])) return stop(self, Stop::kClassBody, "");
  if (is_outside(bases)) guard_all(self, bases);
  if (!active_) return PyObject_Vectorcall(callable, args, nargsf, kwnames);
  return build_class(self, callable, args, nargsf, kwnames,
                     {&PyTuple_GET_ITEM(bases, 0), static_cast<size_t>(PyTuple_GET_SIZE(bases))});
}

// Of plain texts and types, or of a class that is made here: what these functions make is new, and what they read of
// the bases has the versions of their classes.
PyObject* Recorder::finish_class(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                                 PyObject* kwnames) {
  const size_t count = total_count(nargsf, kwnames);
  if (rehearsal_ || count == 0) return nullptr;
  const bool decorates = PyType_Check(args[0]);
  if (decorates && !is_made(args[0])) return nullptr;
  for (size_t i = decorates ? 1 : 0; i < count; ++i) {
    specialise(args[i]);
    const bool is_plain =
        is_value(args[i]) || PyTuple_CheckExact(args[i]) || PyList_CheckExact(args[i]) || PyDict_CheckExact(args[i]);
    if (!is_plain || !readable(self, args[i])) return nullptr;
  }
  if (decorates) {
    auto* const type = reinterpret_cast<PyTypeObject*>(args[0]);
    if (!allows_bases({&PyTuple_GET_ITEM(type->tp_bases, 0), static_cast<size_t>(PyTuple_GET_SIZE(type->tp_bases))}))
      return nullptr;
    PyObject *name, *value;  // it shows defaults in the doc string: of objects whose text is their own
    for (Py_ssize_t at = 0; PyDict_Next(type_dict(type), &at, &name, &value);)
      if (is_tensor(value) || (is_python_class(Py_TYPE(value)) && strcmp(Py_TYPE(value)->tp_name, "Field") != 0))
        return nullptr;
  }
  if (!active_) return nullptr;
  PyObject* result = call_unrecorded(function, args, nargsf, kwnames);
  if (result && active_ && !info(result)) enter_made(result);
  return result;
}

PyObject* Recorder::made_holder(PyTypeObject* type, PyObject* name) {
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* const at = PyTuple_GET_ITEM(type->tp_mro, i);
    PyObject* const names = type_dict(reinterpret_cast<PyTypeObject*>(at));
    if (names && PyDict_GetItemWithError(names, name)) return is_made(at) ? at : nullptr;
  }
  PyErr_Clear();
  return nullptr;
}

void Recorder::enter_class_part(PyTypeObject* type, PyObject* name, PyObject* object) {
  if (is_value(object) || info(object) || (is_tensor(object) && made_here(tensor_of(object)))) return;
  if (is_made(reinterpret_cast<PyObject*>(type)) && made_holder(type, name))
    enter_made(object);
  else
    enter_outside(object, guards().sources.pinned({}, name));
}

}  // namespace magneto::capture
