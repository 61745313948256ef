#include "capture/guards.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "capture/content.h"
#include "capture/iterators.h"
#include "evaluator/frame_abi.h"

namespace magneto::capture {

std::string offset_path(const std::string& tensor) { return tensor + ".storage_offset()"; }

bool is_offset(const std::string& path) { return path.ends_with(".storage_offset()"); }

std::string size_path(const std::string& tensor, size_t dimension) {
  return tensor + ".size(" + std::to_string(dimension) + ")";
}

std::string item_path(const std::string& list, size_t index) { return list + "[" + std::to_string(index) + "]"; }

bool is_value(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return o == Py_None || t == &PyBool_Type || t == &PyLong_Type || t == &PyUnicode_Type || t == &PyFloat_Type ||
         t == &PyBytes_Type || o == Py_Ellipsis || o == Py_NotImplemented || t == &PyCode_Type || t == &PyComplex_Type;
}

/// Types written in C whose objects never change, and whose == says whether they are interchangeable.
static bool is_compared_by_its_type(PyTypeObject* type) {
  for (const char* name : {"torch.finfo", "torch.iinfo", "re.Pattern", "types.GenericAlias", "types.UnionType"})
    if (strcmp(type->tp_name, name) == 0) return true;
  return false;
}

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  PyTypeObject* t = Py_TYPE(a);
  if (t == &PyFloat_Type) {
    double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return memcmp(&x, &y, sizeof x) == 0;  // 0.0 and -0.0 differ, a NaN equals itself
  }
  if (t == &PyComplex_Type) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return memcmp(&x, &y, sizeof x) == 0;
  }
  if (t == &PySlice_Type) {
    auto *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
    return same_value(x->start, y->start) && same_value(x->stop, y->stop) && same_value(x->step, y->step);
  }
  if (t == &PyRange_Type) {  // == is not enough: all empty ranges are equal
    for (const char* part : {"start", "stop", "step"}) {
      Ref x = Ref::take(PyObject_GetAttrString(a, part)), y = Ref::take(PyObject_GetAttrString(b, part));
      if (!same_value(x.get(), y.get())) return false;
    }
    return true;
  }
  if (THPDevice_Check(a)) return reinterpret_cast<THPDevice*>(a)->device == reinterpret_cast<THPDevice*>(b)->device;
  if (t == &PyTuple_Type || t == size_type()) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
      if (!same_value(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  }
  if (t == &PyMethod_Type)
    return PyMethod_GET_FUNCTION(a) == PyMethod_GET_FUNCTION(b) && PyMethod_GET_SELF(a) == PyMethod_GET_SELF(b);
  if (t != &PyLong_Type && t != &PyUnicode_Type && t != &PyBytes_Type && !is_compared_by_its_type(t)) return false;
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

bool is_nan(PyObject* object) { return PyFloat_CheckExact(object) && std::isnan(PyFloat_AS_DOUBLE(object)); }

static PyTypeObject* payload_type(PyObject* o) {
  for (PyTypeObject* type : {&PyLong_Type, &PyUnicode_Type, &PyFloat_Type, &PyBytes_Type, &PyComplex_Type})
    if (PyObject_TypeCheck(o, type)) return type;
  return nullptr;
}

static bool same_payload(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a) == Py_TYPE(b) ? payload_type(a) : nullptr;
  if (!type) return false;
  if (type == &PyFloat_Type) {
    double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return memcmp(&x, &y, sizeof x) == 0;
  }
  Ref equal = Ref::take(type->tp_richcompare(a, b, Py_EQ));  // not what the subclass makes of it
  if (!equal) PyErr_Clear();
  return equal.get() == Py_True;
}

static bool is_enumeration(PyTypeObject* type) {
  static PyObject* meta = [] {
    PyObject* module = PyImport_ImportModule("enum");
    PyObject* found = module ? PyObject_GetAttrString(module, "EnumMeta") : nullptr;
    Py_XDECREF(module);
    PyErr_Clear();
    return found;
  }();
  return meta && PyObject_TypeCheck(reinterpret_cast<PyObject*>(type), reinterpret_cast<PyTypeObject*>(meta));
}

bool is_global_constant(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return PyType_Check(object) || PyModule_Check(object) || type == &PyMethodDescr_Type ||
         type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type ||
         type == &PyClassMethodDescr_Type ||
         (PyCFunction_Check(object) && (!PyCFunction_GET_SELF(object) || PyModule_Check(PyCFunction_GET_SELF(object)) ||
                                        PyType_Check(PyCFunction_GET_SELF(object))));
}

Whole compared_whole(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_value(object)) return Whole::kNo;
  if (is_global_constant(object) || is_enumeration(type)) return Whole::kAddress;
  if (payload_type(object)) return Whole::kPayload;
  static const char* const constants[] = {"torch.dtype", "torch.device", "torch.layout", "torch.memory_format"};
  for (const char* name : constants)
    if (strcmp(type->tp_name, name) == 0) return Whole::kValue;
  return type == &PySlice_Type || type == &PyRange_Type || is_compared_by_its_type(type) ? Whole::kValue : Whole::kNo;
}

PyObject* instance_dict(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);  // values that stand inside of the object become a dict here
  return slot ? *slot : nullptr;
}

