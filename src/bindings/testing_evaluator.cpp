// bindings/testing_evaluator.cpp: the evaluator's door for tests. It needs CPython only, so that tests/cpython/ can
// build it apart from torch in seconds.
#include <random>
#include <vector>

#include "evaluator/directors.h"
#include "evaluator/hook.h"
#include "evaluator/opcodes.h"

namespace magneto::evaluator {
namespace {

struct Statistics {
  long long frames = 0, instructions = 0, returned = 0, raised = 0, handed_over = 0, yielded = 0, stops = 0;
};
Statistics statistics;

/// Counts primitives and declines one of them.
class StoppingSemantics : public Semantics {
 public:
  long long countdown = -1;  ///< 0: the next primitive stops; < 0: none does
  long long again = -1;      ///< the countdown after a stop

  PyObject* load_global(Activation& a, PyObject* n) override { return stops() ? kStop : Semantics::load_global(a, n); }
  int store_global(Activation& a, PyObject* n, PyObject* v) override {
    return stops() ? kStopStatus : Semantics::store_global(a, n, v);
  }
  PyObject* load_name(Activation& a, PyObject* n) override { return stops() ? kStop : Semantics::load_name(a, n); }
  int store_name(Activation& a, PyObject* n, PyObject* v) override {
    return stops() ? kStopStatus : Semantics::store_name(a, n, v);
  }
  PyObject* load_cell(Activation& a, PyObject* c) override { return stops() ? kStop : Semantics::load_cell(a, c); }
  int store_cell(Activation& a, PyObject* c, PyObject* v) override {
    return stops() ? kStopStatus : Semantics::store_cell(a, c, v);
  }
  PyObject* load_attr(Activation& a, PyObject* o, PyObject* n) override {
    return stops() ? kStop : Semantics::load_attr(a, o, n);
  }
  int load_method(Activation& a, PyObject* o, PyObject* n, PyObject** m) override {
    return stops() ? kStopStatus : Semantics::load_method(a, o, n, m);
  }
  PyObject* load_special(Activation& a, PyObject* o, PyObject* n) override {
    return stops() ? kStop : Semantics::load_special(a, o, n);
  }
  PyObject* load_super_attr(Activation& a, PyObject* g, PyObject* c, PyObject* o, PyObject* n) override {
    return stops() ? kStop : Semantics::load_super_attr(a, g, c, o, n);
  }
  int store_attr(Activation& a, PyObject* o, PyObject* n, PyObject* v) override {
    return stops() ? kStopStatus : Semantics::store_attr(a, o, n, v);
  }
  PyObject* load_item(Activation& a, PyObject* c, PyObject* k) override {
    return stops() ? kStop : Semantics::load_item(a, c, k);
  }
  int store_item(Activation& a, PyObject* c, PyObject* k, PyObject* v) override {
    return stops() ? kStopStatus : Semantics::store_item(a, c, k, v);
  }
  PyObject* unary(Activation& a, int w, PyObject* o) override { return stops() ? kStop : Semantics::unary(a, w, o); }
  PyObject* binary(Activation& a, int w, PyObject* l, PyObject* r) override {
    return stops() ? kStop : Semantics::binary(a, w, l, r);
  }
  PyObject* compare(Activation& a, PyObject* l, PyObject* r, int op) override {
    return stops() ? kStop : Semantics::compare(a, l, r, op);
  }
  int contains(Activation& a, PyObject* c, PyObject* i) override {
    return stops() ? kStopStatus : Semantics::contains(a, c, i);
  }
  int truth(Activation& a, PyObject* o) override { return stops() ? kStopStatus : Semantics::truth(a, o); }
  PyObject* identical(Activation& a, PyObject* l, PyObject* r, bool n) override {
    return stops() ? kStop : Semantics::identical(a, l, r, n);
  }
  PyObject* convert(Activation& a, PyObject* v, int c) override {
    return stops() ? kStop : Semantics::convert(a, v, c);
  }
  PyObject* format(Activation& a, PyObject* v, int c, PyObject* s) override {
    return stops() ? kStop : Semantics::format(a, v, c, s);
  }
  PyObject* iter(Activation& a, PyObject* o) override { return stops() ? kStop : Semantics::iter(a, o); }
  PyObject* next(Activation& a, PyObject* i) override { return stops() ? kStop : Semantics::next(a, i); }
  PyObject* length(Activation& a, PyObject* o) override { return stops() ? kStop : Semantics::length(a, o); }
  PyObject* call(Activation& a, PyObject* c, PyObject* const* args, size_t n, PyObject* k) override {
    return stops() ? kStop : Semantics::call(a, c, args, n, k);
  }
  PyObject* call_ex(Activation& a, PyObject* c, PyObject* args, PyObject* k) override {
    return stops() ? kStop : Semantics::call_ex(a, c, args, k);
  }
  PyObject* import_name(Activation& a, PyObject* n, PyObject* f, PyObject* l) override {
    return stops() ? kStop : Semantics::import_name(a, n, f, l);
  }
  PyObject* import_from(Activation& a, PyObject* m, PyObject* n) override {
    return stops() ? kStop : Semantics::import_from(a, m, n);
  }
  int collect(Activation& a, PyObject* c, PyObject* k, PyObject* v) override {
    return stops() ? kStopStatus : Semantics::collect(a, c, k, v);
  }
  int extend_list(Activation& a, PyObject* l, PyObject* s) override {
    return stops() ? kStopStatus : Semantics::extend_list(a, l, s);
  }
  int update_set(Activation& a, PyObject* s, PyObject* f) override {
    return stops() ? kStopStatus : Semantics::update_set(a, s, f);
  }
  int update_dict(Activation& a, PyObject* d, PyObject* s) override {
    return stops() ? kStopStatus : Semantics::update_dict(a, d, s);
  }
  int merge_dict(Activation& a, PyObject* d, PyObject* s, PyObject* c) override {
    return stops() ? kStopStatus : Semantics::merge_dict(a, d, s, c);
  }
  int unpack(Activation& a, PyObject* s, int b, int f, PyObject** i) override {
    return stops() ? kStopStatus : Semantics::unpack(a, s, b, f, i);
  }
  int other(Activation& a, const char* w) override { return stops() ? kStopStatus : Semantics::other(a, w); }

