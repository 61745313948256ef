#include "capture/recipe.h"

#include <structmember.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>
#include <unordered_set>

#include "base/check.h"
#include "capture/content.h"
#include "capture/iterators.h"
#include "capture/tensor_meta.h"
#include "evaluator/frame_abi.h"

namespace magneto::capture {

bool is_python_class(PyTypeObject* type) {
  // Classes that type() made share one deallocator; heap types of C modules have their own.
  static const destructor of_python_classes = [] {
    PyObject* module = PyImport_ImportModule("collections.abc");
    PyObject* cls = module ? PyObject_GetAttrString(module, "Sized") : nullptr;
    base::check(cls != nullptr, "capture: collections.abc.Sized is missing");
    destructor found = reinterpret_cast<PyTypeObject*>(cls)->tp_dealloc;
    Py_DECREF(cls);
    Py_DECREF(module);
    return found;
  }();
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && type->tp_dealloc == of_python_classes;
}

static PyTypeObject* c_base(PyTypeObject* type) {
  while (is_python_class(type)) type = type->tp_base;
  return type;
}

bool is_struct_type(PyTypeObject* type) {
  if (!PyType_IsSubtype(type, &PyTuple_Type) || type == &PyTuple_Type) return false;
  static PyObject* name = PyUnicode_InternFromString("n_sequence_fields");
  return !is_python_class(type) && _PyType_Lookup(type, name) != nullptr;
}

// ---------------------------------------------------------------------------------------------------- writing

// A function with the code, the globals and the names of another one. It holds none of what that one closes over: a
// recipe would keep it alive.
static PyObject* as_empty_as(PyFunctionObject* model) {
  PyObject* object = PyFunction_NewWithQualName(model->func_code, model->func_globals, model->func_qualname);
  if (!object) return nullptr;
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  const auto take = [](PyObject*& place, PyObject* of) {
    PyObject* before = std::exchange(place, Py_XNewRef(of));
    Py_XDECREF(before);
  };
  take(function->func_name, model->func_name);
  take(function->func_doc, model->func_doc);
  take(function->func_module, model->func_module);
#if PY_VERSION_HEX >= 0x030C0000
  take(function->func_typeparams, model->func_typeparams);
#endif
  Ref notes = model->func_annotations && PyDict_CheckExact(model->func_annotations)
                  ? Ref::take(PyDict_Copy(model->func_annotations))  // each function has its own
                  : Ref::share(model->func_annotations);
  take(function->func_annotations, notes.get());
  return object;
}

Recipe RecipeWriter::write_dict_items(PyObject* dict) {
  Recipe recipe;
  recipe.kind = Recipe::Kind::kDict;
  auto add = [&](PyObject* key, PyObject* value) {
    if (!program_key_ && runs_program(key)) program_key_ = key;
    recipe.parts.push_back(write(key));
    recipe.parts.push_back(write(value));
  };
  for (const auto& [key, value] : items_of(dict)) add(key.get(), value.get());
  return recipe;
}

Recipe RecipeWriter::write(PyObject* object) {
  Recipe recipe;
  if (!object) return recipe;
  if (failed()) return recipe;
  Provenance::Answer answer = provenance_.origin(object);
  using Origin = Provenance::Origin;
  switch (answer.origin) {
    case Origin::kConstant:
      recipe.kind = Recipe::Kind::kConstant;
      recipe.object = Ref::share(object);
      return recipe;
    case Origin::kFloating:
      recipe.kind = Recipe::Kind::kSource;
      recipe.source = answer.source;
      if (std::find(sources_.begin(), sources_.end(), answer.source) == sources_.end())
        sources_.push_back(answer.source);
      return recipe;
    case Origin::kNumber:
      recipe.kind = Recipe::Kind::kNumber;
      recipe.number = answer.number;
      return recipe;
    case Origin::kReal:
      recipe.kind = Recipe::Kind::kReal;
      recipe.index = answer.index;
      return recipe;
    case Origin::kRoot:
      recipe.kind = Recipe::Kind::kRoot;
      recipe.index = answer.index;
      return recipe;
    case Origin::kEffect:
      recipe.kind = Recipe::Kind::kEffect;
      recipe.index = answer.index;
      return recipe;
    case Origin::kTensor: {
      recipe.kind = Recipe::Kind::kValue;
      for (size_t i = 0; i < outputs_.size(); ++i)
        if (outputs_[i] == answer.value) {
          recipe.index = static_cast<int>(i);
          return recipe;
        }
      recipe.index = static_cast<int>(outputs_.size());
      outputs_.push_back(answer.value);
      tensors_.push_back(object);
      return recipe;
    }
    case Origin::kUnknown:
      return fail(object);
    case Origin::kCalled:
    case Origin::kMade:
      break;
  }
  auto known = memo_.find(object);
  if (known != memo_.end()) {
    if (in_progress_.count(object) && PyTuple_Check(object)) return fail(object);  // a tuple that contains itself
    recipe.kind = Recipe::Kind::kRef;
    recipe.index = known->second;
    return recipe;
  }
  int memo = static_cast<int>(memo_.size());
  memo_.emplace(object, memo);
  in_progress_.emplace(object, true);
  recipe = answer.origin == Origin::kCalled ? write_called(answer) : write_made(object, memo);
  recipe.memo = memo;
  in_progress_.erase(object);
  return recipe;
}

Recipe RecipeWriter::write_called(const Provenance::Answer& answer) {
  Recipe recipe;
  recipe.kind = Recipe::Kind::kCalled;
  recipe.object = Ref::share(answer.function);
  for (const Ref& operand : *answer.operands) recipe.parts.push_back(write(operand.get()));
  return recipe;
}

/// Whether the object of a bound C method gives that method under its name: a subclass may have another one there.
static bool is_found_by_name(PyCFunctionObject* function) {
  PyObject* self = function->m_self;
  Ref name = Ref::take(PyUnicode_FromString(function->m_ml->ml_name));
  PyObject* found =
      _PyType_Lookup(PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self), name.get());
  if (!found) return true;  // of a module, or of a metaclass
  if (Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyClassMethodDescr_Type)
    return reinterpret_cast<PyMethodDescrObject*>(found)->d_method == function->m_ml;
  return !PyFunction_Check(found) && Py_TYPE(found) != &PyClassMethod_Type;
}