PyObject* type_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* dict = PyType_GetDict(type);  // tp_dict of C types is empty: each interpreter has its own
  Py_XDECREF(dict);
  return dict;
#else
  return type->tp_dict;
#endif
}

/// Its version as it is now; 0: none is assigned, or it was lost by a change.
static unsigned assigned_version(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030D0000
  return type->tp_version_tag;  // nobody sets the flag any more
#else
  return type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? type->tp_version_tag : 0;
#endif
}

unsigned type_version(PyTypeObject* type) {
  if (assigned_version(type) == 0) {
    static PyObject* name = PyUnicode_InternFromString("__class__");
    _PyType_Lookup(type, name);  // a look-up assigns a version
  }
  return assigned_version(type);
}

bool is_immutable_type(PyTypeObject* type) {
  return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

// OrderedDict keeps its order beside the dict; od_state counts the changes of that list.
static size_t order_state(PyObject* dict) {
  return PyODict_Check(dict)
             ? *reinterpret_cast<size_t*>(reinterpret_cast<char*>(dict) + sizeof(PyDictObject) + 5 * sizeof(void*))
             : 0;
}

bool is_deque(PyObject* object) { return strcmp(Py_TYPE(object)->tp_name, "collections.deque") == 0; }

PyObject* dict_of_view(PyObject* object) {
  struct View {  // as it is in all versions; later ones keep the declaration to themselves
    PyObject_HEAD PyObject* dict;
  };
  const PyTypeObject* type = Py_TYPE(object);
  const bool is_view = type == &PyDictKeys_Type || type == &PyDictValues_Type || type == &PyDictItems_Type;
  return is_view ? reinterpret_cast<View*>(object)->dict : nullptr;
}

Ref element_of(PyObject* sequence, Py_ssize_t index) {
  if (index < 0 || index >= count_of(sequence)) return {};
  Ref element = Ref::take(c_type(sequence)->tp_as_sequence->sq_item(sequence, index));
  PyErr_Clear();
  return element;
}

static std::string text_of_object(PyObject* o) {
  if (!o) return "absent";
  const bool is_plain = is_value(o) || PyTuple_CheckExact(o) || THPDtype_Check(o) || THPDevice_Check(o);
  if (!is_plain) return std::string("a ") + Py_TYPE(o)->tp_name;
  PyObject* repr = PyObject_Repr(o);
  const char* text = repr ? PyUnicode_AsUTF8(repr) : nullptr;
  std::string result = text ? text : "?";
  Py_XDECREF(repr);
  PyErr_Clear();
  return result.size() > 80 ? result.substr(0, 77) + "..." : result;
}

static std::string was_is(PyObject* before, PyObject* now) {
  std::string a = text_of_object(before), b = text_of_object(now);
  return a == b ? " is another object (" + a + ")" : " was " + a + ", is " + b;
}

/// Numbers of one type: what changes from one to the other may be a symbol.
static bool are_numbers(PyObject* before, PyObject* now) {
  return before && now && Py_TYPE(before) == Py_TYPE(now) && (PyLong_CheckExact(now) || PyFloat_CheckExact(now));
}

bool GuardProgram::take_symbol(GuardContext& context, int32_t symbol, PyObject* value) const {
  if (value && is_real(static_cast<size_t>(symbol))) {
    if (!PyFloat_CheckExact(value)) return false;
    context.symbols[symbol] = std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(value));
    return true;
  }
  if (!value || !PyLong_CheckExact(value)) return false;
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow) return false;
  context.symbols[symbol] = number;
  return true;
}

/// The next one of a dict, or of an iterator of an ordered one, whose keys run no code of the program. Borrowed.
static bool next_entry(PyObject* dict, PyObject* ordered, Py_ssize_t* at, PyObject** key, PyObject** value) {
  if (!ordered) return PyDict_Next(dict, at, key, value);
  const Ref next = Ref::take(PyIter_Next(ordered));
  if (!next) return false;
  *key = next.get();
  *value = quiet_entry(dict, next.get());
  return true;
}

/// A set that nobody changed gives its elements in the order in which it gave them.
static bool holds_same(PyObject* set, const std::vector<Ref>& items) {
  if (static_cast<size_t>(PySet_GET_SIZE(set)) != items.size()) return false;
  const Ref iterator = Ref::take(PySet_Type.tp_iter(set));
  size_t same = 0;
  while (const Ref item = Ref::take(iterator ? PyIter_Next(iterator.get()) : nullptr)) {
    if (same == items.size() || !same_value(items[same].get(), item.get())) break;
    ++same;
  }
  const auto is_there = [&](const Ref& item) {
    return !runs_program(item.get()) && PySet_Contains(set, item.get()) == 1;
  };
  return same == items.size() || std::all_of(items.begin(), items.end(), is_there);
}

