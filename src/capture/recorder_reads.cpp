// Reads: what a recording learns of objects from outside, and the guards that make it true again at every call.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "capture/compiled.h"
#include "capture/content.h"
#include "capture/evaluator.h"
#include "capture/faults.h"
#include "capture/iterators.h"
#include "capture/recorder.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

// ---------------------------------------------------------------------------------------------------- numbers

// An int that no one else has: small ints are shared, and identity is what carries the expression.
static PyObject* fresh_int(long long value) {
  unsigned long long magnitude =
      value < 0 ? 0ull - static_cast<unsigned long long>(value) : static_cast<unsigned long long>(value);
  if (magnitude >= (1ull << 30)) return PyLong_FromLongLong(value);
  PyLongObject* object = _PyLong_New(1);
  if (!object) return nullptr;
#if PY_VERSION_HEX >= 0x030C0000
  object->long_value.ob_digit[0] = static_cast<digit>(magnitude);
  object->long_value.lv_tag = magnitude == 0 ? 1 : (uintptr_t{1} << 3) | (value < 0 ? 2 : 0);
#else
  object->ob_digit[0] = static_cast<digit>(magnitude);
  Py_SET_SIZE(object, magnitude == 0 ? 0 : value < 0 ? -1 : 1);
#endif
  return reinterpret_cast<PyObject*>(object);
}

PyObject* Recorder::unique_int(PyObject* value) {
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow ? Py_NewRef(value) : fresh_int(number);
}

void Recorder::guard_number(const types::Expr& expr) {
  auto& numbers = guards().numbers;
  if (!expr.is_constant() && std::find(numbers.begin(), numbers.end(), expr) == numbers.end()) numbers.push_back(expr);
}

PyObject* Recorder::new_number(PyObject* value, types::Expr expr) {
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  base::check(overflow == 0, "capture: ", types::to_string(expr), " of more than 64 bits");
  PyObject* object = fresh_int(number);
  if (!object) return nullptr;
  Info entry;
  entry.cls = Info::Class::kNumber;
  entry.number = std::move(expr);
  enter(object, entry);
  return object;
}

std::optional<types::Expr> Recorder::number(PyObject* object) {
  if (!PyLong_CheckExact(object)) return std::nullopt;
  Info* known = info(object);
  if (!known || known->cls != Info::Class::kNumber) return std::nullopt;
  return known->number;
}

void Recorder::fix(const types::Expr& expr, PyObject* value) {
  if (expr.is_constant()) return;
  types::Condition condition{expr, types::Relation::kEq, types::Expr(PyLong_AsLongLong(value))};
  for (auto& known : guards().conditions)
    if (known == condition) return;
  guards().conditions.push_back(std::move(condition));
}

void Recorder::specialise(PyObject* object, int depth) try {
  if (PyLong_CheckExact(object)) {
    if (auto expr = number(object)) fix(*expr, object);
  } else if (PyFloat_CheckExact(object)) {
    Info* known = info(object);
    if (const auto symbol = real(object)) fix(*symbol, PyFloat_AS_DOUBLE(object));
    if (known && known->cls == Info::Class::kLazy) {
      guards().steps.push_back({FloatingStep::Kind::kValue, known->source, {}, Ref::share(object), {}, {}, 0, {}});
    }
  } else if (is_text(object)) {
    fix_text(object);
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    for (PyObject* part : {slice->start, slice->stop, slice->step}) specialise(part, depth + 1);
  } else if (depth < 4 && (PyTuple_Check(object) || PyList_CheckExact(object))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      specialise(PySequence_Fast_GET_ITEM(object, i), depth + 1);
  }
} catch (const std::exception& error) {
  fault(error.what());
}

bool Recorder::carries_number(PyObject* object, int depth) {
  if (PyLong_CheckExact(object)) {
    const auto expr = number(object);
    return expr && !expr->is_constant();
  }
  if (PyFloat_CheckExact(object)) {
    const Info* known = info(object);
    return known && (known->cls == Info::Class::kLazy || known->cls == Info::Class::kReal);
  }
  if (is_text(object)) return true;
  if (depth >= 4 || !(PyTuple_Check(object) || PyList_CheckExact(object))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
    if (carries_number(PySequence_Fast_GET_ITEM(object, i), depth + 1)) return true;
  return false;
}

/// What an iterator of C holds: the list it walks, the iterators that zip() joins, the function that map() calls.
template <class Visit>
static void each_held(PyObject* object, Visit&& visit) {
  if (!Py_TYPE(object)->tp_traverse) return;
  Py_TYPE(object)->tp_traverse(
      object,
      [](PyObject* held, void* argument) {
        (*static_cast<std::remove_reference_t<Visit>*>(argument))(held);
        return 0;
      },
      &visit);
}

static bool is_c_iterator(PyObject* object) {
  return PyIter_Check(object) && !PyGen_CheckExact(object) && !is_python_class(Py_TYPE(object));
}

/// Loops over these are longer than loops over modules, and one iteration is like another.
static bool is_data(PyObject* object) {
  return is_tensor(object) || PyLong_Check(object) || PyFloat_Check(object) || PyRange_Check(object);
}

static bool is_module(PyObject* object) {
  static PyObject* const type = [] {
    const Ref module = Ref::take(PyImport_ImportModule("torch.nn"));
    PyObject* const found = module ? PyObject_GetAttrString(module.get(), "Module") : nullptr;
    PyErr_Clear();
    return found;
  }();
  return type && PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type));
}

