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
PyAPI_FUNC(int) _PyEval_ExceptionGroupMatch(PyObject*, PyObject*, PyObject**, PyObject**);
}
#define _PyObject_LookupAttr PyObject_GetOptionalAttr
#endif
#if PY_VERSION_HEX >= 0x030E0000
#error "CPython 3.14 keeps tagged references in its frames; frame_abi.h does not know them yet"
#endif

namespace magneto::evaluator {

using Frame = _PyInterpreterFrame;
using Slot = PyObject*;  ///< an owned reference or nullptr

inline PyCodeObject* frame_code(Frame* frame) {
#if PY_VERSION_HEX < 0x030D0000
  return frame->f_code;
#else
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#endif
}

inline PyFunctionObject* frame_function(Frame* frame) {
#if PY_VERSION_HEX < 0x030C0000
  return frame->f_func;
#else
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
#endif
}

inline Slot* frame_stack_base(Frame* frame) { return frame->localsplus + frame_code(frame)->co_nlocalsplus; }

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
  Slot* top = frame->localsplus + frame->stacktop;
  frame->stacktop = -1;
  return top;
}

inline void frame_give_stack(Frame* frame, Slot* top) { frame->stacktop = static_cast<int>(top - frame->localsplus); }

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
    thread->c_recursion_remaining += 2 * frames;  // PY_EVAL_C_STACK_UNITS
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
  return object->gi_frame_state >= kCompleted ? nullptr : reinterpret_cast<Frame*>(object->gi_iframe);
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
inline bool split_by_cpython(PyObject* exception, PyObject* type, PyObject** match, PyObject** rest) {
#if PY_VERSION_HEX >= 0x030D0000
  return _PyEval_ExceptionGroupMatch(exception, type, match, rest) == 0;
#else
  (void)exception, (void)type, (void)match, (void)rest;
  return false;
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