bool GuardProgram::check_dict(DictGuard& g, GuardContext& context, std::string* why,
                              std::vector<std::string>* changed) {
  PyObject* dict = g.dict.get();
  if (g.owner) {
    PyObject** slot = _PyObject_GetDictPtr(g.owner.get());
    if (!slot || *slot != dict) {
      if (why) *why = sources.describe(g.source) + ".__dict__ is another dict";
      return false;
    }
  }
  uint64_t version = dict_version(dict);
  if (version == g.version && !g.reads_symbols() && (!g.order_state || order_state(dict) == g.order_state)) return true;
  // Whether it is a number, and others may be asked.
  auto differs = [&](PyObject* key, PyObject* before, PyObject* now) {
    if (!why && !changed) return false;
    std::string path = sources.describe_key(g.source, key);
    if (why) *std::exchange(why, nullptr) = path + was_is(before, now);
    if (!changed || !are_numbers(before, now)) return false;
    changed->push_back(std::move(path));
    return true;
  };
  bool all = true;
  if (g.whole) {
    if (static_cast<size_t>(PyDict_GET_SIZE(dict)) != g.items.size()) {
      if (why)
        *why = sources.describe(g.source) + " had " + std::to_string(g.items.size()) + " entries, has " +
               std::to_string(PyDict_GET_SIZE(dict));
      return false;
    }
    size_t position = 0;
    bool ok = true;
    const Ref iterator = Ref::take(PyODict_Check(dict) ? PyODict_Type.tp_iter(dict) : nullptr);
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (ok && next_entry(dict, iterator.get(), &at, &key, &value)) {
      KeyCheck& item = g.items[position++];
      if (!same_value(item.key.get(), key) && item.key.get() != key) {
        if (why) *why = "the order of keys of " + sources.describe(g.source) + " changed";
        ok = false;
      } else if (!same_value(item.value.get(), value)) {
        ok = differs(key, item.value.get(), value);
        all = false;
      }
    }
    if (!ok || position != g.items.size()) {
      PyErr_Clear();
      return false;
    }
  }
  for (KeyCheck& key : g.keys) {
    PyObject* value = PyDict_GetItemWithError(dict, key.key.get());
    if (!value && PyErr_Occurred()) PyErr_Clear();
    if (key.symbol >= 0 ? take_symbol(context, key.symbol, value) : same_value(key.value.get(), value)) continue;
    all = false;
    if (!differs(key.key.get(), key.value.get(), value)) return false;
  }
  if (!all) return false;
  if (g.keep_version) {
    g.version = version;
    if (g.order_state) g.order_state = order_state(dict);
  }
  return true;
}

// What has a fixed address: classes, functions and lists. Dicts have a memo of their own, because a dict of globals
// changes often without a change of what was read.
bool GuardProgram::check_structure(std::string* why, std::vector<std::string>* changed) {
  auto miss = [&](auto&& text) {
    if (why) *why = text();
    return false;
  };
  for (TypeGuard& g : types) {
    auto* type = reinterpret_cast<PyTypeObject*>(g.type.get());
    if (assigned_version(type) != g.version) {
      // A version can be lost without a change (the cache was cleared): but a new number is a new version.
      return miss([&] { return std::string("the class ") + type->tp_name + " was changed"; });
    }
  }
  for (ClassGuard& g : classes)
    if (Py_TYPE(g.object.get()) != g.type)
      return miss([&] { return sources.describe(g.source) + ".__class__ was " + g.type->tp_name; });
  for (SequenceGuard& g : lists) {
    PyObject* list = g.object.get();
    if (static_cast<size_t>(PyList_GET_SIZE(list)) != g.items.size())
      return miss([&] {
        return "the length of " + sources.describe(g.source) + " was " + std::to_string(g.items.size()) + ", is " +
               std::to_string(PyList_GET_SIZE(list));
      });
    for (size_t i = 0; i < g.items.size(); ++i)
      if ((g.symbols.empty() || g.symbols[i] < 0) && !same_value(g.items[i].get(), PyList_GET_ITEM(list, i)))
        return miss([&] {
          const std::string path = item_path(sources.describe(g.source), i);
          if (changed && are_numbers(g.items[i].get(), PyList_GET_ITEM(list, i))) changed->push_back(path);
          return path + was_is(g.items[i].get(), PyList_GET_ITEM(list, i));
        });
  }
  for (FunctionGuard& g : functions) {
    auto* f = reinterpret_cast<PyFunctionObject*>(g.function.get());
    if (f->func_code != g.code.get() || f->func_defaults != g.defaults.get() ||
        f->func_kwdefaults != g.kwdefaults.get())
      return miss([&] { return "the function " + text_of_object(f->func_qualname) + " was changed"; });
  }
  return true;
}

bool GuardProgram::words_hold() const {
  for (const Word& word : words_) {
    uint64_t now;
    memcpy(&now, word.address, sizeof(now));
    if (now != word.value) return false;
  }
  return !words_.empty();
}

// In the order in which they may be read: the place of a list's elements is good only if the list did not move.
void GuardProgram::take_words() {
  words_.clear();
  auto take = [&](const void* address) {
    Word word{address, 0};
    memcpy(&word.value, address, sizeof(word.value));
    words_.push_back(word);
  };
  for (TypeGuard& g : types) {
    auto* type = reinterpret_cast<PyTypeObject*>(g.type.get());
    take(&type->tp_flags);
    take(&type->tp_version_tag);  // half a word, with what stands after it
  }
  for (ClassGuard& g : classes) take(&g.object.get()->ob_type);
  for (FunctionGuard& g : functions) {
    auto* f = reinterpret_cast<PyFunctionObject*>(g.function.get());
    take(&f->func_code);
    take(&f->func_defaults);
    take(&f->func_kwdefaults);
  }
  for (SequenceGuard& g : lists) {
    auto* list = reinterpret_cast<PyListObject*>(g.object.get());
    take(&list->ob_base.ob_size);
    take(&list->ob_item);
    for (size_t i = 0; i < g.items.size(); ++i)
      if (g.symbols.empty() || g.symbols[i] < 0) take(&list->ob_item[i]);
  }
}

