// Before anything is captured: does this interpreter behave as frame_abi.h and opcodes.cpp say? A dozen small programs
// run natively, by the evaluator, and by the evaluator with a hand-over in the middle of every frame; the results must
// be equal.
#include <cstdlib>
#include <string>

#include "evaluator/directors.h"
#include "evaluator/hook.h"
#include "evaluator/opcodes.h"

namespace magneto::evaluator {

static constexpr const char* kPrograms = R"(
import sys
def loops(n=4):
    total = 0
    for i in range(n):
        for j in (10, 20):
            if j == 20 and i == 2: continue
            total += i * j
        else: total += 1
    while total > 50: total -= 7
    return total, [x * n for x in range(3)], {k: v for k, v in zip('ab', (1, 2))}, sum(x for x in range(n) if x % 2)
class Manager:
    def __init__(self, log, swallow): self.log, self.swallow = log, swallow
    def __enter__(self): self.log.append('enter'); return self
    def __exit__(self, kind, value, traceback):
        self.log.append((kind, traceback and traceback.tb_lineno)); return self.swallow
def handlers():
    log = []
    with Manager(log, True):
        with Manager(log, False):
            try: log.append({}['missing'])
            except KeyError as e: log.append((repr(e), e.__traceback__.tb_lineno)); raise ValueError(1) from e
            finally: log.append(sys.exc_info()[0])
    for i in range(2):
        try:
            if i: return log
        finally: log.append(i)
def closures():
    n = 10
    def add(k=1, *rest, scale=1, **others):
        nonlocal n
        n += k * scale
        return n, rest, sorted(others)
    return add(), add(2, 3, scale=4), add(*(5, 6), **{'scale': 7, 'z': 8}), (lambda q: q + n)(1)
def generators():
    def numbers(n):
        got = []
        try:
            for i in range(n): got.append((yield i))
        finally: got.append('end')
        return got
    def outer(): return (yield from numbers(3))
    g = outer(); out = [next(g), g.send('a')]
    try: g.throw(KeyError('k'))
    except KeyError as e: out.append(repr(e))
    return out, list(numbers(2))
def coroutines():
    class Pause:
        def __await__(self): yield 1
    class Manager:
        async def __aenter__(self): await Pause(); return 2
        async def __aexit__(self, *exc): await Pause()
    async def numbers():
        for i in range(2): await Pause(); yield i
    async def main():
        async with Manager() as m: return m, [i async for i in numbers()]
    c = main(); steps = 0
    try:
        while True: c.send(None); steps += 1
    except StopIteration as e: return e.value, steps
def strings(x=3.14159): return f'{x:.2f} {"ab"!r:>6} {x!s} {len("abc"):{x:.0f}d}'
def patterns():
    out = []
    for v in ([1, 2], (3, 4, 5), {'k': 7}, 9, Manager([], 0), 'other'):
        match v:
            case [a, b]: out.append((a, b))
            case (a, *rest): out.append((a, rest))
            case {'k': z, **more}: out.append((z, more))
            case int(i): out.append(i)
            case Manager(swallow=s): out.append(s)
            case _: out.append('?')
    return out
def groups():
    out = []
    try: raise ExceptionGroup('g', [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as e: out.append(repr(e))
    except* (TypeError, KeyError) as e: out.append(len(e.exceptions))
    return out
class Derived(Manager):
    count: int = 0
    def __init__(self): super().__init__([1], 2); self.count += 1
def classes():
    d = Derived(); d.log[0:1] = [5, *d.log]; del d.log[-1]
    a, *b, c = d.log + [6, 7]
    return d.count, d.log, a, b, c, Derived.__annotations__, -a, not a, ~a, a in b, a is c, d.log[0] < c <= 9
def unbound():
    try: return later
    except UnboundLocalError as e: out = [str(e)]
    later = 1
    try: return no_such_name
    except NameError as e: return out, str(e), e.name
def raises():
    def inner(x):
        return (x +
                1 / 0)
    try: inner(2)
    except ZeroDivisionError as e:
        t = e.__traceback__; return t.tb_lineno, t.tb_next.tb_lineno, t.tb_next.tb_lasti, sys._getframe().f_lineno
programs = loops, handlers, closures, generators, coroutines, strings, patterns, groups, classes, unbound, raises
)";

/// Wants the frames of the programs only; hands each over before its n-th instruction.
class SelfTestDirector : public PlainDirector {
 public:
  SelfTestDirector(PyObject* globals, int leave_after) : globals_(globals), leave_after_(leave_after) {
    asks_ = leave_after >= 0;
  }
  bool wants(PyThreadState*, Frame* frame) override { return frame->f_globals == globals_; }

 protected:
  bool should_leave(Activation& activation) override { return activation.executed() >= leave_after_; }

 private:
  PyObject* globals_;
  int leave_after_;  ///< < 0: never
};

/// repr(program()), or repr of the exception; new reference, nullptr with an error set.
static PyObject* outcome(PyObject* program, Director* director) {
  PyObject* result;
  {
    Hooked hooked(director);
    result = PyObject_CallNoArgs(program);
  }
  if (result == nullptr) result = take_error();
  PyObject* text = PyObject_Repr(result);
  Py_DECREF(result);
  return text;
}

/// Empty: the program behaves; else what went wrong.
static std::string check_program(PyObject* program, PyObject* globals) {
  PyObject* native = outcome(program, nullptr);
  if (native == nullptr) return "has no result";
  std::string fault;
  for (int leave_after : {-1, 0, 7, 18, 40}) {
    SelfTestDirector director(globals, leave_after);
    PyObject* ours = outcome(program, &director);
    int equal = ours != nullptr ? PyUnicode_Compare(native, ours) == 0 : 0;
    if (!equal) {
      const char* expected = PyUnicode_AsUTF8(native);
      const char* got = ours != nullptr ? PyUnicode_AsUTF8(ours) : nullptr;
      fault =
          leave_after < 0 ? "in the evaluator" : "handed over after " + std::to_string(leave_after) + " instructions";
      fault += std::string(": expected ") + (expected ? expected : "?") + ", got " + (got ? got : "an error");
    }
    Py_XDECREF(ours);
    if (!fault.empty()) break;
  }
  Py_DECREF(native);
  return fault;
}

static std::string self_test() {
  PyObject* globals = PyDict_New();
  if (globals == nullptr) return "out of memory";
  PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins());
  PyDict_SetItemString(globals, "__name__", Py_None);
  PyObject* none = PyRun_String(kPrograms, Py_file_input, globals, globals);
  PyObject* programs = none != nullptr ? PyDict_GetItemString(globals, "programs") : nullptr;
  std::string fault = programs == nullptr ? "its programs do not compile" : "";
  for (Py_ssize_t i = 0; fault.empty() && i < PyTuple_GET_SIZE(programs); ++i) {
    auto* program = reinterpret_cast<PyFunctionObject*>(PyTuple_GET_ITEM(programs, i));
    fault = check_program(reinterpret_cast<PyObject*>(program), globals);
    if (!fault.empty()) fault = std::string(PyUnicode_AsUTF8(program->func_name)) + " " + fault;
  }
  Py_XDECREF(none);
  PyDict_Clear(globals);  // the functions refer to it
  Py_DECREF(globals);
  PyErr_Clear();
  return fault;
}

const char* unsupported_interpreter() {
  // Not a magic static: its lock would be held while Python code runs and the GIL changes hands.
  static bool tested = false;
  static std::string why;
  if (!tested) {
    tested = true;
    std::string version = "CPython " + std::to_string(PY_MAJOR_VERSION) + "." + std::to_string(PY_MINOR_VERSION);
    constexpr int kLastTested = 13;  // whole programs have run on; the evaluator knows later ones
    const bool is_tested = PY_MINOR_VERSION <= kLastTested || getenv("MAGNETO_UNTESTED_PYTHON") != nullptr;
    if (kVersionColumn < 0 || !is_tested) {
      why = version + " is not known to magneto: functions run as they are, uncompiled";
    } else if (std::string fault = self_test(); !fault.empty()) {
      why = "the self test of the evaluator failed on " + version + " (" + Py_GetVersion() + "): " + fault;
    }
  }
  return why.empty() ? nullptr : why.c_str();
}

}  // namespace magneto::evaluator
