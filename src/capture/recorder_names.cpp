// Names, attributes and items.
#include <structmember.h>

#include "aten/data_of.h"
#include "capture/content.h"
#include "capture/evaluator.h"
#include "capture/faults.h"
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/recorder_ends_internal.h"
#include "capture/recorder_torch_internal.h"
#include "capture/state_word.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

// ---------------------------------------------------------------------------------------------------- names

PyObject* Recorder::load_global(Activation& self, PyObject* name) {
  if (!active_) return Semantics::load_global(self, name);
  PyObject* globals = self.frame()->f_globals;
  PyObject* builtins = self.frame()->f_builtins;
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins))
    return stop(self, Stop::kInstruction, "LOAD_GLOBAL of a custom namespace");
  guard_key(self, globals, name, nullptr, {}, Reader::kTags);
  PyObject* holder = globals;
  PyObject* value = PyDict_GetItemWithError(globals, name);
  if (!value && !PyErr_Occurred()) {
    holder = builtins;
    guard_key(self, builtins, name, nullptr, {}, Reader::kTags);
    value = PyDict_GetItemWithError(builtins, name);
  }
  if (!value || !active_) return Py_XNewRef(value);
  Py_INCREF(value);
  if (!is_dirty(holder, name)) adopt(self, value, Source::Kind::kPinned, nullptr, name, -1, "a global");
  return tagged(holder, name, value);
}

int Recorder::store_global(Activation& self, PyObject* name, PyObject* value) {
  if (!active_) return Semantics::store_global(self, name, value);
  PyObject* globals = self.frame()->f_globals;
  if (rehearsal_) return stop_status(self, Stop::kEffect, "an assignment to a global variable");
  if (!info(globals)) enter_outside(globals, guards().sources.pinned({}, nullptr));
  if (!value) guard_key(self, globals, name, nullptr, {});  // what is deleted must be there at every call
  taken_away(PyDict_GetItemWithError(globals, name));
  remember(globals, name);
  int status = Semantics::store_global(self, name, value);
  if (status == 0) {
    record_set(Effect::Kind::kSetItem, globals, name, value, true);
    make_dirty(globals, name);
  }
  return status;
}

PyObject* Recorder::load_name(Activation& self, PyObject* name) {
  if (!active_) return Semantics::load_name(self, name);
  PyObject* const names = self.frame()->f_locals;  // of the body of a class
  if (!names || !is_made(names) || !PyDict_Check(names) || !inherits(Py_TYPE(names), "__getitem__", &PyDict_Type) ||
      missing_method(names, name))
    return stop(self, Stop::kInstruction, "LOAD_NAME");
  if (PyObject* value = PyDict_GetItemWithError(names, name)) return Py_NewRef(value);
  return PyErr_Occurred() ? nullptr : load_global(self, name);
}

int Recorder::store_name(Activation& self, PyObject* name, PyObject* value) {
  if (!active_) return Semantics::store_name(self, name, value);
  PyObject* const names = self.frame()->f_locals;
  if (!names || !is_made(names) || !PyDict_Check(names)) return stop_status(self, Stop::kInstruction, "STORE_NAME");
  return Semantics::store_name(self, name, value);  // one of an enumeration takes it in Python
}

PyObject* Recorder::load_cell(Activation& self, PyObject* cell) {
  if (!active_) return Semantics::load_cell(self, cell);
  guard_cell(cell);
  PyObject* value = Semantics::load_cell(self, cell);
  if (!value) return nullptr;
  if (!is_made(cell) && !originals_.count(cell))
    adopt(self, value, Source::Kind::kCell, cell, nullptr, -1, "a closure variable");
  return tagged(cell, nullptr, value);
}

int Recorder::store_cell(Activation& self, PyObject* cell, PyObject* value) {
  if (!active_) return Semantics::store_cell(self, cell, value);
  if (is_older(cell)) return stop_status(self, Stop::kEffect, "an assignment to a variable of another function");
  if (!is_made(cell)) {
    if (!info(cell)) return stop_status(self, Stop::kUnknownObject, "a closure");
    if (!value) {  // it must have a content at every call
      Ref content = Ref::take(load_cell(self, cell));
      if (!content) PyErr_Clear();
      if (content && floating(content.get())) resolve(content.get());
    }
    taken_away(PyCell_GET(cell));
    record_set(Effect::Kind::kSetCell, cell, nullptr, value, true);
    originals_.emplace(cell, Py_NewRef(Py_None));  // from now on its content is ours
  }
  return Semantics::store_cell(self, cell, value);
}

