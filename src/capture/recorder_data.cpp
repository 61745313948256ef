// Numbers that the program reads from tensors: x.item(), float(x), if x.any(), x.tolist(). The graph reads them at each
// call (aten/reading.h), and what was recorded is right as long as they are what they were. Where one was another, it
// is a symbol in the next recording, and only what is asked about it must hold; a branch that went the other way ends
// the segment from then on.
//
//     first recording      n is 7                    the call in which it is 9 is recorded again
//     second               n is s4                   serves all of them
#include <torch/csrc/Exceptions.h>

#include <bit>

#include "aten/early.h"
#include "aten/reading.h"
#include "capture/recorder.h"
#include "capture/recorder_torch_internal.h"
#include "capture/session.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

// More of them are data, and no numbers that a program is about.
constexpr int64_t kMostNumbers = 32;
constexpr size_t kMostReads = 1024;

// A loop until something is small enough has another length at another call, and each step is a piece of its own.
bool Recorder::reads_in_a_loop(Activation& self) {
  const size_t most = may_end ? 16 : kMostReads;
  const InstructionPath here = path_of(self);
  const auto same = [&](const Segment::Read& read) {
    return read.place.instruction == here.instruction && read.place.cache == here.cache &&
           read.place.calls == here.calls;
  };
  return segment_->reads.size() >= most &&
         static_cast<size_t>(std::count_if(segment_->reads.begin(), segment_->reads.end(), same)) >= most;
}

bool Recorder::may_read(Activation&, const at::Tensor* read) {
  return active_ && reads_data && !rehearsal_ && !uses_func_ && checkpoint_depth_ == 0 && raised_by_.empty() &&
         trace_->may_be_taken_back(read);
}

bool Recorder::can_read(Activation& self, PyObject* tensor) {
  if (!may_read(self, &tensor_of(tensor)) || !torch_operand(self, tensor) || !active_) return false;
  const at::Tensor& live = tensor_of(tensor);
  if (is_wrapped(live) || live.is_complex() || live.numel() == 0 || live.numel() > kMostNumbers) return false;
  if (symbolic_ && symbolic_->alive()) {
    const at::Tensor symbolic = symbolic_->counterpart(live);
    if (!symbolic.defined() || symbolic_->is_symbolic(tensor)) return false;
  }
  if (!reads_in_a_loop(self)) return true;
  const std::optional<graph::ValueId> value = trace_->find(live);  // the step of each parameter
  if (value && segment_->reads.size() < kMostReads && aten::is_apart_from_reads(trace_->graph(), *value)) return true;
  invalidate(self, Stop::kTensorData, "a loop");  // the next recording ends before the first of its steps
  return false;
}

Recorder::Measuring::Measuring(Recorder& recorder, Activation& self) : trace(*recorder.trace_) {
  if (!recorder.may_read(self)) return;
  const bool is_known = recorder.symbolic_ && recorder.symbolic_->alive();
  trace.set_measures(recorder.symbols_.get(), is_known && recorder.reads_symbol_at(self));
}

void Recorder::note_measures(Activation& self, const std::string& name) {
  for (const aten::Trace::Measure& measure : trace_->take_measures()) {
    guards().symbol_count = static_cast<uint32_t>(symbols_->hints().size());
    const int64_t size = symbols_->hints()[measure.symbol];
    if (measure.changes)
      guards().read_checks.push_back({measure.symbol, 2, ReadCheck::kLeast});
    else
      guards().read_checks.push_back(
          {measure.symbol, size, size < 2 && reads_symbol_at(self) ? ReadCheck::kSmall : ReadCheck::kSame});
    segment_->reads.push_back({{measure.symbol}, false, true, name, path_of(self), line_of(self)});
    if (reads_in_a_loop(self)) return invalidate(self, Stop::kTensorData, "a loop");
  }
}

// As eager reads, on the tensor itself. nullptr: it raised, and the recording is over.
Ref Recorder::read_now(Activation& self, const std::string& name, const std::function<PyObject*()>& read) {
  Ref found;
  try {
    Hooked nobody(nullptr);
    trace_->flush(name);
    trace_->leave();
    found = Ref::take(read());
    if (active_) trace_->enter();
  } catch (...) {  // an operator before it raises
    if (!PyErr_Occurred()) torch::translate_exception_to_python(std::current_exception());
  }
  if (!found) {
    const ErrorAside aside;
    invalidate(self, Stop::kRaised, name);
  }
  return found;
}

/// Of a number as Python has it.
static int64_t bits_of(PyObject* number) {
  return PyFloat_Check(number) ? std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(number)) : PyLong_AsLongLong(number);
}

