#include "capture/recorder.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "capture/evaluator.h"
#include "capture/faults.h"
#include "capture/iterators.h"
#include "capture/recorder_ends_internal.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

Recorder::Recorder(std::vector<RootFrame> frames, Changing changing)
    : frames_(std::move(frames)),
      frames_at_start_(frames_.size()),
      root_(*frames_.front().activation),
      changing_(changing),
      first_node_(at::sequence_number::peek()),
      segment_(std::make_unique<Segment>()),
      trace_(std::make_unique<aten::Trace>()),
      symbols_(std::make_shared<aten::Symbols>()) {
  segment_->guards.state = StateWord::now();
  trace_->set_before_run([this] { release_dead(); });
}

Recorder::~Recorder() { retire(); }

void Recorder::retire() {
  active_ = has_ends_ = false;
  symbolic_.reset();
  if (trace_) trace_->set_before_run({});
  trace_.reset();
  for (auto& [reference, watched] : std::exchange(watched_, {})) Py_DECREF(reference);
  attached_.clear();
  leaves_.clear();
  freed_.clear();
  Py_CLEAR(death_callback_);
  let_all_go();
}

void Recorder::let_all_go() {
  std::vector<PyObject*> held;
  held.swap(held_);
  for (auto& [container, copy] : std::exchange(originals_, {})) held.push_back(copy);
  const auto replaced = std::exchange(replaced_, {});
  const std::vector<Pending> effects = std::exchange(effects_, {});
  const std::vector<Ref> others[] = {std::exchange(loose_, {}), std::exchange(dirty_refs_, {}),
                                     std::exchange(throwing_, {})};
  const auto texts = std::exchange(texts_, {});
  const auto copied = std::exchange(copied_, {});
  const auto building = std::exchange(building_, {});
  table_.clear();
  dict_index_.clear();
  mortal_.clear();
  endless_.clear();
  segment_ = std::make_unique<Segment>();  // what guards hold
  for (PyObject* object : held) Py_DECREF(object);
}

// ---------------------------------------------------------------------------------------------------- the table

Recorder::Info* Recorder::info(PyObject* object) {
  auto found = table_.find(object);
  return found == table_.end() ? nullptr : &found->second;
}

void Recorder::enter(PyObject* object, Info info) try {
  fault_point("note");
  auto [place, fresh] = table_.emplace(object, info);
  info.entered = fresh ? entries_++ : place->second.entered;
  place->second = info;
  if (fresh && !watch_death(object)) held_.push_back(Py_NewRef(object));
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::enter_made(PyObject* object) {
  Info entry;
  entry.cls = Info::Class::kMade;
  if (places_.empty() || places_.back() != place()) places_.push_back(place());
  entry.index = static_cast<int>(places_.size()) - 1;
  enter(object, entry);
}

void Recorder::enter_effect(PyObject* result, int number) {
  if (is_value(result)) return;
  Info entry;
  entry.cls = Info::Class::kEffect;
  entry.index = number;
  enter(result, entry);
}

void Recorder::enter_outside(PyObject* object, SourceId source) {
  Info entry;
  entry.cls = Info::Class::kOutside;
  entry.source = source;
  enter(object, entry);
  if (guards().sources.floating(source))
    guard_whole(object);
  else
    owned(object);
}

void Recorder::add_pinned_root(PyObject* object, PyObject* name) {
  if (info(object)) return;
  enter_outside(object, guards().sources.pinned({}, name));
  endless_.insert(object);  // whoever holds the recordings holds it, too
}

void Recorder::alias_root(SourceId source, PyObject* object) {
  FloatingStep step{FloatingStep::Kind::kResolve, source, {}, {}, {}, {}, 0, {}};
  guards().steps.push_back(step);
  SourceId known = source_of(object);
  if (guards().sources.floating(known)) {  // the same object in two roots
    resolve(object);
    step.kind = FloatingStep::Kind::kIs;
    step.other = known;
  } else {
    step.kind = FloatingStep::Kind::kPinned;
    step.object = Ref::share(object);
  }
  guards().steps.push_back(step);
}

// Conditions are computed in 64 bits.
bool Recorder::fits_symbol(PyObject* object) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

bool Recorder::is_changing_root(SourceId source, PyObject* number) {
  if (PyFloat_CheckExact(number)) return changing_.all || is_volatile(guards().sources.describe(source));
  if (!fits_symbol(number)) return false;
  return is_volatile(guards().sources.describe(source)) || (changing_.all && PyLong_AsLongLong(number) >= 2);
}

types::Expr Recorder::new_symbol(int64_t hint) {
  types::Expr symbol = symbols_->add(hint);
  guards().symbol_count = static_cast<uint32_t>(symbols_->hints().size());
  return symbol;
}

// The slot of the parameter that took this argument; -1: it went into *args or **kwargs.
static int slot_of_parameter(const Activation& root, PyObject* name, PyObject* object, std::vector<bool>& taken) {
  PyCodeObject* code = root.code();
  taken.resize(static_cast<size_t>(code->co_argcount + code->co_kwonlyargcount));
  for (size_t slot = 0; name && slot < taken.size(); ++slot)
    if (!taken[slot] &&
        PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, static_cast<Py_ssize_t>(slot)), name) == 0) {
      taken[slot] = true;
      return root.local(static_cast<int>(slot)) == object ? static_cast<int>(slot) : -1;
    }
  return -1;
}

