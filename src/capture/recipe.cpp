#include "capture/recipe.h"

#include <structmember.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "capture/frame_abi.h"
#include "capture/tensor_meta.h"

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

static bool is_struct_sequence(PyObject* object) {
  if (!PyTuple_Check(object) || PyTuple_CheckExact(object)) return false;
  static PyObject* name = PyUnicode_InternFromString("n_sequence_fields");
  return !is_python_class(Py_TYPE(object)) && _PyType_Lookup(Py_TYPE(object), name) != nullptr;
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
    recipe.parts.push_back(write(key));
    recipe.parts.push_back(write(value));
  };
  if (PyODict_Check(dict)) {  // its order is not the dict's
    Ref iterator = Ref::take(PyODict_Type.tp_iter(dict));
    while (iterator) {
      Ref key = Ref::take(PyIter_Next(iterator.get()));
      if (!key) break;
      add(key.get(), PyDict_GetItemWithError(dict, key.get()));
    }
    PyErr_Clear();
    return recipe;
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) add(key, value);
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
      return recipe;
    }
    case Origin::kUnknown:
      return fail(object);
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
  recipe = write_made(object, memo);
  recipe.memo = memo;
  in_progress_.erase(object);
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
  if (is_struct_sequence(object)) {
    recipe.object = Ref::share(reinterpret_cast<PyObject*>(type));
    return all(Recipe::Kind::kStruct, object);
  }
  if (type == &PySet_Type || type == &PyFrozenSet_Type) {
    recipe.kind = Recipe::Kind::kSet;
    recipe.object = Ref::share(reinterpret_cast<PyObject*>(type));
    Ref iterator = Ref::take(PyObject_GetIter(object));
    while (iterator) {
      Ref item = Ref::take(PyIter_Next(iterator.get()));
      if (!item) break;
      recipe.parts.push_back(write(item.get()));
    }
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
    if (function->func_dict && PyDict_GET_SIZE(function->func_dict)) return fail(object);
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
    return recipe;
  }
  // Iterators over containers tell how to make them again: (iter, (container,), position).
  static const std::vector<PyTypeObject*> iterators = {&PyListIter_Type, &PyTupleIter_Type, &PyRangeIter_Type,
                                                       &PyEnum_Type,     &PyReversed_Type,  &PySeqIter_Type};
  for (PyTypeObject* iterator : iterators) {
    if (type != iterator) continue;
    Ref reduced = Ref::take(PyObject_CallMethod(object, "__reduce__", nullptr));
    if (!reduced || !PyTuple_Check(reduced.get()) || PyTuple_GET_SIZE(reduced.get()) < 2) {
      PyErr_Clear();
      return fail(object);
    }
    PyObject* args = PyTuple_GET_ITEM(reduced.get(), 1);
    if (type == &PyEnum_Type && !(PyTuple_GET_SIZE(args) >= 1 &&
                                  provenance_.origin(PyTuple_GET_ITEM(args, 0)).origin != Provenance::Origin::kUnknown))
      return fail(object);
    recipe.kind = Recipe::Kind::kIterator;
    recipe.object = Ref::share(PyTuple_GET_ITEM(reduced.get(), 0));
    Recipe state;
    if (PyTuple_GET_SIZE(reduced.get()) > 2) {
      state.kind = Recipe::Kind::kConstant;
      state.object = Ref::share(PyTuple_GET_ITEM(reduced.get(), 2));
    }
    recipe.parts.push_back(std::move(state));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyObject* arg = PyTuple_GET_ITEM(args, i);
      if (type == &PyRangeIter_Type || (is_value(arg))) {  // the range that __reduce__ made is a constant
        Recipe constant;
        constant.kind = Recipe::Kind::kConstant;
        constant.object = Ref::share(arg);
        recipe.parts.push_back(std::move(constant));
      } else {
        recipe.parts.push_back(write(arg));
      }
    }
    return recipe;
  }
  // Iterators over dicts cannot be set to a position; a list of what remains gives the same elements.
  if (type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type) {
    Ref reduced = Ref::take(PyObject_CallMethod(object, "__reduce__", nullptr));
    PyObject* args = reduced && PyTuple_Check(reduced.get()) && PyTuple_GET_SIZE(reduced.get()) == 2
                         ? PyTuple_GET_ITEM(reduced.get(), 1)
                         : nullptr;
    if (!args || PyTuple_GET_SIZE(args) != 1 || !PyList_Check(PyTuple_GET_ITEM(args, 0)) ||
        type == &PyDictIterItem_Type) {
      PyErr_Clear();
      return fail(object);
    }
    recipe.kind = Recipe::Kind::kIterator;
    recipe.object = Ref::share(PyTuple_GET_ITEM(reduced.get(), 0));
    recipe.parts.emplace_back();
    Recipe rest;
    rest.kind = Recipe::Kind::kList;
    PyObject* list = PyTuple_GET_ITEM(args, 0);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) rest.parts.push_back(write(PyList_GET_ITEM(list, i)));
    recipe.parts.push_back(std::move(rest));
    return recipe;
  }
  if (is_python_class(type) || type == &PyODict_Type) return write_instance(object);
  return fail(object);
}

