#include "evaluator/activation.h"

#include "evaluator/evaluator.h"
#include "evaluator/opcodes.h"

namespace magneto::evaluator {

static thread_local Activation* innermost_activation = nullptr;

static void release_text(void* text) {
  auto* kept = static_cast<CodeText*>(text);
  if (kept == nullptr) return;
  Py_XDECREF(kept->bytes);
  delete[] kept->instructions;
  delete kept;
}

CodeText* code_text(PyCodeObject* code) {
  static const Py_ssize_t index = request_code_extra(release_text);
  auto* owner = reinterpret_cast<PyObject*>(code);
  void* kept = nullptr;
  if (index < 0 || get_code_extra(owner, index, &kept) < 0) return nullptr;
  if (kept != nullptr) return static_cast<CodeText*>(kept);

  PyObject* bytes = PyCode_GetCode(code);  // neither specialised nor instrumented, and never changes
  if (bytes == nullptr) return nullptr;
  auto* text = new CodeText;
  text->bytes = bytes;
  text->units = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes));
  text->count = static_cast<int>(PyBytes_GET_SIZE(bytes) / 2);
  auto* instructions = new Instruction[text->count];
  text->instructions = instructions;
  decode(*text, instructions);
  if (set_code_extra(owner, index, text) < 0) {
    release_text(text);
    return nullptr;
  }
  return text;
}

Activation::Activation(PyThreadState* thread, Frame* frame, Director& director)
    : thread_(thread),
      frame_(frame),
      code_(frame_code(frame)),
      text_(code_text(code_)),
      director_(director),
      semantics_(&plain_semantics()),
      next_(frame_next(frame)) {}

PyObject* Activation::run(bool throwing) {
  if (text_ == nullptr) {  // no memory for the text: CPython needs none
    if (!throwing) PyErr_Clear();
    return _PyEval_EvalFrameDefault(thread_, frame_, throwing);
  }
  return Evaluator(*this).run(throwing);
}

Activation* Activation::innermost() { return innermost_activation; }

void Activation::enter() {
  outer_ = innermost_activation;
  innermost_activation = this;
}

void Activation::leave() { innermost_activation = outer_; }

PyFunctionObject* Activation::function() const { return frame_function(frame_); }

int Activation::current_line() const {
  int line = PyCode_Addr2Line(code_, text_->instructions[next_].at * 2);
  return line > 0 ? line : 0;
}

int Activation::local_count() const { return code_->co_nlocalsplus; }

int Activation::stack_depth() const { return static_cast<int>(top_ - frame_stack_base(frame_)); }

PyObject* Activation::local(int index) const { return frame_local(frame_, index); }

PyObject* Activation::stack(int index) const {
  Slot& slot = frame_stack_base(frame_)[index];
  slot.make_owned();
  return slot.get();
}

void Activation::own_stack() {
  for (Slot* slot = frame_stack_base(frame_); slot < top_; ++slot) slot->make_owned();
}

void Activation::set_semantics(Semantics& semantics) {
  semantics_ = &semantics;
  if (!may_borrow()) own_stack();
}

void Activation::set_local(int index, PyObject* owned) {
  own_stack();  // of what this local has lent
  frame_slots(frame_)[index].put(Slot::own(owned));
}

void Activation::set_stack(int index, PyObject* owned) { frame_stack_base(frame_)[index].put(Slot::own(owned)); }

int Activation::call_operands() const {
  const Instruction& instruction = text_->instructions[next_];
  if (instruction.row->handler == op::call) return instruction.argument + 2;
  if (instruction.row->handler == op::call_kw) return instruction.argument + 3;
  if (instruction.row->handler == op::call_function_ex)
    return 3 + (instruction.row->fact == kKeywordsAlways || instruction.argument & 1);
  return -1;
}

PyFunctionObject* Activation::callee() const {
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  const int operands = call_operands();
  if (operands < 0 || operands > stack_depth()) return nullptr;
  PyObject* callable = stack(stack_depth() - operands);  // or nothing (3.11, 3.12), and the callable above it
  if (callable == nullptr) callable = stack(stack_depth() - operands + 1);
  while (callable != nullptr && PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  if (callable == nullptr) return nullptr;
  if (!PyFunction_Check(callable) && Py_TYPE(callable)->tp_flags & Py_TPFLAGS_HEAPTYPE && !PyType_Check(callable))
    callable = _PyType_Lookup(Py_TYPE(callable), name);
  return callable != nullptr && PyFunction_Check(callable) ? reinterpret_cast<PyFunctionObject*>(callable) : nullptr;
}

PyObject* Activation::some_result() const {
  PyObject* found = Py_None;  // what any RETURN_VALUE can give
  for (int index = 0; index < text_->count; index = text_->instructions[index].after) {
    const Instruction& instruction = text_->instructions[index];
    if (instruction.row->handler == op::return_value) return Py_NewRef(Py_None);
    if (instruction.row->handler == op::return_const) found = PyTuple_GET_ITEM(code_->co_consts, instruction.argument);
  }
  return Py_NewRef(found);
}

void Activation::set_stack(const std::vector<PyObject*>& owned) {
  Slot* base = frame_stack_base(frame_);
  const std::vector<Slot> before(base, top_);
  top_ = base;
  for (PyObject* object : owned) *top_++ = Slot::own(object);
  for (const Slot& slot : before) slot.drop();  // last: finalizers may run
}

}  // namespace magneto::evaluator