// Where the frame keeps an argument that no parameter took: in *args, at this place, or in **kwargs.
class RestOfArguments {
 public:
  explicit RestOfArguments(Activation& root) : root_(root) {
    const PyCodeObject* const code = root.code();
    int slot = code->co_argcount + code->co_kwonlyargcount;
    if (code->co_flags & CO_VARARGS) list_ = slot++;
    if (code->co_flags & CO_VARKEYWORDS) dict_ = slot;
  }
  bool holds(size_t place, PyObject* name, PyObject* object) const {
    if (name) {
      PyObject* const dict = dict_ < 0 ? nullptr : root_.local(dict_);
      return dict && PyDict_CheckExact(dict) && PyDict_GetItem(dict, name) == object;
    }
    PyObject* const list = list_ < 0 ? nullptr : root_.local(list_);
    return list && PyTuple_CheckExact(list) && place < static_cast<size_t>(PyTuple_GET_SIZE(list)) &&
           PyTuple_GET_ITEM(list, static_cast<Py_ssize_t>(place)) == object;
  }
  /// Takes over `carrier`. Both containers are the frame's own, and nobody has seen them.
  void replace(size_t place, PyObject* name, PyObject* carrier) {
    const Ref held = Ref::take(carrier);
    if (name) {
      PyDict_SetItem(root_.local(dict_), name, carrier);
      return;
    }
    PyObject* const list = root_.local(list_);
    Ref copy = Ref::take(PyTuple_New(PyTuple_GET_SIZE(list)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); ++i)
      PyTuple_SET_ITEM(copy.get(), i, Py_NewRef(static_cast<size_t>(i) == place ? carrier : PyTuple_GET_ITEM(list, i)));
    root_.set_local(list_, copy.release());
  }

 private:
  Activation& root_;
  int list_ = -1, dict_ = -1;
};

void Recorder::add_argument_roots(PyObject* const* args, size_t count, const std::vector<Ref>& names) {
  std::vector<bool> taken;
  RestOfArguments rest(root_);
  size_t without_name = 0;
  for (size_t i = 0; i < count; ++i) {
    PyObject* object = args[i];
    PyObject* const name = names[i].get();
    SourceId source = guards().sources.root(static_cast<Py_ssize_t>(i), name);
    const int slot = slot_of_parameter(root_, name, object, taken);
    const size_t place = name ? 0 : without_name++;
    if (info(object)) {
      alias_root(source, object);
      continue;
    }
    if (is_value(object)) {
      FloatingStep step{FloatingStep::Kind::kValue, source, {}, Ref::share(object), {}, {}, 0, {}};
      // A NaN is known by its address.
      const bool is_held = slot >= 0 || rest.holds(place, name, object);
      if (is_held && !is_nan(object) && is_changing_root(source, object)) {
        step.kind = FloatingStep::Kind::kSymbol;
        step.number = guards().symbol_count;
        if (PyFloat_CheckExact(object)) real_roots_[static_cast<int>(step.number)] = static_cast<int>(i);
        // The frame gets the tagged number; the caller's object stays as it is.
        PyObject* const tagged = carrier(object, symbol_for(object));
        if (slot >= 0)
          root_.set_local(slot, tagged);
        else
          rest.replace(place, name, tagged);
      }
      guards().steps.push_back(step);
      continue;
    }
    enter_outside(object, source);
  }
  entry_slots_.emplace_back();
  for (int slot = 0; slot < root_.local_count(); ++slot) entry_slots_.back().push_back(root_.local(slot));
}

/// Made again whenever the function around it runs.
static bool is_local_function(PyObject* object) {
  if (!PyFunction_Check(object)) return false;
  const char* name = PyUnicode_AsUTF8(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  return name && strstr(name, "<locals>");
}

// A function that is found by path: another one with the same code, defaults and globals will do, and its cells are
// found through it.
static FloatingStep function_step(PyFunctionObject* function, SourceId source) {
  return {FloatingStep::Kind::kFunction,
          source,
          {},
          Ref::share(function->func_code),
          Ref::share(function->func_defaults),
          {Ref::share(function->func_kwdefaults), Ref::share(function->func_globals)},
          0,
          {}};
}

void Recorder::add_function_root(PyObject* object, SourceId source) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  enter_outside(object, source);
  resolve(object);
  guards().steps.push_back(function_step(function, source));
  functions_.insert(object);
  if (function->func_kwdefaults && !info(function->func_kwdefaults)) {
    enter_outside(function->func_kwdefaults, guards().sources.pinned({}, function->func_qualname));
    active_ = true;  // the table may grow before the recording begins
    guard_all(root_, function->func_kwdefaults);
    active_ = false;
  }
}

