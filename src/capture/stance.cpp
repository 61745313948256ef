#include "capture/stance.h"

#include <string_view>

#include "capture/ref.h"

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

}  // namespace

Stance current_stance() {
  static Known& known = *new Known;  // under the GIL; never ended, since Python may have ended before
  static PyObject* const module_name = PyUnicode_InternFromString("torch._dynamo.eval_frame");
  static PyObject* const stance_name = PyUnicode_InternFromString("_stance");
  if (!known.names) {
    PyObject* module = PyDict_GetItem(PyImport_GetModuleDict(), module_name);
    if (!module || !PyModule_Check(module)) return Stance::kDefault;  // who sets one imports it
    known.names = PyModule_GetDict(module);
  }
  PyObject* now = PyDict_GetItem(known.names, stance_name);
  if (!now || now == known.object.get()) return known.stance;
  known.stance = read(now);
  known.object = Ref::share(now);
  return known.stance;
}

}  // namespace magneto::capture
