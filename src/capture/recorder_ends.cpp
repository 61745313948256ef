// The ends of objects: they come when eager lets them come.
#include <string_view>

#include "capture/evaluator.h"
#include "capture/faults.h"
#include "capture/hook.h"
#include "capture/opcodes.h"
#include "capture/recorder.h"
#include "capture/recorder_ends_internal.h"
#include "capture/tensor_meta.h"

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
    const Instruction instruction = decode(text, index);
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
    } else if (name == "RERAISE") {
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
    const Instruction instruction = decode(*text, index);
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

PyObject* Recorder::on_death(PyObject* capsule, PyObject* reference) {
  auto* recorder = static_cast<Recorder*>(PyCapsule_GetPointer(capsule, nullptr));
  auto found = recorder->watched_.find(reference);
  if (found != recorder->watched_.end()) {
    const Watched watched = found->second;
    recorder->watched_.erase(found);
    recorder->table_.erase(watched.object);
    Py_DECREF(reference);
    if (!watched.runs_code) return Py_NewRef(Py_None);
    --recorder->waiting_;
    try {
      if (recorder->active_) recorder->spoil(*Activation::innermost(), Stop::kFinalizer, "it ends here");
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

// One that nobody of the recording knows, and that has code for its end, is being closed because that has come: the
// last reference was in an object from outside. (C code may make and walk others: zip over an object with __iter__.)
void Recorder::resumed(Activation& activation) {
  PyObject* generator = frame_generator(activation.frame());
  if (!active_ || info(generator) || !ends_with_code(generator)) return;
  has_ends_ = true;
  spoil(*Activation::innermost(), Stop::kFinalizer, Py_TYPE(generator)->tp_name);
}

bool Recorder::watch_death(PyObject* object) {
  if (is_tensor(object) || PyType_Check(object)) return false;
  const bool runs_code = ends_with_code(object);
  // One without handlers may delegate to one that has some, and must let it end in time.
  if (!runs_code && !PyGen_CheckExact(object)) return false;
  if (!death_callback_) {
    static PyMethodDef method = {"on_death", on_death, METH_O, nullptr};
    Ref capsule = Ref::take(PyCapsule_New(this, nullptr, nullptr));
    death_callback_ = capsule ? PyCFunction_New(&method, capsule.get()) : nullptr;
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

bool holds_an_end(PyObject* object) {
  struct Search {
    std::vector<PyObject*> next;
    size_t left = 20'000;
    bool found = false;
  } search;
  const auto look = [](PyObject* part, void* argument) -> int {
    auto& in = *static_cast<Search*>(argument);
    if (Py_REFCNT(part) > 2 || !PyObject_IS_GC(part) || is_tensor(part) || PyType_Check(part) || PyModule_Check(part))
      return 0;
    if (in.left == 0 || ends_with_code(part)) {
      in.found = true;
      return 1;
    }
    --in.left;
    in.next.push_back(part);
    return 0;
  };
  search.next.push_back(object);
  while (!search.found && !search.next.empty()) {
    PyObject* part = search.next.back();
    search.next.pop_back();
    if (traverseproc traverse = Py_TYPE(part)->tp_traverse) traverse(part, look, &search);
  }
  return search.found;
}

// The content before the first change by the recording itself: later reads of the whole are guarded against it.
void Recorder::snapshot(PyObject* container) try {
  if (originals_.count(container)) return;
  if (holds_an_end(container)) {
    has_ends_ = true;
    spoil(*Activation::innermost(), Stop::kFinalizer, "it may end here");
  }
  PyObject* copy = nullptr;
  if (PyODict_Check(container))
    copy = PyObject_CallOneArg(reinterpret_cast<PyObject*>(&PyODict_Type), container);
  else if (PyDict_Check(container))
    copy = PyDict_Copy(container);
  else if (PyList_Check(container))
    copy = PyList_GetSlice(container, 0, PyList_GET_SIZE(container));
  else if (PyAnySet_Check(container))
    copy = PySet_New(container);
  if (copy)
    originals_.emplace(container, copy);
  else
    PyErr_Clear();
} catch (const std::exception& error) {
  fault(error.what());
}

// The table holds what the program lets go. Where that, or a part of it, runs code at its end, it must end in time.
void Recorder::end_with_code(Activation& self) {
  const ErrorAside aside;
  if (waiting_ > 0) let_dead_go();
  for (PyObject* object : mortal_)
    if (active_ && Py_REFCNT(object) == 1) spoil(self, Stop::kFinalizer, "it ends here");
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
      held_[i] = nullptr;
      Py_DECREF(object);
      again = true;
    }
  std::erase(held_, nullptr);
  releasing_ = false;
}

}  // namespace magneto::capture