bool GuardProgram::check_dicts(GuardContext& context, std::string* why, std::vector<std::string>* changed) {
  dict_words_.resize(dicts.size());
  bool all = true;
  for (size_t i = 0; i < dicts.size(); ++i) {
    DictWord& word = dict_words_[i];
    if (word.version && (!word.slot || *word.slot == word.dict) && *word.place == word.version) continue;
    DictGuard& guard = dicts[i];
    const size_t known = changed ? changed->size() : 0;
    if (!check_dict(guard, context, all ? why : nullptr, changed)) {
      all = false;
      // Where only a number has changed, the dicts after it tell what else has.
      if (!changed || changed->size() == known) return false;
      continue;
    }
    const uint64_t* const place = dict_version_place(guard.dict.get());
    word = {guard.owner ? _PyObject_GetDictPtr(guard.owner.get()) : nullptr, guard.dict.get(), place,
            !place || guard.reads_symbols() || guard.order_state || !guard.keep_version ? 0 : guard.version};
  }
  return all;
}

bool GuardProgram::check_pinned(GuardContext& context, std::string* why, std::vector<std::string>* changed) {
  auto miss = [&](auto&& text) {
    if (why) *why = text();
    return false;
  };
  if (!words_hold()) {
    if (!check_structure(why, changed)) return false;
    take_words();
  }
  if (!check_dicts(context, why, changed)) return false;
  for (const WeakGuard& g : weak_references)
    if (PyWeakref_GET_OBJECT(g.reference.get()) != g.referent)
      return miss([] { return std::string("a weak reference refers to another object, or to none"); });
  for (SequenceGuard& g : lists)
    for (size_t i = 0; i < g.symbols.size(); ++i)
      if (g.symbols[i] >= 0 && !take_symbol(context, g.symbols[i], PyList_GET_ITEM(g.object.get(), i)))
        return miss([&] {
          return item_path(sources.describe(g.source), i) +
                 was_is(g.items[i].get(), PyList_GET_ITEM(g.object.get(), i));
        });
  for (SequenceGuard& g : sets) {
    if (!holds_same(g.object.get(), g.items)) {
      PyErr_Clear();
      return miss([&] { return "the set " + sources.describe(g.source) + " was changed"; });
    }
  }
  for (MemberGuard& g : members)
    if ((PySet_Contains(g.set.get(), g.item.get()) == 1) != g.present) {
      PyErr_Clear();
      return miss([&] { return text_of_object(g.item.get()) + " in " + sources.describe(g.source) + " changed"; });
    }
  for (CellGuard& g : cells) {
    PyObject* content = PyCell_GET(g.cell.get());
    if (g.symbol >= 0 ? !take_symbol(context, g.symbol, content) : !same_value(content, g.content.get())) {
      if (why) {
        *why = "the closure variable " + sources.describe(g.source) + was_is(g.content.get(), content);
        if (changed && are_numbers(g.content.get(), content)) changed->push_back(sources.describe(g.source));
      }
      return false;
    }
  }
  for (TensorGuard& g : tensors) {
    PyObject* tensor = PyWeakref_GET_OBJECT(g.weak.get());
    if (tensor != g.address) return miss([&] { return sources.describe(g.source) + " is gone"; });
    if (!g.meta.matches(tensor))
      return miss([&] { return sources.describe(g.source) + ": " + g.meta.difference(tensor); });
  }
  for (MemberRead& g : reads) {
    PyObject* value = PyObject_GetAttr(g.object.get(), g.name.get());
    if (!value) PyErr_Clear();
    bool same = same_value(value, g.result.get());
    Py_XDECREF(value);
    if (!same)
      return miss([&] { return sources.describe(g.source) + "." + text_of_object(g.name.get()) + " changed"; });
  }
  return true;
}

// Last of all, because a call may count itself (functools.lru_cache): it is made only for a record that is used.
bool GuardProgram::check_states(GuardContext& context, std::string* why) {
  if (!states.empty())  // what runs there may take objects away from where they were found
    for (PyObject* found : context.current) context.keep.push_back(Ref::share(found));
  for (StateGuard& g : states) {
    std::vector<PyObject*> args{nullptr};
    for (Ref& arg : g.args) args.push_back(arg.get());
    PyObject* value =
        PyObject_Vectorcall(g.callable.get(), args.data() + 1,
                            (g.args.size() - (g.kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(g.kwnames.get())) : 0)) |
                                PY_VECTORCALL_ARGUMENTS_OFFSET,
                            g.kwnames.get());
    if (!value) PyErr_Clear();
    bool same = same_value(value, g.result.get());
    Py_XDECREF(value);
    if (!same) {
      if (why) *why = "the answer of " + g.name + " changed";
      return false;
    }
  }
  return true;
}

