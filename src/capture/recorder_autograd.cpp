// Custom autograd.Functions. `F.apply(*args)` ends in C code, which makes a ctx, calls forward(ctx, *args) with grad
// mode off, and ties the results to a node whose backward is Python code.
//
// Where no gradient is needed (grad mode is off, or no argument requires one) C throws the node away: what remains are
// the operators of forward. So the C code runs as it is, forward comes through the hook like any Python function, and
// the ctx is an object made here: whatever is kept in it dies with it.
//
//   y = F.apply(x)   ->   C makes ctx; forward(ctx, x) is inlined: two operators; y is known to the trace
//
// Where a gradient is needed, backward(ctx, *gradients) is rehearsed as soon as forward has run: on zeros, and so that
// nothing happens (aten::Trace::Rehearsal). The operators that it would run leave the graph again, and stand in the
// node that says what gradient the results have (aten/custom_function.h). The call itself keeps the node that C made.
//
// A backward that cannot be rehearsed (it changes objects, prints, reads data, draws random numbers) is Python code for
// good: the segment ends before the call, in the frame that wrote it, not inside of torch's own Function.apply, which
// would then be a frame with segments of its own.
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/python_function.h>

#include "aten/custom_function.h"
#include "base/text.h"
#include "capture/evaluator.h"
#include "capture/recorder.h"
#include "capture/recorder_torch_internal.h"
#include "capture/tensor_meta.h"
#include "graph/text.h"

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

// ---------------------------------------------------------------------------------------------------- the backward

/// Code of backwards that could not be rehearsed, and why.
struct Refused {
  Ref code;
  std::string why;
};
static std::unordered_map<PyObject*, Refused>& refused() {
  static auto* known = new std::unordered_map<PyObject*, Refused>;
  return *known;
}

/// A method and what it wraps (functools.wraps), down to the function that was written; empty: it is no Python
/// function.
static std::vector<Ref> functions_of(PyObject* cls, const char* name) {
  std::vector<Ref> functions;
  Ref method = Ref::take(PyObject_GetAttrString(cls, name));
  PyErr_Clear();
  while (method && PyFunction_Check(method.get())) {
    PyObject* const dict = reinterpret_cast<PyFunctionObject*>(method.get())->func_dict;
    functions.push_back(method);
    method = Ref::share(dict ? PyDict_GetItemString(dict, "__wrapped__") : nullptr);
  }
  return functions;
}

/// Borrowed.
static PyObject* code_of(PyObject* cls, const char* name) {
  const std::vector<Ref> functions = functions_of(cls, name);
  return functions.empty() ? nullptr : PyFunction_GET_CODE(functions.back().get());
}

bool Recorder::is_rehearsable(PyObject* cls) {
  static PyObject* const backward = code_of(THPFunctionClass, "backward");
  static PyObject* const vjp = code_of(THPFunctionClass, "vjp");
  PyObject* const code = code_of(cls, "backward");
  if (!keeps_functions || !code || code == backward || code_of(cls, "vjp") != vjp) return false;
  for (const Rehearsal* outer = rehearsal_; outer; outer = outer->outer)
    if (outer->cls == cls) return false;  // its gradient is made of itself, without end
  return !refused().count(code) && !torch::autograd::AnomalyMode::is_enabled() &&
         !at::SavedTensorDefaultHooks::get_hooks();
}

std::string Recorder::why_not_rehearsed(PyObject* cls) {
  const auto found = refused().find(code_of(cls, "backward"));
  return found == refused().end() ? "" : base::concat(": ", found->second.why);
}

bool Recorder::is_older(PyObject* object) {
  if (!rehearsal_) return false;
  const Info* known = info(object);
  return !known || known->cls != Info::Class::kMade || known->entered < rehearsal_->first_entry;
}

bool Recorder::fail_rehearsal() {
  if (!rehearsal_) return false;
  if (rehearsal_->why.empty()) rehearsal_->why = describe(stop_record_.stop, stop_record_.detail);
  PyErr_SetString(PyExc_RuntimeError, rehearsal_->why.c_str());
  return true;
}

static bool is_differentiable_once(PyObject* cls) {
  for (const Ref& function : functions_of(cls, "backward")) {
    auto* const code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
    if (PyUnicode_CompareWithASCIIString(code->co_qualname, "once_differentiable.<locals>.wrapper") == 0) return true;
  }
  return false;
}

static std::vector<PyObject*> items_of(PyObject* result) {
  if (!PyTuple_Check(result)) return {result};
  return {&PyTuple_GET_ITEM(result, 0), &PyTuple_GET_ITEM(result, 0) + PyTuple_GET_SIZE(result)};
}

