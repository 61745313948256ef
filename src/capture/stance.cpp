#include "capture/stance.h"

#include <string_view>

#include "capture/evaluator.h"

namespace magneto::capture {

namespace {

/// torch's object for it, told apart by its identity: it is replaced, not changed.
struct Known {
  PyObject* names = nullptr;  ///< of torch._dynamo.eval_frame, borrowed: torch's modules stay
  Ref object;
  Stance stance = Stance::kDefault;
};

Stance read(PyObject* object) {
  const ErrorAside aside;
  const Ref name = Ref::take(PyObject_GetAttrString(object, "stance"));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  const std::string_view word = text ? text : "";
  if (word == "force_eager") return Stance::kForceEager;
  if (word == "eager_on_recompile") return Stance::kEagerOnRecompile;
  if (word == "fail_on_recompile") return Stance::kFailOnRecompile;
  if (word == "eager_then_compile" || word == "aot_eager_then_compile") return Stance::kEagerThenCompile;
  const Ref backend = Ref::take(PyObject_GetAttrString(object, "backend"));
  const bool is_eager =
      backend && PyUnicode_Check(backend.get()) && PyUnicode_CompareWithASCIIString(backend.get(), "eager") == 0;
  return is_eager ? Stance::kForceEager : Stance::kDefault;
}

/// The names of a module of torch's, borrowed: torch's modules stay. nullptr: nobody has imported it yet.
PyObject* names_of(PyObject* module_name) {
  PyObject* const module = PyDict_GetItem(PyImport_GetModuleDict(), module_name);
  return module && PyModule_Check(module) ? PyModule_GetDict(module) : nullptr;
}

}  // namespace

Stance current_stance() {
  static Known& known = *new Known;  // under the GIL; never ended, since Python may have ended before
  static PyObject* const module_name = PyUnicode_InternFromString("torch._dynamo.eval_frame");
  static PyObject* const stance_name = PyUnicode_InternFromString("_stance");
  if (!known.names) known.names = names_of(module_name);
  if (!known.names) return Stance::kDefault;  // who sets one imports it
  PyObject* now = PyDict_GetItem(known.names, stance_name);
  if (!now || now == known.object.get()) return known.stance;
  known.stance = read(now);
  known.object = Ref::share(now);
  return known.stance;
}

bool error_on_graph_break() {
  static PyObject* const module_name = PyUnicode_InternFromString("torch._dynamo.utils");
  static PyObject* const flag_name = PyUnicode_InternFromString("_error_on_graph_break");
  PyObject* const names = names_of(module_name);
  return names && PyDict_GetItem(names, flag_name) == Py_True;
}

}  // namespace magneto::capture