bool Recorder::take_apart(Activation& self, PyObject* iterator, Py_ssize_t references) {
  constexpr size_t kLoopOverData = 4;
  if (Py_TYPE(iterator) == &PyODictIter_Type) return false;  // its parts are a copy: what it gives is not theirs
  const SourceId source = source_of(iterator);
  const Ref reduced = Ref::take(reduce_iterator(iterator));  // looks builtins up, among whatever keys are there
  if (!active_) return false;
  PyObject* const parts = reduced ? PyTuple_GET_ITEM(reduced.get(), 1) : nullptr;
  PyObject* const state = reduced && PyTuple_GET_SIZE(reduced.get()) > 2 ? PyTuple_GET_ITEM(reduced.get(), 2) : Py_None;
  if (!parts || !is_value(state)) return false;
  bool has_data = false, has_inner = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); ++i) {
    PyObject* const part = PyTuple_GET_ITEM(parts, i);
    const bool is_sequence = PyList_CheckExact(part) || PyTuple_CheckExact(part);
    const bool is_inner = is_reducible_iterator(Py_TYPE(part)) && Py_REFCNT(part) <= 2 && !info(part);
    if (!is_value(part) && !PyRange_Check(part) && !is_sequence && !PyDict_CheckExact(part) && !is_inner) return false;
    has_inner = has_inner || is_inner;
    has_data = has_data || is_data(part) ||
               (is_sequence && PySequence_Fast_GET_SIZE(part) > 0 &&
                is_data(PySequence_Fast_GET_ITEM(part, PySequence_Fast_GET_SIZE(part) - 1)));
  }
  // What walks another iterator (enumerate, islice) has numbers of its own: the other one says what the loop is over.
  if (has_data && !has_inner && iterations >= kLoopOverData) return false;
  resolve(iterator);
  guards().steps.push_back({FloatingStep::Kind::kIterator,
                            source,
                            {},
                            Ref::share(PyTuple_GET_ITEM(reduced.get(), 0)),
                            Ref::share(state),
                            {},
                            references,
                            {}});
  enter_outside(parts, guards().sources.part(Source::Kind::kReduced, source, nullptr));
  guard_all(self, parts);
  for (Py_ssize_t i = 0; active_ && i < PyTuple_GET_SIZE(parts); ++i) {
    PyObject* const part = PyTuple_GET_ITEM(parts, i);
    if (is_reducible_iterator(Py_TYPE(part))) {
      if (!take_apart(self, part, references < 0 ? -1 : 2))
        invalidate(self, Stop::kOutsideIterator, Py_TYPE(part)->tp_name);
    } else if (is_outside(part)) {
      guard_all(self, part);
      each_held(part, [&](PyObject* held) {
        if (is_module(held) && floating(held)) pin(held);
      });
    }
  }
  if (active_ && references >= 0) enter_made(iterator);
  return true;
}

void Recorder::specialise_held(PyObject* iterator, int depth) {
  each_held(iterator, [&](PyObject* held) {
    specialise(held, depth);
    if (depth < 4 && (is_c_iterator(held) || PyTuple_Check(held) || PyList_Check(held) || PyDict_Check(held)))
      specialise_held(held, depth + 1);
  });
}

bool Recorder::runs_no_python(PyObject* iterator, int depth) {
  if (depth > 4 || !is_c_iterator(iterator)) return false;
  bool all = true;
  each_held(iterator, [&](PyObject* held) {
    const bool is_of_c =
        PyCFunction_Check(held) || (PyType_Check(held) && !is_python_class(reinterpret_cast<PyTypeObject*>(held)));
    const bool is_plain = is_value(held) || is_of_c || PyList_CheckExact(held) || PyDict_CheckExact(held) ||
                          PyAnySet_CheckExact(held) || PyRange_Check(held) || is_tensor(held);
    if (PyTuple_CheckExact(held)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held); ++i) {
        PyObject* const one = PyTuple_GET_ITEM(held, i);
        all = all && (!PyIter_Check(one) || runs_no_python(one, depth + 1));
      }
    } else {
      all = all && (is_plain || runs_no_python(held, depth + 1));
    }
  });
  return all;
}

bool Recorder::only_keeps(PyObject* object, int depth) {
  static const std::unordered_set<std::string_view> names = {"map",
                                                             "zip",
                                                             "enumerate",
                                                             "reversed",
                                                             "list_iterator",
                                                             "tuple_iterator",
                                                             "itertools.chain",
                                                             "itertools.islice",
                                                             "list_reverseiterator"};
  if (!PyIter_Check(object) || PyGen_CheckExact(object)) return true;
  if (depth > 4 || !names.count(Py_TYPE(object)->tp_name)) return false;
  bool all = true;
  each_held(object, [&](PyObject* held) {
    const bool calls_c = PyCallable_Check(held) && !PyFunction_Check(held);
    // chain.from_iterable(...) walks what others make for it
    const bool walks = strcmp(Py_TYPE(object)->tp_name, "itertools.chain") == 0 && PyIter_Check(held) &&
                       Py_TYPE(held) != &PyListIter_Type && Py_TYPE(held) != &PyTupleIter_Type;
    all = all && !calls_c && !walks && only_keeps(held, depth + 1);
    for (Py_ssize_t i = 0; PyTuple_Check(held) && i < PyTuple_GET_SIZE(held); ++i)
      all = all && only_keeps(PyTuple_GET_ITEM(held, i), depth + 1);
  });
  return all;
}

// ---------------------------------------------------------------------------------------------------- objects

void Recorder::resolve(PyObject* object) try {
  Info* known = info(object);
  if (!known || known->resolved || !guards().sources.floating(known->source)) return;
  known->resolved = true;
  resolve_source(known->source);
} catch (const std::exception& error) {
  fault(error.what());
}

