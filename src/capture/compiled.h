// capture/compiled.h: the callable that compile() returns. A call whose guards hold makes no Python frame at all.
#pragma once
#include <Python.h>

#include <optional>

#include <cstdint>
#include <string>

#include "capture/evaluator.h"

namespace magneto::capture {

/// Fills the tables of this folder; once, at import.
void prepare();

struct CompileOptions {
  bool fullgraph = false;
  bool compiles = true;      ///< false: operator by operator
  Ref backend;               ///< or a function of the user's does: (torch.fx.GraphModule, examples) -> callable
  bool keeps_texts = false;  ///< of all stages, in the report
  int limit = 8;
  int check = 0;                ///< base::GraphNote::check
  std::optional<bool> dynamic;  ///< CaptureState::dynamic
};

/// A callable for the Python function `function`, with `self` as its first argument at every call (or nullptr); without
/// a function, for calls of the object `self`: as an attribute of a class, it is for the object that shares the very
/// state of `self`, and all others are called as they are. New reference, or nullptr with a Python error.
PyObject* new_compiled(PyObject* function, PyObject* self, const CompileOptions& options);

PyTypeObject* compiled_type();  ///< made ready at the first call
bool is_compiled(PyObject* object);
PyObject* compiled_function(PyObject* compiled);  ///< borrowed; nullptr: it calls an object
PyObject* compiled_self(PyObject* compiled);      ///< borrowed; nullptr
const CompileOptions& compile_options(PyObject* compiled);
uint64_t compiled_id(PyObject* compiled);

/// Forgets the segments of every compiled callable that is alive.
void reset_all();

/// Makes calls of all compiled callables plain calls (self test failed, unknown CPython).
void disable_all(std::string reason);

}  // namespace magneto::capture