/// A set with the same table, and with these elements, in its order, in the place of its own. The order of a set
/// depends on all that was ever put in and taken out: added one by one, its elements may come in another one.
static PyObject* same_set(PyObject* object, const std::vector<Ref>* elements) {
  auto* from = reinterpret_cast<PySetObject*>(object);
  Ref made = Ref::take(PyFrozenSet_CheckExact(object) ? PyFrozenSet_New(nullptr) : PySet_New(nullptr));
  if (!made) return nullptr;
  auto* to = reinterpret_cast<PySetObject*>(made.get());
  const size_t size = static_cast<size_t>(from->mask) + 1;
  if (from->table != from->smalltable) {
    auto* table = static_cast<setentry*>(PyMem_Malloc(size * sizeof(setentry)));
    if (!table) return PyErr_NoMemory();
    to->table = table;
  }
  size_t next = 0;
  for (size_t i = 0; i < size; ++i) {
    setentry& entry = to->table[i];
    entry = from->table[i];
    // What was taken out has left a mark that is nobody's reference, and -1 is the hash of nothing.
    if (!entry.key || entry.hash == -1) continue;
    if (elements) entry.key = elements->at(next++).get();
    Py_INCREF(entry.key);
  }
  to->fill = from->fill;
  to->used = from->used;
  to->mask = from->mask;
  return made.release();
}

/// Equal, and of equal hash, at each replay.
static bool is_lasting(const Recipe& recipe) {
  if (recipe.kind == Recipe::Kind::kTuple) return std::all_of(recipe.parts.begin(), recipe.parts.end(), is_lasting);
  return recipe.kind == Recipe::Kind::kConstant;
}

static bool is_named(PyTypeObject* type, const char* name) { return strcmp(type->tp_name, name) == 0; }

struct ProxyObject {
  PyObject_HEAD PyObject* mapping;
};

/// The C class keeps something beside the arguments of an exception.
static bool tells_by_keyword(PyObject* exception) {
  const auto base = [&](PyObject* cls) { return PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(cls)); };
  if (!base(PyExc_AttributeError) && !base(PyExc_NameError) && !base(PyExc_ImportError) && !base(PyExc_OSError))
    return false;
  for (const char* name : {"name", "obj", "path", "filename", "filename2"}) {
    const Ref told = Ref::take(PyObject_GetAttrString(exception, name));
    PyErr_Clear();
    if (told && told.get() != Py_None) return true;
  }
  return false;
}