static void collect_numbers(PyObject* object, std::vector<PyObject*>& into) {
  if (!PyList_CheckExact(object)) return into.push_back(object);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) collect_numbers(PyList_GET_ITEM(object, i), into);
}

// Adds the node that reads. False: a Python error is set, or the recording is over.
bool Recorder::add_read(Activation& self, PyObject* tensor, const std::string& name, Segment::Read read) {
  const std::vector<int64_t> symbols(read.symbols.begin(), read.symbols.end());
  const Ref done = Ref::take(torch_leaf(self, name, std::span(&tensor, 1), [&](PyObject* const* of) -> PyObject* {
    try {
      aten::read_numbers(tensor_of(of[0]), symbols);
    } catch (...) {
      torch::translate_exception_to_python(std::current_exception());
      return nullptr;
    }
    return Py_NewRef(Py_None);
  }));
  read.name = name;
  read.place = path_of(self);
  read.line = line_of(self);
  segment_->reads.push_back(std::move(read));
  return static_cast<bool>(done);
}

PyObject* Recorder::read_numbers(Activation& self, PyObject* tensor, const std::string& name) {
  const char* const method = name.ends_with("tolist") ? "tolist" : "item";
  Ref result = read_now(self, name, [&] { return PyObject_CallMethod(tensor, method, nullptr); });
  if (!result || !active_) return result.release();
  std::vector<PyObject*> numbers;
  collect_numbers(result.get(), numbers);
  if (static_cast<int64_t>(numbers.size()) != tensor_of(tensor).numel() ||
      !std::all_of(numbers.begin(), numbers.end(), is_plain_number)) {
    invalidate(self, Stop::kTensorData, name);
    return result.release();
  }
  const bool changes = symbolic_ && symbolic_->alive() && reads_symbol_at(self);
  std::vector<Ref> carriers;
  Segment::Read read;
  for (PyObject* number : numbers) {
    const bool is_float = PyFloat_CheckExact(number);
    // A truth stands for itself, and what a symbol may be has its bounds: 0 and 1 are sizes of their own.
    const bool is_symbol = changes && (is_float || (PyLong_CheckExact(number) && bits_of(number) >= 2));
    const types::Expr symbol =
        is_float ? types::Expr::symbol(new_real(PyFloat_AS_DOUBLE(number))) : new_symbol(bits_of(number));
    read.symbols.push_back(guards().symbol_count - 1);
    if (is_symbol && !is_float) guards().read_checks.push_back({read.symbols.back(), 2, ReadCheck::kLeast});
    const bool is_small = changes && PyLong_CheckExact(number) && bits_of(number) >= 0;
    if (!is_symbol)
      guards().read_checks.push_back(
          {read.symbols.back(), bits_of(number), is_small ? ReadCheck::kSmall : ReadCheck::kSame});
    carriers.push_back(is_symbol ? Ref::take(carrier(number, symbol)) : Ref::share(number));
  }
  if (!add_read(self, tensor, name, std::move(read))) return nullptr;
  if (!active_) return result.release();
  if (!PyList_CheckExact(result.get())) return carriers[0].release();
  // The list is new: what stands in it may be exchanged.
  size_t next = 0;
  const std::function<void(PyObject*)> fill = [&](PyObject* list) {
    enter_made(list);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      if (PyObject* item = PyList_GET_ITEM(list, i); PyList_CheckExact(item))
        fill(item);
      else
        PyList_SetItem(list, i, carriers[next++].release());
    }
  };
  fill(result.get());
  return result.release();
}

int Recorder::read_truth(Activation& self, PyObject* tensor) {
  const Ref found = read_now(self, "bool()", [&]() -> PyObject* {
    const int truth = Semantics::truth(self, tensor);
    return truth < 0 ? nullptr : Py_NewRef(truth ? Py_True : Py_False);
  });
  if (!found) return -1;
  const bool truth = found.get() == Py_True;
  if (!active_) return truth;
  // What is no truth itself has one: a number that is not zero.
  static PyObject* const torch = PyImport_ImportModule("torch");
  const Ref condition = tensor_of(tensor).scalar_type() == at::kBool
                            ? Ref::share(tensor)
                            : Ref::take(torch_leaf(self, "bool()", std::span(&tensor, 1), [&](PyObject* const* of) {
                                return PyObject_CallMethod(torch, "ne", "Oi", of[0], 0);
                              }));
  if (!condition) return -1;
  if (!active_) return truth;
  Segment::Read read;
  new_symbol(truth);
  read.symbols = {guards().symbol_count - 1};
  read.is_branch = true;
  guards().read_checks.push_back({read.symbols[0], truth});
  return add_read(self, condition.get(), "bool()", std::move(read)) ? truth : -1;
}

}  // namespace magneto::capture