// ---------------------------------------------------------------------------------------------------- attributes

// Attributes of tensors that follow from the guarded properties, and those that are views.
static bool is_tensor_property(const char* name) {
  static const std::unordered_set<std::string_view> names = {
      "shape",   "dtype",    "device",    "ndim",          "requires_grad", "is_cuda",      "is_cpu",
      "layout",  "itemsize", "is_meta",   "is_sparse",     "is_mps",        "is_quantized", "is_nested",
      "is_xpu",  "nbytes",   "is_mkldnn", "is_sparse_csr", "is_leaf",       "is_xla",       "is_hpu",
      "is_mtia", "is_maia",  "is_vulkan", "is_ipu",        "__class__",     "__module__",   "__doc__"};
  return names.count(name) > 0;
}
static bool is_tensor_view(const char* name) {
  static const std::unordered_set<std::string_view> names = {"T", "mT", "H", "mH", "real", "imag"};
  return names.count(name) > 0;
}

PyObject* Recorder::tensor_attr(Activation& self, PyObject* tensor, PyObject* name, bool* handled) {
  *handled = true;
  const WithoutFunctionModes plain;  // a default device says nothing of attributes
  if (!usable_tensor(tensor, "an unknown place")) return stop(self, unreadable_stop_, unreadable_detail_);
  const char* text = PyUnicode_AsUTF8(name);
  if (is_tensor_property(text)) {
    PyObject* result = PyObject_GetAttr(tensor, name);
    if (result && !is_value(result) && !info(result)) {
      if (Py_REFCNT(result) == 1)
        enter_made(result);
      else
        enter_outside(result, guards().sources.pinned({}, name));
    }
    if (!result) return nullptr;
    return repeat_symbolically(result, std::span(&tensor, 1),
                               [&](PyObject* const* of) { return PyObject_GetAttr(of[0], name); });
  }
  if (is_tensor_view(text))
    return torch_leaf(self, std::string("Tensor.") + text, std::span(&tensor, 1),
                      [&](PyObject* const* of) { return PyObject_GetAttr(of[0], name); });
  if (strcmp(text, "data") == 0 && is_plain_tensor(tensor))
    return torch_leaf(self, "Tensor.data", std::span(&tensor, 1),
                      [](PyObject* const* of) { return THPVariable_Wrap(aten::data_of(tensor_of(of[0]))); });
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(tensor), name);
  if (descriptor && (Py_TYPE(descriptor) == &PyGetSetDescr_Type || Py_TYPE(descriptor) == &PyMemberDescr_Type)) {
    if (strcmp(text, "grad") == 0 && is_outside(tensor)) {
      PyObject* result = PyObject_GetAttr(tensor, name);
      if (!result || !reads_.insert({tensor, result}).second) return result;
      if (result == Py_None || info(result)) {
        guard_member(tensor, name, result);
      } else {  // each backward makes another one
        const SourceId source = source_of(tensor);
        const SourceId owner = floating(tensor) ? source : guards().sources.held(source, tensor);
        enter_outside(result, guards().sources.part(Source::Kind::kMember, owner, name));
      }
      return result;
    }
    return stop(self, Stop::kTensorAttribute, text);
  }
  PyObject* dict = is_outside(tensor) ? instance_dict(tensor) : nullptr;
  const bool is_data = descriptor && Py_TYPE(descriptor)->tp_descr_set;
  if (dict && !is_data)
    guard_key(self, dict, name, tensor, source_of(tensor), Reader::kTags);
  else if (!descriptor && !instance_dict(tensor) && is_outside(tensor))
    guard_member(tensor, name, nullptr);  // it has no attributes of its own
  *handled = false;                       // a method, a Python property, an attribute of the user's
  return nullptr;
}

/// Methods of lists that move references, and no more.
static bool looks_at_no_element(PyObject* name) {
  for (const char* method : {"append", "extend", "insert", "pop", "clear", "reverse"})
    if (PyUnicode_CompareWithASCIIString(name, method) == 0) return true;
  return false;
}