 private:
  bool stops() {
    if (countdown != 0) {
      if (countdown > 0) --countdown;
      return false;
    }
    countdown = again;
    ++statistics.stops;
    return true;
  }
};

class TestDirector : public PlainDirector {
 public:
  StoppingSemantics stopping;
  PyObject* only = nullptr;  ///< a set of code objects; nullptr: all frames
  int budget = 0;            ///< > 0: every frame is handed over after a random number of instructions below it
  long long leave_at = -1;   ///< the instruction, counted over all frames, before which something happens:
  enum class Act { kHandOver, kReturn, kRaise, kRewrite } act = Act::kHandOver;
  PyObject* value = nullptr;  ///< returned or raised
  std::minstd_rand random;

  void start() {
    asks_ = budget > 0 || leave_at >= 0;
    statistics = {};
  }
  bool wants(PyThreadState*, Frame* frame) override {
    if (only == nullptr) return true;
    int found = PySet_Contains(only, reinterpret_cast<PyObject*>(frame_code(frame)));
    if (found < 0) PyErr_Clear();
    return found > 0;
  }
  bool entered(Activation& activation) override {
    ++statistics.frames;
    if (stopping.countdown >= 0) activation.set_semantics(stopping);
    if (budget > 0) activation.note = reinterpret_cast<void*>(static_cast<uintptr_t>(random() % budget));
    return asks_;
  }
  Go at_boundary(Activation& activation) override {
    Go go = PlainDirector::at_boundary(activation);
    if (go != Go::kHandOver) return go;
    switch (act) {
      case Act::kHandOver:
        break;
      case Act::kReturn:
        activation.set_result(Py_NewRef(value));
        return Go::kReturn;
      case Act::kRaise:
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
        return Go::kRaise;
      case Act::kRewrite:
        rewrite(activation);
        leave_at = 0;  // and again before the next instruction
        return Go::kRun;
    }
    return go;
  }
  void left(Activation& activation, Exit exit, PyObject*) override {
    statistics.instructions += activation.executed();
    switch (exit) {
      case Exit::kReturned:
        ++statistics.returned;
        break;
      case Exit::kRaised:
        ++statistics.raised;
        break;
      case Exit::kHandedOver:
        ++statistics.handed_over;
        break;
      case Exit::kYielded:
        ++statistics.yielded;
        break;
    }
  }

