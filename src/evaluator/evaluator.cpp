// Executes a frame instruction by instruction, until it is finished or CPython takes it.
//
//   director.entered -> [at_boundary] -> instruction -> instruction -> ... -> director.left
//
// A primitive that declines (kStop) has changed nothing, and handlers leave their operands on the stack until it has
// succeeded. So the frame stands exactly before the instruction when the director is asked what to do.
#include "evaluator/evaluator.h"

#include <exception>
#include <utility>

#include "evaluator/hook.h"
#include "evaluator/opcodes.h"
#include "evaluator/ref.h"

namespace magneto::evaluator {

Evaluator::Evaluator(Activation& activation)
    : activation_(activation),
      semantics_(activation.semantics_),
      reserve_(activation.thread_),
      link_(activation.thread_, activation.frame_) {
  activation.top_ = frame_take_stack(activation.frame_);
  activation.enter();
}

Director::Go Evaluator::begin(bool throwing) {
  using Go = Director::Go;
  if (!throwing) return enter() ? ask_director(&Director::at_boundary, Go::kHandOver) : Go::kRun;
  const ErrorAside aside;
  activation_.boundary_ = enter();
  activation_.next_ = frame_waiting(frame());
  thrown_at_ = frame_current(frame());
  return Go::kRaise;
}

PyObject* Evaluator::run(bool throwing) {
  using Go = Director::Go;
  Go go = begin(throwing);
  for (;;) {
    Step step = Step::kNext;
    switch (go) {
      case Go::kRun:
        step = attempt();
        break;
      case Go::kStepOver:
        semantics_ = &plain_semantics();
        step = execute();
        break;
      case Go::kReturn:
        return returned();
      case Go::kHandOver:
        if (!stands_in_the_middle()) return hand_over(Director::Exit::kHandedOver, nullptr);
        leaves_ = true;
        semantics_ = &plain_semantics();
        step = execute();
        break;
      case Go::kRaise:
        semantics_ = activation_.semantics_;  // whoever watched may be gone
        fetch();
        if (thrown_at_ >= 0) frame_set_current(frame(), std::exchange(thrown_at_, -1));
        step = Step::kError;
        break;
    }
    switch (step) {
      case Step::kNext:
        activation_.next_ = after_;
        break;
      case Step::kStop:
        go = ask_director(&Director::stopped, Go::kStepOver);
        continue;
      case Step::kReturn:
        if (!kCanEndFrames) return hand_over(Director::Exit::kReturned, activation_.result_);
        return returned();
      case Step::kYield:
        return hand_over(Director::Exit::kYielded, activation_.result_);
      case Step::kHandOver:
        return hand_over(Director::Exit::kHandedOver, nullptr);
      case Step::kError:
      case Step::kReraise:
        if (!unwind(step)) return raised(step);
        break;
    }
    // Somebody may have begun to listen to this frame's events, which only CPython emits.
    const bool is_watched =
        !(instruction_->row->flags & kQuiet) && is_observed(thread(), code()) && !activation_.director_.insists();
    if (is_watched || leaves_) [[unlikely]] {
      go = Go::kHandOver;
      continue;
    }
    bool ask = activation_.boundary_ || go == Go::kStepOver;
    activation_.boundary_ = false;
    go = ask ? ask_director(&Director::at_boundary, Go::kHandOver) : Go::kRun;
  }
}

void Evaluator::fetch() {
  instruction_ = &activation_.text_->instructions[activation_.next_];
  after_ = instruction_->after;
  frame_set_current(frame(), instruction_->at);
}

bool Evaluator::stands_in_the_middle() const {
  return activation_.text_->instructions[activation_.next_].at < activation_.next_;
}

Step Evaluator::execute() {
  fetch();
  ++activation_.executed_;
  return instruction_->row->handler(*this, instruction_->argument);
}

// Faults of our own end here (faults.h). A primitive that throws has done nothing: the instruction is stepped over.
Step Evaluator::attempt() {
  semantics_ = activation_.semantics_;
  try {
    if (activation_.asks_ && semantics_->declines(activation_)) return Step::kStop;
    const Step step = execute();
    semantics_ = activation_.semantics_;  // a frame that it called may have ended a recording, and begun another
    if (step != Step::kStop) semantics_->after_instruction(activation_);
    if ((step == Step::kReturn || step == Step::kYield) && activation_.result_)
      semantics_->returned_to_c(activation_, activation_.result_);
    return step;
  } catch (const std::exception& fault) {
    tell_fault(fault.what());
    return PyErr_Occurred() ? Step::kError : Step::kStop;
  }
}

bool Evaluator::enter() {
  try {
    return activation_.director_.entered(activation_);
  } catch (const std::exception& fault) {
    tell_fault(fault.what());
    return false;
  }
}

Director::Go Evaluator::ask_director(Director::Go (Director::*question)(Activation&), Director::Go after_fault) {
  try {
    return (activation_.director_.*question)(activation_);
  } catch (const std::exception& fault) {
    tell_fault(fault.what());
    return PyErr_Occurred() ? Director::Go::kRaise : after_fault;
  }
}

void Evaluator::tell_fault(const char* what) {
  PyErr_Clear();  // whatever it was about, nothing has happened
  activation_.director_.faulted(activation_, what);
}

const char* Evaluator::opcode_name() const { return instruction_->row->name; }

const OpcodeRow& Evaluator::next_row() const { return *activation_.text_->instructions[instruction_->after].row; }

int Evaluator::fact() const { return instruction_->row->fact; }

void Evaluator::drop(int count) {
  activation_.top_ -= count;
  for (int i = 0; i < count; ++i) activation_.top_[i].drop();  // in CPython's order: finalizers show it
}

void Evaluator::replace(int count, PyObject* owned) {
  if (count == 0) return push(owned);
  Slot* base = activation_.top_ - count;
  const Slot first = *base;
  *base = Slot::own(owned);
  activation_.top_ = base + 1;
  first.drop();
  for (int i = 1; i < count; ++i) base[i].drop();
}

void Evaluator::push_callable(PyObject* owned) {
  push(fact() == kNullBelow ? nullptr : owned);
  push(fact() == kNullBelow ? owned : nullptr);
}

Step Evaluator::finish(int count, PyObject* result) {
  if (result == nullptr || result == kStop) return failed(result);
  replace(count, result);
  return Step::kNext;
}

Step Evaluator::finish(int count, int status) {
  if (status < 0) return failed(status);
  drop(count);
  return Step::kNext;
}

Step Evaluator::ask(const char* what) {
  int status = semantics_->other(activation_, what != nullptr ? what : opcode_name());
  return status < 0 ? failed(status) : Step::kNext;
}

/// A Python function that does nothing; borrowed, made once. No code runs to make it: that would serve the breaker
/// already.
static PyObject* empty_function() {
  static PyObject* function = nullptr;
  if (function != nullptr) return function;
  PyObject* code = Py_CompileString("None", "<magneto>", Py_eval_input);
  PyObject* globals = code != nullptr ? PyDict_New() : nullptr;
  if (globals != nullptr) function = PyFunction_New(code, globals);
  Py_XDECREF(globals);
  Py_XDECREF(code);
  return function;
}

// CPython serves its eval breaker in RESUME, so a call of an empty Python function does all there is to do. It runs
// behind the hook's back: signal handlers and finalizers are no part of this frame.
Step Evaluator::serve_breaker() {
  if (!eval_breaker_is_set(thread())) [[likely]]
    return Step::kNext;
  Hooked nobody(nullptr);
  PyObject* function = empty_function();
  if (function == nullptr) return Step::kError;
  RecursionReserve::move(thread(), 1);  // at the very limit the empty function must not be the one that fails
  PyObject* none = PyObject_CallNoArgs(function);
  RecursionReserve::move(thread(), -1);
  if (none != nullptr) {
    Py_DECREF(none);
    return Step::kNext;
  }
  PyObject* exception = take_error();  // without the empty function in its traceback
  PyObject* traceback = PyException_GetTraceback(exception);
  if (traceback != nullptr) {
    auto* next = reinterpret_cast<PyTracebackObject*>(traceback)->tb_next;
    PyException_SetTraceback(exception, next != nullptr ? reinterpret_cast<PyObject*>(next) : Py_None);
    Py_DECREF(traceback);
  }
  set_error(exception);
  return Step::kError;
}

void Evaluator::leave(Director::Exit exit, PyObject* result) {
  try {
    activation_.director_.left(activation_, exit, result);
  } catch (const std::exception& fault) {
    activation_.director_.faulted(activation_, fault.what());
  }
  activation_.leave();
}

void Evaluator::end() {
  drop(static_cast<int>(top() - frame_stack_base(frame())));
  frame_give_stack(frame(), top());
  link_.unlink();
  reserve_.release();
  end_frame(thread(), frame());
}

PyObject* Evaluator::let_cpython_run(int index, bool raise) {
  if (raise)
    frame_set_current(frame(), index);
  else
    frame_set_next(frame(), index);
  frame_give_stack(frame(), top());
  link_.unlink();
  reserve_.release();
  return _PyEval_EvalFrameDefault(thread(), frame(), raise);
}

PyObject* Evaluator::hand_over(Director::Exit exit, PyObject* result) {
  leave(exit, result);
  Py_CLEAR(activation_.result_);
  return let_cpython_run(activation_.next_, false);
}

/// Where CPython can return `value`, if that is on top of the stack; -1. A RETURN_CONST serves only its own constant.
static int find_return(PyCodeObject* code, const CodeText& text, PyObject* value, bool* push) {
  int index = 0;
  while (index < text.count) {
    const Instruction& instruction = text.instructions[index];
    *push = instruction.row->handler == op::return_value;
    if (*push) return index;
    if (instruction.row->handler == op::return_const &&
        PyTuple_GET_ITEM(code->co_consts, instruction.argument) == value)
      return index;
    index = instruction.after;
  }
  return -1;
}

PyObject* Evaluator::returned() {
  PyObject* result = activation_.result_;
  leave(Director::Exit::kReturned, result);
  activation_.result_ = nullptr;
  if (kCanEndFrames) {
    end();
    return result;
  }
  drop(static_cast<int>(top() - frame_stack_base(frame())));
  bool push = false;
  int index = find_return(code(), activation_.text(), result, &push);
  if (index < 0) {
    PyErr_Format(PyExc_SystemError, "magneto: '%U' has no instruction that returns a value", code()->co_qualname);
    Py_DECREF(result);
    return let_cpython_run(instruction_->at, true);
  }
  if (push)
    this->push(result);
  else
    Py_DECREF(result);
  return let_cpython_run(index, false);
}

// The exception leaves the frame. Where only CPython can clear it, CPython raises once more: at the instruction,
// with the error set (it adds the traceback entry that unwind() left out), or by executing an instruction that
// re-raises.
PyObject* Evaluator::raised(Step how) {
  leave(Director::Exit::kRaised, nullptr);
  if (kCanEndFrames) {
    tell_about_unwind(thread());
    end();
    return nullptr;
  }
  if (how == Step::kError) return let_cpython_run(instruction_->at, true);
  PyErr_Clear();
  return let_cpython_run(activation_.next_, false);
}

}  // namespace magneto::evaluator