/// Where an exception went through: (code, globals, instruction, line) of each frame.
static PyObject* places_of(PyTracebackObject* traceback) {
  Ref places = Ref::take(PyList_New(0));
  for (; places && traceback; traceback = traceback->tb_next) {
    const Ref code = Ref::take(reinterpret_cast<PyObject*>(PyFrame_GetCode(traceback->tb_frame)));
    const Ref globals = Ref::take(PyFrame_GetGlobals(traceback->tb_frame));
    const Ref line = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(traceback), "tb_lineno"));
    const Ref place =
        Ref::take(line ? Py_BuildValue("(OOiO)", code.get(), globals.get(), traceback->tb_lasti, line.get()) : nullptr);
    if (!place || PyList_Append(places.get(), place.get()) < 0) return nullptr;
  }
  return places.release();
}
/// The same with frames that hold no variables: those have ended.
static PyObject* traceback_of(PyObject* places) {
  Ref made = Ref::take(Py_NewRef(Py_None));
  for (Py_ssize_t i = PyList_GET_SIZE(places); i-- > 0;) {
    PyObject *const place = PyList_GET_ITEM(places, i), *const code = PyTuple_GET_ITEM(place, 0);
    const Ref frame = Ref::take(reinterpret_cast<PyObject*>(
        PyFrame_New(PyThreadState_Get(), reinterpret_cast<PyCodeObject*>(code), PyTuple_GET_ITEM(place, 1), nullptr)));
    made = Ref::take(frame ? PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyTraceBack_Type), made.get(),
                                                          frame.get(), PyTuple_GET_ITEM(place, 2),
                                                          PyTuple_GET_ITEM(place, 3), nullptr)
                           : nullptr);
    if (!made) return nullptr;
  }
  return made.release();
}

Recipe RecipeWriter::write_made(PyObject* object, int) {
  Recipe recipe;
  PyTypeObject* type = Py_TYPE(object);
  auto all = [&](auto kind, PyObject* sequence) {
    recipe.kind = kind;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
      recipe.parts.push_back(write(PySequence_Fast_GET_ITEM(sequence, i)));
    return recipe;
  };
  if (type == &PyTuple_Type) return all(Recipe::Kind::kTuple, object);
  if (type == size_type()) return all(Recipe::Kind::kSize, object);
  if (type == &PyList_Type) return all(Recipe::Kind::kList, object);
  if (type == &PyDict_Type) return write_dict_items(object);
  if (is_struct_type(type)) {
    recipe.object = Ref::share(reinterpret_cast<PyObject*>(type));
    return all(Recipe::Kind::kStruct, object);
  }
  if (type == &PySet_Type || type == &PyFrozenSet_Type) {
    recipe.kind = Recipe::Kind::kSet;
    recipe.object = Ref::share(reinterpret_cast<PyObject*>(type));
    for (const Ref& item : elements_of(object)) recipe.parts.push_back(write(item.get()));
    // Elements that are the same at each replay come in the order that they have now.
    if (std::all_of(recipe.parts.begin(), recipe.parts.end(), is_lasting)) {
      recipe.object = Ref::take(same_set(object, nullptr));
      if (!recipe.object) {
        PyErr_Clear();
        return fail(object);
      }
    }
    return recipe;
  }
  if (type == &PySlice_Type) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    recipe.kind = Recipe::Kind::kSlice;
    for (PyObject* part : {slice->start, slice->stop, slice->step}) recipe.parts.push_back(write(part));
    return recipe;
  }
  if (type == &PyCell_Type) {
    recipe.kind = Recipe::Kind::kCell;
    recipe.parts.push_back(write(PyCell_GET(object)));
    return recipe;
  }
  if (type == &PyMethod_Type) {
    recipe.kind = Recipe::Kind::kMethod;
    recipe.parts.push_back(write(PyMethod_GET_FUNCTION(object)));
    recipe.parts.push_back(write(PyMethod_GET_SELF(object)));
    return recipe;
  }
  if (type == &PyCFunction_Type && PyCFunction_GET_SELF(object)) {  // a bound method of a C type
    auto* function = reinterpret_cast<PyCFunctionObject*>(object);
    if (!is_found_by_name(function)) return fail(object);
    recipe.kind = Recipe::Kind::kBuiltin;
    recipe.object = Ref::take(PyUnicode_FromString(function->m_ml->ml_name));
    recipe.parts.push_back(write(function->m_self));
    return recipe;
  }
  if (type == &PyFunction_Type) {
    auto* function = reinterpret_cast<PyFunctionObject*>(object);
    recipe.kind = Recipe::Kind::kFunction;
    recipe.object = Ref::take(as_empty_as(function));
    if (!recipe.object) {
      PyErr_Clear();
      return fail(object);
    }
    recipe.parts.push_back(write(function->func_defaults));
    recipe.parts.push_back(write(function->func_kwdefaults));
    Recipe closure;
    if (function->func_closure) {
      closure.kind = Recipe::Kind::kTuple;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(function->func_closure); ++i)
        closure.parts.push_back(write(PyTuple_GET_ITEM(function->func_closure, i)));
    }
    recipe.parts.push_back(std::move(closure));
    const bool has_attributes = function->func_dict && PyDict_GET_SIZE(function->func_dict);
    recipe.parts.push_back(has_attributes ? write_dict_items(function->func_dict) : Recipe());
    return recipe;
  }
  if (is_reducible_iterator(type)) return write_reduced(object);
  if (PyGen_CheckExact(object)) return write_generator(object);
  if (type == &PyDictKeys_Type || type == &PyDictValues_Type || type == &PyDictItems_Type) {
    recipe.kind = Recipe::Kind::kView;
    recipe.object = Ref::take(PyUnicode_FromString(strchr(type->tp_name, '_') + 1));  // dict_items
    recipe.parts.push_back(write(dict_of_view(object)));
    return recipe;
  }
  if (type == &_PyWeakref_RefType) {  // one without a callback
    if (reinterpret_cast<PyWeakReference*>(object)->wr_callback || PyWeakref_GET_OBJECT(object) == Py_None)
      return fail(object);
    recipe.kind = Recipe::Kind::kCalled;
    recipe.object = Ref::share(reinterpret_cast<PyObject*>(type));
    recipe.parts.push_back(write(PyWeakref_GET_OBJECT(object)));
    return recipe;
  }
  if (type == &PyDictProxy_Type) {
    recipe.kind = Recipe::Kind::kView;
    recipe.parts.push_back(write(reinterpret_cast<ProxyObject*>(object)->mapping));
    return recipe;
  }
  if (type == &PyTraceBack_Type) {
    recipe.kind = Recipe::Kind::kTraceback;
    recipe.object = Ref::take(places_of(reinterpret_cast<PyTracebackObject*>(object)));
    if (recipe.object) return recipe;
    PyErr_Clear();
    return fail(object);
  }
  return write_instance(object);
}

