#include "evaluator/hook.h"

#include <utility>

#include "evaluator/frame_abi.h"
#include "evaluator/opcodes.h"
#include "evaluator/ref.h"

namespace magneto::evaluator {

static thread_local const Hooked* innermost_hooked = nullptr;
static Director* director_everywhere = nullptr;

// The rest is guarded by the GIL. Others have such hooks, too (TorchDynamo, debuggers). Each keeps the function that it
// found and hands on to it what it does not want. They come and go in any order, so one may keep us while we keep it:
// then neither must hand a frame back to where it came from.
static _PyFrameEvalFunction previous_eval = nullptr;  ///< nullptr: CPython's own
static bool installed = false;                        ///< ours is the interpreter's function, or somebody keeps it
static int listeners = 0;                             ///< directors that wait for frames, over all threads
static thread_local Frame* handed_on = nullptr;       ///< to previous_eval, which has not come back yet

static bool is_cpythons(_PyFrameEvalFunction function) {
  return function == nullptr || function == _PyEval_EvalFrameDefault;
}

static PyObject* run_elsewhere(PyThreadState* thread, Frame* frame, int throwing) {
  const bool came_from_there = thread->interp->eval_frame == previous_eval || handed_on == frame;
  if (is_cpythons(previous_eval) || came_from_there) return _PyEval_EvalFrameDefault(thread, frame, throwing);
  Frame* before = std::exchange(handed_on, frame);
  PyObject* result = previous_eval(thread, frame, throwing);
  handed_on = before;
  return result;
}

static bool can_run(PyThreadState* thread, Frame* frame) {
  PyCodeObject* code = frame_code(frame);
  return kVersionColumn >= 0 && !is_observed(thread, code) && !instrumentation_is_stale(thread, code) &&
         RecursionReserve::has_room(thread);
}

static PyObject* eval_frame(PyThreadState* thread, Frame* frame, int throwing) {
  Director* director = current_director();
  // Where nobody records, a frame that is entered to raise an exception in it (generator.throw) goes to CPython: its
  // next resumption comes here.
  const bool wanted = director != nullptr &&
                      (throwing ? director->records() && director->thrown(frame) : director->wants(thread, frame));
  if (!wanted) return run_elsewhere(thread, frame, throwing);
  if (director->insists() || can_run(thread, frame)) return Activation(thread, frame, *director).run(throwing != 0);
  {
    const ErrorAside aside;
    director->missed(frame);
  }
  return run_elsewhere(thread, frame, throwing);
}

// The field is written directly: the setter of later versions throws away compiled traces, and stops all threads.
static void arm() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (interpreter->eval_frame == eval_frame) return;
  if (installed && !is_cpythons(interpreter->eval_frame)) return;  // it came after us and hands frames on to us
  previous_eval = interpreter->eval_frame;
  interpreter->eval_frame = eval_frame;
  installed = true;
}

static void disarm() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (interpreter->eval_frame == eval_frame) interpreter->eval_frame = previous_eval;
  if (is_cpythons(interpreter->eval_frame) || interpreter->eval_frame == previous_eval) installed = false;
}

/// Where nobody listens any more, Python code is to run at full speed.
static void arm_if_needed() {
  if (listeners > 0 || director_everywhere != nullptr)
    arm();
  else
    disarm();
}

bool is_first_evaluator() { return PyInterpreterState_Get()->eval_frame == eval_frame; }

bool has_other_evaluator() {
  const _PyFrameEvalFunction first = PyInterpreterState_Get()->eval_frame;
  return first == eval_frame ? !is_cpythons(previous_eval) : !is_cpythons(first);
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

}  // namespace magneto::evaluator
