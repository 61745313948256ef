#include "capture/hook.h"

#include "capture/frame_abi.h"
#include "capture/opcodes.h"

namespace magneto::capture {

static thread_local const Hooked* innermost_hooked = nullptr;
static Director* director_everywhere = nullptr;

// The rest is guarded by the GIL.
static _PyFrameEvalFunction previous_eval = nullptr;  ///< nullptr: CPython's own
static int listeners = 0;                             ///< directors that wait for frames, over all threads

static PyObject* run_elsewhere(PyThreadState* thread, Frame* frame, int throwing) {
  return previous_eval != nullptr ? previous_eval(thread, frame, throwing)
                                  : _PyEval_EvalFrameDefault(thread, frame, throwing);
}

/// A frame that is entered to raise an exception in it (generator.throw) goes to CPython: its next resumption comes
/// here.
static bool can_run(PyThreadState* thread, Frame* frame) {
  PyCodeObject* code = frame_code(frame);
  return kVersionColumn >= 0 && !is_observed(thread, code) && !instrumentation_is_stale(thread, code) &&
         RecursionReserve::has_room(thread);
}

static PyObject* eval_frame(PyThreadState* thread, Frame* frame, int throwing) {
  Director* director = current_director();
  if (director == nullptr || throwing || !can_run(thread, frame) || !director->wants(thread, frame))
    return run_elsewhere(thread, frame, throwing);
  return Activation(thread, frame, *director).run();
}

// The field is written directly: the setter of later versions throws away compiled traces, and stops all threads.
static void arm() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (interpreter->eval_frame == eval_frame) return;
  previous_eval = interpreter->eval_frame;
  interpreter->eval_frame = eval_frame;
}

static void disarm() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (interpreter->eval_frame == eval_frame) interpreter->eval_frame = previous_eval;  // else somebody came after us
}

/// Where nobody listens any more, Python code is to run at full speed.
static void arm_if_needed() {
  if (listeners > 0 || director_everywhere != nullptr)
    arm();
  else
    disarm();
}

Director* current_director() { return innermost_hooked != nullptr ? innermost_hooked->director_ : director_everywhere; }

// Only the innermost Hooked of a thread listens.
Hooked::Hooked(Director* director) : director_(director), before_(innermost_hooked) {
  innermost_hooked = this;
  listeners += listens(this) - listens(before_);
  arm_if_needed();
}

Hooked::~Hooked() {
  innermost_hooked = before_;
  listeners += listens(before_) - listens(this);
  arm_if_needed();
}

int Hooked::listens(const Hooked* hooked) { return hooked != nullptr && hooked->director_ != nullptr; }

void set_director_everywhere(Director* director) {
  director_everywhere = director;
  arm_if_needed();
}

}  // namespace magneto::capture