// What a generic attribute look-up reads. 1: the value comes out of a C member or getter.
int Recorder::guard_attr(Activation& self, PyObject* owner, PyObject* name, Reader reader) {
  PyTypeObject* type = Py_TYPE(owner);
  if (!PyList_CheckExact(owner) || !looks_at_no_element(name)) specialise(owner);
  // A descriptor that C code hands to its own __get__ is found on the class, whose version is guarded.
  auto descriptor_of = [&](PyTypeObject* holder) {
    PyObject* found = _PyType_Lookup(holder, name);
    if (found && is_python_class(Py_TYPE(found)) && !info(found))
      enter_outside(found, guards().sources.pinned({}, name));
  };
  descriptor_of(type);
  if (PyType_Check(owner)) descriptor_of(reinterpret_cast<PyTypeObject*>(owner));
  if (PyModule_CheckExact(owner)) {
    guard_key(self, PyModule_GetDict(owner), name, nullptr, source_of(owner), reader);
    return 0;
  }
  if (PyType_Check(owner)) {
    guard_type(reinterpret_cast<PyTypeObject*>(owner));
    guard_type(type);
    return 0;
  }
  if (type == &PySuper_Type) {
    struct SuperObject {
      PyObject_HEAD PyTypeObject* type;
      PyObject* object;
      PyTypeObject* object_type;
    };
    auto* super = reinterpret_cast<SuperObject*>(owner);
    if (super->object_type) guard_type(super->object_type);
    if (super->object && !is_value(super->object) && !PyType_Check(super->object)) guard_class(super->object);
    return 0;
  }
  guard_class(owner);
  bool known_owner = is_value(owner) || info(owner) || is_constant_tuple(owner);
  if (!known_owner && !PyCFunction_Check(owner) && strncmp(type->tp_name, "torch.", 6) != 0 && !PyFunction_Check(owner))
    return stop_status(self, Stop::kUnknownObject, type->tp_name);
  if (is_effect(owner)) {  // a replay gets another one
    PyObject* const found = _PyType_Lookup(type, name);
    if (!found || !(Py_TYPE(found)->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR))
      return stop_status(self, Stop::kUnknownObject, type->tp_name);
    return 0;
  }
  if (!is_python_class(type) && !is_known_c_type(type)) {
    PyTypeObject* base = type;
    while (is_python_class(base)) base = base->tp_base;
    PyObject* descriptor = _PyType_Lookup(type, name);
    bool method = descriptor && (Py_TYPE(descriptor)->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR);
    if (strstr(type->tp_name, "_VariableFunctions")) return 0;  // the table of torch's functions
    if (!method)
      return stop_status(self, Stop::kOpaqueAttribute, std::string(type->tp_name) + "." + PyUnicode_AsUTF8(name));
    return 0;
  }
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (descriptor && Py_TYPE(descriptor)->tp_descr_set) {
    // A property and Python's __get__ are Python code, which comes through the hook. The rest is read by C.
    return !is_python_class(Py_TYPE(descriptor)) && !PyObject_TypeCheck(descriptor, &PyProperty_Type);
  }
  if (!is_outside(owner)) return 0;
  if (PyObject* dict = instance_dict(owner)) {
    guard_key(self, dict, name, owner, source_of(owner), reader);
  } else if (_PyObject_GetDictPtr(owner)) {  // a function without attributes has no dict yet
    if (!floating(owner)) {
      if (!descriptor) guard_member(owner, name, nullptr);
    } else if (reads_.insert({owner, name}).second) {
      resolve(owner);
      SourceId part = guards().sources.part(Source::Kind::kAttr, source_of(owner), name);
      guards().steps.push_back({FloatingStep::Kind::kAbsent, part, {}, {}, {}, {}, 0, {}});
    }
  }
  return 0;
}

