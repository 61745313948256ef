// evaluator/frame_abi.h: CPython's private frame, as far as we touch it. Every difference between CPython versions that
// is not an opcode is in this file, so that the rest of the evaluator has no version tests; what an opcode means in
// which version is the business of opcodes.cpp.
//
//   while C++ executes instruction k   current(frame) = k, the stack depth is hidden (-1), as in CPython's own eval
//   loop before CPython goes on at k        next(frame) = k, the depth is written, the frame is unlinked
#pragma once
#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>
#include <frameobject.h>

#include <cstring>
#include <memory>
#include <vector>

// <stdatomic.h> of the internal headers is not C++; the GCC builtins have the same layout.
#undef HAVE_STD_ATOMIC
#ifndef HAVE_BUILTIN_ATOMIC
#define HAVE_BUILTIN_ATOMIC 1
#endif
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#define MAGNETO_UNDEF_BUILD_CORE
#endif
#undef _PyGC_FINALIZED  // defined by both Python.h and pycore_gc.h
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_pystate.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#include <internal/pycore_stackref.h>
#endif
#ifdef MAGNETO_UNDEF_BUILD_CORE
#undef Py_BUILD_CORE
#undef MAGNETO_UNDEF_BUILD_CORE
#endif

#if PY_VERSION_HEX >= 0x030D0000
extern "C" {
PyAPI_FUNC(void) _PyEval_FrameClearAndPop(PyThreadState*, _PyInterpreterFrame*);
PyAPI_FUNC(int) _PyObject_GetMethod(PyObject*, PyObject*, PyObject**);
PyAPI_FUNC(int) _PySet_Update(PyObject*, PyObject*);
PyAPI_FUNC(int) _PyDict_MergeEx(PyObject*, PyObject*, int);
#if PY_VERSION_HEX < 0x030E0000
PyAPI_FUNC(int) _PyEval_ExceptionGroupMatch(PyObject*, PyObject*, PyObject**, PyObject**);
#else
PyAPI_FUNC(int) _PyEval_ExceptionGroupMatch(_PyInterpreterFrame*, PyObject*, PyObject*, PyObject**, PyObject**);
PyAPI_FUNC(PyObject*) _PyInterpolation_Build(PyObject*, PyObject*, int, PyObject*);
PyAPI_FUNC(PyObject*) _PyTemplate_Build(PyObject*, PyObject*);
PyAPI_FUNC(PyObject*) _PyTuple_FromStackRefStealOnSuccess(const union _PyStackRef*, Py_ssize_t);
PyAPI_FUNC(PyObject*) _PyCoro_GetAwaitableIter(PyObject*);
PyAPI_FUNC(PyObject*) _PyUnicode_JoinArray(PyObject*, PyObject* const*, Py_ssize_t);
PyAPI_FUNC(PyObject*) _PyList_Extend(PyListObject*, PyObject*);
#endif
}
#define _PyObject_LookupAttr PyObject_GetOptionalAttr
#endif
#ifdef Py_GIL_DISABLED
#error "frame_abi.h does not know the frames of a CPython without GIL"
#endif
#if PY_VERSION_HEX >= 0x030F0000
#error "frame_abi.h does not know the frames of CPython 3.15 yet"
#endif