// What was saved for backward. One of the results comes back as another tensor over its memory: it is that result.
static Ref saved_of(PyObject* context, const std::vector<PyObject*>& results) {
  Ref unpacked = Ref::take(PyObject_GetAttrString(context, "saved_tensors"));
  if (!unpacked || !PyTuple_Check(unpacked.get())) return {};
  const Py_ssize_t count = PyTuple_GET_SIZE(unpacked.get());
  Ref saved = Ref::take(PyTuple_New(count));
  for (Py_ssize_t i = 0; saved && i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(unpacked.get(), i);
    for (PyObject* result : results)
      if (is_tensor(item) && is_tensor(result) && tensor_of(item).grad_fn() &&
          tensor_of(result).grad_fn() == tensor_of(item).grad_fn() &&
          tensor_of(result).output_nr() == tensor_of(item).output_nr()) {
        item = result;
        break;
      }
    PyTuple_SET_ITEM(saved.get(), i, Py_NewRef(item));
  }
  return saved;
}

/// A backward runs outside of the autocast that its forward ran in.
class WithoutAutocast {
 public:
  WithoutAutocast()
      : cpu_(at::autocast::is_autocast_enabled(at::kCPU)), cuda_(at::autocast::is_autocast_enabled(at::kCUDA)) {
    set(false, false);
  }
  ~WithoutAutocast() { set(cpu_, cuda_); }
  WithoutAutocast(const WithoutAutocast&) = delete;

 private:
  static void set(bool cpu, bool cuda) {
    at::autocast::set_autocast_enabled(at::kCPU, cpu);
    at::autocast::set_autocast_enabled(at::kCUDA, cuda);
  }
  const bool cpu_, cuda_;
};

struct Recorder::Applied {
  PyObject* cls;
  std::span<PyObject* const> args;
  std::vector<PyObject*> results;
  std::vector<at::Tensor> outputs = {};  ///< the results that have the gradient
  Ref context = {}, saved = {};
};

/// Values of the recording, and what they are in its symbolic trace.
struct Recorder::BothValues {
  std::vector<graph::ValueId> live = {}, symbolic = {};
};

struct Recorder::Rehearsed {
  aten::Trace::Part part = {}, symbolic_part = {};
  BothValues inputs = {};
  bool asks_for_saved = false;
};

bool Recorder::add_value(BothValues& values, const at::Tensor& tensor) {
  const auto live = trace_->find(tensor);
  values.live.push_back(live.value_or(graph::ValueId()));
  graph::ValueId& symbolic = values.symbolic.emplace_back();
  if (!live || !symbolic_ || !symbolic_->alive()) return live.has_value();
  const at::Tensor counterpart = symbolic_->counterpart(tensor);
  if (const auto value = counterpart.defined() ? symbolic_->trace().find(counterpart) : std::nullopt)
    symbolic = *value;
  else
    symbolic_->give_up("a custom autograd.Function");
  return true;
}

// What the apply gave, and what its ctx keeps.
std::string Recorder::look_at_results(Applied& applied, aten::Trace::Mark begin) {
  bool is_any_view = false;
  for (auto item = applied.results.begin(); item != applied.results.end(); ++item) {
    if (!is_tensor(*item)) continue;
    const at::Tensor& tensor = tensor_of(*item);
    if (!tensor.requires_grad()) continue;
    if (std::find(applied.args.begin(), applied.args.end(), *item) != applied.args.end())
      return "it changes an argument (mark_dirty)";
    if (std::find(applied.results.begin(), item, *item) != item) return "it gives a tensor twice";
    const auto value = trace_->find(tensor);
    const graph::NodeId maker = value ? trace_->graph().value(*value).maker : graph::NodeId();
    if (!maker.valid() || maker.index() < begin.nodes) return "it gives a tensor that it did not make";
    Ref node = Ref::take(PyObject_GetAttrString(*item, "grad_fn"));
    if (!node || !THPFunction_Check(node.get()) || (applied.context && applied.context.get() != node.get())) {
      PyErr_Clear();
      return "its results have other gradients";
    }
    applied.context = std::move(node);
    is_any_view = is_any_view || tensor.is_view();
    applied.outputs.push_back(tensor);
  }
  if (applied.outputs.empty()) return "";
  if (is_any_view && applied.outputs.size() > 1) return "several results, and one is a view";
  if (!reinterpret_cast<THPFunction*>(applied.context.get())->materialize_grads) return "set_materialize_grads(False)";
  applied.saved = saved_of(applied.context.get(), applied.results);
  if (!applied.saved) return words_of_error();
  for (PyObject* item : items_of(applied.saved.get()))
    if (is_tensor(item) && (!usable_tensor(item, "save_for_backward") || !trace_->find(tensor_of(item))))
      return "it saves a tensor from nowhere";
  return "";
}

