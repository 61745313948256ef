#include "capture/symbolic_trace.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "capture/tensor_meta.h"
#include "graph/text.h"

namespace magneto::capture {

using graph::ValueId;
using types::Expr;

namespace {

// A Python int or torch.SymInt. Nothing: neither, or a symbol of somebody else.
std::optional<Expr> expression_of(PyObject* object) {
  if (!torch::is_symint(py::handle(object))) return std::nullopt;
  return aten::Symbols::from_torch(py::cast<c10::SymInt>(py::handle(object)));
}

// torch wraps x * n into a tensor of a number that nobody is to read, and keeps n in an attribute.
std::optional<graph::Arg> unwrap(const at::Tensor& wrapped) {
  py::gil_scoped_acquire gil;
  Ref object = Ref::take(THPVariable_Wrap(wrapped));
  Ref number = Ref::take(object ? PyObject_GetAttrString(object.get(), "_wrapped_number") : nullptr);
  if (!number) {
    PyErr_Clear();
    return std::nullopt;
  }
  if (torch::is_symfloat(py::handle(number.get())))
    return aten::Symbols::from_torch(py::cast<c10::SymFloat>(py::handle(number.get())));
  auto expr = expression_of(number.get());
  return expr ? std::optional<graph::Arg>(std::move(*expr)) : std::nullopt;
}

c10::SymNode inner(c10::SymNodeImpl& node) {
  const auto* python = dynamic_cast<const torch::impl::PythonSymNodeImpl*>(&node);
  if (!python) return {};
  py::gil_scoped_acquire gil;
  const py::handle object = python->getPyObj();
  return py::isinstance<c10::SymNodeImpl>(object) ? py::cast<c10::SymNode>(object) : c10::SymNode();
}

bool is_sequence(PyObject* object) {
  return PyTuple_CheckExact(object) || PyList_CheckExact(object) || Py_TYPE(object) == size_type();
}

bool is_whole(PyObject* object) {
  const auto* slice = reinterpret_cast<PySliceObject*>(object);
  return slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None;
}

}  // namespace

PyObject* indexed(PyObject* tensor, PyObject* key) {
  const auto is_symbol = [](PyObject* item) { return !PyLong_Check(item) && torch::is_symint(py::handle(item)); };
  const bool is_tuple = PyTuple_CheckExact(key);
  const std::span<PyObject* const> items =
      is_tuple ? std::span<PyObject* const>(&PyTuple_GET_ITEM(key, 0), PyTuple_GET_SIZE(key))
               : std::span<PyObject* const>(&key, 1);
  const auto is_simple = [&](PyObject* item) {
    return is_symbol(item) || PyLong_CheckExact(item) || (PySlice_Check(item) && is_whole(item));
  };
  if (std::none_of(items.begin(), items.end(), is_symbol) || !std::all_of(items.begin(), items.end(), is_simple))
    return PyObject_GetItem(tensor, key);
  Ref made = Ref::share(tensor);
  int dim = 0;
  for (PyObject* item : items) {
    if (PySlice_Check(item))
      ++dim;
    else
      made = Ref::take(PyObject_CallMethod(made.get(), "select", "iO", dim, item));
    if (!made) return nullptr;
  }
  return made.release();
}

void prepare_symbolic_traces() {
  aten::Symbols::set_unwrap(unwrap);
  aten::Symbols::set_inner(inner);
}

SymbolicTrace::SymbolicTrace(const aten::Trace& live, std::shared_ptr<aten::Symbols> symbols)
    : live_(live), symbols_(symbols), trace_(std::move(symbols), live) {}

void SymbolicTrace::give_up(std::string why) {
  if (!alive()) return;
  why_ = why.empty() ? "?" : std::move(why);
  counterparts_.clear();
}

void SymbolicTrace::add_input(ValueId live, const at::Tensor& tensor, types::Sizes sizes, types::Sizes strides,
                              Expr offset, const std::string& name) {
  if (!alive() || counterparts_.count(live)) return;
  at::Tensor made = trace_.stand_in(tensor, std::move(sizes), std::move(strides), std::move(offset), name);
  if (tensor.requires_grad()) made.set_requires_grad(true);
  live_inputs_[*trace_.find(made)] = live;
  counterparts_[live] = Ref::take(THPVariable_Wrap(std::move(made)));
}

Ref SymbolicTrace::translate(PyObject* operand, const NumberOf& number_of) {
  if (is_tensor(operand)) {
    const auto value = live_.find(tensor_of(operand));
    const auto found = value ? counterparts_.find(*value) : counterparts_.end();
    if (found != counterparts_.end()) return found->second;
    give_up("a tensor that the symbolic trace does not know");
    return {};
  }
  const auto symbol = number_of(operand);
  if (const auto* real = symbol ? std::get_if<graph::Real>(&*symbol) : nullptr)
    return Ref::take(torch::get_symfloat_class()(py::cast(symbols_->to_torch(*real).toSymNodeImpl())).release().ptr());
  if (const auto* expr = symbol ? std::get_if<Expr>(&*symbol) : nullptr; expr && !expr->is_constant()) {
    if (!symbols_->admit(*expr)) {
      symbols_->fix(*expr);
      return Ref::take(PyLong_FromLongLong(symbols_->hint(*expr)));
    }
    return Ref::take(py::cast(symbols_->to_torch(*expr)).release().ptr());
  }
  if (is_sequence(operand)) return translate_sequence(operand, number_of);
  if (PySlice_Check(operand)) {
    auto* slice = reinterpret_cast<PySliceObject*>(operand);
    Ref start = translate(slice->start, number_of), stop = translate(slice->stop, number_of),
        step = translate(slice->step, number_of);
    return alive() ? Ref::take(PySlice_New(start.get(), stop.get(), step.get())) : Ref();
  }
  return Ref::share(operand);
}

at::Tensor SymbolicTrace::counterpart(const at::Tensor& live) const {
  const auto value = live_.find(live);
  const auto found = value ? counterparts_.find(*value) : counterparts_.end();
  return found == counterparts_.end() ? at::Tensor() : tensor_of(found->second.get());
}

void SymbolicTrace::set_counterpart(const at::Tensor& live, const at::Tensor& symbolic) {
  if (const auto value = live_.find(live)) counterparts_[*value] = Ref::take(THPVariable_Wrap(symbolic));
}

void SymbolicTrace::forget(const std::vector<ValueId>& live) {
  for (const ValueId id : live) counterparts_.erase(id);
}

bool SymbolicTrace::is_symbolic(PyObject* operand) const {
  if (is_tensor(operand)) {
    const at::Tensor symbolic = counterpart(tensor_of(operand));
    return symbolic.defined() && symbolic.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  }
  if (!is_sequence(operand)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operand); ++i)
    if (is_symbolic(PySequence_Fast_GET_ITEM(operand, i))) return true;
  return false;
}

