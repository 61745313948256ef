// The ends of objects: they come when eager lets them come.
#include <string_view>

#include "capture/content.h"
#include "capture/evaluator.h"
#include "capture/faults.h"
#include "capture/recorder.h"
#include "capture/recorder_ends_internal.h"
#include "capture/tensor_meta.h"
#include "evaluator/evaluator.h"
#include "evaluator/opcodes.h"

namespace magneto::capture {

// The class that a handler asks for, where it is one of CPython's or of the module; borrowed.
static PyObject* global_of(Frame* frame, PyObject* name) {
  PyObject* found = PyDict_GetItemWithError(frame->f_globals, name);
  if (!found && PyDict_Check(frame->f_builtins)) found = PyDict_GetItemWithError(frame->f_builtins, name);
  PyErr_Clear();
  return found;
}

// A generator that is let go gets a GeneratorExit at its yield. Whether the handlers from here on only pass it on: they
// ask for other exceptions (`except IndexError`), or clear away what handlers before them left.
static bool passes_exit_on(Frame* frame, PyCodeObject* code, const CodeText& text, int index) {
  constexpr int kMost = 256;  // instructions: a handler of a handler may lead back
  for (int count = 0; count < kMost && index < text.count; ++count) {
    const Instruction& instruction = text.instructions[index];
    const std::string_view name = instruction.row->name;
    index = instruction.after;
    if (name == "LOAD_GLOBAL") {
      PyObject* type = global_of(frame, PyTuple_GET_ITEM(code->co_names, instruction.argument >> 1));
      if (!type || !PyExceptionClass_Check(type) ||
          PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(PyExc_GeneratorExit), reinterpret_cast<PyTypeObject*>(type)))
        return false;
    } else if (name == "POP_JUMP_FORWARD_IF_FALSE" || name == "POP_JUMP_IF_FALSE") {
      index += instruction.argument;
    } else if (name == "CALL_INTRINSIC_1") {
      constexpr int kStopIterationError = 3;  // 3.12: a StopIteration becomes a RuntimeError, nothing else changes
      if (instruction.argument != kStopIterationError) return false;
    } else if (name == "RERAISE" || name == "CLEANUP_THROW") {  // the latter looks for a StopIteration
      Handler handler;
      if (!find_handler(code, instruction.at, &handler)) return true;
      index = handler.target;
    } else if (name != "PUSH_EXC_INFO" && name != "COPY" && name != "SWAP" && name != "POP_EXCEPT" && name != "NOP" &&
               name != "BUILD_TUPLE" && name != "CHECK_EXC_MATCH") {
      return false;
    }
  }
  return false;
}

static bool generator_ends_with_code(PyObject* generator) {
  Frame* frame = generator_frame(generator);
  if (!frame) return false;
  Ref code = Ref::take(PyObject_GetAttrString(generator, "gi_code"));
  auto* of = reinterpret_cast<PyCodeObject*>(code.get());
  if (of && PyBytes_GET_SIZE(of->co_exceptiontable) == 0) return false;
  const CodeText* text = of ? code_text(of) : nullptr;
  if (!text) {
    PyErr_Clear();
    return true;
  }
  for (int index = 0; index < text->count;) {
    const Instruction& instruction = text->instructions[index];
    Handler handler;
    if (std::string_view(instruction.row->name) == "YIELD_VALUE" && find_handler(of, instruction.at, &handler) &&
        !passes_exit_on(frame, of, *text, handler.target))
      return true;
    index = instruction.after;
  }
  return false;
}

// Objects that run code when they die must die when eager lets them die, and no replay could repeat that. A generator
// does so when it is suspended inside a try block whose handlers are meant for its end, too.
bool ends_with_code(PyObject* object) {
  if (PyGen_CheckExact(object)) return generator_ends_with_code(object);
  static PyObject* name = PyUnicode_InternFromString("__del__");
  return is_python_class(Py_TYPE(object)) && _PyType_Lookup(Py_TYPE(object), name);
}

static PyMethodDef death_method = {"on_death", Recorder::on_death, METH_O, nullptr};

PyObject* Recorder::on_death(PyObject* capsule, PyObject* reference) {
  auto* recorder = static_cast<Recorder*>(PyCapsule_GetPointer(capsule, nullptr));
  auto found = recorder->watched_.find(reference);
  if (found != recorder->watched_.end()) {
    const Watched watched = found->second;
    recorder->watched_.erase(found);
    recorder->table_.erase(watched.object);
    recorder->endless_.erase(watched.object);
    Py_DECREF(reference);
    if (!watched.runs_code) return Py_NewRef(Py_None);
    --recorder->waiting_;
    try {
      if (recorder->active_) recorder->invalidate(*Activation::innermost(), Stop::kFinalizer, "it ends here");
    } catch (const std::exception&) {  // the recording is over all the same
      recorder->active_ = false;
    }
  }
  return Py_NewRef(Py_None);
}