PyObject* GuardProgram::resolve(SourceId id, GuardContext& context) const {
  const Source& source = sources[id];
  if (source.kind == Source::Kind::kRoot)
    return static_cast<size_t>(source.index) < context.root_count ? context.roots[source.index] : nullptr;
  if (source.kind == Source::Kind::kHeld) return source.key.get();
  PyObject* parent = source.parent.valid() ? context.at(source.parent) : nullptr;
  if (!parent) return nullptr;
  PyObject* found = nullptr;
  switch (source.kind) {
    case Source::Kind::kAttr: {
      PyObject* dict = instance_dict(parent);
      found = dict ? PyDict_GetItemWithError(dict, source.key.get()) : nullptr;
      break;
    }
    case Source::Kind::kDict:
      found = instance_dict(parent);
      break;
    case Source::Kind::kItem:
      if (PyDict_Check(parent)) {
        found = source.key ? quiet_entry(parent, source.key.get()) : nullptr;
      } else if (PyList_Check(parent)) {
        found = source.index >= 0 && source.index < PyList_GET_SIZE(parent) ? PyList_GET_ITEM(parent, source.index)
                                                                            : nullptr;
      } else if (PyTuple_Check(parent)) {
        found = source.index >= 0 && source.index < PyTuple_GET_SIZE(parent) ? PyTuple_GET_ITEM(parent, source.index)
                                                                             : nullptr;
      } else if (is_deque(parent)) {
        context.keep.push_back(element_of(parent, source.index));
        found = context.keep.back().get();
      }
      break;
    case Source::Kind::kCell:
      found = PyCell_Check(parent) ? PyCell_GET(parent) : nullptr;
      break;
    case Source::Kind::kMember: {
      found = PyObject_GenericGetAttr(parent, source.key.get());
      context.keep.push_back(Ref::take(found));  // a getter may have made it
      break;
    }
    case Source::Kind::kClosure:
      if (PyFunction_Check(parent)) {
        PyObject* closure = reinterpret_cast<PyFunctionObject*>(parent)->func_closure;
        found = closure && source.index < PyTuple_GET_SIZE(closure) ? PyTuple_GET_ITEM(closure, source.index) : nullptr;
      }
      break;
    case Source::Kind::kReduced: {
      const Ref reduced = Ref::take(is_reducible_iterator(Py_TYPE(parent)) ? reduce_iterator(parent) : nullptr);
      found = reduced ? PyTuple_GET_ITEM(reduced.get(), 1) : nullptr;
      context.keep.push_back(Ref::share(found));
      break;
    }
    case Source::Kind::kSelf:
      if (PyObject* dict = dict_of_view(parent)) found = dict;
      if (PyCFunction_Check(parent)) found = PyCFunction_GET_SELF(parent);
      if (PyMethod_Check(parent)) found = source.index == 0 ? PyMethod_GET_SELF(parent) : PyMethod_GET_FUNCTION(parent);
      break;
    default:
      break;
  }
  if (!found && PyErr_Occurred()) PyErr_Clear();
  return found;
}