namespace magneto::evaluator {

using Frame = _PyInterpreterFrame;

/// One place of a frame: an owned reference or nothing. Since 3.14 it is tagged: for immortal objects, for references
/// that are borrowed from a local which stays as it is meanwhile, and for the plain number that stands where an
/// exception was raised. Copying a Slot moves the reference: who has it is the caller's business.
class Slot {
 public:
  static Slot own(PyObject* owned);  ///< nullptr: empty
  static Slot number(int number);    ///< empty with a Python error set: no memory
  bool is_empty() const;
  PyObject* get() const;      ///< borrowed; nullptr: empty
  PyObject* release() const;  ///< as an owned reference, which is no longer the slot's
  void drop() const;          ///< gives up the reference
  Slot again() const;         ///< one more reference of the same kind
  Slot lend() const;          ///< one that is borrowed from this slot, where the version knows such
  void make_owned();
  /// Takes over what `slot` holds, and gives up what was here: last, since a finalizer may look at the frame.
  void put(Slot slot);
  /// The number that was put there by number().
  bool read_number(int* number) const;

#if PY_VERSION_HEX < 0x030E0000
 private:
  explicit Slot(PyObject* object) : object_(object) {}
  PyObject* object_;
#else
 private:
  explicit Slot(_PyStackRef reference) : reference_(reference) {}
  _PyStackRef reference_;
#endif
};

#if PY_VERSION_HEX < 0x030E0000
inline Slot Slot::own(PyObject* owned) { return Slot(owned); }
inline Slot Slot::number(int number) { return Slot(PyLong_FromLong(number)); }
inline bool Slot::is_empty() const { return object_ == nullptr; }
inline PyObject* Slot::get() const { return object_; }
inline PyObject* Slot::release() const { return object_; }
inline void Slot::drop() const { Py_XDECREF(object_); }
inline Slot Slot::again() const { return Slot(Py_XNewRef(object_)); }
inline Slot Slot::lend() const { return again(); }
inline void Slot::make_owned() {}
inline bool Slot::read_number(int* number) const {
  if (!PyLong_Check(object_)) return false;
  *number = static_cast<int>(PyLong_AsLong(object_));
  return true;
}
#else
/// What a number of the eval loop looks like from outside: an int that no one else has. Borrowed; it lives for ever.
/// nullptr with a Python error set: no memory.
PyObject* number_object(int number);
inline std::vector<PyObject*> number_objects;  ///< by number; nullptr: nobody has looked at it

inline bool is_number_object(PyObject* object) {
  if (number_objects.empty() || !PyLong_CheckExact(object)) return false;
  auto* number = reinterpret_cast<PyLongObject*>(object);
  if (!PyUnstable_Long_IsCompact(number)) return false;
  const auto index = static_cast<size_t>(PyUnstable_Long_CompactValue(number));
  return index < number_objects.size() && number_objects[index] == object;
}

inline Slot Slot::own(PyObject* owned) {
  if (owned == nullptr) return Slot(PyStackRef_NULL);
  if (is_number_object(owned)) [[unlikely]]
    return number(static_cast<int>(PyLong_AsLong(owned)));
  return Slot(PyStackRef_FromPyObjectSteal(owned));
}
inline Slot Slot::number(int number) { return Slot(PyStackRef_TagInt(number)); }
inline bool Slot::is_empty() const { return PyStackRef_IsNull(reference_); }
inline PyObject* Slot::get() const {
  if (PyStackRef_IsTaggedInt(reference_)) [[unlikely]]
    return number_object(static_cast<int>(PyStackRef_UntagInt(reference_)));
  return PyStackRef_AsPyObjectBorrow(reference_);
}
inline PyObject* Slot::release() const {
  if (PyStackRef_IsNullOrInt(reference_)) return Py_XNewRef(get());
  return PyStackRef_AsPyObjectSteal(reference_);
}
inline void Slot::drop() const { PyStackRef_XCLOSE(reference_); }
inline Slot Slot::again() const { return is_empty() ? *this : Slot(PyStackRef_DUP(reference_)); }
inline Slot Slot::lend() const { return Slot(PyStackRef_Borrow(reference_)); }
inline void Slot::make_owned() { reference_ = PyStackRef_MakeHeapSafe(reference_); }
inline bool Slot::read_number(int* number) const {
  if (PyStackRef_IsNull(reference_) || (!PyStackRef_IsTaggedInt(reference_) && !PyLong_Check(get()))) return false;
  *number =
      static_cast<int>(PyStackRef_IsTaggedInt(reference_) ? PyStackRef_UntagInt(reference_) : PyLong_AsLong(get()));
  return true;
}
#endif

inline void Slot::put(Slot slot) {
  const Slot before = *this;
  *this = slot;
  before.drop();
}

/// The objects in `count` slots side by side, as C functions take them. They may write to the place before the first.
class Objects {
 public:
#if PY_VERSION_HEX < 0x030E0000
  Objects(Slot* first, int) : objects_(reinterpret_cast<PyObject**>(first)) {}
#else
  Objects(Slot* first, int count) : many_(count > kFew ? new PyObject*[count + 1] : nullptr) {
    objects_ = (count > kFew ? many_.get() : few_) + 1;
    for (int i = 0; i < count; ++i) objects_[i] = first[i].get();
  }
#endif
  PyObject** data() const { return objects_; }