void Recorder::guard_function(PyFunctionObject* function) try {
  PyObject* object = reinterpret_cast<PyObject*>(function);
  if (is_made(object)) return;
  if (!info(object)) enter_outside(object, guards().sources.pinned({}, function->func_qualname));
  if (!functions_.insert(object).second) return;
  if (floating(object) && is_local_function(object)) {
    resolve(object);
    guards().steps.push_back(function_step(function, source_of(object)));
  } else {
    pin(object);
    guards().functions.push_back({Ref::share(object), Ref::share(function->func_code),
                                  Ref::share(function->func_defaults), Ref::share(function->func_kwdefaults)});
  }
  if (function->func_kwdefaults) {
    if (!info(function->func_kwdefaults))
      enter_outside(function->func_kwdefaults, guards().sources.pinned({}, function->func_qualname));
    guard_all(root_, function->func_kwdefaults);
  }
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::add_slot_roots() {
  Py_ssize_t first = 0;
  for (const RootFrame& frame : frames_) {
    add_slots_of(frame, first);
    first += frame.activation->local_count() + frame.stack + (frame.function_is_fixed ? 0 : 1);
  }
  has_ends_ = has_ends_ || !mortal_.empty();
}

void Recorder::add_slots_of(const RootFrame& frame, Py_ssize_t first) {
  Activation& activation = *frame.activation;
  const int locals = activation.local_count();
  // A float that an instruction has just given which no graph holds: it was read from a tensor, or drawn.
  const bool takes_result = &frame == &frames_.back() && frame.stack > 0;
  entry_slots_.emplace_back();
  for (int i = 0; i < locals + frame.stack; ++i) {
    PyObject* object = i < locals ? activation.local(i) : activation.stack(i - locals);
    PyObject* name = i < locals ? PyTuple_GET_ITEM(activation.code()->co_localsplusnames, i) : nullptr;
    PyObject* kept = nullptr;
    if (object) {
      SourceId source = guards().sources.root(first + i, name);
      FloatingStep step{FloatingStep::Kind::kResolve, source, {}, {}, {}, {}, 0, {}};
      Info* known = info(object);
      if (known && known->cls == Info::Class::kOutside) {
        alias_root(source, object);
      } else if (fits_symbol(object)) {
        step.kind = FloatingStep::Kind::kSymbol;
        step.number = guards().symbol_count;
        guards().steps.push_back(step);
        kept = new_number(object, new_symbol(PyLong_AsLongLong(object)));
      } else if (PyFloat_CheckExact(object) && !is_nan(object) &&
                 (is_changing_root(source, object) || (takes_result && i == locals + frame.stack - 1))) {
        step.kind = FloatingStep::Kind::kSymbol;
        step.number = guards().symbol_count;
        guards().steps.push_back(step);
        real_roots_[static_cast<int>(step.number)] = static_cast<int>(first) + i;
        kept = carrier(object, symbol_for(object));
      } else if (PyFloat_CheckExact(object) && !is_nan(object)) {  // a container may hold this very NaN
        kept = PyFloat_FromDouble(PyFloat_AS_DOUBLE(object));
        Info entry;
        entry.cls = Info::Class::kLazy;
        entry.index = static_cast<int>(first) + i;
        entry.source = source;
        enter(kept, entry);
        // the type is part of the promise: a float stays a float
        step.kind = FloatingStep::Kind::kResolve;
        guards().steps.push_back(step);
        step.kind = FloatingStep::Kind::kType;
        step.object = Ref::share(reinterpret_cast<PyObject*>(&PyFloat_Type));
        guards().steps.push_back(step);
      } else if (is_value(object)) {
        step.kind = FloatingStep::Kind::kValue;
        step.object = Ref::share(object);
        guards().steps.push_back(step);
      } else if (is_local_function(object)) {
        add_function_root(object, source);
      } else if (PyFunction_Check(object) || PyType_Check(object) || PyModule_Check(object)) {
        enter_outside(object, source);
        pin(object);
      } else {
        if (Py_REFCNT(object) == 1 && is_reducible_iterator(Py_TYPE(object))) sole_.insert(object);
        enter_outside(object, source);
        const bool is_held = !held_.empty() && held_.back() == object;
        if (is_held && !is_tensor(object)) mortal_.push_back(object);
      }
    } else if (i >= locals) {  // an empty local is not read; the call protocol's NULL is
      SourceId source = guards().sources.root(first + i, name);
      guards().steps.push_back({FloatingStep::Kind::kAbsent, source, {}, {}, {}, {}, 0, {}});
    }
    if (kept && i < locals) activation.set_local(i, kept);
    if (kept && i >= locals) activation.set_stack(i - locals, kept);
    if (i < locals) entry_slots_.back().push_back(activation.local(i));
  }
  if (frame.function_is_fixed) return;
  PyFunctionObject* function = activation.function();
  PyObject* object = reinterpret_cast<PyObject*>(function);
  const SourceId source = guards().sources.root(first + locals + frame.stack, function->func_name);
  if (info(object)) return alias_root(source, object);
  add_function_root(object, source);
}

void Recorder::leave_frame() {
  frames_.pop_back();
  entry_slots_.pop_back();
}

void Recorder::begin() {
  base::check(fault_.empty(), fault_);
  active_ = true;
  handled_ = root_.thread()->exc_info->exc_value;
  if (wants_symbols()) symbolic_ = std::make_unique<SymbolicTrace>(*trace_, symbols_);
  trace_->enter();
}

/// C code has made it, and now its __init__ is called: map(Point, xs).
static bool is_new_instance(PyFunctionObject* function, PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("__init__");
  return is_python_class(Py_TYPE(object)) &&
         _PyType_Lookup(Py_TYPE(object), name) == reinterpret_cast<PyObject*>(function);
}

void Recorder::enter_frame(Activation& activation) try {
  fault_point("note");
  if (!loose_.empty()) {
    std::vector<PyObject*> arguments;
    for (int i = 0; i < activation.local_count(); ++i) arguments.push_back(activation.local(i));
    settle_loose(activation, arguments);
  }
  PyCodeObject* code = activation.code();
  PyFunctionObject* function = activation.function();
  static PyObject* const end = PyUnicode_InternFromString("__del__");
  const bool is_root = this->is_root(activation);
  if (code->co_name == end && !is_root)  // of an object that was held by one from outside
    return invalidate(activation, Stop::kFinalizer, "it ends here");
  // A guard would keep its defaults alive: where one must end in time, the call is made outside of recordings.
  PyObject* defaults = function->func_defaults;
  for (Py_ssize_t i = 0; defaults && !is_root && i < PyTuple_GET_SIZE(defaults); ++i)
    if (holds_an_end(PyTuple_GET_ITEM(defaults, i), false)) {
      has_ends_ = true;
      return invalidate(*activation.outer(), Stop::kFinalizer, "a default of the function");
    }
  guard_function(function);
  int count = code->co_argcount + code->co_kwonlyargcount;
  auto local_made = [&](int slot) {
    PyObject* object = activation.local(slot);
    if (object && !info(object)) enter_made(object);
  };
  if (code->co_flags & CO_VARARGS) {
    PyObject* const rest = activation.local(count);  // a decorator of a forward finds the ctx there
    for (Py_ssize_t i = 0; rest && !is_root && PyTuple_CheckExact(rest) && i < PyTuple_GET_SIZE(rest); ++i)
      if (is_new_context(activation, PyTuple_GET_ITEM(rest, i))) enter_made(PyTuple_GET_ITEM(rest, i));
    local_made(count++);
  }
  if (code->co_flags & CO_VARKEYWORDS) local_made(count++);
  auto pinned = [&](PyObject* object, PyObject* name) {
    if (object && !is_value(object) && !info(object) && !(is_tensor(object) && made_here(tensor_of(object))))
      enter_outside(object, guards().sources.pinned({}, name));
  };
  if (PyObject* names = activation.frame()->f_locals; names && !building_.empty() && !is_root && !info(names))
    enter_made(names);  // what __prepare__ has made for the body of a class
  bool function_made = is_made(reinterpret_cast<PyObject*>(function));
  if (function->func_closure)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(function->func_closure); ++i) {
      PyObject* cell = PyTuple_GET_ITEM(function->func_closure, i);
      Py_ssize_t free = code->co_nlocalsplus - PyTuple_GET_SIZE(function->func_closure) + i;
      PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, free);
      if (info(cell)) continue;
      if (floating(reinterpret_cast<PyObject*>(function)))
        enter_outside(cell, guards().sources.part(Source::Kind::kClosure,
                                                  source_of(reinterpret_cast<PyObject*>(function)), name, i));
      else
        pinned(cell, name);
    }
  if (!function_made) {
    if (function->func_defaults)
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(function->func_defaults); ++i)
        pinned(PyTuple_GET_ITEM(function->func_defaults, i), function->func_name);
    if (function->func_kwdefaults) {
      Py_ssize_t position = 0;
      PyObject *key, *value;
      while (PyDict_Next(function->func_kwdefaults, &position, &key, &value)) pinned(value, key);
    }
  }
  if (is_root) return;
  for (int slot = 0; slot < code->co_argcount + code->co_kwonlyargcount; ++slot) {
    PyObject* object = activation.local(slot);
    if (!object || PyCell_Check(object)) continue;
    if (is_new_context(activation, object) || (slot == 0 && !info(object) && is_new_instance(function, object)))
      enter_made(object);
    else if (is_called_by_apply(activation) && PyFunction_Check(object) && !info(object))
      enter_outside(object,
                    guards().sources.pinned({}, function->func_name));  // of the class, whose version is guarded
    else if (is_called_by_apply(activation) && PyTuple_CheckExact(object) && !info(object))
      enter_made(object);
    else
      adopt_result(activation, object, "a call made by C code");
  }
} catch (const std::exception& error) {
  fault(error.what());
}

