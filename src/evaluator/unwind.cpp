// From an error to its handler, as CPython's eval loop does it: a traceback entry for this frame, the exception table,
// the stack cut to the depth the handler expects.
#include "evaluator/evaluator.h"
#include "evaluator/opcodes.h"

namespace magneto::evaluator {

/// Numbers of the exception table: six bits a byte, most significant first, bit 6 says that more follow.
static int read_number(const uint8_t*& at) {
  int number = *at & 63;
  while (*at++ & 64) number = number << 6 | (*at & 63);
  return number;
}

bool find_handler(PyCodeObject* code, int index, Handler* handler) {
  auto* at = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(code->co_exceptiontable));
  const uint8_t* end = at + PyBytes_GET_SIZE(code->co_exceptiontable);
  while (at < end) {
    int start = read_number(at);
    int size = read_number(at);
    int target = read_number(at);
    int depth_and_last = read_number(at);
    if (start > index) return false;  // entries are sorted
    if (index >= start + size) continue;
    *handler = {target, depth_and_last >> 1, (depth_and_last & 1) != 0};
    return true;
  }
  return false;
}

void Evaluator::add_traceback() {
  if (frame_incomplete(frame())) return;
  PyFrameObject* object = PyEval_GetFrame();  // the public way to the frame object of the current frame
  if (object != nullptr) PyTraceBack_Here(object);
}

bool Evaluator::unwind(Step how) {
  Handler handler;
  bool found = find_handler(code(), at(), &handler);
  if (how == Step::kError && (found || kCanEndFrames)) {
    add_traceback();
    tell_about_raise(thread());
  }
  if (!found) return false;

  while (top() > frame_stack_base(frame()) + handler.depth) pop_slot().drop();
  if (handler.wants_last) {
    const Slot last = Slot::number(frame_current(frame()));  // not at(): RERAISE moves it back to the first raise
    if (last.is_empty()) return unwind(Step::kReraise);
    push_slot(last);
  }
  PyObject* exception = take_error();
  push(exception);
  activation_.next_ = handler.target;
  semantics_->caught(activation_, exception);
  return true;
}

}  // namespace magneto::evaluator
