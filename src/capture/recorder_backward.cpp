// torch.autograd.grad inside of a program. Pending tensors have torch's own history, so its engine runs natively, and
// the operators of the backward are recorded as any others are. For that all that it runs must have been recorded, too.
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/python_cpp_function.h>

#include "aten/history.h"
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"
#include "capture/recorder_torch_internal.h"
#include "capture/substitutes.h"

namespace magneto::capture {

using torch::autograd::Node;

static std::vector<at::Tensor> tensors_in(PyObject* tuple) {
  std::vector<at::Tensor> found;
  for (Py_ssize_t i = 0; PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple); ++i)
    if (is_tensor(PyTuple_GET_ITEM(tuple, i))) found.push_back(tensor_of(PyTuple_GET_ITEM(tuple, i)));
  return found;
}

/// It runs code of the program: a custom function's, or hooks.
static bool runs_python(const aten::NodePtr& node) {
  if (!node->pre_hooks().empty() || !node->post_hooks().empty() || !node->tensor_pre_hooks().empty() ||
      !node->retains_grad_hooks().empty())
    return true;
  const Ref python = Ref::take(torch::autograd::functionToPyObject(node));
  return !python || is_python_class(Py_TYPE(python.get()));
}

bool Recorder::is_recorded(const Node& node) const {
  return node.sequence_nr() >= first_node_ && node.sequence_nr() < UINT64_MAX &&
         node.thread_id() == at::RecordFunction::currentThreadId();
}

// _engine_run_backward(outputs, their gradients, retain_graph, create_graph, inputs, allow_unused, accumulate_grad=...)
PyObject* Recorder::run_engine(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                               PyObject* kwnames) {
  const auto refuse = [&] { return stop(self, Stop::kRunsBackward, "torch.autograd.grad"); };
  const size_t count = total_count(nargsf, kwnames);
  const bool is_plain = PyVectorcall_NARGS(nargsf) == 6 && count == 7 && PyBool_Check(args[2]) && args[6] == Py_False;
  if (!is_plain || rehearsal_ || uses_func_) return refuse();
  const std::vector<at::Tensor> outputs = tensors_in(args[0]), inputs = tensors_in(args[4]);
  for (const at::Tensor& tensor : outputs)
    if (!tensor.requires_grad()) return refuse();
  for (const at::Tensor& tensor : inputs)
    if (!tensor.requires_grad()) return refuse();
  std::vector<aten::NodePtr> nodes = aten::nodes_between(outputs, inputs);
  for (const aten::NodePtr& node : nodes)
    if (!is_recorded(*node) || runs_python(node)) return refuse();
  for (size_t i = 0; i < count; ++i)
    if (!torch_operand(self, args[i])) return stop(self, unreadable_stop_, unreadable_detail_);
  if (args[2] == Py_False)
    for (const aten::NodePtr& node : nodes) freed_.emplace(node.get(), node);
  const size_t positional = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  return torch_leaf(self, "torch.autograd.grad", {args, count}, [&](PyObject* const* of) {
    const aten::Trace::EngineRun running(*aten::current_trace());
    return PyObject_Vectorcall(function, of, positional, kwnames);
  });
}

// The tensor becomes a leaf. What has been recorded needs no gradient of it: who asks for one runs a backward that is
// recorded, too. So a replay leaves it as it is, and only what leaves must not tell the difference.
PyObject* Recorder::begin_history(Activation& self, PyObject* tensor) {
  if (rehearsal_ || uses_func_ || !is_plain_tensor(tensor) || !made_here(tensor_of(tensor)) ||
      !tensor_of(tensor).is_leaf() || tensor_of(tensor).is_inference())
    return nullptr;
  return torch_leaf(self, "Tensor.requires_grad_", std::span(&tensor, 1),
                    [](PyObject* const* of) { return PyObject_CallMethod(of[0], "requires_grad_", nullptr); });
}

void Recorder::note_leaf(const at::Tensor& tensor) {
  if (std::none_of(leaves_.begin(), leaves_.end(), [&](const MadeLeaf& leaf) { return leaf.tensor.is_same(tensor); }))
    leaves_.push_back({tensor, place()});
}

/// A backward has let go of what the node saved; nodes that save nothing may run again.
static bool is_freed(const aten::NodePtr& node) {
  const Ref python = Ref::take(torch::autograd::functionToPyObject(node));
  PyObject *name, *member;
  Py_ssize_t position = 0;
  PyObject* const dict = python ? Py_TYPE(python.get())->tp_dict : nullptr;
  while (dict && PyDict_Next(dict, &position, &name, &member)) {
    if (!PyUnicode_Check(name) || !std::string_view(PyUnicode_AsUTF8(name)).starts_with("_saved_")) continue;
    if (Ref::take(PyObject_GetAttr(python.get(), name))) continue;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const Ref error_type = Ref::take(type), error = Ref::take(value), frames = Ref::take(traceback);
    const Ref text = Ref::take(error ? PyObject_Str(error.get()) : nullptr);
    const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (words && strstr(words, "already been freed")) return true;
    PyErr_Clear();
  }
  return false;
}

bool Recorder::has_freed_history(const at::Tensor& tensor) const {
  return aten::comes_from(tensor,
                          [&](const aten::NodePtr& node) { return freed_.count(node.get()) > 0 && is_freed(node); });
}

// Whether it needs a gradient because of tensors that became leaves here, and of nothing else.
bool Recorder::needs_made_leaf(const at::Tensor& tensor) const {
  if (leaves_.empty() || !tensor.requires_grad()) return false;
  return !aten::comes_from(tensor, [&](const aten::NodePtr& node) {
    const at::Tensor leaf = aten::leaf_of(*node);
    if (!leaf.defined()) return !is_recorded(*node);
    return std::none_of(leaves_.begin(), leaves_.end(),
                        [&](const MadeLeaf& made) { return made.tensor.is_same(leaf); });
  });
}

bool Recorder::settle_histories(RecipeWriter& writer, std::vector<Effect>& effects) {
  if (freed_.empty() && leaves_.empty()) return true;
  const auto refuse = [&] {
    stop_record_ = {Stop::kTensorAttribute, "requires_grad",
                    leaves_.empty() ? StopRecord::Place() : leaves_.back().place, &innermost_root()};
    return false;
  };
  static PyObject* const free_history = own_function("_free_history");
  for (const graph::ValueId input : trace_->graph().inputs()) {
    const at::Tensor& tensor = trace_->input_tensor(input);
    if (needs_made_leaf(tensor) || has_freed_history(tensor)) return refuse();
  }
  const std::vector<PyObject*> leaving = writer.tensors();
  for (PyObject* tensor : leaving) {
    if (has_freed_history(tensor_of(tensor))) {
      Effect effect;
      effect.callable = Ref::share(free_history);
      effect.args.push_back(writer.write(tensor));
      effects.push_back(std::move(effect));
    } else if (needs_made_leaf(tensor_of(tensor))) {
      return refuse();
    }
  }
  return true;
}

}  // namespace magneto::capture