Ref SymbolicTrace::translate_sequence(PyObject* sequence, const NumberOf& number_of) {
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  const bool list = PyList_CheckExact(sequence);
  Ref copy = Ref::take(list ? PyList_New(count) : PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Ref item = translate(PySequence_Fast_GET_ITEM(sequence, i), number_of);
    if (!item) return {};
    if (list)
      PyList_SET_ITEM(copy.get(), i, item.release());
    else
      PyTuple_SET_ITEM(copy.get(), i, item.release());
  }
  return copy;
}

Ref SymbolicTrace::pair(Ref live, PyObject* symbolic, const Tag& tag) {
  if (!alive()) return live;
  if (is_tensor(live.get())) {
    const auto value = live_.find(tensor_of(live.get()));
    if (value && is_tensor(symbolic))
      counterparts_[*value] = Ref::share(symbolic);
    else
      give_up("a result that is a tensor in one world only");
    return live;
  }
  if (auto expr = expression_of(symbolic)) {
    if (!PyLong_CheckExact(live.get()) || symbols_->hint(*expr) != PyLong_AsLongLong(live.get())) {
      give_up("a size that differs from its hint");
      return live;
    }
    return expr->is_constant() ? live : Ref::take(tag(live.get(), std::move(*expr)));
  }
  if (PyTuple_Check(live.get()) || PyList_CheckExact(live.get())) return pair_sequence(std::move(live), symbolic, tag);
  if (PyLong_Check(live.get()) || PyFloat_Check(live.get())) {
    const int same =
        Py_TYPE(symbolic) == Py_TYPE(live.get()) ? PyObject_RichCompareBool(live.get(), symbolic, Py_EQ) : 0;
    if (same != 1) give_up("a number that differs");
    PyErr_Clear();
  }
  return live;
}

Ref SymbolicTrace::pair_sequence(Ref live, PyObject* symbolic, const Tag& tag) {
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(live.get());
  if (!(PyTuple_Check(symbolic) || PyList_Check(symbolic)) || PySequence_Fast_GET_SIZE(symbolic) != count) {
    give_up("results of different lengths");
    return live;
  }
  std::vector<Ref> items;
  bool replaced = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(live.get(), i);
    items.push_back(pair(Ref::share(item), PySequence_Fast_GET_ITEM(symbolic, i), tag));
    replaced = replaced || items.back().get() != item;
  }
  if (!replaced) return live;
  Ref tuple = Ref::take(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(tuple.get(), i, items[static_cast<size_t>(i)].release());
  if (PyTuple_CheckExact(live.get())) return tuple;
  if (Py_TYPE(live.get()) == size_type())
    return Ref::take(PyObject_CallOneArg(reinterpret_cast<PyObject*>(size_type()), tuple.get()));
  if (PyList_CheckExact(live.get())) return Ref::take(PySequence_List(tuple.get()));
  give_up("sizes in an unusual container");
  return live;
}

std::shared_ptr<aten::Program> SymbolicTrace::finish(const std::vector<ValueId>& outputs, const graph::Graph& live,
                                                     std::vector<ValueId>* inputs) {
  if (!alive()) return nullptr;
  std::vector<ValueId> ours;
  for (ValueId output : outputs) {
    const auto found = counterparts_.find(output);
    const auto value = found == counterparts_.end() ? std::nullopt : trace_.find(tensor_of(found->second.get()));
    if (!value) {
      give_up("an output that the symbolic trace does not know");
      return nullptr;
    }
    ours.push_back(*value);
  }
  std::vector<ValueId> taken;
  auto program = trace_.finish(ours, &taken);
  // An input that only tells a size is one of the symbolic trace alone.
  if (print(graph::compact(graph::evaluate(program->graph(), symbols_->hints()), nullptr)) != print(live)) {
    give_up("the graphs differ");
    return nullptr;
  }
  inputs->clear();
  for (ValueId input : taken) inputs->push_back(live_inputs_.at(input));
  return program;
}

}  // namespace magneto::capture