// One that has not begun: the call that made it is made again, which runs no code.
Recipe RecipeWriter::write_generator(PyObject* object) {
  Frame* const frame = generator_frame(object);
  if (!frame || !is_new_generator(object)) return fail(object);
  PyCodeObject* const code = frame_code(frame);
  Recipe recipe;
  recipe.kind = Recipe::Kind::kGenerator;
  recipe.index = code->co_argcount;
  recipe.parts.push_back(write(reinterpret_cast<PyObject*>(frame_function(frame))));
  recipe.shape = (code->co_flags & CO_VARARGS ? Recipe::kTakesRest : 0) |
                 (code->co_flags & CO_VARKEYWORDS ? Recipe::kTakesKeywords : 0);
  const int count = code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
                    ((code->co_flags & CO_VARKEYWORDS) != 0);
  for (int i = 0; i < count; ++i) {
    PyObject* const local = frame_local(frame, i);
    const bool is_cell = (_PyLocals_GetKind(code->co_localspluskinds, i) & CO_FAST_CELL) != 0;
    recipe.parts.push_back(write(is_cell && local ? PyCell_GET(local) : local));
  }
  recipe.object = Ref::take(
      PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount, code->co_argcount + code->co_kwonlyargcount));
  return recipe;
}

// Iterators tell how to make them again: (callable, arguments, state), with the iterators that they hold.
Recipe RecipeWriter::write_reduced(PyObject* object) {
  Recipe recipe;
  const Ref reduced = Ref::take(reduce_iterator(object));
  if (!reduced) return fail(object);
  recipe.kind = Recipe::Kind::kIterator;
  recipe.object = Ref::share(PyTuple_GET_ITEM(reduced.get(), 0));
  PyObject* const args = PyTuple_GET_ITEM(reduced.get(), 1);
  recipe.parts.push_back(
      write_part(PyTuple_GET_SIZE(reduced.get()) > 2 ? PyTuple_GET_ITEM(reduced.get(), 2) : nullptr));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) recipe.parts.push_back(write_part(PyTuple_GET_ITEM(args, i)));
  return recipe;
}

// What an iterator holds: values, objects that the program knows, and what C code has made for it.
Recipe RecipeWriter::write_part(PyObject* object) {
  if (!object || provenance_.origin(object).origin != Provenance::Origin::kUnknown) return write(object);
  Recipe recipe;
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    recipe.kind = PyTuple_CheckExact(object) ? Recipe::Kind::kTuple : Recipe::Kind::kList;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      recipe.parts.push_back(write_part(PySequence_Fast_GET_ITEM(object, i)));
    return recipe;
  }
  if (PyRange_Check(object)) {  // of a range_iterator: its numbers are those of the recording
    recipe.kind = Recipe::Kind::kConstant;
    recipe.object = Ref::share(object);
    return recipe;
  }
  return is_reducible_iterator(Py_TYPE(object)) ? write_reduced(object) : fail(object);
}

