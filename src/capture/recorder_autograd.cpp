// Custom autograd.Functions. `F.apply(*args)` ends in C code, which makes a ctx, calls forward(ctx, *args) with grad
// mode off, and ties the results to a node whose backward is Python code.
//
// Where no gradient is needed (grad mode is off, or no argument requires one) C throws the node away: what remains are
// the operators of forward. So the C code runs as it is, forward comes through the hook like any Python function, and
// the ctx is an object made here: whatever is kept in it dies with it.
//
//   y = F.apply(x)   ->   C makes ctx; forward(ctx, x) is inlined: two operators; y is known to the trace
//
// Where a gradient is needed no graph holds the node. The segment ends before the call, in the frame that wrote it: not
// inside of torch's own Function.apply, which would then be a frame with segments of its own.
#include "capture/recorder.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

PyObject* Recorder::autograd_apply() {
  static PyObject* const function = []() -> PyObject* {
    Ref module = Ref::take(PyImport_ImportModule("torch.autograd"));
    Ref cls = module ? Ref::take(PyObject_GetAttrString(module.get(), "Function")) : Ref();
    Ref method = cls ? Ref::take(PyObject_GetAttrString(cls.get(), "apply")) : Ref();
    PyErr_Clear();
    return method && PyMethod_Check(method.get()) ? Py_NewRef(PyMethod_GET_FUNCTION(method.get())) : nullptr;
  }();
  return function;
}

// As torch decides it: only tensors that are arguments themselves count, not those inside of containers.
bool Recorder::builds_node(PyObject* const* args, size_t count) {
  bool needs_gradient = false;
  for (size_t i = 0; i < count; ++i)
    if (is_tensor(args[i]) && touch_tensor(args[i]))
      needs_gradient = needs_gradient || tensor_of(args[i]).requires_grad();
  return needs_gradient && c10::GradMode::is_enabled();
}

bool Recorder::is_called_by_apply(Activation& frame) const {
  return !applies_.empty() && frame.outer() == applies_.back().caller;
}

bool Recorder::is_new_context(Activation& frame, PyObject* object) const {
  return is_called_by_apply(frame) && Py_TYPE(object) == applies_.back().context && table_.count(object) == 0;
}

/// The attribute of a class that C is about to call: only Python code comes through the hook.
static bool is_python_method(PyObject* cls, const char* name) {
  Ref method = Ref::take(PyObject_GetAttrString(cls, name));
  PyErr_Clear();
  return method && (PyFunction_Check(method.get()) ||
                    (PyMethod_Check(method.get()) && PyFunction_Check(PyMethod_GET_FUNCTION(method.get()))));
}

PyObject* Recorder::call_autograd(Activation& self, PyObject* callable, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames, PyObject* cls) {
  size_t count = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  auto raw = [&] { return PyObject_Vectorcall(callable, args, nargsf, kwnames); };
  if (kwnames || !cls || !PyType_Check(cls)) return raw();  // torch's own error
  std::string name = reinterpret_cast<PyTypeObject*>(cls)->tp_name;
  guard_type(reinterpret_cast<PyTypeObject*>(cls));
  for (size_t i = 0; i < count; ++i) {
    if (!is_tensor(args[i])) continue;
    if (!usable_tensor(args[i], "an unknown place")) return stop(self, unreadable_stop_, unreadable_detail_);
    if (tensor_of(args[i])._fw_grad(0).defined()) return stop(self, Stop::kAutogradFunction, name);
  }
  if (builds_node(args, count) || !is_python_method(cls, "forward") || !is_python_method(cls, "setup_context"))
    return stop(self, Stop::kAutogradFunction, name);
  Ref context = Ref::take(PyObject_GetAttrString(cls, "_backward_cls"));
  if (!context || !PyType_Check(context.get())) {
    PyErr_Clear();
    return stop(self, Stop::kAutogradFunction, name);
  }

  set_place(self);
  uint64_t reads = trace_->data_reads();
  applies_.push_back({&self, reinterpret_cast<PyTypeObject*>(context.get())});
  PyObject* result = raw();
  applies_.pop_back();
  if (!result || !active_) return result;
  if (trace_->data_reads() != reads) {
    invalidate_by_read(self, name);
    return result;
  }
  if (!trace_->take_unclaimed().empty()) {
    invalidate(self, Stop::kUnknownTensor, name);
    return result;
  }
  adopt_torch(self, result, name);
  // A view that a custom function returns refuses to be written to in words of its own, as long as its base wants a
  // gradient. A replay makes an ordinary view.
  auto is_marked_view = [](PyObject* object) {
    return is_tensor(object) && tensor_of(object).is_view() && tensor_of(object)._base().requires_grad();
  };
  bool marked_view = is_marked_view(result);
  if (PyTuple_CheckExact(result))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); ++i)
      marked_view = marked_view || is_marked_view(PyTuple_GET_ITEM(result, i));
  if (marked_view) invalidate(self, Stop::kAutogradFunction, name);
  return result;
}

}  // namespace magneto::capture
