// Opcodes for calls and for making functions.
#include "evaluator/errors.h"
#include "evaluator/opcodes.h"

namespace magneto::evaluator::op {

// The stack holds (method, self, arguments...), or (nullptr, callable, arguments...), from 3.13 on (callable, nullptr,
// arguments...). CPython unpacks bound methods into the first form; we need not, since a bound method does it itself
// when it is called. `above`: entries above the arguments.
static Step call_with(Evaluator& e, int count, PyObject* keywords, int above) {
  int depth = count + above;
  bool is_method = e.peek(depth + 2) != nullptr && e.peek(depth + 1) != nullptr;
  int total = count + is_method;
  size_t positional = total - (keywords != nullptr ? PyTuple_GET_SIZE(keywords) : 0);
  const Objects arguments(e.top() - above - total, total);
  PyObject* result = e.semantics().call(e.activation(), e.callable(depth + 1), arguments.data(),
                                        positional | PY_VECTORCALL_ARGUMENTS_OFFSET, keywords);
  if (result == nullptr || result == kStop) return e.failed(result);
  e.replace(depth + 2, result);
  return e.serve_breaker();
}

Step call(Evaluator& e, int count) { return call_with(e, count, e.keywords(), 0); }

Step call_kw(Evaluator& e, int count) { return call_with(e, count, e.peek(1), 1); }

/// Replaces what follows * in the call by a tuple. On kStop nothing has happened.
static Step convert_arguments(Evaluator& e, PyObject* callable, int depth) {
  PyObject* given = e.peek(depth);
  if (PyTuple_CheckExact(given)) return Step::kNext;
  if (!check_star_arguments(callable, given)) return Step::kError;
  PyObject* list = PyList_New(0);
  if (list == nullptr) return Step::kError;
  e.semantics().made(e.activation(), list);
  int status = e.semantics().extend_list(e.activation(), list, given);
  PyObject* tuple = status < 0 ? nullptr : PyList_AsTuple(list);
  Py_DECREF(list);
  if (tuple == nullptr) return e.failed(status);
  e.semantics().made(e.activation(), tuple);
  e.set_slot(depth, tuple);
  return Step::kNext;
}

/// The same for what follows **, which must become a dict.
static Step convert_keywords(Evaluator& e, PyObject* callable, int depth) {
  PyObject* given = e.peek(depth);
  if (PyDict_CheckExact(given)) return Step::kNext;
  PyObject* dict = PyDict_New();
  if (dict == nullptr) return Step::kError;
  e.semantics().made(e.activation(), dict);
  int status = e.semantics().merge_dict(e.activation(), dict, given, callable);
  if (status < 0) {
    Py_DECREF(dict);
    return e.failed(status);
  }
  e.set_slot(depth, dict);
  return Step::kNext;
}

// The converted arguments go back to the stack at once, so that a stop at the call itself does not convert them twice.
Step call_function_ex(Evaluator& e, int argument) {
  const bool has_place = e.fact() == kKeywordsAlways || (argument & 1) != 0;
  const bool has_keywords = has_place && e.peek(1) != nullptr;
  int depth = has_place ? 2 : 1;
  PyObject* callable = e.callable(depth + 1);
  if (has_keywords)
    if (Step step = convert_keywords(e, callable, 1); step != Step::kNext) return step;
  if (Step step = convert_arguments(e, callable, depth); step != Step::kNext) return step;
  PyObject* result = e.semantics().call_ex(e.activation(), callable, e.peek(depth), has_keywords ? e.peek(1) : nullptr);
  if (result == nullptr || result == kStop) return e.failed(result);
  e.replace(depth + 2, result);
  return e.serve_breaker();
}

/// From 3.13 on the parts of a function are given to it one by one. It is made when it has all of them.
static Step made_function(Evaluator& e) {
  if (e.next_row().handler != set_function_attribute) e.semantics().made(e.activation(), e.peek(1));
  return Step::kNext;
}

Step make_function(Evaluator& e, int parts) {
  auto* function = reinterpret_cast<PyFunctionObject*>(PyFunction_New(e.peek(1), e.frame()->f_globals));
  if (function == nullptr) return Step::kError;
  e.drop(1);
  adopt_code_version(function);
  if (parts & 8) function->func_closure = e.pop();
  if (parts & 4) function->func_annotations = e.pop();
  if (parts & 2) function->func_kwdefaults = e.pop();
  if (parts & 1) function->func_defaults = e.pop();
  e.push(reinterpret_cast<PyObject*>(function));
  return made_function(e);
}

Step set_function_attribute(Evaluator& e, int part) {
  auto* function = reinterpret_cast<PyFunctionObject*>(e.pop());
  PyObject* value = e.pop();
  PyObject** place = part == 16  ? annotate_of(function)
                     : part == 8 ? &function->func_closure
                     : part == 4 ? &function->func_annotations
                     : part == 2 ? &function->func_kwdefaults
                                 : &function->func_defaults;
  *place = value;  // empty until now
  e.push(reinterpret_cast<PyObject*>(function));
  if (part == 16 && !name_annotate(function, value)) return Step::kError;
  return made_function(e);
}

// Intrinsics are rare instructions of 3.11 under numbers of their own. They are asked about under their old names.
Step call_intrinsic_1(Evaluator& e, int which) {
  constexpr const char* kNames[] = {"INTRINSIC_1",    "PRINT_EXPR",     "IMPORT_STAR",       "STOPITERATION_ERROR",
                                    "ASYNC_GEN_WRAP", "UNARY_POSITIVE", "LIST_TO_TUPLE",     "TYPEVAR",
                                    "PARAMSPEC",      "TYPEVARTUPLE",   "SUBSCRIPT_GENERIC", "TYPEALIAS"};
  constexpr int kStopIterationError = 3, kAsyncGenWrap = 4, kUnaryPositive = 5, kListToTuple = 6;
  switch (which) {
    case kStopIterationError:
      return stopiteration_error(e, 0);
    case kAsyncGenWrap:
      return yield_value(e, 0);  // YIELD_VALUE follows
    case kUnaryPositive:
      return e.finish(1, e.semantics().unary(e.activation(), static_cast<int>(Unary::kPositive), e.peek(1)));
    case kListToTuple:
      return list_to_tuple(e, 0);
    default: {
      Step step = e.ask(which < static_cast<int>(std::size(kNames)) ? kNames[which] : kNames[0]);
      return step == Step::kNext ? Step::kHandOver : step;
    }
  }
}

Step call_intrinsic_2(Evaluator& e, int which) {
  constexpr int kPrepReraiseStar = 1, kSetFunctionTypeParams = 4;
  switch (which) {
    case kPrepReraiseStar:
      return prep_reraise_star(e, 0);
    case kSetFunctionTypeParams: {
      static PyObject* const name = PyUnicode_InternFromString("__type_params__");
      int status = e.semantics().store_attr(e.activation(), e.peek(2), name, e.peek(1));
      return e.finish(1, status);
    }
    default: {
      Step step = e.ask("TYPEVAR");
      return step == Step::kNext ? Step::kHandOver : step;
    }
  }
}

}  // namespace magneto::evaluator::op