// What the C part of an instance holds. False: that is not known.
bool RecipeWriter::write_content(PyObject* object, Recipe& into) {
  PyTypeObject* const base = c_base(Py_TYPE(object));
  const auto add = [&](unsigned bit, Recipe content) {
    into.shape |= bit;
    into.parts.push_back(std::move(content));
  };
  const auto elements = [&](PyObject* sequence) {
    Recipe list;
    list.kind = Recipe::Kind::kTuple;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
      list.parts.push_back(write(PySequence_Fast_GET_ITEM(sequence, i)));
    return list;
  };
  if (base == &PyBaseObject_Type) return true;
  if (base == &PyTuple_Type) {
    add(Recipe::kHasTuple, elements(object));
  } else if (base == &PyDict_Type || base == &PyODict_Type) {
    add(Recipe::kHasItems, write_dict_items(object));
  } else if (base == &PyList_Type) {
    add(Recipe::kHasElements, elements(object));
  } else if (is_named(base, "collections.defaultdict")) {
    const Ref factory = Ref::take(PyObject_GetAttrString(object, "default_factory"));
    add(Recipe::kHasFactory, write(factory.get()));
    add(Recipe::kHasItems, write_dict_items(object));
  } else if (is_named(base, "collections.deque")) {
    const Ref list = Ref::take(content_of(object)), most = Ref::take(PyObject_GetAttrString(object, "maxlen"));
    if (!list || !most) return false;
    add(Recipe::kHasQueue, write(most.get()));
    into.parts.push_back(elements(list.get()));
  } else if (base == &PyLong_Type || base == &PyFloat_Type || base == &PyUnicode_Type || base == &PyBytes_Type) {
    // int(...) and its like of the very value, without what the class makes of it
    const auto plain = [&]() -> PyObject* {
      if (base == &PyLong_Type) return _PyLong_Copy(reinterpret_cast<PyLongObject*>(object));
      if (base == &PyFloat_Type) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(object));
      if (base == &PyUnicode_Type) return PyUnicode_FromObject(object);
      return PyBytes_FromStringAndSize(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
    };
    Recipe value;
    value.kind = Recipe::Kind::kConstant;
    value.object = Ref::take(plain());
    if (!value.object) return false;
    add(Recipe::kHasValue, std::move(value));
  } else if (PyExceptionInstance_Check(object)) {
    if (tells_by_keyword(object) || is_named(base, "BaseExceptionGroup")) return false;
    auto* const raised = reinterpret_cast<PyBaseExceptionObject*>(object);
    add(Recipe::kIsRaised, elements(raised->args));
    for (PyObject* part : {raised->cause, raised->context}) into.parts.push_back(write(part));
    into.parts.push_back(write(raised->traceback));
    into.index = raised->suppress_context;
  } else {
    return false;
  }
  return true;
}

Recipe RecipeWriter::write_instance(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (provenance_.origin(reinterpret_cast<PyObject*>(type)).origin != Provenance::Origin::kConstant)
    return fail(object);
  Recipe recipe;
  recipe.kind = Recipe::Kind::kInstance;
  recipe.object = Ref::share(reinterpret_cast<PyObject*>(type));
  const bool is_known = is_python_class(type) || type == &PyODict_Type || is_named(type, "collections.defaultdict") ||
                        is_named(type, "collections.deque") || PyExceptionInstance_Check(object);
  if (!is_known || !write_content(object, recipe)) {
    PyErr_Clear();
    return fail(object);
  }
  if (PyObject* dict = instance_dict(object); dict && PyDict_GET_SIZE(dict)) {
    recipe.shape |= Recipe::kHasDict;
    recipe.parts.push_back(write_dict_items(dict));
  }
  Recipe slots;
  slots.kind = Recipe::Kind::kDict;
  for (PyTypeObject* t = type; is_python_class(t); t = t->tp_base) {
    PyObject* names = reinterpret_cast<PyHeapTypeObject*>(t)->ht_slots;
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      PyObject* const member = PyDict_GetItemWithError(t->tp_dict, name);
      const bool is_member = member && Py_TYPE(member) == &PyMemberDescr_Type;
      Ref value = Ref::take(is_member ? PyMemberDescr_Type.tp_descr_get(member, object, nullptr) : nullptr);
      PyErr_Clear();
      if (!value) continue;
      if (_PyType_Lookup(type, name) != member) return fail(object);  // a class between hides it
      slots.parts.push_back(write(name));
      slots.parts.push_back(write(value.get()));
    }
  }
  if (!slots.parts.empty()) {
    recipe.shape |= Recipe::kHasSlots;
    recipe.parts.push_back(std::move(slots));
  }
  return recipe;
}