 private:
  PyObject** objects_;
#if PY_VERSION_HEX >= 0x030E0000
  static constexpr int kFew = 10;
  PyObject* few_[kFew + 1];
  std::unique_ptr<PyObject*[]> many_;
#endif
};

/// A tuple that takes over what `count` slots hold; nullptr with an error set: it has taken nothing. The collector need
/// not follow every tuple, and CPython knows which (3.14).
inline PyObject* make_tuple(Slot* first, int count) {
#if PY_VERSION_HEX >= 0x030E0000
  return _PyTuple_FromStackRefStealOnSuccess(reinterpret_cast<_PyStackRef*>(first), count);
#else
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; tuple != nullptr && i < count; ++i) PyTuple_SET_ITEM(tuple, i, first[i].release());
  return tuple;
#endif
}

/// Locals (with cells and free variables), then the stack.
inline Slot* frame_slots(Frame* frame) {
  static_assert(sizeof(Slot) == sizeof(frame->localsplus[0]));
  return reinterpret_cast<Slot*>(frame->localsplus);
}

inline PyObject* frame_local(Frame* frame, int index) { return frame_slots(frame)[index].get(); }  ///< borrowed

inline PyCodeObject* frame_code(Frame* frame) {
#if PY_VERSION_HEX < 0x030D0000
  return frame->f_code;
#elif PY_VERSION_HEX < 0x030E0000
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return reinterpret_cast<PyCodeObject*>(PyStackRef_AsPyObjectBorrow(frame->f_executable));
#endif
}

inline PyFunctionObject* frame_function(Frame* frame) {
#if PY_VERSION_HEX < 0x030C0000
  return frame->f_func;
#elif PY_VERSION_HEX < 0x030E0000
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
#else
  return reinterpret_cast<PyFunctionObject*>(PyStackRef_AsPyObjectBorrow(frame->f_funcobj));
#endif
}

inline Slot* frame_stack_base(Frame* frame) { return frame_slots(frame) + frame_code(frame)->co_nlocalsplus; }

/// Index of the instruction that CPython would execute next.
inline int frame_next(Frame* frame) {
#if PY_VERSION_HEX < 0x030D0000
  return static_cast<int>(frame->prev_instr - _PyCode_CODE(frame_code(frame))) + 1;
#else
  return static_cast<int>(frame->instr_ptr - _PyCode_CODE(frame_code(frame)));
#endif
}

inline void frame_set_next(Frame* frame, int index) {
#if PY_VERSION_HEX < 0x030D0000
  frame->prev_instr = _PyCode_CODE(frame_code(frame)) + index - 1;
#else
  frame->instr_ptr = _PyCode_CODE(frame_code(frame)) + index;
#endif
}

/// Index of the instruction that is being executed: tracebacks, f_lineno and f_lasti read it.
inline int frame_current(Frame* frame) {
#if PY_VERSION_HEX < 0x030D0000
  return frame_next(frame) - 1;
#else
  return frame_next(frame);
#endif
}

inline void frame_set_current(Frame* frame, int index) {
#if PY_VERSION_HEX < 0x030D0000
  frame_set_next(frame, index + 1);
#else
  frame_set_next(frame, index);
#endif
}

/// Index of the instruction that raises when an error is thrown into a frame that waits: the one that yielded.
inline int frame_waiting(Frame* frame) { return frame_next(frame) - 1; }

/// CPython gives no traceback entry to a frame whose prologue (cells, free variables) has not run.
inline bool frame_incomplete(Frame* frame) {
  return frame->owner != FRAME_OWNED_BY_GENERATOR && frame_current(frame) < frame_code(frame)->_co_firsttraceable;
}

/// Takes the stack pointer out of the frame and hides the depth, as the eval loop does: the collector must not walk a
/// stack that moves.
inline Slot* frame_take_stack(Frame* frame) {
#if PY_VERSION_HEX < 0x030E0000
  Slot* top = frame_slots(frame) + frame->stacktop;
  frame->stacktop = -1;
#else
  Slot* top = reinterpret_cast<Slot*>(frame->stackpointer);
  frame->stackpointer = frame->localsplus + frame_code(frame)->co_nlocalsplus;  // who reads locals asks for it
#endif
  return top;
}

inline void frame_give_stack(Frame* frame, Slot* top) {
#if PY_VERSION_HEX < 0x030E0000
  frame->stacktop = static_cast<int>(top - frame_slots(frame));
#else
  frame->stackpointer = frame->localsplus + (top - frame_slots(frame));
#endif
}

