// Texts that are made of numbers that change: f"step {n}". They are made again at each call, of the numbers of then.
//
// Like a number that is a symbol, such a text is known by its identity: it is a str that nobody else has. It may be put
// somewhere, handed on, printed, logged, joined with others and returned. Who asks what is in it (a comparison, a key
// of a dict, a C function) makes its numbers constants of this graph, and the text, too.
//
//     log.append(f"step {n}")        n is s0: the text is _shown("step ", ...) of what s0 is then
//     weights[f"layer{n}"]           a key: s0 is the number of now
#include <array>

#include "capture/recorder.h"
#include "capture/substitutes.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

namespace {

/// An equal text that nobody else has: short ones are shared.
Ref unique_text(PyObject* text) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(text);
  Ref copy = length > 0 ? Ref::take(PyUnicode_New(length, PyUnicode_MAX_CHAR_VALUE(text))) : Ref();
  if (copy && PyUnicode_CopyCharacters(copy.get(), 0, text, 0, length) < 0) return {};
  return copy;
}

}  // namespace

bool Recorder::may_change(PyObject* object, int depth) {
  if (carries_number(object, depth)) return true;
  if (depth >= 4) return false;
  if (PyDict_CheckExact(object)) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);)
      if (may_change(value, depth + 1)) return true;
    return false;
  }
  if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
    if (may_change(PySequence_Fast_GET_ITEM(object, i), depth + 1)) return true;
  return false;
}

PyObject* Recorder::computed_text(const char* function, std::span<PyObject* const> operands, PyObject* result) {
  if (!active_ || !PyUnicode_CheckExact(result)) return nullptr;
  Text text{Ref::take(own_function(function)), {}};
  Ref made = unique_text(result);
  if (!made || !text.function) {
    PyErr_Clear();
    return nullptr;
  }
  for (PyObject* operand : operands) text.operands.push_back(Ref::share(operand));
  Info entry;
  entry.cls = Info::Class::kText;
  entry.index = static_cast<int>(texts_.size());
  texts_.push_back(std::move(text));
  enter(made.get(), entry);
  return made.release();
}

PyObject* Recorder::shown_text(PyObject* value, int conversion, PyObject* spec, PyObject* result) {
  const Ref how = Ref::take(PyLong_FromLong(conversion)), none = Ref::take(PyUnicode_FromString(""));
  PyObject* const operands[] = {value, how.get(), spec ? spec : none.get()};
  return how && none ? computed_text("_shown", operands, result) : nullptr;
}

// One that was asked is a text like any other from then on.
void Recorder::fix_text(PyObject* text) {
  const int index = info(text)->index;
  table_.erase(text);  // it is held all the same
  const auto fix_all = [&](auto&& again, PyObject* object, int depth) -> void {
    specialise(object);
    if (depth > 6) return;
    if (PyDict_CheckExact(object)) {
      PyObject *key, *value;
      for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);) again(again, value, depth + 1);
    } else if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
        again(again, PySequence_Fast_GET_ITEM(object, i), depth + 1);
    }
  };
  for (const Ref& operand : std::vector<Ref>(texts_[static_cast<size_t>(index)].operands))
    fix_all(fix_all, operand.get(), 0);
}

PyObject* Recorder::join(Activation& self, PyObject* const* pieces, int count) {
  PyObject* result = Semantics::join(self, pieces, count);
  if (!active_ || !result || std::none_of(pieces, pieces + count, [&](PyObject* piece) { return is_text(piece); }))
    return result;
  const Ref plain = Ref::take(result), none = Ref::take(PyUnicode_FromString(""));
  std::vector<PyObject*> operands{none.get()};
  operands.insert(operands.end(), pieces, pieces + count);
  if (PyObject* made = computed_text("_joined", operands, plain.get())) return made;
  std::for_each(pieces, pieces + count, [&](PyObject* piece) { specialise(piece); });
  return plain.borrow_new();
}

PyObject* Recorder::binary_text(Activation& self, int which, PyObject* left, PyObject* right) {
  constexpr int kAdd = 0, kRemainder = 6;  // NB_ADD, NB_REMAINDER
  if (which == kAdd && PyUnicode_CheckExact(right) && (is_text(left) || is_text(right))) {
    PyObject* const pieces[] = {left, right};
    return join(self, pieces, 2);
  }
  if (which != kRemainder || !(is_text(left) || may_change(right))) return nullptr;
  const Ref now = frozen(self, right);
  if (!now) return nullptr;
  const Ref text = Ref::take(Semantics::binary(self, which, left, right));
  PyObject* const operands[] = {left, now.get()};
  PyObject* made = text ? computed_text("_filled", operands, text.get()) : nullptr;
  if (!made) PyErr_Clear();  // it raises again
  return made;
}