// ---------------------------------------------------------------------------------------------------- building

static PyObject* keep(const Recipe& recipe, BuildContext& context, PyObject* object) {
  if (recipe.memo >= 0 && object) {
    context.memo[recipe.memo] = object;
    context.keep.push_back(Ref::share(object));
  }
  return object;
}

static bool fill_dict(PyObject* dict, const Recipe& items, BuildContext& context) {
  for (size_t i = 0; i < items.parts.size(); i += 2) {
    Ref key = Ref::take(build(items.parts[i], context)), value = Ref::take(build(items.parts[i + 1], context));
    if (!key || !value) return false;
    int status = PyODict_Check(dict) ? PyODict_SetItem(dict, key.get(), value.get())
                                     : PyDict_SetItem(dict, key.get(), value.get());
    if (status < 0) return false;
  }
  return true;
}

static bool fill_attributes(PyObject* object, const Recipe& items, BuildContext& context) {
  for (size_t i = 0; i < items.parts.size(); i += 2) {
    Ref key = Ref::take(build(items.parts[i], context)), value = Ref::take(build(items.parts[i + 1], context));
    if (!key || !value || PyObject_GenericSetAttr(object, key.get(), value.get()) < 0) return false;
  }
  return true;
}

static PyObject* build_tuple(std::span<const Recipe> parts, BuildContext& context) {
  Ref tuple = Ref::take(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
  if (!tuple) return nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    PyObject* part = build(parts[i], context);
    if (!part) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), part);
  }
  return tuple.release();
}

static PyObject* new_instance(const Recipe& recipe, BuildContext& context, size_t& next) {
  auto* const type = reinterpret_cast<PyTypeObject*>(recipe.object.get());
  PyTypeObject* const base = c_base(type);
  if (recipe.shape & (Recipe::kHasTuple | Recipe::kHasValue)) {
    const Ref content = Ref::take(build(recipe.parts[next++], context));
    const Ref args = Ref::take(content ? PyTuple_Pack(1, content.get()) : nullptr);
    return args ? base->tp_new(type, args.get(), nullptr) : nullptr;
  }
  if (recipe.shape & Recipe::kIsRaised) {
    const Ref args = Ref::take(build(recipe.parts[next++], context));
    Ref object = Ref::take(args ? base->tp_new(type, args.get(), nullptr) : nullptr);
    return object && base->tp_init(object.get(), args.get(), nullptr) == 0 ? object.release() : nullptr;
  }
  const Ref empty = Ref::take(PyTuple_New(0));
  return base->tp_new(type, empty.get(), nullptr);
}

/// What the recipes in it append, by this method.
static bool append_all(PyObject* object, const Recipe& elements, BuildContext& context) {
  for (const Recipe& part : elements.parts) {
    const Ref element = Ref::take(build(part, context));
    if (!element) return false;
    if (PyList_Check(object)) {
      if (PyList_Append(object, element.get()) < 0) return false;
    } else if (!Ref::take(PyObject_CallMethod(reinterpret_cast<PyObject*>(c_base(Py_TYPE(object))), "append", "OO",
                                              object, element.get()))) {
      return false;
    }
  }
  return true;
}