/// Makes a frame the current one of its thread while C++ executes it.
class FrameLink {
 public:
  FrameLink(PyThreadState* thread, Frame* frame) : thread_(thread), frame_(frame) {
#if PY_VERSION_HEX < 0x030D0000
#if PY_VERSION_HEX < 0x030C0000
    own_.use_tracing = thread->cframe->use_tracing;
    frame->is_entry = true;
#endif
    own_.previous = thread->cframe;
    frame->previous = thread->cframe->current_frame;
    own_.current_frame = frame;
    thread->cframe = &own_;
#else
    frame->previous = thread->current_frame;
    thread->current_frame = frame;
#endif
  }
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;
  ~FrameLink() { unlink(); }

  /// Before CPython takes the frame: it links it again, and a frame linked twice is its own caller.
  void unlink() {
    if (frame_ == nullptr) return;
#if PY_VERSION_HEX < 0x030D0000
    thread_->cframe = own_.previous;
#if PY_VERSION_HEX < 0x030C0000
    thread_->cframe->use_tracing = own_.use_tracing;  // sys.settrace called below us must reach our caller
#endif
#else
    thread_->current_frame = frame_->previous;
#endif
    frame_ = nullptr;
  }

 private:
  PyThreadState* thread_;
  Frame* frame_;
#if PY_VERSION_HEX < 0x030D0000
  _PyCFrame own_;
#endif
};

/// The part of the recursion limits that CPython takes when it enters a frame. We hold it from the start: CPython
/// repeats its check when it gets the frame in the middle, and a failure there would leave the frame without running
/// its handlers.
class RecursionReserve {
 public:
  static bool has_room(PyThreadState* thread) {
#if PY_VERSION_HEX < 0x030C0000
    return thread->recursion_remaining > 1;
#elif PY_VERSION_HEX >= 0x030E0000
    return thread->py_recursion_remaining > 1 && !_Py_ReachedRecursionLimitWithMargin(thread, 1);  // of the C stack
#else
    return thread->py_recursion_remaining > 1 && thread->c_recursion_remaining > 4;
#endif
  }

  explicit RecursionReserve(PyThreadState* thread) : thread_(thread) { move(thread, -1); }
  RecursionReserve(const RecursionReserve&) = delete;
  RecursionReserve& operator=(const RecursionReserve&) = delete;
  ~RecursionReserve() { release(); }

  void release() {
    if (thread_ != nullptr) move(thread_, 1);
    thread_ = nullptr;
  }

  /// Gives or takes room for one frame.
  static void move(PyThreadState* thread, int frames) {
#if PY_VERSION_HEX < 0x030C0000
    thread->recursion_remaining += frames;
#else
    thread->py_recursion_remaining += frames;
#if PY_VERSION_HEX < 0x030E0000
    thread->c_recursion_remaining += 2 * frames;  // PY_EVAL_C_STACK_UNITS
#endif
#endif
  }

 private:
  PyThreadState* thread_;
};

template <class T>
inline bool any_byte_set(const T& record) {
  static constexpr char kZeros[sizeof(T)] = {};
  return std::memcmp(&record, kZeros, sizeof(T)) != 0;
}

/// sys.settrace, sys.setprofile or sys.monitoring listens: instructions executed by us emit no events.
inline bool is_observed(PyThreadState* thread, PyCodeObject* code) {
#if PY_VERSION_HEX < 0x030C0000
  (void)code;
  return thread->cframe->use_tracing != 0;
#else
  return thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr || any_byte_set(thread->interp->monitors) ||
         (code->_co_monitoring != nullptr && any_byte_set(code->_co_monitoring->local_monitors));
#endif
}