// ---------------------------------------------------------------------------------------------------- stops

PyObject* Recorder::stop(Activation& self, Stop reason, std::string detail) {
  stop_record_ = {reason, std::move(detail), {}, &self};
  return kStop;
}

int Recorder::stop_status(Activation& self, Stop reason, std::string detail) {
  stop(self, reason, std::move(detail));
  return kStopStatus;
}

void Recorder::leave_trace() {
  if (trace_->entered()) trace_->leave();
}

// The instruction has run and its result is right, but no replay could repeat it.
void Recorder::invalidate(Activation& self, Stop reason, std::string detail) {
  if (!active_) return;
  stop_record_ = {reason, std::move(detail), {}, &self};
  if (rehearsal_) {  // it ends at the next instruction
    if (rehearsal_->why.empty() && reason != Stop::kRaised) rehearsal_->why = describe(reason, stop_record_.detail);
    return self.request_boundary();
  }
  active_ = false;
  flush();
  leave_trace();
  if (!fault_.empty()) stop_record_ = {Stop::kFault, fault_, {}, &self};
  if (invalidated) invalidated();
  innermost_root().request_boundary();
}

void Recorder::invalidate_by_read(Activation& self, const std::string& name) {
  const std::string& why = trace_->last_refusal();
  if (why.empty()) return invalidate(self, Stop::kTensorData, name);
  invalidate(self, Stop::kRefused, base::concat(name, " (", why, ")"));
}