Recipe RecipeWriter::write_instance(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyTypeObject* base = c_base(type);
  Recipe recipe;
  recipe.kind = Recipe::Kind::kInstance;
  recipe.object = Ref::share(reinterpret_cast<PyObject*>(type));
  if (base == &PyTuple_Type) {
    Recipe tuple;
    tuple.kind = Recipe::Kind::kTuple;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) tuple.parts.push_back(write(PyTuple_GET_ITEM(object, i)));
    recipe.shape |= Recipe::kHasTuple;
    recipe.parts.push_back(std::move(tuple));
  } else if (base == &PyDict_Type || base == &PyODict_Type) {
    recipe.shape |= Recipe::kHasItems;
    recipe.parts.push_back(write_dict_items(object));
  } else if (base == &PyList_Type) {
    Recipe list;
    list.kind = Recipe::Kind::kList;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) list.parts.push_back(write(PyList_GET_ITEM(object, i)));
    recipe.shape |= Recipe::kHasElements;
    recipe.parts.push_back(std::move(list));
  } else if (base != &PyBaseObject_Type) {
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
      Ref value = Ref::take(PyObject_GenericGetAttr(object, name));
      if (!value) {
        PyErr_Clear();
        continue;
      }
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

static PyObject* build_tuple(const std::vector<Recipe>& parts, BuildContext& context) {
  Ref tuple = Ref::take(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
  if (!tuple) return nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    PyObject* part = build(parts[i], context);
    if (!part) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), part);
  }
  return tuple.release();
}

static PyObject* build_instance(const Recipe& recipe, BuildContext& context) {
  auto* type = reinterpret_cast<PyTypeObject*>(recipe.object.get());
  PyTypeObject* base = c_base(type);
  size_t next = 0;
  Ref object;
  Ref empty = Ref::take(PyTuple_New(0));
  if (recipe.shape & Recipe::kHasTuple) {
    Ref content = Ref::take(build_tuple(recipe.parts[next++].parts, context));
    Ref args = content ? Ref::take(PyTuple_Pack(1, content.get())) : Ref();
    if (!args) return nullptr;
    object = Ref::take(PyTuple_Type.tp_new(type, args.get(), nullptr));
  } else {
    object = Ref::take(base->tp_new(type, empty.get(), nullptr));
  }
  if (!object) return nullptr;
  keep(recipe, context, object.get());
  if (recipe.shape & Recipe::kHasItems && !fill_dict(object.get(), recipe.parts[next++], context)) return nullptr;
  if (recipe.shape & Recipe::kHasElements) {
    for (const Recipe& part : recipe.parts[next++].parts) {
      Ref element = Ref::take(build(part, context));
      if (!element || PyList_Append(object.get(), element.get()) < 0) return nullptr;
    }
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
  PyObject** places[] = {&function->func_defaults, &function->func_kwdefaults, &function->func_closure};
  for (int i = 0; i < 3; ++i) {
    if (recipe.parts[i].kind == Recipe::Kind::kNull) continue;
    PyObject* part = build(recipe.parts[i], context);
    if (!part) return nullptr;
    Py_XSETREF(*places[i], part);
  }
  return object.release();
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
      std::vector<Recipe> args(recipe.parts.begin() + 1, recipe.parts.end());
      Ref tuple = Ref::take(build_tuple(args, context));
      Ref iterator = tuple ? Ref::take(PyObject_CallObject(recipe.object.get(), tuple.get())) : Ref();
      if (!iterator) return nullptr;
      // 3.12 leaves no state behind where the arguments tell it all.
      if (recipe.parts[0].kind == Kind::kConstant && recipe.parts[0].object.get() != Py_None) {
        Ref done = Ref::take(PyObject_CallMethod(iterator.get(), "__setstate__", "O", recipe.parts[0].object.get()));
        if (!done) return nullptr;
      }
      return keep(recipe, context, iterator.release());
    }
    case Kind::kFunction:
      return build_function(recipe, context);
    case Kind::kInstance:
      return build_instance(recipe, context);
  }
  return nullptr;
}

}  // namespace magneto::capture
