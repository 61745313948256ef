// Calls of C functions whose result follows from their arguments, which they may read as a whole.
#include <algorithm>
#include <cstring>
#include <optional>

#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/recorder_torch_internal.h"
#include "capture/state_word.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

/// torch.FloatTensor and its like: what is an instance of them follows from dtype and device, and from dispatch keys
/// that a pending tensor does not have yet.
static bool asks_for_tensor_type(PyObject* classes) {
  if (PyTuple_Check(classes)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i)
      if (asks_for_tensor_type(PyTuple_GET_ITEM(classes, i))) return true;
    return false;
  }
  return strcmp(Py_TYPE(classes)->tp_name, "torch.tensortype") == 0;
}

/// The one of a class, bound to it.
static bool is_instance_check(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  const auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
  return function->m_self && PyType_Check(function->m_self) &&
         strcmp(function->m_ml->ml_name, "__instancecheck__") == 0;
}

void Recorder::guard_classes(PyObject* object) {
  if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) guard_classes(PyTuple_GET_ITEM(object, i));
    return;
  }
  guard_class(object);
  if (PyType_Check(object)) guard_type(reinterpret_cast<PyTypeObject*>(object));
}

// isinstance, callable, has_torch_function and their like look at classes and nothing else. False: not such a call.
bool Recorder::guard_what_classes_tell(const CCall& call) {
  if (call.rule.has(CallTrait::kChecksInstance) && call.count == 2) {
    guard_class(call.args[0]);
    if (PyType_Check(call.args[0])) guard_type(reinterpret_cast<PyTypeObject*>(call.args[0]));
    guard_classes(call.args[1]);
    return true;
  }
  if (is_instance_check(call.callable) && call.count == 1 && !call.kwnames) {  // super().__instancecheck__(x)
    guard_class(call.args[0]);
    guard_type(reinterpret_cast<PyTypeObject*>(PyCFunction_GET_SELF(call.callable)));
    return true;
  }
  if (call.rule.has(CallTrait::kAsksForClass) && call.count == 1) {
    guard_class(call.args[0]);
    return true;
  }
  if (!call.rule.has(CallTrait::kAsksForSubclasses)) return false;
  for (PyObject* arg : call.all()) {
    if (!PyTuple_Check(arg)) guard_class(arg);
    for (Py_ssize_t i = 0; PyTuple_Check(arg) && i < PyTuple_GET_SIZE(arg); ++i) guard_class(PyTuple_GET_ITEM(arg, i));
  }
  return true;
}

// min(a, b), max((a, b)) of ints, which may be symbols.
std::span<PyObject* const> Recorder::compared_ints(const CCall& call) {
  const bool least = call.rule.has(CallTrait::kLeast), greatest = call.rule.has(CallTrait::kGreatest);
  if ((!least && !greatest) || call.kwnames || call.count == 0) return {};
  PyObject* const only = call.args[0];
  const bool is_one = call.count == 1 && (PyTuple_CheckExact(only) || Py_TYPE(only) == size_type());
  const std::span<PyObject* const> numbers =
      is_one ? std::span<PyObject* const>(&PyTuple_GET_ITEM(only, 0), static_cast<size_t>(PyTuple_GET_SIZE(only)))
             : call.all();
  const bool are_ints =
      std::all_of(numbers.begin(), numbers.end(), [](PyObject* n) { return PyLong_CheckExact(n) && fits_symbol(n); });
  if (numbers.size() < 2 || (is_one && is_outside(only)) || !are_ints) return {};
  return numbers;
}

PyObject* Recorder::call_pure(const CCall& call) {
  Activation& self = call.self;
  if (call.rule.has(CallTrait::kChecksInstance) && call.count == 2 && is_tensor(call.args[0]) &&
      asks_for_tensor_type(call.args[1]))
    return stop(self, Stop::kOpaqueCall, "torch.tensortype.__instancecheck__");
  if (guard_what_classes_tell(call)) {
    // A default device is nothing that a function written in Python would be asked about.
    std::optional<WithoutFunctionModes> of_its_arguments;
    if (call.rule.has(CallTrait::kAsksForSubclasses)) of_its_arguments.emplace();
    return call.run();
  }
  if (call.rule.has(CallTrait::kLength) && call.count == 1) return length(self, call.args[0]);
  if (call.rule.has(CallTrait::kIterates) && call.count == 1) return iter(self, call.args[0]);
  if (const auto ints = compared_ints(call); !ints.empty())
    return call_extremum(self, ints, call.rule.has(CallTrait::kLeast) ? Py_LT : Py_GT);
  if (PyObject* text = call_of_text(self, call.callable, call.all(), call.positional(), call.kwnames, call.bound))
    return text;
  if (PyErr_Occurred()) return nullptr;
  if (!call.bound && !call.kwnames) {  // math.sqrt(lr), max(lr, 0.1)
    bool handled = false;
    PyObject* result = call_real(call.callable, call.all(), &handled);
    if (handled) return result;
  }
  // Text of a tensor, order among tensors: their data. A sum of tensors is only operators.
  if (!call.rule.has(CallTrait::kHandsOn) && std::any_of(call.args, call.args + call.count, is_tensor))
    return stop(self, Stop::kTensorData, call.name());
  if (call.bound && !readable(self, call.bound)) return stop(self, unreadable_stop_, unreadable_detail_);
  for (PyObject* arg : call.all())
    if (!readable(self, arg)) return stop(self, unreadable_stop_, unreadable_detail_);
  if (call.rule.has(CallTrait::kCompares)) {
    if (call.bound) guard_compared(call.bound);
    for (PyObject* arg : call.all()) guard_compared(arg);
  }
  PyObject* result = call.run();
  if (result && active_ && !is_value(result) && !info(result)) adopt_result(self, result, call.name());
  return result;
}

}  // namespace magneto::capture