void Recorder::finished(PyObject* generator) {
  for (auto entry = watched_.begin(); entry != watched_.end(); ++entry)
    if (entry->second.object == generator) {
      waiting_ -= entry->second.runs_code;
      Py_DECREF(entry->first);
      watched_.erase(entry);
      held_.push_back(Py_NewRef(generator));
      return;
    }
}

// One that nobody of the recording knows, and that has code for its end, is walked by an object from outside. (C code
// may make and walk others: zip over an object with __iter__.)
void Recorder::resumed(Activation& activation) {
  PyObject* generator = frame_generator(activation.frame());
  if (active_ && !info(generator) && ends_with_code(generator)) invalidate_by_end(Py_TYPE(generator)->tp_name);
}

// Where the program throws an exception into a generator, what its handlers do is recorded. A generator that ends gets
// a GeneratorExit: CPython runs what it does then, unseen.
bool Recorder::thrown(Frame* frame) {
  const auto is_entered = [&](const Ref& generator) { return generator.get() == frame_generator(frame); };
  if (std::any_of(throwing_.begin(), throwing_.end(), is_entered)) return active_;
  const ErrorAside aside;
  const bool ends = aside.type() && PyErr_GivenExceptionMatches(aside.type(), PyExc_GeneratorExit);
  const bool is_generator = (frame_code(frame)->co_flags & CO_GENERATOR) != 0;
  if (active_ && !(ends && is_generator && !ends_with_code(frame_generator(frame)))) invalidate_by_end("it ends here");
  return false;
}

bool Recorder::watch_death(PyObject* object) {
  if (is_tensor(object) || PyType_Check(object)) return false;
  const bool runs_code = ends_with_code(object);
  // One without handlers may delegate to one that has some, and must let it end in time.
  if (!runs_code && !PyGen_CheckExact(object)) return false;
  if (!death_callback_) {
    Ref capsule = Ref::take(PyCapsule_New(this, nullptr, nullptr));
    death_callback_ = capsule ? PyCFunction_New(&death_method, capsule.get()) : nullptr;
  }
  PyObject* reference = death_callback_ ? PyWeakref_NewRef(object, death_callback_) : nullptr;
  if (!reference) {
    PyErr_Clear();
    return false;
  }
  watched_.emplace(reference, Watched{object, runs_code});
  waiting_ += runs_code;
  has_ends_ = has_ends_ || runs_code;
  return true;
}

// Functions that are called when the object has ended; not ours, which only looks.
static bool has_callback(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
  auto* reference = reinterpret_cast<PyWeakReference*>(*PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; reference; reference = reference->wr_next) {
    PyObject* callback = reference->wr_callback;
    if (callback &&
        !(PyCFunction_Check(callback) && reinterpret_cast<PyCFunctionObject*>(callback)->m_ml == &death_method))
      return true;
  }
  return false;
}

PyObject* attribute_there(PyObject* owner, PyObject* name) {
  PyObject* member = _PyType_Lookup(Py_TYPE(owner), name);
  if (member && Py_TYPE(member) == &PyMemberDescr_Type) {
    Ref value = Ref::take(PyObject_GenericGetAttr(owner, name));
    PyErr_Clear();
    return value.get();
  }
  PyObject** dict = _PyObject_GetDictPtr(owner);
  PyObject* value = dict && *dict ? PyDict_GetItemWithError(*dict, name) : nullptr;
  PyErr_Clear();
  return value;
}

// What nobody lets go, or what holds nothing.
static bool is_of_no_interest(PyObject* object) {
  if (!object || is_value(object) || PyType_Check(object) || PyModule_Check(object)) return true;
  if (!is_tensor(object)) return false;
  PyObject** dict = _PyObject_GetDictPtr(object);
  return (!dict || !*dict || PyDict_GET_SIZE(*dict) == 0) && !has_callback(object);
}

void LetGo::drop(PyObject* object) {
  if (is_of_no_interest(object)) return;
  Py_ssize_t& count = seen_[object];
  if (count < 0 || ++count + (aside_ ? aside_(object) : 0) < Py_REFCNT(object)) return;
  count = kEnds;
  next_.push_back(object);
}

void LetGo::end(PyObject* object) {
  if (is_of_no_interest(object)) return;
  Py_ssize_t& count = seen_[object];
  if (count < 0) return;
  count = kEnds;
  next_.push_back(object);
}

void LetGo::parts_of(PyObject* container) {
  if (is_tensor(container)) {
    PyObject** dict = _PyObject_GetDictPtr(container);
    return drop(dict ? *dict : nullptr);
  }
  const auto look = [](PyObject* part, void* self) {
    static_cast<LetGo*>(self)->drop(part);
    return 0;
  };
  if (!PyObject_IS_GC(container)) return;
  if (traverseproc traverse = Py_TYPE(container)->tp_traverse) traverse(container, look, this);
}