// Which element of a named tuple an attribute is; -1: it is no such attribute.
static Py_ssize_t named_field(PyObject* owner, PyObject* name) {
  struct TupleGetter {
    PyObject_HEAD Py_ssize_t index;
  };
  PyTypeObject* type = Py_TYPE(owner);
  if (!PyTuple_Check(owner) || type->tp_getattro != PyObject_GenericGetAttr) return -1;
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (!descriptor) return -1;
  Py_ssize_t index = -1;
  if (std::string_view(Py_TYPE(descriptor)->tp_name).ends_with("collections._tuplegetter")) {  // or _collections
    index = reinterpret_cast<TupleGetter*>(descriptor)->index;
  } else if (Py_TYPE(descriptor) == &PyMemberDescr_Type && !is_python_class(type)) {  // torch.return_types.max.values
    const Py_ssize_t begin = offsetof(PyTupleObject, ob_item);
    const Py_ssize_t offset = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->offset;
    if (offset >= begin && (offset - begin) % Py_ssize_t{sizeof(PyObject*)} == 0)
      index = (offset - begin) / Py_ssize_t{sizeof(PyObject*)};
  }
  return index >= 0 && index < PyTuple_GET_SIZE(owner) && inherits(type, "__getitem__", &PyTuple_Type) ? index : -1;
}

/// torch.ops, torch.ops.aten, torch.ops.aten.add: they look for an operator when they are asked for it the first time.
static bool binds_operators(PyTypeObject* type) {
  if (!is_python_class(type)) return false;
  const std::string_view name = type->tp_name;
  return name == "_Ops" || name == "_OpNamespace" || name == "OpOverloadPacket";
}

// They do so now, and never again, whatever becomes of this recording.
void Recorder::bind_operator(PyObject* owner, PyObject* name) {
  PyObject* const dict = instance_dict(owner);
  if (!dict || PyDict_GetItemWithError(dict, name) || _PyType_Lookup(Py_TYPE(owner), name)) return PyErr_Clear();
  Hooked nobody(nullptr);
  trace_->leave();
  const Ref found = Ref::take(PyObject_GetAttr(owner, name));
  PyErr_Clear();
  if (active_) trace_->enter();
}

PyObject* Recorder::load_attr(Activation& self, PyObject* owner, PyObject* name) {
  if (!active_) return Semantics::load_attr(self, owner, name);
  if (rehearsal_ && owner == rehearsal_->context && PyUnicode_CompareWithASCIIString(name, "saved_tensors") == 0) {
    rehearsal_->asks_for_saved = true;
    if (!info(rehearsal_->saved)) enter_made(rehearsal_->saved);
    return Py_NewRef(rehearsal_->saved);
  }
  if (is_tensor(owner)) {
    bool handled;
    PyObject* result = tensor_attr(self, owner, name, &handled);
    if (handled) return result;
    result = PyObject_GetAttr(owner, name);
    if (!result) return nullptr;
    adopt(self, result, Source::Kind::kAttr, owner, name, -1, "an attribute of a tensor");
    return tagged(instance_dict(owner), name, result);
  }
  if (Py_ssize_t field = named_field(owner, name); field >= 0) {  // pair.first is pair[0]
    guard_type(Py_TYPE(owner));
    Ref index = Ref::take(PyLong_FromSsize_t(field));
    return index ? load_item(self, owner, index.get()) : nullptr;
  }
  if (binds_operators(Py_TYPE(owner))) bind_operator(owner, name);
  int member = guard_attr(self, owner, name, Reader::kTags);
  if (member == kStopStatus) return kStop;
  PyObject* result = Semantics::load_attr(self, owner, name);
  if (!result || !active_) return result;
  if (member == 1) {
    const char* text = PyUnicode_AsUTF8(name);
    if (strcmp(text, "__dict__") == 0 && PyDict_Check(result)) {
      if (is_outside(owner) && !info(result)) {
        if (floating(owner)) {
          enter_outside(result, guards().sources.part(Source::Kind::kDict, source_of(owner), nullptr));
        } else {
          enter_outside(result, source_of(owner));
          dict_guard(result, owner, source_of(owner));
        }
      } else if (is_made(owner) && !info(result)) {
        enter_made(result);
      }
      return result;
    }
    if (strcmp(text, "__class__") != 0) guard_member(owner, name, result);
    if (!is_value(result) && !info(result)) {
      if (Py_REFCNT(result) == 1)
        enter_made(result);
      else if (floating(owner))
        adopt(self, result, Source::Kind::kMember, owner, name, -1, "a slot");
      else if (is_made(owner) && !PyType_Check(result))
        adopt(self, result, Source::Kind::kMember, owner, name, -1, "a slot");
      else
        enter_outside(result, guards().sources.pinned(source_of(owner), name));
    }
    return result;
  }
  // A class attribute that a floating instance shows is pinned by the guard on its type.
  bool of_class = !PyType_Check(owner) && !PyModule_Check(owner) && _PyType_Lookup(Py_TYPE(owner), name) == result;
  if (of_class) {
    enter_class_part(Py_TYPE(owner), name, result);
  } else {
    if (PyType_Check(owner) && is_made(owner)) enter_class_part(reinterpret_cast<PyTypeObject*>(owner), name, result);
    adopt(self, result, Source::Kind::kAttr, owner, name, -1, "an attribute");
  }
  return tagged(PyModule_CheckExact(owner) ? PyModule_GetDict(owner) : instance_dict(owner), name, result);
}

