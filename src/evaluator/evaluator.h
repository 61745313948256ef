// evaluator/evaluator.h: executes the instructions of one activation. What an instruction does is an opcode handler
// (opcodes.h); here is what handlers share: the stack, the instruction at hand, and the ways in which a step can end.
#pragma once
#include "evaluator/activation.h"
#include "evaluator/frame_abi.h"
#include "evaluator/semantics.h"

namespace magneto::evaluator {

struct OpcodeRow;

/// How an instruction ended. Whatever is not kNext leaves the operands on the stack; the evaluator drops what must go.
enum class Step {
  kNext,      ///< done; go on after it, or where jump() led
  kReturn,    ///< the frame returns activation.result(), a new reference
  kYield,     ///< CPython executes this instruction, which suspends the frame; it comes back through the hook
  kError,     ///< a Python error is set
  kReraise,   ///< a Python error is set that has been here before: no new traceback entry. The stack is as before.
  kStop,      ///< a primitive declined; nothing has happened
  kHandOver,  ///< CPython executes this instruction and the rest; nothing has happened
};

/// One instruction with its prefixes.
struct Instruction {
  const OpcodeRow* row;
  int argument;
  int at;     ///< index of the opcode itself. Activation::next() is that of its first prefix, or, for the second half
              ///< of one of CPython's instructions, the one after it
  int after;  ///< index of the instruction after it
  int keywords;  ///< the constant that KW_NAMES means; -1
};
/// All instructions of a code, each as it is when entered at its index.
void decode(const CodeText& text, Instruction* instructions);

/// A handler of the exception table.
struct Handler {
  int target;
  int depth;        ///< of the stack that it expects
  bool wants_last;  ///< push the index of the raising instruction
};
bool find_handler(PyCodeObject* code, int index, Handler* handler);

class Evaluator {
 public:
  explicit Evaluator(Activation& activation);
  PyObject* run(bool throwing);

  Activation& activation() { return activation_; }
  Semantics& semantics() { return *semantics_; }
  PyThreadState* thread() { return activation_.thread_; }
  Frame* frame() { return activation_.frame_; }
  PyCodeObject* code() { return activation_.code_; }

  // The instruction.
  int at() const { return instruction_->at; }
  PyObject* keywords() {
    return instruction_->keywords >= 0 ? constant(instruction_->keywords) : nullptr;
  }  ///< borrowed
  void jump(int distance) { after_ += distance; }
  const char* opcode_name() const;
  const OpcodeRow& next_row() const;  ///< of the instruction after this one
  int fact() const;                   ///< of the opcode's row: what this CPython version makes different
  PyObject* name(int index) { return PyTuple_GET_ITEM(code()->co_names, index); }
  PyObject* constant(int index) { return PyTuple_GET_ITEM(code()->co_consts, index); }

  // Slots. References are owned by the slots; peek and local are borrowed.
  PyObject* local(int index) { return local_slot(index).get(); }
  Slot& local_slot(int index) { return frame_slots(frame())[index]; }
  void set_local(int index, PyObject* owned) { local_slot(index).put(Slot::own(owned)); }
  void store_local(int index, Slot slot) { local_slot(index).put(slot); }
  void set_slot(int depth, PyObject* owned) { slot(depth).put(Slot::own(owned)); }
  bool may_borrow() const { return activation_.may_borrow(); }
  Slot* top() { return activation_.top_; }
  PyObject* peek(int depth) { return slot(depth).get(); }  ///< 1 is the top
  Slot& slot(int depth) { return activation_.top_[-depth]; }
  void push(PyObject* owned) { push_slot(Slot::own(owned)); }
  void push_slot(Slot owned) { *activation_.top_++ = owned; }
  PyObject* pop() { return pop_slot().release(); }
  Slot pop_slot() { return *--activation_.top_; }
  void drop(int count);
  void replace(int count, PyObject* owned);  ///< the `count` topmost entries by one
  /// The callable of a call whose two entries, one of them nullptr or `self`, have the upper one at `depth`.
  PyObject* callable(int depth) { return peek(depth + 1) != nullptr ? peek(depth + 1) : peek(depth); }
  /// Pushes a callable and an empty place for its `self`, in the order of this version (the row's fact).
  void push_callable(PyObject* owned);
  void push_bool(bool value) { push(Py_NewRef(value ? Py_True : Py_False)); }

  // Ends of handlers.
  Step finish(int count, PyObject* result);  ///< of a primitive: replaces the operands, or says why not
  Step finish(int count, int status);        ///< likewise; drops the operands
  Step failed(PyObject* result) { return result == kStop ? Step::kStop : Step::kError; }  ///< for nullptr or kStop
  Step failed(int status) { return status == kStopStatus ? Step::kStop : Step::kError; }  ///< for -1 or kStopStatus
  /// Semantics::other under the opcode's name, or `what`: kNext means go on.
  Step ask(const char* what = nullptr);
  /// Serves signals, the GIL and the collector where CPython does: at calls, back jumps and RESUME.
  Step serve_breaker();
  void set_result(PyObject* owned) { activation_.result_ = owned; }

 private:
  void fetch();
  Step execute();
  bool enter();
  Director::Go begin(bool throwing);
  Step attempt();  ///< execute with the activation's semantics
  void tell_fault(const char* what);
  Director::Go ask_director(Director::Go (Director::*question)(Activation&), Director::Go after_fault);
  /// Whether the next instruction is the second half of one that CPython knows as a whole.
  bool stands_in_the_middle() const;
  bool unwind(Step how);
  void add_traceback();
  PyObject* returned();
  PyObject* raised(Step how);
  PyObject* hand_over(Director::Exit exit, PyObject* result);
  /// Gives the frame back to CPython, which goes on at `index`, or raises the error that is set there.
  PyObject* let_cpython_run(int index, bool raise);
  void leave(Director::Exit exit, PyObject* result);
  void end();  ///< of a frame that returns or is left by an exception, where that is ours to do

  Activation& activation_;
  Semantics* semantics_;
  const Instruction* instruction_ = nullptr;
  int after_ = 0;  ///< the next instruction, if this one ends with kNext
  RecursionReserve reserve_;
  FrameLink link_;
  int thrown_at_ =
      -1;  ///< the place that a frame which waits has for tracebacks, until what is thrown into it is raised
  bool leaves_ = false;  ///< CPython takes the frame after the second half of an instruction
};

}  // namespace magneto::evaluator