bool LetGo::runs_code(bool unknown) {
  for (size_t count = 0; !next_.empty(); ++count) {
    PyObject* object = next_.back();
    next_.pop_back();
    if (count == kMost) return unknown;
    if (ends_with_code(object) || (callbacks_ && has_callback(object))) return true;
    parts_of(object);
  }
  return false;
}

// The table, the guards and copies of containers hold what the program may let go. Whatever the recording knows may be
// held by them alone. Functions and modules are keys of weak dictionaries, in torch itself: their callbacks only
// forget.
bool Recorder::holds_an_end(PyObject* object, bool unknown) {
  if (is_of_no_interest(object) || endless_.count(object)) return false;
  LetGo search(
      [this](PyObject* part) -> Py_ssize_t { return info(part) && !endless_.count(part) ? Py_REFCNT(part) : 0; });
  search.ignore_callbacks();
  search.end(object);
  if (search.runs_code(unknown)) return true;
  for (const auto& [part, count] : search.seen())  // what is made here may still change unseen, and generators go on
    if (count == LetGo::kEnds && is_outside(part) && !PyGen_CheckExact(part)) endless_.insert(part);
  return false;
}

void Recorder::invalidate_by_end(const char* what) {
  has_ends_ = true;
  invalidate(*Activation::innermost(), Stop::kFinalizer, what);
}

// What a guard compares with lives as long as the recording. An object that runs code at its end, or that holds one,
// would end late where the program overwrites it: it is read outside of recordings, and is a slot for the next one.
void Recorder::owned(PyObject* object) {
  if (active_ && holds_an_end(object, false)) invalidate_by_end("a guard would keep it alive");
}

// The program takes it away from a place.
void Recorder::taken_away(PyObject* object) {
  if (active_ && !is_of_no_interest(object) && holds_an_end(object)) invalidate_by_end("it may end here");
}

// The content before the first change by the recording itself: later reads of the whole are guarded against it.
void Recorder::snapshot(PyObject* container) try {
  if (originals_.count(container)) return;
  if (holds_an_end(container)) invalidate_by_end("it may end here");
  PyObject* const copy = content_of(container);
  if (!copy) return PyErr_Clear();
  originals_.emplace(container, copy);
  if (const auto replaced = replaced_.find(container); replaced != replaced_.end())
    for (const auto& [key, value] : replaced->second)
      if ((value ? PyDict_SetItem(copy, key.get(), value.get()) : PyDict_DelItem(copy, key.get())) < 0) PyErr_Clear();
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::remember(PyObject* dict, PyObject* key) try {
  if (!dict || originals_.count(dict) || is_dirty(dict, key)) return;
  PyObject* value = quiet_entry(dict, key);
  replaced_[dict].emplace_back(Ref::share(key), Ref::share(value));
} catch (const std::exception& error) {
  fault(error.what());
}

// The table holds what the program lets go. Where that, or a part of it, runs code at its end, it must end in time.
void Recorder::end_with_code(Activation& self) {
  const ErrorAside aside;
  if (waiting_ > 0) let_dead_go();
  for (PyObject*& object : mortal_)
    if (active_ && object && Py_REFCNT(object) == 1) {
      if (holds_an_end(object)) invalidate(self, Stop::kFinalizer, "it ends here");
      object = nullptr;
    }
  if (!active_) let_all_go();
}

// The table holds what it names, or another object could take its address. But a tuple of arguments, a bound method, a
// list that the program has let go would keep their tensors alive while the trace computes them, layer after layer,
// where eager has freed them. So before anything is computed, made objects that nobody else holds leave the table.
void Recorder::release_dead() {
  if (releasing_ || std::this_thread::get_id() != thread_) return;
  const PyGILState_STATE gil = PyGILState_Ensure();  // torch's operators run without it
  if (waiting_ == 0) {  // else an object's end could run code in the middle of an instruction
    const ErrorAside aside;
    let_dead_go();
  }
  PyGILState_Release(gil);
}

void Recorder::let_dead_go() {
  releasing_ = true;
  Hooked nobody(nullptr);
  const auto is_dead = [&](PyObject* object) {
    if (Py_REFCNT(object) > 1 || !is_made(object)) return false;
    for (const auto& [number, known] : ids_)  // the address stands for the object
      if (object == number || object == known) return false;
    return !PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) || !*PyObject_GET_WEAKREFS_LISTPTR(object);
  };
  // What holds others is younger than they are, in general; otherwise they go in the next round.
  for (bool again = true; std::exchange(again, false);)
    for (size_t i = held_.size(); i-- > 0;) {
      PyObject* object = held_[i];
      if (!object || !is_dead(object)) continue;
      table_.erase(object);
      endless_.erase(object);
      held_[i] = nullptr;
      Py_DECREF(object);
      again = true;
    }
  std::erase(held_, nullptr);
  releasing_ = false;
}

}  // namespace magneto::capture