int Recorder::load_method(Activation& self, PyObject* owner, PyObject* name, PyObject** method) {
  if (!active_) return Semantics::load_method(self, owner, name, method);
  // An unbound method found on the class: the class's version says all.
  PyTypeObject* type = Py_TYPE(owner);
  if (type->tp_getattro == PyObject_GenericGetAttr || is_tensor(owner)) {
    PyObject* descriptor = _PyType_Lookup(type, name);
    if (descriptor && (Py_TYPE(descriptor)->tp_flags & Py_TPFLAGS_METHOD_DESCRIPTOR)) {
      // Its class counts all handles in an attribute, so a guard of the class would fail at the next call.
      if (is_effect(owner) && PyFunction_Check(descriptor) &&
          function_class(reinterpret_cast<PyFunctionObject*>(descriptor)) == FunctionClass::kRemovesHook)
        return Semantics::load_method(self, owner, name, method);
      if (is_tensor(owner)) {
        if (!usable_tensor(owner, "an unknown place")) return stop_status(self, unreadable_stop_, unreadable_detail_);
        if (PyObject* dict = is_outside(owner) ? instance_dict(owner) : nullptr)
          guard_key(self, dict, name, owner, source_of(owner));  // one of the object's own comes first
      } else if (guard_attr(self, owner, name, Reader::kFixes) == kStopStatus) {
        return kStopStatus;
      }
      int found = Semantics::load_method(self, owner, name, method);
      if (found == 1)
        enter_class_part(type, name, *method);
      else if (found == 0 && *method)
        adopt(self, *method, Source::Kind::kAttr, owner, name, -1, "an attribute");
      return found;
    }
  }
  *method = load_attr(self, owner, name);
  if (*method == kStop) {
    *method = nullptr;
    return kStopStatus;
  }
  return *method ? 0 : -1;
}

PyObject* Recorder::load_special(Activation& self, PyObject* owner, PyObject* name) {
  if (!active_) return Semantics::load_special(self, owner, name);
  if (!is_value(owner)) {
    if (!slot_known(self, owner)) return stop(self, unreadable_stop_, unreadable_detail_);
    guard_class(owner);
  }
  PyObject* result = Semantics::load_special(self, owner, name);
  if (result) adopt(self, result, Source::Kind::kPinned, nullptr, name, -1, "a special method");
  return result;
}

PyObject* Recorder::load_super_attr(Activation& self, PyObject* super_global, PyObject* cls, PyObject* owner,
                                    PyObject* name) {
  if (!active_) return Semantics::load_super_attr(self, super_global, cls, owner, name);
  if (!cls || super_global != reinterpret_cast<PyObject*>(&PySuper_Type))
    return stop(self, Stop::kInstruction, "a replaced super()");
  PyTypeObject* type = PyType_Check(owner) ? reinterpret_cast<PyTypeObject*>(owner) : Py_TYPE(owner);
  guard_type(type);
  if (!PyType_Check(owner) && !is_value(owner)) guard_class(owner);
  PyObject* result = Semantics::load_super_attr(self, super_global, cls, owner, name);
  if (result && !info(result)) adopt(self, result, Source::Kind::kPinned, nullptr, name, -1, "super()");
  return result;
}