static bool all_distinct(const std::vector<SourceId>& objects, GuardContext& context) {
  c10::SmallVector<PyObject*, 32> found;
  for (SourceId object : objects) found.push_back(context.at(object));
  if (found.size() <= 12) {
    for (size_t i = 1; i < found.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (found[i] == found[j]) return false;
    return true;
  }
  std::sort(found.begin(), found.end());
  return std::adjacent_find(found.begin(), found.end()) == found.end();
}

bool GuardProgram::check_step(FloatingStep& step, GuardContext& context, std::string* why,
                              std::vector<std::string>* changed) {
  using Kind = FloatingStep::Kind;
  auto miss = [&](auto&& text) {
    if (why) *why = text();
    return false;
  };
  if (step.kind == Kind::kDistinct)
    return all_distinct(step.others, context) ||
           miss([&] { return "two arguments that were different tensors are now one object"; });
  if (step.kind == Kind::kNotDictOf) {
    const auto dict_of = [](PyObject* owner) {
      PyObject** place = owner ? _PyObject_GetDictPtr(owner) : nullptr;
      return place ? *place : nullptr;  // one that was never asked for is known to nobody
    };
    PyObject* dict = step.object ? step.object.get() : context.at(step.target);
    if (step.number == 1) dict = dict_of(dict);
    return !dict || dict != dict_of(step.value ? step.value.get() : context.at(step.other)) ||
           miss([&] { return "a dict is now that of an object that the function also reaches otherwise"; });
  }
  PyObject*& target = context.at(step.target);
  bool reads_target = step.kind != Kind::kResolve && step.kind != Kind::kValue && step.kind != Kind::kAbsent &&
                      step.kind != Kind::kSymbol;
  if (reads_target && !target) return miss([&] { return sources.describe(step.target) + " is missing"; });
  switch (step.kind) {
    case Kind::kResolve:
      target = resolve(step.target, context);
      return target || miss([&] { return sources.describe(step.target) + " is missing"; });
    case Kind::kValue: {
      PyObject* value = resolve(step.target, context);
      // A NaN is itself in containers, and no other one is.
      if (same_value(value, step.object.get()) && (value == step.object.get() || !is_nan(value))) return true;
      if (changed && are_numbers(step.object.get(), value)) changed->push_back(sources.describe(step.target));
      return miss([&] { return sources.describe(step.target) + was_is(step.object.get(), value); });
    }
    case Kind::kAbsent:
      return !resolve(step.target, context) || miss([&] { return sources.describe(step.target) + " is new"; });
    case Kind::kType:
      return reinterpret_cast<PyObject*>(Py_TYPE(target)) == step.object.get() || miss([&] {
               return "the type of " + sources.describe(step.target) + " is now " + Py_TYPE(target)->tp_name;
             });
    case Kind::kTensor:
      if (step.meta.matches(target) && (!step.meta.has_symbols() || step.meta.take_symbols(target, context.symbols)))
        return true;
      if (changed && is_tensor(target)) {
        const auto sizes = tensor_of(target).sizes();
        const size_t dims = step.meta.sizes_strides.size() / 2;
        for (size_t d = 0; d < dims && sizes.size() == dims; ++d)
          if (sizes[d] != step.meta.sizes_strides[d]) changed->push_back(size_path(sources.describe(step.target), d));
        if (sizes.size() == dims && tensor_of(target).storage_offset() != step.meta.offset)
          changed->push_back(offset_path(sources.describe(step.target)));
      }
      return miss([&] {
        return sources.describe(step.target) + ": " +
               (is_tensor(target) ? step.meta.difference(target) : std::string("is no tensor any more"));
      });
    case Kind::kLength: {
      const Py_ssize_t length = count_of(target);
      return length == step.number || miss([&] {
               return "the length of " + sources.describe(step.target) + " was " + std::to_string(step.number) +
                      ", is " + std::to_string(length);
             });
    }
    case Kind::kKeys: {
      bool ok = PyDict_Check(target) && static_cast<size_t>(PyDict_GET_SIZE(target)) == step.keys.size();
      PyObject* iterator =
          ok ? (PyODict_Check(target) ? PyODict_Type.tp_iter(target) : PyDict_Type.tp_iter(target)) : nullptr;
      size_t position = 0;
      while (ok && iterator) {
        PyObject* key = PyIter_Next(iterator);
        if (!key) break;
        PyObject* expected = step.keys[position++].get();
        ok = expected == key || same_value(expected, key);
        Py_DECREF(key);
      }
      Py_XDECREF(iterator);
      PyErr_Clear();
      return (ok && position == step.keys.size()) ||
             miss([&] { return "the keys of " + sources.describe(step.target) + " changed"; });
    }
    case Kind::kIs:
      return target == context.at(step.other) ||
             miss([&] { return sources.describe(step.target) + " is no longer " + sources.describe(step.other); });
    case Kind::kIsNot:
      return target != context.at(step.other) || miss([&] {
               return sources.describe(step.target) + " and " + sources.describe(step.other) + " are now one object";
             });
    case Kind::kDistinct:
    case Kind::kNotDictOf:
      break;
    case Kind::kPinned:
      return target == step.object.get() || miss([&] { return sources.describe(step.target) + " is another object"; });
    case Kind::kNotPinned:
      return target != step.object.get() || miss([&] {
               return sources.describe(step.target) + " is now an object that the function also reaches otherwise";
             });
    case Kind::kSymbol:
      return take_symbol(context, static_cast<int32_t>(step.number), resolve(step.target, context)) || miss([&] {
               return sources.describe(step.target) + " is no " +
                      (is_real(static_cast<size_t>(step.number)) ? "float" : "int") + " any more";
             });
    case Kind::kMember: {
      int present = PySequence_Contains(target, step.object.get());
      if (present < 0) PyErr_Clear();
      return present == step.number ||
             miss([&] { return "membership in " + sources.describe(step.target) + " changed"; });
    }
    case Kind::kFunction: {
      if (PyObject* method = step.object.get(); PyCFunction_Check(method)) {
        const bool same =
            target && Py_TYPE(target) == Py_TYPE(method) &&
            reinterpret_cast<PyCFunctionObject*>(target)->m_ml == reinterpret_cast<PyCFunctionObject*>(method)->m_ml;
        return same || miss([&] { return sources.describe(step.target) + " is another method"; });
      }
      auto* function = reinterpret_cast<PyFunctionObject*>(target);
      return (PyFunction_Check(target) && function->func_code == step.object.get() &&
              function->func_defaults == step.value.get() && function->func_kwdefaults == step.keys[0].get() &&
              function->func_globals == step.keys[1].get()) ||
             miss([&] { return "the function " + sources.describe(step.target) + " was changed"; });
    }
    case Kind::kReRead: {
      PyObject* value = PyObject_GetAttr(target, step.object.get());
      if (!value) PyErr_Clear();
      bool same = same_value(value, step.value.get());
      Py_XDECREF(value);
      return same ||
             miss([&] { return sources.describe(step.target) + "." + text_of_object(step.object.get()) + " changed"; });
    }
    case Kind::kIterator: {
      const bool is_sole =
          (step.number < 0 || Py_REFCNT(target) == step.number) && is_reducible_iterator(Py_TYPE(target));
      const Ref reduced = Ref::take(is_sole ? reduce_iterator(target) : nullptr);
      const bool has_state = reduced && PyTuple_GET_SIZE(reduced.get()) > 2;
      return (reduced && PyTuple_GET_ITEM(reduced.get(), 0) == step.object.get() &&
              same_value(has_state ? PyTuple_GET_ITEM(reduced.get(), 2) : Py_None, step.value.get())) ||
             miss([&] { return "an iterator over " + sources.describe(step.target) + " is at another place"; });
    }
    case Kind::kPayload:
      return same_payload(target, step.object.get()) ||
             miss([&] { return sources.describe(step.target) + was_is(step.object.get(), target); });
  }
  return false;
}

bool GuardProgram::check(GuardContext& context, std::string* why, std::vector<std::string>* changed) {
  StateWord now = StateWord::now();
  if (!(now == state)) {
    if (why) *why = StateWord::difference(state, now);
    return false;
  }
  context.sources = &sources;
  context.keep.clear();
  context.current.assign(sources.floating_count(), nullptr);
  context.symbols.assign(symbol_count, 0);
  bool all = true;
  for (FloatingStep& step : steps) {
    const size_t known = changed ? changed->size() : 0;
    if (check_step(step, context, all ? why : nullptr, changed)) continue;
    all = false;
    // Where only a number has changed, the steps after it may still be asked: they tell what else has.
    if (!changed || changed->size() == known) return false;
  }
  if (!all && !changed) return false;
  if (!check_pinned(context, all ? why : nullptr, changed) || !all) return false;
  return numbers_hold(context.symbols, why) && check_states(context, why);
}

std::string to_string(const ReadCheck& check) {
  return base::concat("s", check.symbol, check.kind == ReadCheck::kLeast ? " >= " : " is ", check.number);
}

bool NumberChecks::numbers_hold(std::span<int64_t> symbols, std::string* why) const {
  const auto miss = [&](const auto& what, const char* does_not) {
    if (why) *why = base::concat("a number changed: ", what(), does_not);
    return false;
  };
  for (const RealStep& step : real_steps)  // numbers and conditions may be about what they make
    if (!step.run(symbols)) return miss([&] { return to_string(step); }, " is no such number any more");
  for (const types::Expr& number : numbers)
    if (!number.evaluate_exactly(symbols))
      return miss([&] { return types::to_string(number); }, " needs more than 64 bits");
  for (const types::Condition& condition : conditions)
    if (!condition.holds(symbols)) return miss([&] { return types::to_string(condition); }, " does not hold any more");
  for (const RealCheck& check : real_checks)
    if (!check.holds(symbols)) return miss([&] { return to_string(check); }, " does not hold any more");
  return true;
}

/// Moves those elements that are known only after some read to the checks of the last one that they need.
template <class T, class ReadAt>
static void move_late(std::vector<T>& from, std::vector<NumberChecks>& to, std::vector<T> NumberChecks::*list,
                      const ReadAt& read_at) {
  std::vector<T> stay;
  for (T& element : from) {
    const size_t reads = read_at(element);
    (reads == 0 ? stay : to[reads - 1].*list).push_back(std::move(element));
  }
  from = std::move(stay);
}

void GuardProgram::split_by_reads(const std::vector<std::vector<uint32_t>>& symbols) {
  read_at.assign(symbol_count, 0);
  after_read.resize(symbols.size());
  for (size_t read = 0; read < symbols.size(); ++read)
    for (const uint32_t symbol : symbols[read]) read_at.at(symbol) = read + 1;
  const auto of_expr = [&](const types::Expr& expr) {
    std::vector<uint32_t> found;
    expr.collect_symbols(found);
    size_t last = 0;
    for (const uint32_t symbol : found) last = std::max(last, read_at.at(symbol));
    return last;
  };
  const auto of_operand = [&](const RealOperand& operand) {
    return operand.real >= 0 ? read_at.at(static_cast<size_t>(operand.real))
           : operand.number  ? of_expr(*operand.number)
                             : 0;
  };
  move_late(real_steps, after_read, &NumberChecks::real_steps, [&](const RealStep& step) {
    size_t last = 0;
    for (const RealOperand& operand : step.operands) last = std::max(last, of_operand(operand));
    return read_at.at(step.result) = last;
  });
  move_late(numbers, after_read, &NumberChecks::numbers, of_expr);
  move_late(conditions, after_read, &NumberChecks::conditions, [&](const types::Condition& condition) {
    return std::max(of_expr(condition.left), of_expr(condition.right));
  });
  move_late(real_checks, after_read, &NumberChecks::real_checks,
            [&](const RealCheck& check) { return std::max(of_operand(check.left), of_operand(check.right)); });
  move_late(read_checks, after_read, &NumberChecks::read_checks,
            [&](const ReadCheck& check) { return read_at.at(check.symbol); });
}

bool GuardProgram::take_read(GuardContext& context, size_t read, const std::vector<uint32_t>& symbols,
                             std::span<const int64_t> numbers, std::string* why) const {
  if (numbers.size() != symbols.size()) return false;
  for (size_t n = 0; n < numbers.size(); ++n) context.symbols[symbols[n]] = numbers[n];
  const auto text = [&](uint32_t symbol, int64_t number) {
    return is_real(symbol) ? std::to_string(std::bit_cast<double>(number)) : std::to_string(number);
  };
  for (const ReadCheck& check : after_read[read].read_checks) {
    if (check.holds(context.symbols)) continue;
    if (why)
      *why =
          base::concat("a number that was ", check.kind == ReadCheck::kLeast ? "at least " : "",
                       text(check.symbol, check.number), " is now ", text(check.symbol, context.symbols[check.symbol]));
    return false;
  }
  return after_read[read].numbers_hold(context.symbols, why);
}

size_t GuardProgram::size() const {
  size_t count = 1 + lists.size() + sets.size() + members.size() + types.size() + classes.size() + functions.size() +
                 cells.size() + tensors.size() + states.size() + reads.size() + steps.size() + conditions.size() +
                 real_checks.size();
  for (const DictGuard& g : dicts) count += 1 + g.keys.size() + g.items.size();
  return count;
}

std::vector<std::string> GuardProgram::describe() const {
  std::vector<std::string> out{"global state: grad mode, autocast, default dtype, determinism, threads"};
  using Kind = FloatingStep::Kind;
  for (const FloatingStep& s : steps) {
    std::string path = s.target.valid() ? sources.describe(s.target) : "";
    switch (s.kind) {
      case Kind::kResolve:
        break;
      case Kind::kValue:
        out.push_back(path + " == " + text_of_object(s.object.get()));
        break;
      case Kind::kAbsent:
        out.push_back(path + " is absent");
        break;
      case Kind::kType:
        out.push_back("type(" + path + ") is " + reinterpret_cast<PyTypeObject*>(s.object.get())->tp_name);
        break;
      case Kind::kTensor:
        out.push_back(path + ": tensor properties");
        break;
      case Kind::kLength:
        out.push_back("len(" + path + ") == " + std::to_string(s.number));
        break;
      case Kind::kKeys:
        out.push_back("keys of " + path);
        break;
      case Kind::kIs:
        out.push_back(path + " is " + sources.describe(s.other));
        break;
      case Kind::kIsNot:
        out.push_back(path + " is not " + sources.describe(s.other));
        break;
      case Kind::kDistinct:
        out.push_back("none of these is another: " + std::to_string(s.others.size()) + " tensors");
        break;
      case Kind::kPinned:
        out.push_back("identity of " + path);
        break;
      case Kind::kNotPinned:
      case Kind::kNotDictOf:
        break;
      case Kind::kSymbol:
        out.push_back(base::concat(path, is_real(static_cast<size_t>(s.number)) ? " is a float" : " is an int",
                                   " (any): s", s.number));
        break;
      case Kind::kMember:
        out.push_back("membership in " + path);
        break;
      case Kind::kFunction:
        out.push_back("function " + path);
        break;
      case Kind::kReRead:
        out.push_back(path + "." + text_of_object(s.object.get()));
        break;
      case Kind::kIterator:
        out.push_back(path + ": an iterator, and its place");
        break;
      case Kind::kPayload:
        out.push_back(path + ": the value inside");
        break;
    }
  }
  for (const DictGuard& g : dicts) {
    std::string path = sources.describe(g.source);
    if (g.whole) out.push_back(path + ": all entries");
    for (const KeyCheck& k : g.keys) {
      out.push_back(sources.describe_key(g.source, k.key.get()) +
                    (k.symbol >= 0 ? base::concat(is_real(static_cast<size_t>(k.symbol)) ? " is a float" : " is an int",
                                                  " (any): s", k.symbol)
                     : k.value
                         ? (is_value(k.value.get()) ? " == " + text_of_object(k.value.get()) : " is the same object")
                         : " is absent"));
    }
  }
  for (const SequenceGuard& g : lists) out.push_back(sources.describe(g.source) + ": all elements");
  for (const SequenceGuard& g : sets) out.push_back(sources.describe(g.source) + ": all elements");
  for (const TypeGuard& g : types)
    out.push_back(std::string("class ") + reinterpret_cast<PyTypeObject*>(g.type.get())->tp_name);
  for (const FunctionGuard& g : functions)
    out.push_back("function " + text_of_object(reinterpret_cast<PyFunctionObject*>(g.function.get())->func_qualname));
  for (const CellGuard& g : cells) out.push_back("closure variable " + sources.describe(g.source));
  for (const TensorGuard& g : tensors) out.push_back(sources.describe(g.source) + ": tensor properties");
  for (const StateGuard& g : states) out.push_back("answer of " + g.name);
  for (const types::Condition& c : conditions) out.push_back(types::to_string(c));
  for (const RealStep& s : real_steps) out.push_back(to_string(s));
  for (const RealCheck& c : real_checks) out.push_back(to_string(c));
  for (size_t read = 0; read < after_read.size(); ++read) {
    const auto tell = [&](const auto& checks) {
      for (const auto& check : checks) out.push_back(base::concat("after read ", read + 1, ": ", to_string(check)));
    };
    tell(after_read[read].read_checks);
    tell(after_read[read].conditions);
    tell(after_read[read].real_steps);
    tell(after_read[read].real_checks);
  }
  return out;
}

}  // namespace magneto::capture