// Runs the backward on these gradients. What it gives is looked at by the caller. Empty: `why` says why not.
Ref Recorder::run_backward(Activation& self, const Applied& applied, const std::vector<Ref>& tangents,
                           Rehearsal& rehearsal) {
  const aten::Trace::Rehearsal nothing_happens(*trace_);
  const WithoutAutocast outside;
  Ref method = Ref::take(PyObject_GetAttrString(applied.cls, "backward"));
  std::vector<PyObject*> all{nullptr, applied.context.get()};
  for (const Ref& tangent : tangents) all.push_back(tangent.get());
  rehearsal_ = &rehearsal;
  applies_.push_back({&self, nullptr});
  Ref given = Ref::take(
      PyObject_Vectorcall(method.get(), all.data() + 1, (all.size() - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  applies_.pop_back();
  rehearsal_ = rehearsal.outer;
  loose_.clear();  // what it gave is looked at here
  if (!given) {
    const std::string words = words_of_error();
    if (rehearsal.why.empty()) rehearsal.why = words;
  }
  return rehearsal.why.empty() ? given : Ref();
}

std::string Recorder::rehearse(Activation& self, const Applied& applied, Rehearsed& into) {
  const bool is_once = is_differentiable_once(applied.cls);
  const StateWord state = StateWord::now();
  const aten::Trace::Mark mark = trace_->mark();
  const aten::Trace::Mark symbolic_mark = symbolic_ ? symbolic_->trace().mark() : aten::Trace::Mark{};
  std::vector<Ref> tangents;
  BothValues given, gradients, also;
  for (PyObject* item : applied.results) {
    if (!is_tensor(item)) {
      tangents.push_back(Ref::share(Py_None));
      continue;
    }
    Ref tangent = Ref::take(torch_leaf(self, "zeros_like", std::span(&item, 1), [](PyObject* const* of) {
      const c10::AutoGradMode no_history(false);
      return THPVariable_Wrap(at::zeros_like(tensor_of(of[0]), at::TensorOptions(), at::MemoryFormat::Contiguous));
    }));
    if (!tangent || !active_) return words_of_error();
    // What is computed with it may itself be differentiated.
    const at::Tensor& zeros = tensor_of(tangent.get());
    if (!is_once && torch::autograd::isDifferentiableType(zeros.scalar_type())) zeros.set_requires_grad(true);
    if (tensor_of(item).requires_grad()) add_value(given, zeros);  // the others are zeros, whatever comes
    tangents.push_back(std::move(tangent));
  }
  Rehearsal rehearsal{rehearsal_, applied.cls, entries_, applied.context.get(), applied.saved.get(), false, ""};
  const Ref answer = run_backward(self, applied, tangents, rehearsal);
  if (!answer) return rehearsal.why;

  std::vector<PyObject*> returned = items_of(answer.get());
  while (returned.size() > applied.args.size() && returned.back() == Py_None) returned.pop_back();
  if (returned.size() != applied.args.size()) return "it gives another number of gradients than it has arguments";
  for (size_t i = 0; i < returned.size(); ++i) {
    const bool has_one = is_tensor(applied.args[i]), is_one = is_tensor(returned[i]);
    if (!is_one && returned[i] != Py_None) return "it gives a gradient that is no tensor";
    if (is_one && !has_one) return "it gives a gradient where none can be";
    if (!has_one) continue;
    add_value(into.inputs, tensor_of(applied.args[i]));
    if (!is_one || !tensor_of(applied.args[i]).requires_grad()) {
      gradients.live.emplace_back();
      gradients.symbolic.emplace_back();
    } else if (!add_value(gradients, tensor_of(returned[i]))) {
      return "its gradient is a tensor from nowhere";
    }
  }
  if (!trace_->take_unclaimed().empty() || trace_->data_reads() != 0) return "it reads data";
  if (!(StateWord::now() == state)) return "it changes the state of torch";
  // Who asks for one of those that were saved has the versions of all of them looked at.
  into.asks_for_saved = rehearsal.asks_for_saved;
  for (PyObject* item : into.asks_for_saved ? items_of(applied.saved.get()) : std::vector<PyObject*>())
    if (is_tensor(item)) add_value(also, tensor_of(item));
  into.part = trace_->part(mark, given.live, gradients.live, also.live);
  if (symbolic_ && symbolic_->alive()) {
    into.symbolic_part = symbolic_->trace().part(symbolic_mark, given.symbolic, gradients.symbolic, also.symbolic);
    if (!aten::Trace::holds(into.symbolic_part.graph))
      symbolic_->give_up("a custom autograd.Function with many floats");
  }
  return "";
}

std::string Recorder::differentiate(Activation& self, PyObject* cls, std::span<PyObject* const> args, PyObject* result,
                                    aten::Trace::Mark begin) {
  Applied applied{cls, args, items_of(result)};
  std::string why = look_at_results(applied, begin);
  if (!why.empty() || applied.outputs.empty()) return why;

  const size_t effects = effects_.size();
  const std::string raised = raised_by_;
  const aten::Trace::Mark mark = trace_->mark();
  const aten::Trace::Mark symbolic_mark = symbolic_ ? symbolic_->trace().mark() : aten::Trace::Mark{};
  Rehearsed rehearsed;
  why = rehearse(self, applied, rehearsed);
  effects_.resize(effects);
  raised_by_ = raised;
  let_dead_go();
  std::vector<graph::ValueId> dropped;
  for (size_t n = mark.nodes; n < trace_->graph().nodes().size(); ++n)
    for (const graph::ValueId id : trace_->graph().nodes()[n].outputs) dropped.push_back(id);
  const bool is_clean = trace_->drop(mark);
  if (symbolic_) {
    symbolic_->forget(dropped);
    symbolic_->trace().drop(symbolic_mark);
  }
  if (why.empty() && !is_clean) why = "it keeps a tensor";
  if (!why.empty()) return why;

  const bool is_symbolic = symbolic_ && symbolic_->alive();
  aten::CustomFunction made{.name = reinterpret_cast<PyTypeObject*>(cls)->tp_name,
                            .backward = std::move(is_symbolic ? rehearsed.symbolic_part.graph : rehearsed.part.graph),
                            .once_differentiable = is_differentiable_once(cls),
                            .checked = {}};
  for (const graph::ValueId id : rehearsed.part.reads) {
    bool is_checked = false;
    for (PyObject* item : items_of(applied.saved.get()))
      is_checked = is_checked || (is_tensor(item) && trace_->find(tensor_of(item)) == id);
    made.checked.push_back(is_checked && rehearsed.asks_for_saved);
  }
  std::vector<at::Tensor> counterparts;
  for (const at::Tensor& output : applied.outputs)
    if (is_symbolic) counterparts.push_back(symbolic_->counterpart(output));
  const std::vector<int64_t> hints = is_symbolic ? symbols_->hints() : std::vector<int64_t>();
  trace_->add_function(made, applied.outputs, rehearsed.inputs.live, rehearsed.part.reads, hints);
  if (!is_symbolic) return "";
  symbolic_->trace().add_function(made, counterparts, rehearsed.inputs.symbolic, rehearsed.symbolic_part.reads, hints);
  for (size_t k = 0; k < counterparts.size(); ++k) symbolic_->set_counterpart(applied.outputs[k], counterparts[k]);
  return "";
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
  if (!is_python_method(cls, "forward") || !is_python_method(cls, "setup_context"))
    return stop(self, Stop::kAutogradFunction, name);
  const bool has_node = builds_node(args, count);
  if (has_node && !is_rehearsable(cls)) return stop(self, Stop::kAutogradFunction, name);
  Ref context = Ref::take(PyObject_GetAttrString(cls, "_backward_cls"));
  if (!context || !PyType_Check(context.get())) {
    PyErr_Clear();
    return stop(self, Stop::kAutogradFunction, name);
  }

  set_place(self);
  uint64_t reads = trace_->data_reads();
  const aten::Trace::Mark begin = trace_->mark();
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
  if (has_node) {
    const std::string why = active_ ? differentiate(self, cls, {args, count}, result, begin) : "";
    if (why.empty()) return result;
    PyObject* const code = code_of(cls, "backward");
    refused()[code] = {Ref::share(code), why};
    const bool is_inside = autograd_apply() && self.outer() &&  // torch 2.15 has apply itself in C
                           reinterpret_cast<PyObject*>(self.code()) == PyFunction_GET_CODE(autograd_apply());
    invalidate(is_inside ? *self.outer() : self, Stop::kAutogradFunction, base::concat(name, ": ", why));
    return result;
  }
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