// A source is found through its parent: that comes first.
void Recorder::resolve_source(SourceId source) try {
  if (!guards().sources.floating(source) || !resolved_.insert(source).second) return;
  resolve_source(guards().sources[source].parent);
  guards().steps.push_back({FloatingStep::Kind::kResolve, source, {}, {}, {}, {}, 0, {}});
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::pin(PyObject* object) try {
  Info* known = info(object);
  if (!known || !guards().sources.floating(known->source)) return;
  if (guards().sources[known->source].kind == Source::Kind::kHeld) return;
  resolve(object);
  guards().steps.push_back({FloatingStep::Kind::kPinned, known->source, {}, Ref::share(object), {}, {}, 0, {}});
  Source floating = guards().sources[known->source];
  known->source = guards().sources.pinned(floating.parent, floating.key.get());
  owned(object);
} catch (const std::exception& error) {
  fault(error.what());
}

// C code looks at such an object as a whole, in more places than could be told apart: a slice as an index, a class in a
// comparison, a dtype as a key.
void Recorder::guard_whole(PyObject* object) try {
  const Whole whole = compared_whole(object);
  if (whole == Whole::kNo) return;
  if (whole == Whole::kAddress) return pin(object);
  resolve(object);
  guards().steps.push_back({whole == Whole::kValue ? FloatingStep::Kind::kValue : FloatingStep::Kind::kPayload,
                            source_of(object),
                            {},
                            Ref::share(object),
                            {},
                            {},
                            0,
                            {}});
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::adopt(Activation& self, PyObject* object, Source::Kind kind, PyObject* parent, PyObject* key,
                     Py_ssize_t index, const char* where, bool as_it_was) try {
  fault_point("note");
  if (!active_ || !object || is_value(object)) return;
  Info* known = info(object);
  SourceId from = parent ? source_of(parent) : SourceId();
  if (kind == Source::Kind::kItem && !key && index < 0 && guards().sources.floating(from) && !info(object) &&
      Py_REFCNT(object) > 1)
    return invalidate(self, Stop::kUnknownObject, where);  // an element whose place is not known
  bool from_floating = guards().sources.floating(from);
  if (known) {
    const bool is_pinned = !guards().sources.floating(known->source);
    if (known->cls != Info::Class::kOutside || (is_pinned && !from_floating)) return;
    // What Python code answered for an attribute (__getattr__, a property) was guarded where that code read it.
    if (kind == Source::Kind::kAttr && parent) {
      PyObject* dict = is_tensor(parent) ? nullptr : instance_dict(parent);
      if (!dict || !key || PyDict_GetItemWithError(dict, key) != object) {
        PyErr_Clear();
        return;
      }
    }
    if (kind == Source::Kind::kItem && parent && !as_it_was) {
      bool holds = PyDict_Check(parent) ? key && quiet_entry(parent, key) == object
                   : PyList_Check(parent) || PyTuple_Check(parent)
                       ? index >= 0 && index < PySequence_Fast_GET_SIZE(parent) &&
                             PySequence_Fast_GET_ITEM(parent, index) == object
                       : is_deque(parent) && element_of(parent, index).get() == object;
      if (!holds) {
        PyErr_Clear();
        return;
      }
    }
    if (parent && from_floating && !as_it_was && is_rewritten(parent, key))
      return;  // the recording itself has put it there
    // An object was reached again. On another path: both must lead to one object at every call.
    Source old = guards().sources[known->source];
    if (from_floating && (kind == Source::Kind::kAttr || kind == Source::Kind::kItem || kind == Source::Kind::kCell ||
                          kind == Source::Kind::kSelf)) {
      if (old.kind == kind && old.parent == from && (key ? old.key.get() == key : old.index == index)) return;
      if (!paths_.emplace(from, key, index).second) return;
      SourceId second = guards().sources.part(kind, from, key, index);
      if (!is_pinned) resolve(object);
      resolve_source(second);
      if (is_pinned)
        guards().steps.push_back({FloatingStep::Kind::kPinned, second, {}, Ref::share(object), {}, {}, 0, {}});
      else
        guards().steps.push_back({FloatingStep::Kind::kIs, second, known->source, {}, {}, {}, 0, {}});
    } else if (!from_floating && !(parent && is_made(parent)) &&
               (kind != Source::Kind::kSelf || (parent && is_outside(parent)))) {
      pin(object);  // also found at a fixed place: a global
    }
    return;
  }
  if (is_tensor(object)) {
    if (made_here(tensor_of(object))) return;
    if (Py_REFCNT(object) == 1) return invalidate(self, Stop::kUnknownTensor, where);
    if (parent && is_made(parent)) return invalidate(self, Stop::kUnknownTensor, where);
    enter_outside(object, guards().sources.part(kind, from, key, index));
    return;
  }
  if (Py_REFCNT(object) == 1) return enter_made(object);
  if (kind == Source::Kind::kSelf && parent && is_made(parent) && PyFunction_Check(object))
    return enter_outside(object,  // found on a class, whose version is guarded
                         guards().sources.pinned({}, reinterpret_cast<PyFunctionObject*>(object)->func_qualname));
  if (kind == Source::Kind::kSelf && parent && is_made(parent) && is_compiled(object))
    return enter_outside(object, guards().sources.pinned({}, nullptr));
  if (parent && is_made(parent)) {
    if (Py_REFCNT(object) == 2) return enter_made(object);  // its holder and we: nobody else knows it
    if (PyTuple_CheckExact(object) || is_global_constant(object) || PyFunction_Check(object)) {
      if (PyTuple_CheckExact(object))
        enter_made(object);
      else
        enter_outside(object, guards().sources.pinned({}, key));
      return;
    }
    return invalidate(self, Stop::kUnknownObject, where);
  }
  if (kind == Source::Kind::kAttr && from_floating) {
    PyObject* dict = instance_dict(parent);
    if (!dict || PyDict_GetItemWithError(dict, key) != object) {  // found on the class, whose version is guarded
      PyErr_Clear();
      if (!is_global_constant(object) && !PyFunction_Check(object))
        return invalidate(self, Stop::kUnknownObject, where);
      return enter_outside(object, guards().sources.pinned({}, key));
    }
  }
  enter_outside(object, guards().sources.part(kind, from, key, index));
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::adopt_result(Activation& self, PyObject* object, const std::string& where) try {
  fault_point("note");
  if (!active_ || !object || is_value(object) || info(object)) return;
  if (is_tensor(object)) {
    if (!made_here(tensor_of(object))) invalidate(self, Stop::kUnknownTensor, where);
    return;
  }
  if (Py_REFCNT(object) == 1 || PyTuple_CheckExact(object) || is_numpy_number(Py_TYPE(object))) {
    enter_made(object);
    return enter_elements(object);
  }
  if (is_new_class(object)) return enter_made(object);
  if (is_global_constant(object) || strncmp(Py_TYPE(object)->tp_name, "torch.", 6) == 0)
    return enter_outside(object, guards().sources.pinned({}, nullptr));
  if (PyGen_CheckExact(object) || PyTraceBack_Check(object)) return enter_made(object);
  invalidate(self, Stop::kUnknownObject, where);
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::enter_elements(PyObject* container) {
  if (!PyTuple_CheckExact(container) && !PyList_CheckExact(container)) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(container); ++i) {
    PyObject* const element = PySequence_Fast_GET_ITEM(container, i);
    if (!PyTuple_CheckExact(element) || info(element) || is_constant_tuple(element)) continue;
    enter_made(element);
    enter_elements(element);
  }
}

void Recorder::guard_type(PyTypeObject* type) try {
  fault_point("note");
  if (is_immutable_type(type) || is_made(reinterpret_cast<PyObject*>(type)) ||
      !typed_.insert(reinterpret_cast<PyObject*>(type)).second)
    return;
  if (is_bookkeeping_class(type)) return;
  unsigned version = type_version(type);
  if (version == 0) return invalidate(*Activation::innermost(), Stop::kUnknownObject, "a class without a version");
  guards().types.push_back({Ref::share(reinterpret_cast<PyObject*>(type)), version});
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::guard_class(PyObject* object) try {
  fault_point("note");
  PyTypeObject* type = Py_TYPE(object);
  guard_type(type);
  Info* known = info(object);
  if (!known || known->cls != Info::Class::kOutside || known->typed) return;
  if (is_tensor(object)) {
    touch_tensor(object);
    return;
  }
  known->typed = true;
  if (guards().sources.floating(known->source)) {
    resolve(object);
    guards().steps.push_back(
        {FloatingStep::Kind::kType, known->source, {}, Ref::share(reinterpret_cast<PyObject*>(type)), {}, {}, 0, {}});
  } else if (!is_immutable_type(type) && !PyType_Check(object) && !PyFunction_Check(object)) {
    guards().classes.push_back({Ref::share(object), type, known->source});
  }
} catch (const std::exception& error) {
  fault(error.what());
}

bool Recorder::touch_tensor(PyObject* object) try {
  fault_point("note");
  const at::Tensor& tensor = tensor_of(object);
  Info* known = info(object);
  if (!known || known->cls != Info::Class::kOutside) return made_here(tensor);
  if (!guarded_tensors_.insert(object).second) return true;
  known->typed = true;
  guard_type(Py_TYPE(object));
  TensorMeta meta = TensorMeta::of(object);
  const std::string path = guards().sources.describe(known->source);
  types::Sizes sizes, strides;
  types::Expr offset = meta.offset;
  if (guards().sources.floating(known->source)) {
    resolve(object);
    if (symbolic_) make_symbolic(object, path, meta);
    sizes = meta.symbolic_sizes(), strides = meta.symbolic_strides(), offset = meta.symbolic_offset();
    guards().steps.push_back({FloatingStep::Kind::kTensor, known->source, {}, {}, {}, {}, 0, std::move(meta)});
  } else {
    sizes = meta.symbolic_sizes(), strides = meta.symbolic_strides();
    guards().tensors.push_back({Ref::take(PyWeakref_NewRef(object, nullptr)), object, std::move(meta), known->source});
  }
  try {
    const graph::ValueId input = trace_->add_input(tensor, path);
    if (symbolic_) symbolic_->add_input(input, tensor, std::move(sizes), std::move(strides), std::move(offset), path);
    return true;
  } catch (const std::exception&) {  // a kind of tensor that no graph holds
    return false;
  }
} catch (const std::exception& error) {
  fault(error.what());
  return false;
}

// ---------------------------------------------------------------------------------------------------- containers

// A key as text: equal keys have equal texts, and only they. True is 1 and 1.0.
static std::string key_string(PyObject* key) {
  const auto text = [](char kind, Ref of) -> std::string {
    Py_ssize_t length = 0;
    const char* words = of ? PyUnicode_AsUTF8AndSize(of.get(), &length) : nullptr;
    if (!words) PyErr_Clear();
    return words ? kind + std::string(words, static_cast<size_t>(length)) : std::string();
  };
  std::string made;
  if (PyUnicode_CheckExact(key)) {
    made = text('s', Ref::share(key));
  } else if (PyLong_CheckExact(key) || PyBool_Check(key)) {
    made = text('i', Ref::take(PyLong_Type.tp_repr(key)));
  } else if (PyFloat_CheckExact(key) && !std::isnan(PyFloat_AS_DOUBLE(key))) {  // a NaN equals itself only
    const double number = PyFloat_AS_DOUBLE(key);
    const bool is_int = std::isfinite(number) && std::trunc(number) == number;
    made = is_int ? text('i', Ref::take(PyObject_Str(Ref::take(PyLong_FromDouble(number)).get())))
                  : text('f', Ref::take(PyObject_Repr(key)));
  } else if (PyTuple_CheckExact(key)) {
    made = "(";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
      const std::string part = key_string(PyTuple_GET_ITEM(key, i));
      made += base::concat(part.size(), ":", part);
    }
  }
  return made.empty() ? base::concat("o", std::to_string(reinterpret_cast<uintptr_t>(key))) : made;
}

bool Recorder::is_dirty(PyObject* dict, PyObject* key) { return dirty_keys_.count({dict, key_string(key)}) > 0; }

bool Recorder::is_rewritten(PyObject* holder, PyObject* key) {
  if (originals_.count(holder) && !PyDict_Check(holder)) return true;
  PyObject* dict = PyDict_Check(holder) ? holder : key && !is_tensor(holder) ? instance_dict(holder) : nullptr;
  return dict && key && is_dirty(dict, key);
}

void Recorder::make_dirty(PyObject* dict, PyObject* key) try {
  fault_point("note");
  dirty_keys_.insert({dict, key_string(key)});
  dirty_refs_.push_back(Ref::share(dict));
  dirty_refs_.push_back(Ref::share(key));
} catch (const std::exception& error) {
  fault(error.what());
}

// The dict of an object may also be passed by itself, or be that of another object: what was read of it on one way
// would have to be guarded on the other one, too.
bool Recorder::reached_as_before(PyObject* dict, PyObject* owner, SourceId source) {
  if (!owner && source.valid() && guards().sources[source].kind == Source::Kind::kDict)
    source = guards().sources[source].parent;
  const SourceId first = dict_places_.emplace(dict, source).first->second;
  if (guards().sources.floating(source) || guards().sources.floating(first)) return first == source;
  if (owner) dict_guard(dict, owner, source);
  return true;
}

DictGuard& Recorder::dict_guard(PyObject* dict, PyObject* owner, SourceId source) {
  auto [place, fresh] = dict_index_.emplace(dict, guards().dicts.size());
  if (fresh) {
    DictGuard guard;
    guard.dict = Ref::share(dict);
    guard.source = source;
    guard.version = dict_version(dict);
    guards().dicts.push_back(std::move(guard));
  }
  // Two objects of fixed places with one dict, as a module and its compiled one: both must keep it.
  if (Ref& first = guards().dicts[place->second].owner; owner && !first) {
    first = Ref::share(owner);
  } else if (owner && first.get() != owner && second_owners_.emplace(dict, owner).second) {
    DictGuard guard;
    guard.dict = Ref::share(dict);
    guard.owner = Ref::share(owner);
    guard.source = source;
    guards().dicts.push_back(std::move(guard));
  }
  return guards().dicts[place->second];
}

void Recorder::guard_key(Activation& self, PyObject* dict, PyObject* key, PyObject* owner, SourceId source,
                         Reader reader) try {
  fault_point("note");
  if (is_made(dict) || (owner && is_made(owner))) return;
  if (!reached_as_before(dict, owner, source))
    return invalidate(self, Stop::kUnknownObject, "a dict reached in two ways");
  if (is_dirty(dict, key)) return;
  if (PyLong_CheckExact(key) && is_made(key)) return invalidate(self, Stop::kUnknownObject, "id()");
  specialise(key);
  PyObject* const value = PyDict_GetItemWithError(dict, key);
  const Ref held = Ref::share(value);
  if (!value && PyErr_Occurred()) PyErr_Clear();
  if (!active_) return;  // an == of a key has ended the recording
  const bool tags = reader == Reader::kTags && value && can_be_symbol(value);
  const auto symbol = symbol_of_.find({dict, key_string(key)});
  if (!tags && symbol != symbol_of_.end() && value) fix_symbol(symbol->second, value);
  if (guards().sources.floating(source)) {
    if (!keyed_.insert({dict, key}).second) return;
    // The source of an instance dict is the instance: its entries are attributes.
    Source::Kind kind = owner ? Source::Kind::kAttr : Source::Kind::kItem;
    if (!value || is_value(value)) {
      SourceId part = guards().sources.part(kind, source, key);
      resolve(owner ? owner : dict);
      if (tags && is_volatile(guards().sources.describe(part))) {
        guards().steps.push_back({FloatingStep::Kind::kSymbol, part, {}, {}, {}, {}, guards().symbol_count, {}});
        symbol_of_[{dict, key_string(key)}] = symbol_for(value);
        return;
      }
      guards().steps.push_back({value ? FloatingStep::Kind::kValue : FloatingStep::Kind::kAbsent,
                                part,
                                {},
                                Ref::share(value),
                                {},
                                {},
                                0,
                                {}});
    } else {
      resolve(owner ? owner : dict);
      adopt(self, value, kind, owner ? owner : dict, key, -1, "an entry of an argument");
      // presence is guarded when the entry is resolved
      if (active_ && floating(value)) resolve(value);
    }
    return;
  }
  DictGuard& guard = dict_guard(dict, owner, source);
  if (guard.whole || !keyed_.insert({dict, key}).second) return;
  KeyCheck check{Ref::share(key), Ref::share(value), -1};
  if (tags && is_volatile(guards().sources.describe_key(guard.source, key))) {
    check.symbol = static_cast<int32_t>(guards().symbol_count);
    symbol_of_[{dict, key_string(key)}] = symbol_for(value);
  }
  guard.keys.push_back(std::move(check));
  owned(value);
} catch (const std::exception& error) {
  fault(error.what());
}

// The text of an element's place, as key_string has it.
static std::string item_key(Py_ssize_t index) { return base::concat("i", index); }

// Somebody takes the elements of a list as they are, and asks nobody about them.
void Recorder::fix_items(PyObject* list) {
  if (!PyList_Check(list)) return;
  for (auto entry = symbol_of_.lower_bound({list, std::string()}); entry != symbol_of_.end(); ++entry) {
    if (entry->first.first != list) break;
    const size_t index = std::stoul(entry->first.second.substr(1));
    PyObject* content = originals_.count(list) ? originals_[list] : list;
    if (index < static_cast<size_t>(PyList_GET_SIZE(content)))
      fix_symbol(entry->second, PyList_GET_ITEM(content, static_cast<Py_ssize_t>(index)));
  }
}

PyObject* Recorder::tagged(PyObject* holder, PyObject* key, PyObject* value) try {
  if (!holder || !value || !can_be_symbol(value) || symbol_of_.empty()) return value;
  if (PyList_Check(holder) && originals_.count(holder) && !number(value) && !real(value)) {
    fix_items(holder);  // where it stood before the program changed the list is not known
    return value;
  }
  auto found = symbol_of_.find({holder, key ? key_string(key) : std::string()});
  if (found == symbol_of_.end() || number(value) || real(value) ||
      (key && !PyList_Check(holder) ? is_dirty(holder, key) : originals_.count(holder) > 0))
    return value;
  PyObject* object = carrier(value, found->second);
  Py_DECREF(value);
  return object;
} catch (const std::exception& error) {
  fault(error.what());
  return value;
}

bool Recorder::guard_all(Activation& self, PyObject* container, Reader reader) try {
  fault_point("note");
  Info* known = info(container);
  if (!known || known->cls != Info::Class::kOutside) return true;
  bool is_floating = guards().sources.floating(known->source);
  if (!listed_.insert(container).second) {
    if (reader == Reader::kFixes) fix_items(container);
    return true;
  }
  if (PyDict_Check(container) && !reached_as_before(container, nullptr, known->source)) {
    invalidate(self, Stop::kUnknownObject, "a dict reached in two ways");
    return false;
  }
  guard_class(container);
  static PyObject* const factory_name = PyUnicode_InternFromString("default_factory");
  if (PyTypeObject* base = Py_TYPE(container); PyDict_Check(container)) {  // a copy of it has the same factory
    while (is_python_class(base)) base = base->tp_base;
    if (strcmp(base->tp_name, "collections.defaultdict") == 0) {
      const Ref factory = Ref::take(PyObject_GenericGetAttr(container, factory_name));
      if (factory) guard_member(container, factory_name, factory.get());
      PyErr_Clear();
    }
  }
  if (replaced_.count(container)) snapshot(container);
  if (is_deque(container)) {
    loosen(container);
    is_floating = true;
  }
  auto original = originals_.find(container);
  PyObject* content = original == originals_.end() ? container : original->second;
  SourceId source = known->source;
  if (is_floating) resolve(container);
  const bool tags = reader == Reader::kTags && PyList_CheckExact(container) && content == container;
  auto part = [&](PyObject* value, PyObject* key, Py_ssize_t index) {
    Ref held = Ref::share(value);  // it is old, however few references there are
    if (!is_floating) {
      if (!is_value(value) && !info(value))
        enter_outside(value, guards().sources.part(Source::Kind::kItem, source, key, index));
      else if (floating(value))
        pin(value);
      return;
    }
    if (is_value(value)) {
      SourceId id = guards().sources.part(Source::Kind::kItem, source, key, index);
      if (tags && can_be_symbol(value) && is_volatile(guards().sources.describe(id))) {
        guards().steps.push_back({FloatingStep::Kind::kSymbol, id, {}, {}, {}, {}, guards().symbol_count, {}});
        symbol_of_[{container, item_key(index)}] = symbol_for(value);
        return;
      }
      guards().steps.push_back({FloatingStep::Kind::kValue, id, {}, Ref::share(value), {}, {}, 0, {}});
      return;
    }
    adopt(self, value, Source::Kind::kItem, container, key, index, "an element of an argument", content != container);
    if (active_ && floating(value)) resolve(value);
  };
  if (PyDict_Check(container)) {
    if (PyODict_Check(content) && has_program_keys(content)) {  // who walks it asks keys for their hashes
      invalidate(self, Stop::kProgramKey, Py_TYPE(container)->tp_name);
      return false;
    }
    FloatingStep keys{FloatingStep::Kind::kKeys, source, {}, {}, {}, {}, 0, {}};
    const std::vector<std::pair<Ref, Ref>> items = items_of(content);
    if (items.size() != static_cast<size_t>(PyDict_GET_SIZE(content)))  // hashes of keys are not what they were
      invalidate(self, Stop::kUnknownObject, Py_TYPE(container)->tp_name);
    if (!active_) return false;
    for (const auto& [key, value] : items) keys.keys.push_back(key);
    if (is_floating) {
      guards().steps.push_back(std::move(keys));
    } else {
      DictGuard& guard = dict_guard(container, nullptr, source);
      for (const auto& [key, value] : items) guard.items.push_back({key, value, -1});
      guard.whole = true;
      if (PyODict_Check(container)) guard.order_state = 1;  // never equal to a state: compared once, then taken over
    }
    for (const auto& [key, value] : items) {
      if (is_floating && !is_value(key.get())) owned(key.get());
      part(value.get(), key.get(), -1);
    }
  } else if (PyList_Check(container)) {
    if (is_floating) {
      guards().steps.push_back({FloatingStep::Kind::kLength, source, {}, {}, {}, {}, PyList_GET_SIZE(content), {}});
    } else {
      SequenceGuard guard{Ref::share(container), source, {}};
      const std::string path = guards().sources.describe(source);
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(content); ++i) {
        PyObject* item = PyList_GET_ITEM(content, i);
        guard.items.push_back(Ref::share(item));
        if (!tags || !can_be_symbol(item) || !is_volatile(item_path(path, static_cast<size_t>(i)))) continue;
        guard.symbols.resize(static_cast<size_t>(PyList_GET_SIZE(content)), -1);
        guard.symbols[static_cast<size_t>(i)] = static_cast<int32_t>(guards().symbol_count);
        symbol_of_[{container, item_key(i)}] = symbol_for(item);
      }
      guards().lists.push_back(std::move(guard));
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(content); ++i) part(PyList_GET_ITEM(content, i), nullptr, i);
  } else if (PyTuple_Check(container)) {
    if (is_floating)
      guards().steps.push_back({FloatingStep::Kind::kLength, source, {}, {}, {}, {}, PyTuple_GET_SIZE(container), {}});
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(container); ++i) part(PyTuple_GET_ITEM(container, i), nullptr, i);
  } else if (is_deque(container)) {
    static PyObject* const most = PyUnicode_InternFromString("maxlen");
    const Ref limit = Ref::take(PyObject_GetAttr(container, most));
    if (!limit) return PyErr_Clear(), false;
    const std::vector<Ref> items = elements_of(content);
    guard_member(container, most, limit.get());
    guards().steps.push_back(
        {FloatingStep::Kind::kLength, source, {}, {}, {}, {}, static_cast<Py_ssize_t>(items.size()), {}});
    for (size_t i = 0; i < items.size(); ++i) part(items[i].get(), nullptr, static_cast<Py_ssize_t>(i));
  } else if (PyAnySet_Check(container)) {
    SequenceGuard guard{Ref::share(container), source, {}};
    if (is_floating) pin(container);
    for (const Ref& item : elements_of(content)) {
      if (!is_value(item.get()) && !info(item.get()))
        enter_outside(item.get(), guards().sources.pinned(source, nullptr));
      guard.items.push_back(item);
    }
    if (!PyFrozenSet_Check(container)) guards().sets.push_back(std::move(guard));
  }
  return active_;
} catch (const std::exception& error) {
  fault(error.what());
  return active_;
}

void Recorder::guard_cell(PyObject* cell) try {
  Info* known = info(cell);
  if (!known || known->cls != Info::Class::kOutside || originals_.count(cell)) return;
  if (!keyed_.insert({cell, nullptr}).second) return;
  PyObject* content = PyCell_GET(cell);
  if (guards().sources.floating(known->source)) {
    resolve(cell);
    SourceId part = guards().sources.part(Source::Kind::kCell, known->source, nullptr);
    if (!content || is_value(content))
      guards().steps.push_back({content ? FloatingStep::Kind::kValue : FloatingStep::Kind::kAbsent,
                                part,
                                {},
                                Ref::share(content),
                                {},
                                {},
                                0,
                                {}});
    return;
  }
  CellGuard guard{Ref::share(cell), Ref::share(content), known->source};
  if (content && can_be_symbol(content) && is_volatile(guards().sources.describe(known->source))) {
    guard.symbol = static_cast<int32_t>(guards().symbol_count);
    symbol_of_[{cell, std::string()}] = symbol_for(content);
  }
  guards().cells.push_back(std::move(guard));
  owned(content);
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::guard_member(PyObject* object, PyObject* name, PyObject* result) try {
  fault_point("note");
  Info* known = info(object);
  if (!known || known->cls != Info::Class::kOutside || is_dirty(object, name)) return;
  if (!reads_.insert({object, name}).second) return;
  owned(result);
  if (guards().sources.floating(known->source)) {
    resolve(object);
    guards().steps.push_back(
        {FloatingStep::Kind::kReRead, known->source, {}, Ref::share(name), Ref::share(result), {}, 0, {}});
  } else {
    guards().reads.push_back({Ref::share(object), Ref::share(name), Ref::share(result), known->source});
  }
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::guard_state(PyObject* callable, PyObject* const* args, size_t count, PyObject* result, std::string name,
                           PyObject* kwnames) try {
  fault_point("note");
  std::string key = name;
  for (size_t i = 0; i < count; ++i) base::append(key, base::concat(",", key_string(args[i])));
  base::append(key, base::concat("@", reinterpret_cast<uintptr_t>(callable)));
  if (!state_seen_.insert(key).second) return;
  StateGuard guard{Ref::share(callable), {}, Ref::share(result), std::move(name), Ref::share(kwnames)};
  for (size_t i = 0; i < count; ++i) guard.args.push_back(Ref::share(args[i]));
  guards().states.push_back(std::move(guard));
} catch (const std::exception& error) {
  fault(error.what());
}

// ---------------------------------------------------------------------------------------------------- what C code may
// read

bool Recorder::slot_known(Activation& self, PyObject* object) {
  fault_point("primitive");
  (void)self;
  PyTypeObject* type = Py_TYPE(object);
  while (is_python_class(type)) type = type->tp_base;
  // One that the caller passes may be another one at the next call, and is no symbol: it stays outside.
  if (is_numpy_number(type) && floating(object)) {
    unreadable_stop_ = Stop::kOpaqueSlot;
    unreadable_detail_ = type->tp_name;
    return false;
  }
  if (is_known_c_type(type) || is_tensor(object) || PyType_Check(object) || PyType_IsSubtype(type, &PyTuple_Type))
    return true;
  unreadable_stop_ = Stop::kOpaqueSlot;
  unreadable_detail_ = type->tp_name;
  return false;
}

bool Recorder::slot_guarded(Activation& self, PyObject* object, const char* method) {
  if (!slot_known(self, object)) return false;
  PyTypeObject *type = Py_TYPE(object), *base = type;
  while (is_python_class(base)) base = base->tp_base;
  if (!is_outside(object) || !hides_content(base)) return true;
  if (is_deque(object)) return guard_all(self, object);
  if (dict_of_view(object)) {
    PyObject* const dict = behind_view(self, object);
    return dict && guard_all(self, dict);
  }
  Ref name = Ref::take(PyUnicode_InternFromString(method));
  PyObject* found = type == base ? nullptr : _PyType_Lookup(type, name.get());
  if (found && PyFunction_Check(found)) return true;  // it comes through the hook
  unreadable_stop_ = PyIter_Check(object) ? Stop::kOutsideIterator : Stop::kOpaqueSlot;
  unreadable_detail_ = base->tp_name;
  return false;
}

PyObject* Recorder::behind_view(Activation& self, PyObject* view) {
  const Ref dict = Ref::share(dict_of_view(view));  // it is old, however few references there are
  guard_class(view);
  adopt(self, dict.get(), Source::Kind::kSelf, view, nullptr, 0, "a view of a dict");
  return active_ && is_outside(dict.get()) ? dict.get() : nullptr;
}

void Recorder::loosen(PyObject* object) {
  Info* known = info(object);
  if (!known || known->cls != Info::Class::kOutside || floating(object)) return;
  known->source = guards().sources.held(known->source, object);
  known->resolved = false;
}

PyObject* Recorder::behind_proxy(PyObject* proxy) {
  if (Py_TYPE(proxy) != &PyDictProxy_Type || !is_outside(proxy)) return nullptr;
  struct ProxyObject {
    PyObject_HEAD PyObject* mapping;
  };
  PyObject* mapping = reinterpret_cast<ProxyObject*>(proxy)->mapping;
  pin(proxy);  // it has one mapping as long as it lives
  if (!info(mapping)) enter_outside(mapping, guards().sources.pinned(source_of(proxy), nullptr));
  pin(mapping);
  return mapping;
}

// Inside of a transform of torch.func: a wrapper is known if what it stands around is.
bool Recorder::made_here(const at::Tensor& tensor) const {
  if (!uses_func_ || !is_wrapped(tensor)) return trace_->made_here(tensor);
  const at::Tensor inner = unwrapped(tensor);
  return trace_->made_here(inner) || trace_->find(inner).has_value();
}

bool Recorder::usable_tensor(PyObject* tensor, const char* place) {
  if (uses_func_ && is_wrapped(tensor_of(tensor)) && made_here(tensor_of(tensor))) return true;
  if (!is_plain_tensor(tensor)) {
    unreadable_stop_ = Stop::kTensorSubclass;
    unreadable_detail_ = Py_TYPE(tensor)->tp_name;
    return false;
  }
  if (touch_tensor(tensor)) return true;
  unreadable_stop_ = Stop::kUnknownTensor;
  unreadable_detail_ = place;
  return false;
}

bool Recorder::asks_program(PyObject* container, PyObject* key) {
  if (is_value(key)) return false;
  if (PyObject* const dict = dict_of_view(container)) container = dict;
  const bool looks_up = PyDict_Check(container) || PyAnySet_Check(container);
  if (!looks_up || is_made(container) || !runs_program(key)) return false;
  unreadable_stop_ = Stop::kProgramKey;
  unreadable_detail_ = Py_TYPE(key)->tp_name;
  return true;
}

bool Recorder::usable_key(Activation& self, PyObject* key) {
  if (is_value(key)) return true;
  if (PySlice_Check(key)) {
    auto* slice = reinterpret_cast<PySliceObject*>(key);
    return usable_key(self, slice->start) && usable_key(self, slice->stop) && usable_key(self, slice->step);
  }
  for (Py_ssize_t i = 0; PyTuple_Check(key) && i < PyTuple_GET_SIZE(key); ++i)
    if (!usable_key(self, PyTuple_GET_ITEM(key, i))) return false;
  if (!slot_known(self, key)) return false;
  guard_class(key);
  return true;
}

void Recorder::guard_reference(PyObject* reference) {
  if (floating(reference)) pin(reference);
  guards().weak_references.push_back({Ref::share(reference), PyWeakref_GET_OBJECT(reference)});
}

bool Recorder::takes_apart(Activation& self, PyObject* object) {
  if (is_text(object)) specialise(object);
  if (is_value(object)) return true;
  if (PyObject* mapping = behind_proxy(object)) return takes_apart(self, mapping);
  if (!slot_guarded(self, object, "__iter__")) return false;
  PyTypeObject* type = Py_TYPE(object);
  guard_class(object);
  if (!is_outside(object)) return true;
  if (PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object) || PyAnySet_Check(object)) {
    guard_all(self, object);
    return true;
  }
  if (is_python_class(type) || compared_whole(object) != Whole::kNo || shows_content(object)) return true;
  unreadable_stop_ = PyIter_Check(object) ? Stop::kOutsideIterator : Stop::kOpaqueSlot;
  unreadable_detail_ = type->tp_name;
  return false;
}

bool Recorder::readable(Activation& self, PyObject* object, int depth) {
  if (!object || depth > 5) return true;
  if (PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyUnicode_CheckExact(object)) {
    specialise(object);
    return true;
  }
  if (is_value(object)) return true;
  if (is_tensor(object)) return usable_tensor(object, "a container");
  if (PyObject* mapping = behind_proxy(object)) return readable(self, mapping, depth);
  if (Py_TYPE(object) == &_PyWeakref_RefType && is_outside(object)) {
    guard_reference(object);
    return true;
  }
  if (!slot_guarded(self, object, "")) return false;
  PyTypeObject* type = Py_TYPE(object);
  guard_class(object);
  bool outside = is_outside(object);
  if (!outside && is_c_iterator(object)) {  // C code that walks it reads what it gives
    specialise_held(object);
    bool all = true;
    each_held(object, [&](PyObject* held) {
      if (is_c_iterator(held) || PyTuple_Check(held) || PyList_Check(held) || PyDict_Check(held) ||
          PyAnySet_Check(held))
        all = all && readable(self, held, depth + 1);
    });
    if (!all) return false;
  } else if (!outside && (PyDictValues_Check(object) || PyDictItems_Check(object) || PyDictKeys_Check(object))) {
    return readable(self, dict_of_view(object), depth + 1);
  } else if (PyTuple_Check(object)) {
    if (outside) guard_all(self, object);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!readable(self, PyTuple_GET_ITEM(object, i), depth + 1)) return false;
  } else if (PyList_Check(object)) {
    if (outside) guard_all(self, object);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
      if (!readable(self, PyList_GET_ITEM(object, i), depth + 1)) return false;
  } else if (PyDict_Check(object)) {
    if (outside) guard_all(self, object);
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value))
      if (!readable(self, value, depth + 1)) return false;
  } else if (PyAnySet_Check(object)) {
    if (outside) guard_all(self, object);
  } else if (outside && shows_content(object)) {  // which parts it has is guarded
    const Ref parts = Ref::take(dict_of_view(object) ? Py_NewRef(dict_of_view(object)) : PySequence_List(object));
    if (!parts) PyErr_Clear();
    return parts && readable(self, parts.get(), depth + 1);
  } else if (outside && PyExceptionInstance_Check(object)) {
    // C code reads what they hold where no guard sees it.
    unreadable_stop_ = Stop::kOpaqueSlot;
    unreadable_detail_ = type->tp_name;
    return false;
  } else if (PyExceptionInstance_Check(object)) {  // its text is that of its arguments
    return readable(self, reinterpret_cast<PyBaseExceptionObject*>(object)->args, depth + 1);
  } else if (PyFunction_Check(object) || PyMethod_Check(object) || is_partial(object) ||
             (depth == 0 && PyCallable_Check(object) && !is_python_class(type))) {
    return callable_from_c(self, object);
  } else if (floating(object) && !is_python_class(type) && compared_whole(object) == Whole::kNo) {
    unreadable_stop_ = Stop::kOpaqueSlot;
    unreadable_detail_ = type->tp_name;
    return false;
  }
  return true;
}

}  // namespace magneto::capture