PyObject* Recorder::call_of_text(Activation& self, PyObject* callable, std::span<PyObject* const> args,
                                 size_t positional, PyObject* kwnames, PyObject* bound) {
  const bool any = (bound && is_text(bound)) ||
                   std::any_of(args.begin(), args.end(), [&](PyObject* arg) { return may_change(arg); });
  if (!any) return nullptr;
  const std::string name = callable_name(callable);
  std::vector<PyObject*> all{nullptr};
  if (bound) all.push_back(bound);
  all.insert(all.end(), args.begin(), args.end());
  const size_t count = all.size() - 1;
  std::vector<Ref> held;
  for (size_t i = 1; i <= count; ++i) {
    if (!held.emplace_back(frozen(self, all[i]))) return nullptr;
    all[i] = held.back().get();
  }
  const bool has_spec = count == 2 && PyUnicode_CheckExact(all[2]);
  if (!active_ || (name != "str.format" && kwnames)) return nullptr;
  PyObject* made = nullptr;
  const auto plain = [&]() -> Ref {
    Ref text = Ref::take(PyObject_Vectorcall(callable, args.data(), positional, kwnames));
    if (!text) PyErr_Clear();  // it raises again
    return text;
  };
  if (name == "repr" && count == 1) {
    constexpr int kRepr = 2;
    if (const Ref text = plain()) made = shown_text(all[1], kRepr, nullptr, text.get());
  } else if (name == "format" && (count == 1 || has_spec)) {
    if (const Ref text = plain()) made = shown_text(all[1], 0, count == 2 ? all[2] : nullptr, text.get());
  } else if (name == "str.join" && count == 2 && (PyList_CheckExact(all[2]) || PyTuple_CheckExact(all[2]))) {
    std::vector<PyObject*> pieces{all[1]};
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(all[2]); ++i)
      pieces.push_back(PySequence_Fast_GET_ITEM(all[2], i));
    if (const Ref text = plain()) made = computed_text("_joined", pieces, text.get());
  } else if (name == "str.format" && PyUnicode_CheckExact(all[1])) {
    const Ref names = kwnames ? Ref::share(kwnames) : Ref::take(PyTuple_New(0));
    all[0] = names.get();
    if (const Ref text = plain()) made = computed_text("_formatted", {all.data(), all.size()}, text.get());
  }
  return made;
}

Ref Recorder::frozen(Activation& self, PyObject* object, int depth) {
  constexpr int kMostDepth = 6;
  if (is_value(object)) return Ref::share(object);
  if (depth > kMostDepth) return {};
  PyTypeObject* const type = Py_TYPE(object);
  if (type == size_type() || (!PyTuple_CheckExact(object) && compared_whole(object) == Whole::kValue))
    return slot_known(self, object) ? Ref::share(object) : Ref();
  const bool is_known = is_outside(object) || is_made(object) || (type == &PyTuple_Type && is_constant_tuple(object));
  if (!is_known || (type != &PyTuple_Type && type != &PyList_Type && type != &PyDict_Type)) return {};
  if (is_constant_tuple(object) && !is_outside(object) && type == &PyTuple_Type && !may_change(object))
    return Ref::share(object);
  if (is_outside(object)) guard_all(self, object);
  if (!active_) return {};
  Ref copy;
  if (type == &PyDict_Type) {
    copy = Ref::take(PyDict_New());
    PyObject *key, *value;
    for (Py_ssize_t at = 0; copy && PyDict_Next(object, &at, &key, &value);) {
      const Ref part = is_value(key) && !ids_.count(key) ? frozen(self, value, depth + 1) : Ref();
      if (!part || PyDict_SetItem(copy.get(), key, part.get()) < 0) return {};
    }
  } else {
    std::vector<Ref> parts;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      if (!parts.emplace_back(frozen(self, PySequence_Fast_GET_ITEM(object, i), depth + 1))) return {};
    const auto length = static_cast<Py_ssize_t>(parts.size());
    copy = Ref::take(type == &PyTuple_Type ? PyTuple_New(length) : PyList_New(length));
    for (size_t i = 0; copy && i < parts.size(); ++i) {
      if (type == &PyTuple_Type)
        PyTuple_SET_ITEM(copy.get(), static_cast<Py_ssize_t>(i), parts[i].release());
      else
        PyList_SET_ITEM(copy.get(), static_cast<Py_ssize_t>(i), parts[i].release());
    }
  }
  if (copy && !info(copy.get())) enter_made(copy.get());
  return copy;
}

}  // namespace magneto::capture