// C code runs operators and reads data where no primitive sees it: sum() of a generator adds tensors that nobody asked
// for, all() and sorted() ask tensors for their truth.
void Recorder::after_instruction(Activation& self) try {
  if (has_ends_) end_with_code(self);
  if (!active_) return;
  if (std::exchange(splits_group_, false))
    for (int i = self.stack_depth() - 1; i >= 0 && i >= self.stack_depth() - 2; --i)
      if (PyObject* part = self.stack(i); part && PyExceptionInstance_Check(part) && !info(part)) enter_made(part);
  const bool has_read = trace_->data_reads() != 0 && raised_by_.empty();  // one that raises may have read
  if (!has_read && !trace_->has_unclaimed() && loose_.empty()) return;
  const ErrorAside aside;
  if (!loose_.empty()) {
    std::vector<PyObject*> results;  // an instruction leaves three at most
    for (int i = self.stack_depth() - 1; i >= 0 && results.size() < 3; --i) results.push_back(self.stack(i));
    settle_loose(self, results);
    if (!active_) return;
  }
  constexpr const char* kUnseen = "C code that this line calls";
  if (has_read) return invalidate_by_read(self, kUnseen);
  for (const graph::ValueId id : trace_->take_unclaimed())
    if (!claim(id)) return invalidate(self, Stop::kUnknownTensor, kUnseen);
} catch (const std::exception& error) {
  fault(error.what());
}

bool Recorder::claim(graph::ValueId input) {
  const at::Tensor& tensor = trace_->input_tensor(input);
  Ref object = Ref::take(THPVariable_Wrap(tensor));
  if (!object || !is_outside(object.get())) return false;
  const types::TensorType& met = trace_->graph().value(input).type;
  const auto equal = [](const types::Sizes& were, c10::IntArrayRef are) {
    return std::equal(were.begin(), were.end(), are.begin(), are.end(),
                      [](const types::Expr& a, int64_t b) { return a == types::Expr(b); });
  };
  // It is late to ask what it is: what was written to may have become another kind of tensor.
  const bool unchanged = tensor.is_leaf() && equal(met.sizes, tensor.sizes()) && equal(met.strides, tensor.strides());
  return unchanged && touch_tensor(object.get());
}