static PyObject* build_instance(const Recipe& recipe, BuildContext& context) {
  size_t next = 0;
  Ref object = Ref::take(new_instance(recipe, context, next));
  if (!object) return nullptr;
  keep(recipe, context, object.get());
  if (recipe.shape & Recipe::kIsRaised) {
    const Ref cause = Ref::take(build(recipe.parts[next], context)),
              under = Ref::take(build(recipe.parts[next + 1], context)),
              place = Ref::take(build(recipe.parts[next + 2], context));
    next += 3;
    if (PyErr_Occurred()) return nullptr;
    PyException_SetCause(object.get(), Py_XNewRef(cause.get()));
    PyException_SetContext(object.get(), Py_XNewRef(under.get()));
    if (place && PyException_SetTraceback(object.get(), place.get()) < 0) return nullptr;
    reinterpret_cast<PyBaseExceptionObject*>(object.get())->suppress_context = static_cast<char>(recipe.index);
  }
  if (recipe.shape & Recipe::kHasFactory) {
    const Ref factory = Ref::take(build(recipe.parts[next++], context));
    if (!factory || PyObject_SetAttrString(object.get(), "default_factory", factory.get()) < 0) return nullptr;
  }
  if (recipe.shape & Recipe::kHasItems && !fill_dict(object.get(), recipe.parts[next++], context)) return nullptr;
  if (recipe.shape & Recipe::kHasElements && !append_all(object.get(), recipe.parts[next++], context)) return nullptr;
  if (recipe.shape & Recipe::kHasQueue) {
    const Ref most = Ref::take(build(recipe.parts[next++], context));
    const Ref empty = Ref::take(PyTuple_New(0));
    const Ref args = Ref::take(most ? PyTuple_Pack(2, empty.get(), most.get()) : nullptr);
    if (!args || c_base(Py_TYPE(object.get()))->tp_init(object.get(), args.get(), nullptr) < 0) return nullptr;
    if (!append_all(object.get(), recipe.parts[next++], context)) return nullptr;
  }
  if (recipe.shape & Recipe::kHasDict && !fill_attributes(object.get(), recipe.parts[next++], context)) return nullptr;
  if (recipe.shape & Recipe::kHasSlots && !fill_attributes(object.get(), recipe.parts[next++], context)) return nullptr;
  return object.release();
}

static PyObject* build_function(const Recipe& recipe, BuildContext& context) {
  Ref object = Ref::take(as_empty_as(reinterpret_cast<PyFunctionObject*>(recipe.object.get())));
  if (!object) return nullptr;
  keep(recipe, context, object.get());
  auto* function = reinterpret_cast<PyFunctionObject*>(object.get());
  PyObject** places[] = {&function->func_defaults, &function->func_kwdefaults, &function->func_closure,
                         &function->func_dict};
  for (int i = 0; i < 4; ++i) {
    if (recipe.parts[i].kind == Recipe::Kind::kNull) continue;
    PyObject* part = build(recipe.parts[i], context);
    if (!part) return nullptr;
    Py_XSETREF(*places[i], part);
  }
  return object.release();
}

static PyObject* build_generator(const Recipe& recipe, BuildContext& context) {
  const Ref function = Ref::take(build(recipe.parts[0], context));
  const std::span parts = std::span(recipe.parts).subspan(1);
  const auto positional = static_cast<size_t>(recipe.index);
  const auto named = static_cast<size_t>(PyTuple_GET_SIZE(recipe.object.get()));
  Ref args = Ref::take(function ? build_tuple(parts.first(positional), context) : nullptr);
  Ref keywords = Ref::take(args ? PyDict_New() : nullptr);
  if (!keywords) return nullptr;
  size_t next = positional;
  for (size_t i = 0; i < named; ++i) {
    const Ref value = Ref::take(build(parts[next++], context));
    PyObject* const name = PyTuple_GET_ITEM(recipe.object.get(), static_cast<Py_ssize_t>(i));
    if (!value || PyDict_SetItem(keywords.get(), name, value.get()) < 0) return nullptr;
  }
  if (recipe.shape & Recipe::kTakesRest) {
    const Ref rest = Ref::take(build(parts[next++], context));
    args = Ref::take(rest ? PySequence_Concat(args.get(), rest.get()) : nullptr);
  }
  if (args && recipe.shape & Recipe::kTakesKeywords) {
    const Ref rest = Ref::take(build(parts[next++], context));
    if (!rest || PyDict_Update(keywords.get(), rest.get()) < 0) return nullptr;
  }
  return args ? PyObject_Call(function.get(), args.get(), keywords.get()) : nullptr;
}

