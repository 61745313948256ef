// evaluator/activation.h: one Python frame that we execute in place. Locals and stack live in CPython's own frame, so
// that sys._getframe, tracebacks, debuggers and the garbage collector see an ordinary frame, and handing it back to
// CPython in the middle costs no copying.
#pragma once
#include <cstdint>
#include <vector>

#include "evaluator/frame_abi.h"
#include "evaluator/semantics.h"

namespace magneto::evaluator {

class Activation;

/// Decides, frame by frame and stop by stop, what the evaluator does. Owned by whoever armed the hook.
class Director {
 public:
  virtual ~Director() = default;
  /// A frame is about to run while our hook is armed for this thread. false: CPython runs it.
  virtual bool wants(PyThreadState* thread, Frame* frame) = 0;
  /// The frame was linked; nothing of it has run (or: a generator is resumed). true: call at_boundary first.
  virtual bool entered(Activation& activation) = 0;

  enum class Go {
    kRun,       ///< execute instructions with activation.semantics()
    kStepOver,  ///< execute the next instruction with plain semantics, then call at_boundary
    kReturn,    ///< activation.result() was set: the frame is finished
    kHandOver,  ///< CPython finishes the frame
    kRaise,     ///< a Python error is set: raise it at the current instruction
  };
  /// Between two instructions: a segment may be run or begun here. The director may rewrite slots, stack and next().
  virtual Go at_boundary(Activation& activation) = 0;
  /// A primitive stopped; the frame stands before the instruction at activation.next(). Usually kStepOver.
  virtual Go stopped(Activation& activation) = 0;
  /// The frame is finished (result, or nullptr: an exception leaves it, it is set), yields, or goes to CPython. A
  /// function that makes its generator yields, too (without a result): its frame comes back through the hook when it is
  /// resumed. Called once for each entered(), while the frame is still linked; the error that may be set is to be kept.
  enum class Exit { kReturned, kRaised, kHandedOver, kYielded };
  virtual void left(Activation& activation, Exit exit, PyObject* result) = 0;
  /// One of our own parts threw an exception (faults.h) while it worked for this frame. Whatever the director began is
  /// to be given up. Throws nothing. An error that it sets is raised at this instruction.
  virtual void faulted(Activation& activation, const char* what) { (void)activation, (void)what; }
  /// What runs now becomes a part of a recording.
  virtual bool records() const { return false; }
  /// The frames of this thread stand between two states of theirs: none of them may go to CPython.
  virtual bool insists() const { return false; }
  /// A frame that it wanted runs in CPython, unseen.
  virtual void missed(Frame* frame) { (void)frame; }
  /// The error that is set is about to be raised inside of a generator, where it waits. true: the evaluator does it;
  /// the director wants the frame.
  virtual bool thrown(Frame* frame) {
    (void)frame;
    return false;
  }
};

struct Instruction;

/// The code of a function as plain instructions: de-specialised, kept beside the code object.
struct CodeText {
  PyObject* bytes = nullptr;  ///< keeps `units` alive
  const uint8_t* units = nullptr;
  int count = 0;
  const Instruction* instructions = nullptr;  ///< `count` of them, each as it is when entered at its index
};
CodeText* code_text(PyCodeObject* code);  ///< nullptr with a Python error set when out of memory

class Activation {
 public:
  Activation(PyThreadState* thread, Frame* frame, Director& director);
  Activation(const Activation&) = delete;
  Activation& operator=(const Activation&) = delete;

  /// Executes the frame as an eval function does (PEP 523): new reference or nullptr with an error. `throwing`: the
  /// error that is set is raised first, where the frame waits.
  PyObject* run(bool throwing = false);

  static Activation* innermost();  ///< of this thread; nullptr
  Activation* outer() const { return outer_; }
  Director& director() const { return director_; }

  PyThreadState* thread() const { return thread_; }
  Frame* frame() const { return frame_; }
  PyCodeObject* code() const { return code_; }
  PyFunctionObject* function() const;
  const CodeText& text() const { return *text_; }

  /// Index (in code units) of the instruction that is executed, or of the next one between instructions; prefixes
  /// (EXTENDED_ARG, KW_NAMES) count as part of the instruction they belong to.
  int next() const { return next_; }
  void set_next(int index) { next_ = index; }
  int current_line() const;  ///< of the instruction at next(); 0: unknown

  Semantics& semantics() const { return *semantics_; }
  void set_semantics(Semantics& semantics);

  // Slots. Locals (with cells and free variables) come first, then the stack. nullptr is legal. Whoever looks at an
  // entry of the stack, or writes to a slot, finds references that are owned: the recorder counts them.
  int local_count() const;
  int stack_depth() const;
  PyObject* local(int index) const;  ///< borrowed
  PyObject* stack(int index) const;  ///< borrowed; 0 is the bottom
  void set_local(int index, PyObject* owned);
  void set_stack(int index, PyObject* owned);
  /// Replaces the whole stack by `owned` (references are taken over).
  void set_stack(const std::vector<PyObject*>& owned);
  /// What the instruction at next() takes off the stack, if it is a call and nothing else; -1.
  int call_operands() const;
  /// The Python function that it calls, if it does so at once: a function, a bound method, an object whose class has a
  /// __call__; nullptr.
  PyFunctionObject* callee() const;

  PyObject* result() const { return result_; }
  void set_result(PyObject* owned) { result_ = owned; }  ///< for Go::kReturn
  /// New reference to a result that any frame of this code can return, where nobody looks at it: CPython clears the
  /// frame, and does so only by an instruction of the code that returns (since 3.12).
  PyObject* some_result() const;

  /// The director's own note on this activation.
  void* note = nullptr;
  /// Ask for at_boundary before the next instruction.
  void request_boundary() { boundary_ = true; }
  /// Ask Semantics::declines before each instruction.
  void ask_before_each(bool ask) { asks_ = ask; }

  /// Instructions executed so far.
  int64_t executed() const { return executed_; }

 private:
  friend class Evaluator;
  /// Whether instructions may leave references on the stack that are borrowed from locals, as CPython's do.
  bool may_borrow() const { return semantics_ == &plain_semantics(); }
  void own_stack();
  void enter();  ///< becomes the innermost one of its thread
  void leave();

  PyThreadState* thread_;
  Frame* frame_;
  PyCodeObject* code_;
  CodeText* text_;
  Director& director_;
  Semantics* semantics_;
  Activation* outer_ = nullptr;
  int next_ = 0;
  bool boundary_ = false;
  bool asks_ = false;
  int64_t executed_ = 0;
  PyObject* result_ = nullptr;
  Slot* top_ = nullptr;  ///< stack pointer while we run
};

}  // namespace magneto::evaluator