// What a frame gives away, C code may read: sum() of a generator, or of map(lambda ...), adds plain numbers and joins
// lists. Where an instruction has it as its result, or the next frame as an argument, nothing was lost.
void Recorder::returned_to_c(Activation& self, PyObject* result) try {
  if (!active_ || &self == &root_ || (keeper_ && self.outer() == keeper_)) return;
  const bool from_outside = !is_value(result) && !is_tensor(result) && is_outside(result);
  if (from_outside || carries_number(result)) loose_.push_back(Ref::share(result));
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::settle_loose(Activation& self, const std::vector<PyObject*>& arrived) {
  for (const Ref& object : std::exchange(loose_, {})) {
    if (!active_ || std::find(arrived.begin(), arrived.end(), object.get()) != arrived.end()) continue;
    if (!readable(self, object.get(), 1)) invalidate(self, unreadable_stop_, unreadable_detail_);
  }
}

void Recorder::lose(const char* function) {
  if (Activation* innermost = Activation::innermost()) invalidate(*innermost, Stop::kHandOver, function);
}

void Recorder::fault(const char* what) {
  fault_ = what;  // before the recording began, or while it is written down, there is nothing to invalidate
  if (Activation* innermost = Activation::innermost()) invalidate(*innermost, Stop::kFault, what);
}

bool Recorder::declines(Activation& self) {
  const FrameCache::Mark* const mark = active_ ? mark_at(self) : nullptr;
  if (!mark) return false;
  stop_record_ = {mark->stop, mark->detail, {}, &self};
  return true;
}

// What an operator throws is the program's error. A fault of ours has run nothing, or a part: the rest is tried again.
bool Recorder::flush() {
  for (int attempt = 0;; ++attempt) {
    try {
      fault_point("flush");
      Hooked nobody(nullptr);
      trace_->flush("the segment ends");
      return true;
    } catch (const base::Fault& error) {
      fault_ = error.what();
      if (attempt == 0) continue;
      PyErr_Format(PyExc_RuntimeError, "magneto: a fault of its own: %s. Please report this.", error.what());
    } catch (...) {  // in torch's own words
      if (!PyErr_Occurred()) torch::translate_exception_to_python(std::current_exception());
    }
    failed_flush_ = true;
    return false;
  }
}

void Recorder::abandon() {
  bool was = active_;
  active_ = false;
  if (!was) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  flush();
  leave_trace();
  if (type) {
    PyErr_Clear();
    failed_flush_ = false;
    PyErr_Restore(type, value, traceback);
  }
}

bool Recorder::holds_what_it_held(PyObject* dict, PyObject* key) {
  if (!dict || !PyDict_CheckExact(dict) || !PyUnicode_CheckExact(key)) return false;
  const auto found = replaced_.find(dict);
  if (found == replaced_.end()) return false;
  for (const auto& [place, before] : found->second)
    if (PyUnicode_Compare(place.get(), key) == 0) return PyDict_GetItemWithError(dict, key) == before.get();
  return false;
}

// Whether all that effects changed is as it was: entries of dicts, the state of torch, values of context variables.
// functional_call inside of a transform puts wrappers into a module, and its own tensors back: no replay sees the
// former.
void Recorder::forget_wrappers() {
  for (size_t n = effects_.size(); n-- > 0;) {
    Pending& effect = effects_[n];
    const bool sets = effect.kind == Effect::Kind::kSetAttr || effect.kind == Effect::Kind::kSetItem;
    if (!sets || !effect.value || !is_tensor(effect.value.get()) || !is_wrapped(tensor_of(effect.value.get())))
      continue;
    for (size_t later = n + 1; later < effects_.size(); ++later) {
      const Pending& other = effects_[later];
      if (other.kind != effect.kind || other.target.get() != effect.target.get() || !other.value ||
          PyObject_RichCompareBool(other.key.get(), effect.key.get(), Py_EQ) != 1)
        continue;
      effect.value = other.value;
      break;
    }
  }
}

bool Recorder::effects_are_undone() {
  std::unordered_set<PyObject*> variables;
  for (size_t n = 0; n < effects_.size(); ++n) {
    const Pending& effect = effects_[n];
    if (effect.kind == Effect::Kind::kSetAttr || effect.kind == Effect::Kind::kSetItem) {
      PyObject* const target = effect.target.get();
      if (!holds_what_it_held(effect.kind == Effect::Kind::kSetAttr ? instance_dict(target) : target, effect.key.get()))
        return false;
      continue;
    }
    if (effect.kind != Effect::Kind::kCall) return false;
    const std::string name = callable_name(effect.callable.get());
    if (name.starts_with("torch.")) continue;  // seen below
    if (!name.starts_with("_contextvars.ContextVar.")) return false;
    PyObject* const variable = effect.args[0].get();
    if (!variables.insert(variable).second) continue;
    const auto token = std::find_if(table_.begin(), table_.end(), [&](const auto& entry) {
      return entry.second.cls == Info::Class::kEffect && entry.second.index == static_cast<int>(n);
    });
    if (token == table_.end()) return false;  // it begins with a reset
    const Ref before = Ref::take(PyObject_GetAttrString(token->first, "old_value"));
    PyObject* now = nullptr;
    if (!before || PyContextVar_Get(variable, nullptr, &now) < 0) return false;
    const Ref held = Ref::take(now);
    const bool was_missing = strcmp(Py_TYPE(before.get())->tp_name, "Token.MISSING") == 0;
    if (now != (was_missing ? nullptr : before.get())) return false;
  }
  return segment_->guards.state == StateWord::now();
}

bool Recorder::abandon_unseen() {
  if (!std::exchange(active_, false)) return false;
  const ErrorAside aside;
  leave_trace();
  if (effects_are_undone() && trace_->flush_without_effect()) return true;
  if (!flush()) PyErr_Clear();
  failed_flush_ = false;
  return false;
}

// ---------------------------------------------------------------------------------------------------- the end

// Objects that can neither change nor be told apart from an equal one.
static bool is_frozen(PyObject* object) {
  static const std::unordered_set<std::string_view> names = {
      "torch.device", "torch.dtype", "torch.layout", "torch.memory_format", "torch.finfo", "torch.iinfo", "range"};
  return names.count(Py_TYPE(object)->tp_name) > 0 || is_numpy_number(Py_TYPE(object));
}

Provenance::Answer Recorder::origin(PyObject* object) {
  Answer answer;
  Info* known = info(object);
  if (is_tensor(object)) {
    const at::Tensor& tensor = tensor_of(object);
    if (known && known->cls == Info::Class::kOutside) {
      answer.origin = guards().sources.floating(known->source) ? Origin::kFloating : Origin::kConstant;
      answer.source = known->source;
      if (answer.origin == Origin::kFloating) resolve(object);
      return answer;
    }
    if (trace_->made_here(tensor)) {
      answer.origin = Origin::kTensor;
      answer.value = *trace_->find(tensor);
    }
    return answer;
  }
  if (PyTraceBack_Check(object)) {  // frames that have ended are made again without what they held
    answer.origin = has_ends_ ? Origin::kUnknown : Origin::kMade;
    return answer;
  }
  if (known) switch (known->cls) {
      case Info::Class::kMade:
        answer.origin = is_frozen(object) ? Origin::kConstant : Origin::kMade;
        return answer;
      case Info::Class::kNumber:
        answer.origin = Origin::kNumber;
        answer.number = known->number;
        return answer;
      case Info::Class::kReal:
        answer.origin = Origin::kReal;
        answer.index = known->index;
        if (const auto root = real_roots_.find(known->index); root != real_roots_.end()) {
          answer.origin = Origin::kRoot;  // the caller's own object
          answer.index = root->second;
        }
        return answer;
      case Info::Class::kText: {
        const Text& text = texts_[static_cast<size_t>(known->index)];
        answer.origin = Origin::kCalled;
        answer.function = text.function.get();
        answer.operands = &text.operands;
        return answer;
      }
      case Info::Class::kLazy:
        answer.origin = Origin::kRoot;
        answer.index = known->index;
        return answer;
      case Info::Class::kEffect:
        answer.origin = Origin::kEffect;
        answer.index = known->index;
        return answer;
      case Info::Class::kOutside:
        answer.origin = guards().sources.floating(known->source) ? Origin::kFloating : Origin::kConstant;
        answer.source = known->source;
        if (answer.origin == Origin::kFloating) resolve(object);
        return answer;
    }
  PyTypeObject* type = Py_TYPE(object);
  if (is_made(reinterpret_cast<PyObject*>(type))) return answer;
  bool constant =
      is_value(object) || PyFunction_Check(object) /* of a method, found on a class */ || is_constant_tuple(object) ||
      PyType_Check(object) || PyModule_Check(object) ||
      (PyCFunction_Check(object) && (!PyCFunction_GET_SELF(object) || PyModule_Check(PyCFunction_GET_SELF(object)))) ||
      type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || strncmp(type->tp_name, "torch.", 6) == 0;
  answer.origin = constant ? Origin::kConstant : Origin::kUnknown;
  return answer;
}

bool Recorder::is_constant_tuple(PyObject* object) {
  if (PyFrozenSet_CheckExact(object)) return true;
  if (!PyTuple_CheckExact(object)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    PyObject* item = PyTuple_GET_ITEM(object, i);
    if (!is_value(item) && !is_constant_tuple(item) && !PyType_Check(item) &&
        strncmp(Py_TYPE(item)->tp_name, "torch.", 6) != 0)
      return false;
  }
  return true;
}

bool Recorder::inside_handler() const {
  auto plain = [](PyObject* value) { return value == Py_None ? nullptr : value; };
  return plain(root_.thread()->exc_info->exc_value) != plain(handled_);
}

std::unique_ptr<Segment> Recorder::finish_return(PyObject* result) { return finish(true, result, {}); }
std::unique_ptr<Segment> Recorder::finish_break(const std::vector<Activation*>& entered) {
  return finish(false, nullptr, entered);
}

FrameState Recorder::state_of(Activation& frame, const std::vector<PyObject*>* before, RecipeWriter* writer) const {
  FrameState state{Ref::share(reinterpret_cast<PyObject*>(frame.code())), frame.next(), {}, {}};
  for (int slot = 0; slot < frame.local_count(); ++slot)
    if (!before || (*before)[static_cast<size_t>(slot)] != frame.local(slot))
      state.locals.emplace_back(slot, writer ? writer->write(frame.local(slot)) : Recipe());
  for (int i = 0; writer && i < frame.stack_depth(); ++i) state.stack.push_back(writer->write(frame.stack(i)));
  return state;
}

std::unique_ptr<Segment> Recorder::finish(bool returns, PyObject* result, const std::vector<Activation*>& entered) {
  StopRecord why = stop_record_;
  active_ = false;
  bool flushed = flush();
  trace_->leave();
  if (!flushed) return nullptr;
  if (!raised_by_.empty()) {
    stop_record_ = {Stop::kRaised, raised_by_, {}, &innermost_root()};
    return nullptr;
  }
  if (!returns && inside_handler()) {  // which exception is being handled is no slot: the raising instruction is
                                       // stepped over next time
    stop_record_ = {Stop::kHandlerExit, "", caught_at_, &innermost_root()};
    return nullptr;
  }

  if (!attached_in_time()) return nullptr;

  Segment& segment = *segment_;
  RecipeWriter writer(*this);
  if (uses_func_) forget_wrappers();
  for (Pending& pending : effects_) {
    Effect effect;
    effect.kind = pending.kind;
    effect.generic = pending.generic;
    effect.takes_out = pending.takes_out;
    effect.callable = pending.callable;
    if (pending.kind == Effect::Kind::kCall) {
      for (Ref& arg : pending.args) effect.args.push_back(writer.write(arg.get()));
    } else {
      effect.target = writer.write(pending.target.get());
      effect.key = writer.write(pending.key.get());
      effect.value = writer.write(pending.value.get());
    }
    segment.effects.push_back(std::move(effect));
  }
  segment.returns = returns;
  segment.left = frames_at_start_ - frames_.size();
  if (returns) segment.result = writer.write(result);
  segment.frames.push_back(state_of(innermost_root(), &entry_slots_.back(), returns ? nullptr : &writer));
  for (Activation* frame : entered) segment.frames.push_back(state_of(*frame, nullptr, &writer));
  if (writer.failed()) {
    PyObject* object = writer.failed_object();
    Info* known = info(object);
    const bool is_made_here = known && known->cls == Info::Class::kMade;
    stop_record_ = {Stop::kNoRecipe, Py_TYPE(object)->tp_name,
                    is_made_here ? places_[static_cast<size_t>(known->index)] : StopRecord::Place(), &innermost_root()};
    return nullptr;
  }
  if (writer.program_key() && !effects_.empty()) {  // which may be those of its __hash__
    stop_record_ = {Stop::kProgramKey, Py_TYPE(writer.program_key())->tp_name, {}, &innermost_root()};
    return nullptr;
  }
  // A generator that waits inside of a try block ends with the frame, and its handlers run: no replay would make it.
  for (const auto& [reference, watched] : watched_)
    if (Info* known = info(watched.object); returns && watched.runs_code && known && known->cls == Info::Class::kMade) {
      stop_record_ = {Stop::kFinalizer, Py_TYPE(watched.object)->tp_name, places_[static_cast<size_t>(known->index)],
                      &innermost_root()};
      return nullptr;
    }
  if (!settle_histories(writer, segment.effects)) return nullptr;
  stop_record_ = why;
  segment.memo_count = writer.memo_count();
  segment.kept = writer.sources();

  guard_apart();
  // Tensors that were different objects stay different objects: their memory may overlap, which operators respect, but
  // one object cannot stand for two.
  FloatingStep distinct{FloatingStep::Kind::kDistinct, {}, {}, {}, {}, {}, 0, {}};
  for (const FloatingStep& step : guards().steps)
    if (step.kind == FloatingStep::Kind::kTensor) distinct.others.push_back(step.target);
  if (distinct.others.size() > 1) guards().steps.push_back(std::move(distinct));

  // The recording may have changed dicts itself: then the version of the end says nothing about the keys of the start.
  for (DictGuard& guard : guards().dicts)
    if (dict_version(guard.dict.get()) != guard.version) {
      guard.version = 0;
      guard.keep_version = false;
    }

  try {
    if (trace_->mark().nodes) {
      std::vector<graph::ValueId> inputs;
      segment.program = trace_->finish(writer.outputs(), &inputs);
      if (symbolic_)
        if (auto program = symbolic_->finish(writer.outputs(), segment.program->graph(), &inputs))
          segment.program = std::move(program);
      std::unordered_map<const void*, PyObject*> by_impl;
      for (auto& [object, entry] : table_)
        if (entry.cls == Info::Class::kOutside && is_tensor(object))
          by_impl.emplace(tensor_of(object).unsafeGetTensorImpl(), object);
      for (graph::ValueId id : inputs) {
        auto found = by_impl.find(trace_->input_tensor(id).unsafeGetTensorImpl());
        base::check(found != by_impl.end() && guarded_tensors_.count(found->second),
                    "capture: the graph has an input that no recorded read brought");
        Segment::Input input;
        SourceId source = info(found->second)->source;
        if (guards().sources.floating(source))
          input.source = source;
        else
          input.weak = Ref::take(PyWeakref_NewRef(found->second, nullptr));
        segment.inputs.push_back(std::move(input));
        segment.examples.push_back(trace_->input_tensor(id));
      }
      if (symbols_) segment.hints = symbols_->hints();
    }
  } catch (const std::exception& error) {
    stop_record_ = {Stop::kUnknownTensor, error.what(), {}, &innermost_root()};
    return nullptr;
  }
  if (!fault_.empty()) {
    stop_record_ = {Stop::kFault, fault_, {}, &innermost_root()};
    return nullptr;
  }
  finish_symbolic_trace();
  std::vector<std::vector<uint32_t>> reads;
  for (const Segment::Read& read : segment.reads) reads.push_back(read.symbols);
  if (!reads.empty()) guards().split_by_reads(reads);
  dict_index_.clear();
  return std::exchange(segment_, std::make_unique<Segment>());
}

}  // namespace magneto::capture