/// Calls a trace or profile function as the eval loop does; it may replace the error that is set.
inline void tell_listener(PyThreadState* thread, Py_tracefunc listener, PyObject* self, int event) {
  if (listener == nullptr || thread->tracing) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* argument = nullptr;
  if (event == PyTrace_EXCEPTION) argument = PyTuple_Pack(3, type, value, traceback != nullptr ? traceback : Py_None);
  PyThreadState_EnterTracing(thread);
  int status = listener(self, PyEval_GetFrame(), event, argument);
  PyThreadState_LeaveTracing(thread);
  Py_XDECREF(argument);
  if (status == 0) return PyErr_Restore(type, value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

/// The instruction that raised may have switched tracing on: then this is the first event.
inline void tell_about_raise(PyThreadState* thread) {
  if (thread->c_tracefunc != nullptr) tell_listener(thread, thread->c_tracefunc, thread->c_traceobj, PyTrace_EXCEPTION);
}

/// The exception leaves a frame that CPython will not see again.
inline void tell_about_unwind(PyThreadState* thread) {
  tell_listener(thread, thread->c_tracefunc, thread->c_traceobj, PyTrace_RETURN);
  tell_listener(thread, thread->c_profilefunc, thread->c_profileobj, PyTrace_RETURN);
}

/// RESUME instruments code whose version is old (3.12+). A frame handed over after RESUME must not have stale code.
/// Code that was never instrumented has nothing stale in it, whatever its version is.
inline bool instrumentation_is_stale(PyThreadState* thread, PyCodeObject* code) {
#if PY_VERSION_HEX < 0x030C0000
  (void)thread, (void)code;
  return false;
#elif PY_VERSION_HEX < 0x030D0000
  return code->_co_monitoring != nullptr && code->_co_instrumentation_version != thread->interp->monitoring_version;
#else
  return code->_co_monitoring != nullptr &&
         code->_co_instrumentation_version != (thread->eval_breaker & ~static_cast<uintptr_t>(0xff));
#endif
}

/// Signals, GIL requests, pending calls or (3.12+) the collector wait for the eval loop.
inline bool eval_breaker_is_set(PyThreadState* thread) {
#if PY_VERSION_HEX < 0x030D0000
  return *reinterpret_cast<volatile int*>(&thread->interp->ceval.eval_breaker) != 0;
#else
  return (*reinterpret_cast<volatile uintptr_t*>(&thread->eval_breaker) & 0xff) != 0;
#endif
}

/// Who clears a finished frame: the caller of the eval function (3.11), or the eval function. 3.13 exports a helper for
/// it; 3.12 has none, so that there CPython itself has to execute the last instruction.
inline constexpr bool kCanEndFrames = PY_VERSION_HEX < 0x030C0000 || PY_VERSION_HEX >= 0x030D0000;

/// The last thing that an eval function does with a frame that returns or is left by an exception: it is unlinked, its
/// stack is empty. Whoever asks may not touch it any more.
inline void end_frame(PyThreadState* thread, Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  _PyEval_FrameClearAndPop(thread, frame);
#else
  (void)thread, (void)frame;
#endif
}

/// exc_info holds nullptr, not None, where no exception is handled.
inline constexpr bool kNoExceptionIsNull = PY_VERSION_HEX >= 0x030C0000;

/// The generator whose frame this is. Borrowed.
inline PyObject* frame_generator(Frame* frame) {
  return reinterpret_cast<PyObject*>(reinterpret_cast<char*>(frame) - offsetof(PyGenObject, gi_iframe));
}

/// Its frame; nullptr when it has ended.
inline Frame* generator_frame(PyObject* generator) {
  auto* object = reinterpret_cast<PyGenObject*>(generator);
  constexpr int kCompleted = 1;
  auto* frame = reinterpret_cast<Frame*>(reinterpret_cast<char*>(object) + offsetof(PyGenObject, gi_iframe));
  return object->gi_frame_state >= kCompleted ? nullptr : frame;
}

/// Nothing of its body has run.
inline bool is_new_generator(PyObject* generator) {
  return reinterpret_cast<PyGenObject*>(generator)->gi_frame_state == FRAME_CREATED;
}

inline int generator_code_flags(PyObject* generator) {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyGenObject*>(generator)->gi_code->co_flags;
#else
  PyCodeObject* code = PyGen_GetCode(reinterpret_cast<PyGenObject*>(generator));
  int flags = code->co_flags;
  Py_DECREF(code);
  return flags;
#endif
}

/// Takes the error that is set as one normalised exception object with its traceback; new reference.
inline PyObject* take_error() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  return value;
#endif
}

/// What except* does to an exception: match and rest, as new references. 3.13 exports it; what it does to tracebacks
/// differs between patch releases.
inline constexpr bool kSplitsGroups = PY_VERSION_HEX >= 0x030D0000;
inline bool split_by_cpython(Frame* frame, PyObject* exception, PyObject* type, PyObject** match, PyObject** rest) {
#if PY_VERSION_HEX >= 0x030E0000
  return _PyEval_ExceptionGroupMatch(frame, exception, type, match, rest) == 0;
#elif PY_VERSION_HEX >= 0x030D0000
  (void)frame;
  return _PyEval_ExceptionGroupMatch(exception, type, match, rest) == 0;
#else
  (void)frame, (void)exception, (void)type, (void)match, (void)rest;
  return false;
#endif
}

/// What `await object` iterates, as a new reference. Since 3.14 CPython tells in other words what cannot be awaited.
inline constexpr bool kFindsAwaitables = PY_VERSION_HEX >= 0x030E0000;
inline PyObject* await_by_cpython(PyObject* object) {
#if PY_VERSION_HEX >= 0x030E0000
  return _PyCoro_GetAwaitableIter(object);
#else
  (void)object;
  return nullptr;
#endif
}

/// Whether an error about too many values to unpack tells how many there are.
inline constexpr bool kTellsHowMany = PY_VERSION_HEX >= 0x030E0000;

/// What LOAD_COMMON_CONSTANT (3.14) gives; borrowed.
inline PyObject* common_constant(PyThreadState* thread, int which) {
#if PY_VERSION_HEX >= 0x030E0000
  return thread->interp->common_consts[which];
#else
  (void)thread, (void)which;
  return nullptr;
#endif
}

/// The function that makes the annotations of a function, which has one since 3.14.
inline PyObject** annotate_of(PyFunctionObject* function) {
#if PY_VERSION_HEX >= 0x030E0000
  return &function->func_annotate;
#else
  (void)function;
  return nullptr;
#endif
}

/// Names that function after the one whose annotations it makes, as patch releases from 3.14.5 on do. False with an
/// error set.
inline bool name_annotate(PyFunctionObject* function, PyObject* annotate) {
#if PY_VERSION_HEX >= 0x030E0000
  if (Py_Version < 0x030E05C1 || !PyFunction_Check(annotate)) return true;
  PyObject* name = PyUnicode_FromFormat("%U.__annotate__", function->func_qualname);
  if (name == nullptr) return false;
  Py_SETREF(reinterpret_cast<PyFunctionObject*>(annotate)->func_qualname, name);
#else
  (void)function, (void)annotate;
#endif
  return true;
}

/// The parts of a t-string (3.14); new references.
inline PyObject* make_interpolation(PyObject* value, PyObject* text, int conversion, PyObject* spec) {
#if PY_VERSION_HEX >= 0x030E0000
  return _PyInterpolation_Build(value, text, conversion, spec);
#else
  (void)value, (void)text, (void)conversion, (void)spec;
  return nullptr;
#endif
}

inline PyObject* make_template(PyObject* strings, PyObject* interpolations) {
#if PY_VERSION_HEX >= 0x030E0000
  return _PyTemplate_Build(strings, interpolations);
#else
  (void)strings, (void)interpolations;
  return nullptr;
#endif
}

/// raise X from Y: whether what calling the class Y gives must be an exception.
inline constexpr bool kChecksMadeCauses = PY_VERSION_HEX >= 0x030D0000;

/// The arguments of an error as PyErr_Fetch gave it. 3.11 keeps them apart from the exception until somebody asks for
/// it, unless another exception is being handled; its eval loop then overlooks them, and so do we.
inline PyObject* fetched_arguments(PyObject* value) {
#if PY_VERSION_HEX >= 0x030C0000
  return value != nullptr ? reinterpret_cast<PyBaseExceptionObject*>(value)->args : nullptr;
#else
  return value;
#endif
}

/// What calls specialise on (3.12+): functions without a version are called the slow way.
inline void adopt_code_version(PyFunctionObject* function) {
#if PY_VERSION_HEX >= 0x030C0000
  function->func_version = reinterpret_cast<PyCodeObject*>(function->func_code)->co_version;
#else
  (void)function;
#endif
}

/// Sets an exception object (stolen) as the error, with the traceback it carries.
inline void set_error(PyObject* exception) {
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(exception);
#else
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception))), exception,
                PyException_GetTraceback(exception));
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
inline Py_ssize_t request_code_extra(freefunc release) { return PyUnstable_Eval_RequestCodeExtraIndex(release); }
inline int get_code_extra(PyObject* code, Py_ssize_t index, void** extra) {
  return PyUnstable_Code_GetExtra(code, index, extra);
}
inline int set_code_extra(PyObject* code, Py_ssize_t index, void* extra) {
  return PyUnstable_Code_SetExtra(code, index, extra);
}
#else
inline Py_ssize_t request_code_extra(freefunc release) { return _PyEval_RequestCodeExtraIndex(release); }
inline int get_code_extra(PyObject* code, Py_ssize_t index, void** extra) {
  return _PyCode_GetExtra(code, index, extra);
}
inline int set_code_extra(PyObject* code, Py_ssize_t index, void* extra) {
  return _PyCode_SetExtra(code, index, extra);
}
#endif

}  // namespace magneto::evaluator