int Recorder::store_attr(Activation& self, PyObject* owner, PyObject* name, PyObject* value) {
  if (!active_) return Semantics::store_attr(self, owner, name, value);
  if (is_older(owner))
    return stop_status(self, Stop::kEffect, std::string("an assignment to the attribute ") + PyUnicode_AsUTF8(name));
  if (is_tensor(owner)) {
    if (PyUnicode_CompareWithASCIIString(name, "requires_grad") == 0 && value && PyBool_Check(value) &&
        is_plain_tensor(owner) && touch_tensor(owner) && tensor_of(owner).requires_grad() == (value == Py_True))
      return 0;  // it is so already
    if (PyUnicode_CompareWithASCIIString(name, "requires_grad") == 0 && value == Py_True) {
      const Ref done = Ref::take(begin_history(self, owner));
      if (done || PyErr_Occurred()) return done ? 0 : -1;
    }
    if (!is_plain_tensor(owner) || _PyType_Lookup(Py_TYPE(owner), name) || !touch_tensor(owner))
      return stop_status(self, Stop::kTensorAttribute, PyUnicode_AsUTF8(name));
    if (PyObject* dict = instance_dict(owner); !value && dict && is_outside(owner))
      guard_key(self, dict, name, owner, source_of(owner));
    taken_away(attribute_there(owner, name));
    remember(instance_dict(owner), name);
    int status = Semantics::store_attr(self, owner, name, value);
    if (status == 0) {
      record_set(Effect::Kind::kSetAttr, owner, name, value, true);
      if (PyObject* dict = instance_dict(owner)) make_dirty(dict, name);
    }
    return status;
  }
  if (PyType_Check(owner) && is_made(owner)) return Semantics::store_attr(self, owner, name, value);
  if (PyType_Check(owner))
    return stop_status(
        self, Stop::kEffect,
        std::string("an assignment to an attribute of the class ") + reinterpret_cast<PyTypeObject*>(owner)->tp_name);
  if (!slot_known(self, owner)) return stop_status(self, unreadable_stop_, unreadable_detail_);
  // C code calls the methods of a descriptor that the class, whose version is guarded, holds.
  if (PyObject* setter = _PyType_Lookup(Py_TYPE(owner), name);
      setter && Py_TYPE(setter)->tp_descr_set && is_python_class(Py_TYPE(setter)) && !info(setter)) {
    enter_outside(setter, guards().sources.pinned({}, name));
    guard_class(setter);
  }
  if (is_made(owner)) {
    guard_type(Py_TYPE(owner));
    return Semantics::store_attr(self, owner, name, value);
  }
  if (!is_outside(owner)) return stop_status(self, Stop::kUnknownObject, Py_TYPE(owner)->tp_name);
  if (PyModule_Check(owner)) {
    if (!value) guard_key(self, PyModule_GetDict(owner), name, nullptr, source_of(owner));
    taken_away(attribute_there(owner, name));
    remember(PyModule_GetDict(owner), name);
    int status = Semantics::store_attr(self, owner, name, value);
    if (status == 0) {
      record_set(Effect::Kind::kSetAttr, owner, name, value, false);
      make_dirty(PyModule_GetDict(owner), name);
    }
    return status;
  }
  if (PyFunction_Check(owner) && _PyType_Lookup(Py_TYPE(owner), name))  // its code, its defaults
    return stop_status(self, Stop::kEffect, "an assignment to an attribute of a function");
  guard_class(owner);
  if (Py_TYPE(owner)->tp_setattro != PyObject_GenericSetAttr &&
      !inherits(Py_TYPE(owner), value ? "__setattr__" : "__delattr__", &PyBaseObject_Type)) {
    // __setattr__ in Python: it comes through the hook and ends in object.__setattr__.
    return Semantics::store_attr(self, owner, name, value);
  }
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  if (descriptor && Py_TYPE(descriptor)->tp_descr_set && Py_TYPE(descriptor) != &PyMemberDescr_Type) {
    if (Py_TYPE(descriptor) == &PyGetSetDescr_Type)
      return stop_status(self, Stop::kEffect, std::string("an assignment to ") + PyUnicode_AsUTF8(name));
    return Semantics::store_attr(self, owner, name, value);  // a property's setter
  }
  if (!value) {  // it must be there at every call
    const int member = guard_attr(self, owner, name, Reader::kFixes);
    if (member == kStopStatus) return kStopStatus;
    if (member == 1) {
      Ref there = Ref::take(PyObject_GenericGetAttr(owner, name));
      if (!there) PyErr_Clear();
      guard_member(owner, name, there.get());
    }
  }
  taken_away(attribute_there(owner, name));
  remember(instance_dict(owner), name);
  int status = Semantics::store_attr(self, owner, name, value);
  if (status == 0) {
    record_set(Effect::Kind::kSetAttr, owner, name, value, true);
    if (PyObject* dict = instance_dict(owner)) make_dirty(dict, name);
    make_dirty(owner, name);
  }
  return status;
}