 protected:
  bool should_leave(Activation& activation) override {
    if (budget > 0) return activation.executed() >= static_cast<int64_t>(reinterpret_cast<uintptr_t>(activation.note));
    if (leave_at < 0) return false;
    return leave_at-- == 0;
  }

 private:
  /// Every slot gets what it holds, as a segment writes its results.
  static void rewrite(Activation& activation) {
    for (int i = 0; i < activation.local_count(); ++i) activation.set_local(i, Py_XNewRef(activation.local(i)));
    std::vector<PyObject*> stack;
    stack.reserve(activation.stack_depth());
    for (int i = 0; i < activation.stack_depth(); ++i) stack.push_back(Py_XNewRef(activation.stack(i)));
    activation.set_stack(stack);
    activation.set_next(activation.next());
  }
};

TestDirector& director() {
  static TestDirector director;
  return director;
}

PyObject* off(PyObject*, PyObject*) {
  set_director_everywhere(nullptr);
  Py_RETURN_NONE;
}

PyObject* start(int budget, unsigned seed, long long leave_at, long long stop_at, long long stop_every) {
  set_director_everywhere(nullptr);
  TestDirector& test = director();
  test.act = TestDirector::Act::kHandOver;
  test.budget = budget;
  test.random.seed(seed + 1);
  test.leave_at = leave_at;
  test.stopping.countdown = stop_at;
  test.stopping.again = stop_every;
  test.start();
  set_director_everywhere(&test);
  Py_RETURN_NONE;
}

PyObject* run_all_frames(PyObject*, PyObject* arguments) {
  int budget = 0;
  unsigned seed = 0;
  if (!PyArg_ParseTuple(arguments, "|iI", &budget, &seed)) return nullptr;
  return start(budget, seed, -1, -1, -1);
}

PyObject* hand_over_at(PyObject*, PyObject* arguments) {
  long long instruction;
  if (!PyArg_ParseTuple(arguments, "L", &instruction)) return nullptr;
  return start(0, 0, instruction, -1, -1);
}

PyObject* act_at(PyObject* arguments, TestDirector::Act act) {
  long long instruction;
  PyObject* value = Py_None;
  if (!PyArg_ParseTuple(arguments, "L|O", &instruction, &value)) return nullptr;
  PyObject* none = start(0, 0, instruction, -1, -1);
  director().act = act;
  Py_XSETREF(director().value, Py_NewRef(value));
  return none;
}

PyObject* return_at(PyObject*, PyObject* arguments) { return act_at(arguments, TestDirector::Act::kReturn); }
PyObject* raise_at(PyObject*, PyObject* arguments) { return act_at(arguments, TestDirector::Act::kRaise); }
PyObject* rewrite_from(PyObject*, PyObject* arguments) { return act_at(arguments, TestDirector::Act::kRewrite); }

PyObject* stop_at(PyObject*, PyObject* arguments) {
  long long primitive, again = -1;
  if (!PyArg_ParseTuple(arguments, "L|L", &primitive, &again)) return nullptr;
  return start(0, 0, -1, primitive, again);
}

PyObject* only(PyObject*, PyObject* codes) {
  PyObject* set = codes == Py_None ? nullptr : PySet_New(codes);
  if (set == nullptr && PyErr_Occurred()) return nullptr;
  Py_XSETREF(director().only, set);
  Py_RETURN_NONE;
}

/// A hook that passes every frame on: what PEP 523 itself changes is no fault of the evaluator.
PyObject* pass_through(PyObject*, PyObject*) {
  class Indifferent : public PlainDirector {
    bool wants(PyThreadState*, Frame*) override { return false; }
  };
  static Indifferent indifferent;
  set_director_everywhere(nullptr);
  statistics = {};
  set_director_everywhere(&indifferent);
  Py_RETURN_NONE;
}

PyObject* get_statistics(PyObject*, PyObject*) {
  const Statistics& s = statistics;
  return Py_BuildValue("{sLsLsLsLsLsLsLsO}", "frames", s.frames, "instructions", s.instructions, "returned", s.returned,
                       "raised", s.raised, "handed_over", s.handed_over, "yielded", s.yielded, "stops", s.stops,
                       "pending", director().leave_at >= 0 || director().stopping.countdown >= 0 ? Py_True : Py_False);
}

PyObject* opcode_numbers(PyObject*, PyObject*) {
  PyObject* numbers = PyDict_New();
  int count;
  const OpcodeRow* rows = opcode_rows(&count);
  for (int i = 0; numbers != nullptr && kVersionColumn >= 0 && i < count; ++i) {
    int number = rows[i].number[kVersionColumn];
    if (number == kAbsent) continue;
    PyObject* value = PyLong_FromLong(number);
    if (value == nullptr || PyDict_SetItemString(numbers, rows[i].name, value) < 0) Py_CLEAR(numbers);
    Py_XDECREF(value);
  }
  return numbers;
}

PyObject* unsupported(PyObject*, PyObject*) {
  const char* why = unsupported_interpreter();
  if (why == nullptr) Py_RETURN_NONE;
  return PyUnicode_FromString(why);
}

PyMethodDef functions[] = {
    {"run_all_frames", run_all_frames, METH_VARARGS,
     "run_all_frames(budget=0, seed=0): the evaluator runs every frame of every thread; with a budget each frame goes "
     "to "
     "CPython after a random number of instructions below it"},
    {"hand_over_at", hand_over_at, METH_VARARGS,
     "hand_over_at(n): the frame of the n-th instruction goes to CPython before it"},
    {"return_at", return_at, METH_VARARGS, "return_at(n, value): before the n-th instruction its frame returns"},
    {"raise_at", raise_at, METH_VARARGS, "raise_at(n, exception): instead of the n-th instruction"},
    {"rewrite_from", rewrite_from, METH_VARARGS,
     "rewrite_from(n): slots and stack are rewritten before each instruction"},
    {"stop_at", stop_at, METH_VARARGS,
     "stop_at(n, again=-1): the n-th primitive declines and is stepped over; then every again + 1"},
    {"only", only, METH_O, "only(codes): the frames of these code objects; None: all"},
    {"pass_through", pass_through, METH_NOARGS, "the hook is armed and wants no frame"},
    {"off", off, METH_NOARGS, "CPython runs all frames"},
    {"statistics", get_statistics, METH_NOARGS, "counts since the last start"},
    {"opcode_numbers", opcode_numbers, METH_NOARGS, "name -> number of every opcode that the table knows"},
    {"unsupported_interpreter", unsupported, METH_NOARGS, "None, or why this interpreter cannot be captured"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace magneto::evaluator

namespace magneto::bindings {

void add_evaluator_testing(PyObject* module) {
  if (PyModule_AddFunctions(module, evaluator::functions) < 0) PyErr_Clear();
}

}  // namespace magneto::bindings