PyObject* build(const Recipe& recipe, BuildContext& context) {
  using Kind = Recipe::Kind;
  switch (recipe.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kConstant:
      return recipe.object.borrow_new();
    case Kind::kValue:
      return context.outputs[recipe.index].borrow_new();
    case Kind::kSource:
      return Py_NewRef(context.guards->at(recipe.source));
    case Kind::kNumber:
      return PyLong_FromLongLong(recipe.number.evaluate(context.guards->symbols));
    case Kind::kReal: {
      for (const auto& [symbol, made] : context.reals)
        if (symbol == recipe.index) return made.borrow_new();
      Ref made = Ref::take(PyFloat_FromDouble(std::bit_cast<double>(context.guards->symbols[recipe.index])));
      if (!made) return nullptr;
      context.reals.emplace_back(recipe.index, made);
      return made.release();
    }
    case Kind::kRoot:
      return Py_XNewRef(context.guards->roots[recipe.index]);
    case Kind::kRef:
      return Py_NewRef(context.memo[recipe.index]);
    case Kind::kEffect:
      return context.effect_results[recipe.index].borrow_new();
    case Kind::kTuple:
      return keep(recipe, context, build_tuple(recipe.parts, context));
    case Kind::kSize: {
      Ref tuple = Ref::take(build_tuple(recipe.parts, context));
      return tuple ? keep(recipe, context, PyObject_CallOneArg(reinterpret_cast<PyObject*>(size_type()), tuple.get()))
                   : nullptr;
    }
    case Kind::kStruct: {
      Ref tuple = Ref::take(build_tuple(recipe.parts, context));
      return tuple ? keep(recipe, context, PyObject_CallOneArg(recipe.object.get(), tuple.get())) : nullptr;
    }
    case Kind::kList: {
      Ref list = Ref::take(PyList_New(0));
      if (!list) return nullptr;
      keep(recipe, context, list.get());
      for (const Recipe& part : recipe.parts) {
        Ref element = Ref::take(build(part, context));
        if (!element || PyList_Append(list.get(), element.get()) < 0) return nullptr;
      }
      return list.release();
    }
    case Kind::kDict: {
      Ref dict = Ref::take(PyDict_New());
      if (!dict) return nullptr;
      keep(recipe, context, dict.get());
      return fill_dict(dict.get(), recipe, context) ? dict.release() : nullptr;
    }
    case Kind::kSet: {
      std::vector<Ref> elements;
      for (const Recipe& part : recipe.parts)
        if (!elements.emplace_back(Ref::take(build(part, context)))) return nullptr;
      if (PyAnySet_Check(recipe.object.get())) return keep(recipe, context, same_set(recipe.object.get(), &elements));
      Ref list = Ref::take(PyList_New(0));
      for (const Ref& element : elements)
        if (!list || PyList_Append(list.get(), element.get()) < 0) return nullptr;
      return keep(recipe, context, PyObject_CallOneArg(recipe.object.get(), list.get()));
    }
    case Kind::kSlice: {
      Ref a = Ref::take(build(recipe.parts[0], context)), b = Ref::take(build(recipe.parts[1], context)),
          c = Ref::take(build(recipe.parts[2], context));
      return keep(recipe, context, PySlice_New(a.get(), b.get(), c.get()));
    }
    case Kind::kCell: {
      Ref cell = Ref::take(PyCell_New(nullptr));
      if (!cell) return nullptr;
      keep(recipe, context, cell.get());
      if (recipe.parts[0].kind != Kind::kNull) {
        Ref content = Ref::take(build(recipe.parts[0], context));
        if (!content) return nullptr;
        PyCell_Set(cell.get(), content.get());
      }
      return cell.release();
    }
    case Kind::kMethod: {
      Ref function = Ref::take(build(recipe.parts[0], context)), self = Ref::take(build(recipe.parts[1], context));
      return function && self ? keep(recipe, context, PyMethod_New(function.get(), self.get())) : nullptr;
    }
    case Kind::kBuiltin: {
      Ref self = Ref::take(build(recipe.parts[0], context));
      return self ? keep(recipe, context, PyObject_GetAttr(self.get(), recipe.object.get())) : nullptr;
    }
    case Kind::kIterator: {
      const Ref state = Ref::take(build(recipe.parts[0], context));
      Ref tuple = Ref::take(build_tuple(std::span(recipe.parts).subspan(1), context));
      return tuple ? keep(recipe, context, make_iterator(recipe.object.get(), tuple.get(), state.get())) : nullptr;
    }
    case Kind::kView: {
      const Ref mapping = Ref::take(build(recipe.parts[0], context));
      if (!mapping) return nullptr;
      if (!recipe.object) return keep(recipe, context, PyDictProxy_New(mapping.get()));
      // of the dict itself, whatever a subclass calls so
      return keep(
          recipe, context,
          PyObject_CallMethodOneArg(reinterpret_cast<PyObject*>(&PyDict_Type), recipe.object.get(), mapping.get()));
    }
    case Kind::kGenerator:
      return keep(recipe, context, build_generator(recipe, context));
    case Kind::kTraceback:
      return keep(recipe, context, traceback_of(recipe.object.get()));
    case Kind::kCalled: {
      const Ref args = Ref::take(build_tuple(recipe.parts, context));
      return args ? keep(recipe, context, PyObject_CallObject(recipe.object.get(), args.get())) : nullptr;
    }
    case Kind::kFunction:
      return build_function(recipe, context);
    case Kind::kInstance:
      return build_instance(recipe, context);
  }
  return nullptr;
}

}  // namespace magneto::capture