// ---------------------------------------------------------------------------------------------------- items

// An entry of a defaultdict that is not there yet: reading it is an effect.
static bool fills_by_itself(PyObject* container, PyObject* key) {
  PyObject* method = missing_method(container, key);
  return method && !PyFunction_Check(method);  // one in Python comes through the hook
}

// defaultdict.__missing__ spelled out.
PyObject* Recorder::fill(Activation& self, PyObject* container, PyObject* key) {
  static PyObject* const name = PyUnicode_InternFromString("default_factory");
  PyTypeObject* type = Py_TYPE(container);
  if (!inherits(type, "__getitem__", &PyDict_Type) || !inherits(type, "__setitem__", &PyDict_Type))
    return stop(self, Stop::kEffect, "a new entry of a defaultdict");
  guard_lookup(container, key);
  guard_key(self, container, key, nullptr, source_of(container));
  Ref factory = Ref::take(load_attr(self, container, name));
  if (!active_ || !factory || factory.get() == kStop || factory.get() == Py_None) {
    if (factory.get() == kStop) return factory.release();
    return factory ? Semantics::load_item(self, container, key) : nullptr;
  }
  PyObject* room = nullptr;
  PyObject* made = call(self, factory.get(), &room + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (!made || made == kStop) return made;
  if (store_item(self, container, key, made) == 0) return made;
  Py_DECREF(made);
  return nullptr;
}

PyObject* Recorder::load_item(Activation& self, PyObject* container, PyObject* key) {
  if (!active_) return Semantics::load_item(self, container, key);
  if (is_tensor(container)) {
    if (!torch_operand(self, container) || !torch_operand(self, key))
      return stop(self, unreadable_stop_, unreadable_detail_);
    // A tensor that is one int is a place, and the result a view.
    if (is_tensor(key) && tensor_of(key).dim() == 0 && c10::isIntegralType(tensor_of(key).scalar_type(), false) &&
        tensor_of(key).scalar_type() != at::kByte && !has_known_data(key) && can_read(self, key)) {
      const Ref place = Ref::take(read_numbers(self, key, "indexing"));
      return place ? load_item(self, container, place.get()) : nullptr;
    }
    if (!active_) return Semantics::load_item(self, container, key);
    PyObject* operands[] = {container, key};
    return torch_leaf(self, "indexing", operands, [](PyObject* const* of) { return indexed(of[0], of[1]); });
  }
  specialise(key);
  if (is_text(container)) specialise(container);
  if (PyObject* mapping = behind_proxy(container)) return load_item(self, mapping, key);
  if (!slot_guarded(self, container, "__getitem__")) return stop(self, unreadable_stop_, unreadable_detail_);
  // A dict finds a tensor by its address. That of a parameter lasts.
  const bool lasts = is_outside(key) &&
                     (!floating(key) || (is_tensor(key) && tensor_of(key).is_leaf() && tensor_of(key).requires_grad()));
  const bool by_address = (PyDict_CheckExact(container) && is_made(container)) || (PyDict_Check(container) && lasts);
  if (is_tensor(key) && !by_address &&
      !(has_known_data(key) && PySequence_Check(container) && !PyDict_Check(container)))
    return stop(self, Stop::kTensorData, "an index");
  if (!usable_key(self, key) || asks_program(container, key)) return stop(self, unreadable_stop_, unreadable_detail_);
  guard_class(container);
  if (is_outside(container) && fills_by_itself(container, key)) return fill(self, container, key);
  if (PyDict_Check(container)) {
    guard_lookup(container, key);
    if (is_outside(container) &&
        inherits(Py_TYPE(container), "__getitem__", PyODict_Check(container) ? &PyODict_Type : &PyDict_Type))
      guard_key(self, container, key, nullptr, source_of(container), Reader::kTags);
  } else if (PyList_Check(container) || PyTuple_Check(container)) {
    const bool by_index = PyList_CheckExact(container) && PyLong_CheckExact(key);
    if (is_outside(container)) guard_all(self, container, by_index ? Reader::kTags : Reader::kFixes);
  } else if (PyType_Check(container)) {
    guard_type(reinterpret_cast<PyTypeObject*>(container));
    guard_type(Py_TYPE(container));
  } else if (!is_value(container) && !info(container) && !is_constant_tuple(container) && !PyRange_Check(container)) {
    return stop(self, Stop::kUnknownObject, Py_TYPE(container)->tp_name);
  }
  PyObject* result = Semantics::load_item(self, container, key);
  if (!result || !active_) return result;
  if (PyList_Check(container) || PyTuple_Check(container)) {
    Py_ssize_t index = PyLong_CheckExact(key) ? PyLong_AsSsize_t(key) : -1;
    if (index < 0 && PyErr_Occurred()) PyErr_Clear();
    if (index < 0 && PyLong_CheckExact(key)) index += count_of(container);
    adopt(self, result, Source::Kind::kItem, container, nullptr, index, "an element");
    if (!PyList_CheckExact(container) || !PyLong_CheckExact(key) || index < 0) return result;
    return tagged(container, Ref::take(PyLong_FromSsize_t(index)).get(), result);
  }
  if (PyDict_Check(container) && is_outside(container) && is_dirty(container, key)) return result;
  adopt(self, result, Source::Kind::kItem, container, key, -1, "an entry");
  return PyDict_Check(container) ? tagged(container, key, result) : result;
}

int Recorder::store_item(Activation& self, PyObject* container, PyObject* key, PyObject* value) {
  if (!active_) return Semantics::store_item(self, container, key, value);
  if (is_tensor(container)) {
    if (!value || !torch_operand(self, container) || !torch_operand(self, key) || !torch_operand(self, value))
      return stop_status(self, unreadable_stop_, unreadable_detail_);
    PyObject* operands[] = {container, key, value};
    const bool by_real = symbolic_ && real(value) && fits_as_real(value, tensor_of(container).scalar_type());
    const auto assign = by_real ? assign_real : PyObject_SetItem;
    PyObject* done = torch_leaf(self, "assignment to an index", operands, [&](PyObject* const* of) -> PyObject* {
      return assign(of[0], of[1], of[2]) < 0 ? nullptr : Py_NewRef(Py_None);
    });
    if (done == kStop) return kStopStatus;
    Py_XDECREF(done);
    return done ? 0 : -1;
  }
  if (is_older(container))
    return stop_status(self, Stop::kEffect, std::string("an assignment to an item of ") + Py_TYPE(container)->tp_name);
  specialise(key);
  if (!slot_known(self, container) || !usable_key(self, key) || asks_program(container, key))
    return stop_status(self, unreadable_stop_, unreadable_detail_);
  if (PyDict_Check(container)) guard_lookup(container, key);
  if (is_made(container)) return Semantics::store_item(self, container, key, value);
  if (!is_outside(container)) return stop_status(self, Stop::kUnknownObject, Py_TYPE(container)->tp_name);
  guard_class(container);
  // The method, not the slot: who overrides __delitem__ alone has a slot of its own for both.
  const char* method = value ? "__setitem__" : "__delitem__";
  if (PyDict_Check(container) &&
      inherits(Py_TYPE(container), method, PyODict_Check(container) ? &PyODict_Type : &PyDict_Type)) {
    if (!value) guard_key(self, container, key, nullptr, source_of(container));
    snapshot(container);
    int status = Semantics::store_item(self, container, key, value);
    if (status == 0) {
      record_set(Effect::Kind::kSetItem, container, key, value, true);
      make_dirty(container, key);
    }
    return status;
  }
  if (PyList_Check(container) && inherits(Py_TYPE(container), method, &PyList_Type)) {
    if (!PyLong_CheckExact(key)) return stop_status(self, Stop::kEffect, "a slice assignment");
    if (!listed_.count(container)) {  // the index must exist at every call
      guard_all(self, container);
    }
    snapshot(container);
    int status = Semantics::store_item(self, container, key, value);
    if (status == 0) record_set(Effect::Kind::kSetItem, container, key, value, true);
    return status;
  }
  Ref name = Ref::take(PyUnicode_InternFromString(method));
  if (PyObject* found = _PyType_Lookup(Py_TYPE(container), name.get()); found && PyFunction_Check(found))
    return Semantics::store_item(self, container, key, value);  // __setitem__ in Python
  return stop_status(self, Stop::kEffect, std::string("an assignment to an item of ") + Py_TYPE(container)->tp_name);
}

}  // namespace magneto::capture
