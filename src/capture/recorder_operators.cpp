// Operators, iteration, imports and the containers a frame fills; operands of torch calls.
#include <opcode.h>
#include <torch/csrc/Exceptions.h>

#include "capture/content.h"
#include "capture/evaluator.h"
#include "capture/faults.h"
#include "capture/libraries.h"
#include "capture/recorder.h"
#include "capture/recorder_torch_internal.h"
#include "capture/script.h"
#include "capture/substitutes.h"
#include "capture/tensor_meta.h"
#include "evaluator/evaluator.h"
#include "evaluator/opcodes.h"
#include "ops/ranges.h"

namespace magneto::capture {

// ---------------------------------------------------------------------------------------------------- torch

// Tables that look things up in Python are filled here: while something is recorded, the look-up itself would be.
void Recorder::prepare() {
  torch_folder();
  standard_folder();
  tensor_base();
  autograd_apply();
  Script::prepare();
  is_python_class(&PyBaseObject_Type);
  PyObject* self;
  call_rule(PyDict_GetItemString(PyEval_GetBuiltins(), "len"), &self);
  prepare_symbolic_traces();
  prepare_reals();
}

void Recorder::set_place(Activation& self) {
  // The innermost line that is not torch's own: what the user wrote.
  Activation* place = &self;
  while (place && place != &root_) {
    const char* file = PyUnicode_AsUTF8(place->code()->co_filename);
    if (!is_in_folder(file, torch_folder()) && !is_substitute(place->function())) break;
    place = place->outer();
  }
  if (!place) place = &self;
  const char *file = PyUnicode_AsUTF8(place->code()->co_filename), *name = PyUnicode_AsUTF8(place->code()->co_name);
  trace_->set_place(file, place->current_line(), name);
  if (symbolic_) symbolic_->trace().set_place(file, place->current_line(), name);
}

/// A member of an IntEnum: an int of a class that changes nothing of what ints do as numbers.
static bool is_named_number(PyObject* object) {
  const PyTypeObject* type = Py_TYPE(object);
  return PyLong_Check(object) && !PyLong_CheckExact(object) && !PyBool_Check(object) && type->tp_as_number &&
         memcmp(type->tp_as_number, PyLong_Type.tp_as_number, sizeof(PyNumberMethods)) == 0;
}

bool Recorder::torch_operand(Activation& self, PyObject* object, int depth) {
  fault_point("primitive");
  if (is_tensor(object)) return usable_tensor(object, "an unknown place");
  const auto is_real = real(object);
  const bool takes_symbols = symbolic_ && symbolic_->alive() && (is_real || !PyFloat_Check(object));
  if (!takes_symbols) {
    specialise(object);
  } else if (is_real) {
    passed_reals_.push_back(*is_real);
  } else if (auto expr = number(object); expr && !expr->is_constant()) {
    passed_.emplace_back(*expr, PyLong_AsLongLong(object));  // fixed at the end, if the symbolic trace fails
  }
  if (is_value(object)) return true;
  PyTypeObject* type = Py_TYPE(object);
  if (PyTuple_Check(object) || PyList_Check(object)) {
    if (is_outside(object)) guard_all(self, object);
    for (Py_ssize_t i = 0; depth < 6 && i < PySequence_Fast_GET_SIZE(object); ++i)
      if (!torch_operand(self, PySequence_Fast_GET_ITEM(object, i), depth + 1)) return false;
    return true;
  }
  if (type == &PySlice_Type) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return torch_operand(self, slice->start, depth + 1) && torch_operand(self, slice->stop, depth + 1) &&
           torch_operand(self, slice->step, depth + 1);
  }
  if (is_numpy_number(type) && !floating(object)) return true;
  if (is_named_number(object)) {
    if (floating(object)) pin(object);
    guard_class(object);
    return true;
  }
  if (type == &PyRange_Type || (strncmp(type->tp_name, "torch.", 6) == 0 &&
                                strcmp(type->tp_name, "torch.Generator") != 0 && !is_python_class(type)))
    return true;
  if (type == &PyType_Type || PyType_Check(object)) return true;  // x.to(torch.FloatTensor), dtype=float
  unreadable_stop_ = Stop::kOpaqueSlot;
  unreadable_detail_ = type->tp_name;
  return false;
}

void Recorder::adopt_torch(Activation& self, PyObject* result, const std::string& name, int depth) try {
  fault_point("note");
  if (!active_ || is_value(result)) return;
  if (is_tensor(result)) {
    const at::Tensor& tensor = tensor_of(result);
    if (!info(result) && !made_here(tensor))
      invalidate(self, Stop::kUnknownTensor, name);
    else if (!info(result) && tensor.is_leaf() && tensor.requires_grad() && !tensor.is_view() && !is_wrapped(tensor))
      note_leaf(tensor);
    return;
  }
  if (info(result)) return;
  if (PyTuple_Check(result) || PyList_Check(result)) {
    enter_made(result);
    for (Py_ssize_t i = 0; depth < 4 && i < PySequence_Fast_GET_SIZE(result); ++i)
      adopt_torch(self, PySequence_Fast_GET_ITEM(result, i), name, depth + 1);
    return;
  }
  if (PyDict_CheckExact(result)) {  // of _group_tensors_by_device_and_dtype
    enter_made(result);
    PyObject *key, *value;
    for (Py_ssize_t at = 0; depth < 4 && PyDict_Next(result, &at, &key, &value);) {
      adopt_torch(self, key, name, depth + 1);
      adopt_torch(self, value, name, depth + 1);
    }
    return;
  }
  adopt_result(self, result, name);
} catch (const std::exception& error) {
  fault(error.what());
}

// ---------------------------------------------------------------------------------------------------- operators

static const char* const kBinaryMethods[] = {"__add__", "__and__",     "__floordiv__", "__lshift__", "__matmul__",
                                             "__mul__", "__mod__",     "__or__",       "__pow__",    "__rshift__",
                                             "__sub__", "__truediv__", "__xor__"};
static const char* const kBinaryNames[] = {"+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"};

PyObject* Recorder::unary(Activation& self, int which, PyObject* operand) {
  if (!active_) return Semantics::unary(self, which, operand);
  if (which == static_cast<int>(Unary::kNot)) {
    int value = truth(self, operand);
    if (value == kStopStatus) return kStop;
    return value < 0 ? nullptr : Py_NewRef(value ? Py_False : Py_True);
  }
  if (is_tensor(operand)) {
    if (!torch_operand(self, operand)) return stop(self, unreadable_stop_, unreadable_detail_);
    return torch_leaf(self, "a unary operator", std::span(&operand, 1),
                      [&](PyObject* const* of) { return Semantics::unary(self, which, of[0]); });
  }
  if (which == static_cast<int>(Unary::kNegative))
    if (auto expr = number(operand)) {
      Ref plain = Ref::take(Semantics::unary(self, which, operand));
      if (!plain) return nullptr;
      if (is_exactly(-*expr, plain.get())) {
        guard_number(-*expr);
        return new_number(plain.get(), -*expr);
      }
    }
  if (real(operand) && which == static_cast<int>(Unary::kNegative)) {
    Ref plain = Ref::take(Semantics::unary(self, which, operand));
    return plain ? computed_real(RealStep::Op::kNegative, nullptr, std::span(&operand, 1), plain.get()) : nullptr;
  }
  if (real(operand) && which == static_cast<int>(Unary::kPositive)) return Py_NewRef(operand);
  specialise(operand);
  if (!slot_known(self, operand)) return stop(self, unreadable_stop_, unreadable_detail_);
  if (!is_value(operand)) guard_class(operand);
  PyObject* result = Semantics::unary(self, which, operand);
  if (result && !is_value(result)) adopt_result(self, result, "a unary operator");
  return result;
}

/// An operator of two ints, one of them a symbol, as an expression. Nothing: it is none, or its numbers are too large.
std::optional<types::Expr> Recorder::computed(int which, PyObject* left, PyObject* right) {
  const auto a = number(left), b = number(right);
  if ((!a && !b) || !fits_symbol(left) || !fits_symbol(right)) return std::nullopt;
  const types::Expr x = a ? *a : types::Expr(PyLong_AsLongLong(left));
  const types::Expr y = b ? *b : types::Expr(PyLong_AsLongLong(right));
  constexpr uint64_t kMost = uint64_t{1} << 62;
  uint64_t product = 0;
  const bool small = x.norm() < kMost / 2 && y.norm() < kMost / 2;
  const bool divides = small && y.is_constant() && y != types::Expr(0);
  switch (which) {
    case NB_ADD:
      return small ? std::optional(x + y) : std::nullopt;
    case NB_SUBTRACT:
      return small ? std::optional(x - y) : std::nullopt;
    case NB_MULTIPLY:
      if (__builtin_mul_overflow(x.norm(), y.norm(), &product) || product >= kMost) return std::nullopt;
      return x * y;
    case NB_FLOOR_DIVIDE:
      return divides ? std::optional(types::Expr::floor_div(x, y)) : std::nullopt;
    case NB_REMAINDER:
      return divides ? std::optional(types::Expr::mod(x, y)) : std::nullopt;
    default:
      return std::nullopt;
  }
}

/// Whether the expression gives this very int now.
bool Recorder::is_exactly(const types::Expr& expr, PyObject* value) const {
  if (!fits_symbol(value)) return false;
  const auto now = expr.evaluate_exactly(symbols_->hints());
  return now && *now == PyLong_AsLongLong(value);
}

static const char* const kInPlaceNames[] = {"__iadd__", "__iand__",     "__ifloordiv__", "__ilshift__", "__imatmul__",
                                            "__imul__", "__imod__",     "__ior__",       "__ipow__",    "__irshift__",
                                            "__isub__", "__itruediv__", "__ixor__"};

/// Whether `left op= right` is C code that may change left. One written in Python comes through the hook; where there
/// is none, it is left = left op right.
static bool changes_in_c(PyTypeObject* type, int which) {
  Ref name = Ref::take(PyUnicode_InternFromString(kInPlaceNames[which]));
  PyObject* found = _PyType_Lookup(type, name.get());
  return found && !PyFunction_Check(found);
}

/// The method that does to a container what the operator does. New reference; nullptr: none does.
static PyObject* method_in_place(PyObject* left, int which, PyObject* right) {
  PyTypeObject* type = Py_TYPE(left);
  PyTypeObject* base = nullptr;
  const char* method = nullptr;
  if (which == NB_ADD && inherits(type, "__iadd__", &PyList_Type) && (PyList_Check(right) || PyTuple_Check(right)))
    base = &PyList_Type, method = "extend";
  else if (which == NB_OR && inherits(type, "__ior__", &PySet_Type) && PyAnySet_Check(right))
    base = &PySet_Type, method = "update";
  else if (which == NB_OR && inherits(type, "__ior__", &PyDict_Type) && PyDict_Check(right))
    base = &PyDict_Type, method = "update";
  else if (which == NB_OR && inherits(type, "__ior__", &PyODict_Type) && PyDict_Check(right))
    base = &PyODict_Type, method = "update";
  return base ? PyObject_GetAttrString(reinterpret_cast<PyObject*>(base), method) : nullptr;
}

PyObject* Recorder::binary(Activation& self, int which, PyObject* left, PyObject* right) {
  if (!active_) return Semantics::binary(self, which, left, right);
  int base = which >= 13 ? which - 13 : which;
  if (is_tensor(left) || is_tensor(right)) {
    // A Python object beside a tensor may answer the operator itself.
    const auto is_plain = [](PyObject* side) {
      return is_tensor(side) || is_value(side) || PyTuple_Check(side) || PyList_Check(side) || is_named_number(side) ||
             is_numpy_number(Py_TYPE(side));
    };
    if (is_plain(left) && is_plain(right)) {
      if (!torch_operand(self, left) || !torch_operand(self, right))
        return stop(self, unreadable_stop_, unreadable_detail_);
      PyObject* operands[] = {left, right};
      return torch_leaf(self, std::string("the operator ") + kBinaryNames[base], operands,
                        [&](PyObject* const* of) { return Semantics::binary(self, which, of[0], of[1]); });
    }
    if (!slot_known(self, left) || !slot_known(self, right)) return stop(self, unreadable_stop_, unreadable_detail_);
    return stop(self, Stop::kOpaqueSlot, Py_TYPE(is_tensor(left) ? right : left)->tp_name);
  }
  if (auto expr = computed(base, left, right)) {
    Ref plain = Ref::take(Semantics::binary(self, which, left, right));
    if (!plain) return nullptr;
    if (is_exactly(*expr, plain.get())) {
      guard_number(*expr);
      return new_number(plain.get(), *expr);
    }
  }
  bool handled = false;
  PyObject* made = binary_real(self, base, left, right, &handled);
  if (handled) return made;
  if (PyUnicode_CheckExact(left)) {
    made = binary_text(self, base, left, right);
    if (made || PyErr_Occurred()) return made;
    if (PyDict_Check(right) && !readable(self, right)) return stop(self, unreadable_stop_, unreadable_detail_);
  }
  // Joining sequences looks at none of their elements.
  const auto joins = [](PyObject* side) { return PyTuple_Check(side) || PyList_Check(side); };
  if (base != NB_ADD || !joins(left) || !joins(right)) {
    const bool repeats = base == NB_MULTIPLY;  // nor does repeating one
    if (!repeats || !joins(left)) specialise(left);
    if (!repeats || !joins(right)) specialise(right);
  }
  if (is_value(left) && is_value(right)) return Semantics::binary(self, which, left, right);
  if (!slot_guarded(self, left, kBinaryMethods[base]) || !slot_guarded(self, right, ""))
    return stop(self, unreadable_stop_, unreadable_detail_);
  if (which >= 13 && is_outside(left) && changes_in_c(Py_TYPE(left), base)) {
    Ref method = Ref::take(method_in_place(left, base, right));
    if (!method) return stop(self, Stop::kEffect, "an in-place operator");
    PyObject* args[] = {nullptr, left, right};
    PyObject* done = call_effect(self, method.get(), CallClass::kEffectCopy, args + 1,
                                 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr, nullptr);
    if (done == kStop || !done) return done;
    Py_DECREF(done);
    return Py_NewRef(left);
  }
  if (!is_value(left)) guard_class(left);
  if (!is_value(right)) guard_class(right);
  for (PyObject* side : {left, right})
    if (PyList_Check(side) || PyTuple_Check(side) || PyDict_Check(side) || PyAnySet_Check(side)) {
      if (is_outside(side)) guard_all(self, side);
    }
  PyObject* result = Semantics::binary(self, which, left, right);
  if (result && active_ && !is_value(result) && !info(result)) {
    if (Py_REFCNT(result) == 1)
      enter_made(result);
    else
      adopt_result(self, result, "an operator");
  }
  return result;
}

// An object without an == of its own is equal to itself only; so are tensors as keys, and what id() gave.
PyObject* Recorder::known_by_address(PyObject* object) {
  if (auto found = ids_.find(object); found != ids_.end()) return found->second;
  if (is_value(object)) return nullptr;
  return is_tensor(object) || Py_TYPE(object)->tp_richcompare == PyBaseObject_Type.tp_richcompare ? object : nullptr;
}

PyObject* Recorder::compare(Activation& self, PyObject* left, PyObject* right, int op) {
  if (!active_) return Semantics::compare(self, left, right, op);
  if (is_tensor(left) || is_tensor(right)) {
    if (!torch_operand(self, left) || !torch_operand(self, right))
      return stop(self, unreadable_stop_, unreadable_detail_);
    PyObject* operands[] = {left, right};
    return torch_leaf(self, "a comparison", operands,
                      [&](PyObject* const* of) { return Semantics::compare(self, of[0], of[1], op); });
  }
  if (ids_.count(left) || ids_.count(right)) {
    guard_pair(left, right);
    return Semantics::compare(self, left, right, op);
  }
  if ((real(left) || real(right)) && is_plain_number(left) && is_plain_number(right)) {
    PyObject* result = Semantics::compare(self, left, right, op);
    if (result) guard_comparison(left, right, op, result == Py_True);
    return result;
  }
  auto a = number(left), b = number(right);
  if ((a || b) && PyLong_CheckExact(left) && PyLong_CheckExact(right)) {
    PyObject* result = Semantics::compare(self, left, right, op);
    // A number that needs more than 64 bits is beyond all that symbols may be.
    if (!result || !fits_symbol(left) || !fits_symbol(right)) return result;
    types::Expr x = a ? *a : types::Expr(PyLong_AsLongLong(left)), y = b ? *b : types::Expr(PyLong_AsLongLong(right));
    bool holds = result == Py_True;
    using types::Relation;
    types::Condition condition;
    switch (op) {
      case Py_EQ:
        condition = {x, holds ? Relation::kEq : Relation::kNe, y};
        break;
      case Py_NE:
        condition = {x, holds ? Relation::kNe : Relation::kEq, y};
        break;
      case Py_LT:
        condition = holds ? types::Condition{x, Relation::kLt, y} : types::Condition{y, Relation::kLe, x};
        break;
      case Py_LE:
        condition = holds ? types::Condition{x, Relation::kLe, y} : types::Condition{y, Relation::kLt, x};
        break;
      case Py_GT:
        condition = holds ? types::Condition{y, Relation::kLt, x} : types::Condition{x, Relation::kLe, y};
        break;
      default:
        condition = holds ? types::Condition{y, Relation::kLe, x} : types::Condition{x, Relation::kLt, y};
        break;
    }
    guards().conditions.push_back(std::move(condition));
    return result;
  }
  if ((op == Py_EQ || op == Py_NE) && (carries_number(left) || carries_number(right))) {
    const auto same = equal_elements(self, left, right);
    if (same) return PyBool_FromLong(*same == (op == Py_EQ));
    if (!active_) return Semantics::compare(self, left, right, op);
  }
  if (!readable(self, left) || !readable(self, right)) return stop(self, unreadable_stop_, unreadable_detail_);
  guard_pair(left, right);
  PyObject* result = Semantics::compare(self, left, right, op);
  if (result && !is_value(result)) adopt_result(self, result, "a comparison");
  return result;
}

// Sizes are compared one after the other until two differ, as tuple and list do it: those after them do not matter.
std::optional<bool> Recorder::equal_elements(Activation& self, PyObject* left, PyObject* right) {
  const auto is_plain = [](PyObject* side) {
    if (!PyTuple_CheckExact(side) && !PyList_CheckExact(side) && Py_TYPE(side) != size_type()) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(side); ++i)
      if (PyObject* item = PySequence_Fast_GET_ITEM(side, i); !PyLong_CheckExact(item) && item != Py_None) return false;
    return true;
  };
  if (!is_plain(left) || !is_plain(right) || PyList_Check(left) != PyList_Check(right)) return std::nullopt;
  for (PyObject* side : {left, right})
    if (is_outside(side) && (!guard_all(self, side) || !active_)) return std::nullopt;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(left);
  if (count != PySequence_Fast_GET_SIZE(right)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref same =
        Ref::take(compare(self, PySequence_Fast_GET_ITEM(left, i), PySequence_Fast_GET_ITEM(right, i), Py_EQ));
    if (same.get() != Py_True) return false;
  }
  return true;
}

// min(n, m, ...) and max(...): the first of those that are smallest, as comparisons find it.
PyObject* Recorder::call_extremum(Activation& self, std::span<PyObject* const> numbers, int better) {
  PyObject* best = numbers[0];
  for (PyObject* number : numbers.subspan(1))
    if (const Ref wins = Ref::take(compare(self, number, best, better)); wins.get() == Py_True) best = number;
  return Py_NewRef(best);
}

bool Recorder::is_made_of_sizes(PyObject* object) {
  const bool is_plain = PyTuple_CheckExact(object) || PyList_CheckExact(object) || Py_TYPE(object) == size_type();
  if (!is_plain || is_outside(object)) return false;
  bool any = false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(object, i);
    if (!PyLong_CheckExact(item)) return false;
    any = any || is_symbolic(item);
  }
  return any;
}

PyObject* Recorder::call_total(Activation& self, PyObject* numbers, int which) {
  Ref total = Ref::take(PyLong_FromLong(which == NB_ADD ? 0 : 1));
  const Ref items = Ref::take(PySequence_Tuple(numbers));
  for (Py_ssize_t i = 0; total && items && i < PyTuple_GET_SIZE(items.get()); ++i)
    total = Ref::take(binary(self, which, total.get(), PyTuple_GET_ITEM(items.get(), i)));
  return items ? total.release() : nullptr;
}

PyObject* Recorder::call_divmod(Activation& self, PyObject* left, PyObject* right) {
  const Ref quotient = Ref::take(binary(self, NB_FLOOR_DIVIDE, left, right));
  const Ref rest = quotient ? Ref::take(binary(self, NB_REMAINDER, left, right)) : Ref();
  PyObject* result = rest ? PyTuple_Pack(2, quotient.get(), rest.get()) : nullptr;
  if (result) enter_made(result);
  return result;
}

int Recorder::contains(Activation& self, PyObject* container, PyObject* item) {
  if (!active_) return Semantics::contains(self, container, item);
  if (is_tensor(container)) return stop_status(self, Stop::kTensorData, "in");
  specialise(item);
  if (PyObject* mapping = behind_proxy(container)) return contains(self, mapping, item);
  if (!slot_guarded(self, container, "__contains__") || !slot_known(self, item) || asks_program(container, item))
    return stop_status(self, unreadable_stop_, unreadable_detail_);
  if (!is_value(container)) guard_class(container);
  guard_lookup(container, item);
  if (PyDict_Check(container) && inherits(Py_TYPE(container), "__contains__", &PyDict_Type)) {
    if (is_outside(container)) guard_key(self, container, item, nullptr, source_of(container));
  } else if (PyAnySet_Check(container) && inherits(Py_TYPE(container), "__contains__",
                                                   PyFrozenSet_Check(container) ? &PyFrozenSet_Type : &PySet_Type)) {
    if (is_outside(container) && (!PyFrozenSet_CheckExact(container) || floating(container))) {
      if (is_value(item) && !originals_.count(container)) {
        int present = PySet_Contains(container, item);
        if (present < 0) return -1;
        if (!active_) return Semantics::contains(self, container, item);
        if (floating(container)) {
          resolve(container);
          guards().steps.push_back(
              {FloatingStep::Kind::kMember, source_of(container), {}, Ref::share(item), {}, {}, present, {}});
        } else if (members_.insert({container, item}).second) {
          guards().members.push_back({Ref::share(container), Ref::share(item), present == 1, source_of(container)});
        }
      } else {
        guard_all(self, container);
      }
    }
  } else if (!readable(self, container)) {
    return stop_status(self, unreadable_stop_, unreadable_detail_);
  }
  if (is_tensor(item) && !PyAnySet_Check(container) && !PyDict_Check(container))
    return stop_status(self, Stop::kTensorData, "in");
  return Semantics::contains(self, container, item);
}

/// The truth of its objects is the length of something that C code keeps: a deque, a view of a dict.
static bool counts_in_c(PyTypeObject* type) {
  PyTypeObject* base = type;
  while (is_python_class(base)) base = base->tp_base;
  lenfunc mapping = type->tp_as_mapping ? type->tp_as_mapping->mp_length : nullptr;
  lenfunc sequence = type->tp_as_sequence ? type->tp_as_sequence->sq_length : nullptr;
  return (mapping && base->tp_as_mapping && base->tp_as_mapping->mp_length == mapping) ||
         (sequence && base->tp_as_sequence && base->tp_as_sequence->sq_length == sequence);
}

// `if torch.rand([]) < rate`, with a rate of zero. A rate that may be another one at the next call is no constant in
// the symbolic trace.
bool Recorder::has_known_data(PyObject* tensor) {
  const at::Tensor& live = tensor_of(tensor);
  if (!trace_->made_here(live) || !trace_->has_known_data(live)) return false;
  if (!symbolic_ || !symbolic_->alive()) return true;
  const at::Tensor symbolic = symbolic_->counterpart(live);  // its number may be a symbol
  return symbolic.defined() && symbolic_->trace().has_known_data(symbolic);
}

std::optional<bool> Recorder::known_truth(PyObject* tensor) {
  const at::Tensor& live = tensor_of(tensor);
  if (!trace_->made_here(live) || live.numel() != 1) return std::nullopt;
  const auto known = ops::known_truth(trace_->graph(), *trace_->find(live));
  if (!known || !symbolic_) return known;
  if (!symbolic_->alive()) return std::nullopt;
  const at::Tensor symbolic = symbolic_->counterpart(live);
  const auto value = symbolic.defined() ? symbolic_->trace().find(symbolic) : std::nullopt;
  return value ? ops::known_truth(symbolic_->trace().graph(), *value) : std::nullopt;
}

/// What an assert statement at this instruction wants of its condition; nothing: it is none.
static std::optional<bool> asserted(const Activation& self) {
  const CodeText& text = self.text();
  const Instruction* at = &text.instructions[self.next()];
  if (std::string_view(at->row->name) == "TO_BOOL" && at->after < text.count) at = &text.instructions[at->after];
  const std::string_view name = at->row->name;
  const bool if_true = name.ends_with("_IF_TRUE"), if_false = name.ends_with("_IF_FALSE");
  if (!name.starts_with("POP_JUMP_") || name.find("BACKWARD") != name.npos || (!if_true && !if_false)) return {};
  const auto raises = [&](int index) {
    return index < text.count && std::string_view(text.instructions[index].row->name) == "LOAD_ASSERTION_ERROR";
  };
  if (raises(at->after)) return if_true;
  return raises(at->after + at->argument) ? std::optional(if_false) : std::nullopt;
}

// The graph checks it. Where that fails at a replay, eager makes the call again, and raises what the statement says. On
// a GPU a check that fails ends the process: there it is a branch like any other.
int Recorder::assert_truth(Activation& self, PyObject* tensor, bool wanted) {
  const Ref now = read_now(self, "assert", [&]() -> PyObject* {
    const int truth = Semantics::truth(self, tensor);
    return truth < 0 ? nullptr : Py_NewRef(truth ? Py_True : Py_False);
  });
  if (!now) return -1;
  const int found = now.get() == Py_True;
  if ((found == 1) != wanted || !active_) return active_ ? stop_status(self, Stop::kTensorBranch, "") : found;
  static PyObject* const torch = PyImport_ImportModule("torch");
  const Ref checked = Ref::take(torch_leaf(self, "assert", std::span(&tensor, 1), [&](PyObject* const* of) {
    const Ref holds = wanted ? Ref::share(of[0]) : Ref::take(PyObject_CallMethod(torch, "logical_not", "O", of[0]));
    return holds ? PyObject_CallMethod(torch, "_assert_async", "O", holds.get()) : nullptr;
  }));
  return checked ? found : -1;
}

int Recorder::truth(Activation& self, PyObject* object) {
  if (!active_) return Semantics::truth(self, object);
  if (is_tensor(object)) {
    const auto known = known_truth(object);
    if (!known && has_known_data(object)) return Semantics::truth(self, object);
    if (const auto wanted = known ? std::nullopt : asserted(self);
        wanted && !rehearsal_ && torch_operand(self, object) && tensor_of(object).is_cpu() &&
        tensor_of(object).numel() == 1)
      return assert_truth(self, object, *wanted);
    if (known) return *known;
    if (tensor_of(object).numel() == 1 && can_read(self, object)) return read_truth(self, object);
    return active_ ? stop_status(self, Stop::kTensorBranch, "") : Semantics::truth(self, object);
  }
  if (auto expr = number(object)) {
    int result = Semantics::truth(self, object);
    if (result >= 0 && !expr->is_constant())
      guards().conditions.push_back({*expr, result ? types::Relation::kNe : types::Relation::kEq, types::Expr(0)});
    return result;
  }
  if (real(object)) {
    const int result = Semantics::truth(self, object);
    static PyObject* const zero = PyFloat_FromDouble(0);
    guard_comparison(object, zero, Py_NE, result == 1);
    return result;
  }
  specialise(object);
  if (is_value(object)) return Semantics::truth(self, object);
  if (PyObject* mapping = behind_proxy(object)) return truth(self, mapping);
  if (!slot_known(self, object)) return stop_status(self, unreadable_stop_, unreadable_detail_);
  guard_class(object);
  if (is_outside(object) &&
      (PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object) || PyAnySet_Check(object)))
    guard_all(self, object);
  else if (is_outside(object) && shows_content(object) ? !slot_guarded(self, object, "__len__")
                                                       : is_outside(object) && counts_in_c(Py_TYPE(object)))
    return stop_status(self, Stop::kOpaqueSlot, Py_TYPE(object)->tp_name);
  return Semantics::truth(self, object);
}

// Whether two objects are one, at every call.
void Recorder::guard_identity(PyObject* left, PyObject* right) {
  bool fa = floating(left), fb = floating(right);
  if (fa && fb && left != right) {
    resolve(left);
    resolve(right);
    guards().steps.push_back({FloatingStep::Kind::kIsNot, source_of(left), source_of(right), {}, {}, {}, 0, {}});
  } else if (fa != fb) {
    PyObject* object = fa ? left : right;
    PyObject* fixed = fa ? right : left;
    if (is_value(fixed)) {
      guard_class(object);
      if (is_tensor(object)) touch_tensor(object);
    } else if (!is_made(fixed)) {
      resolve(object);
      guards().steps.push_back(
          {FloatingStep::Kind::kNotPinned, source_of(object), {}, Ref::share(fixed), {}, {}, 0, {}});
    }
  }
}

PyObject* Recorder::identical(Activation& self, PyObject* left, PyObject* right, bool negate) {
  if (!active_) return Semantics::identical(self, left, right, negate);
  // A number whose exact type is guarded is never None, whatever its value.
  const bool differ = (left == Py_None && (is_symbolic(right) || is_text(right))) ||
                      (right == Py_None && (is_symbolic(left) || is_text(left)));
  if (!differ) {
    specialise(left);
    specialise(right);
    guard_identity(left, right);
  }
  return Semantics::identical(self, left, right, negate);
}

// Two objects are compared with ==. Where both are known by address, it asks whether they are one.
void Recorder::guard_pair(PyObject* left, PyObject* right) {
  PyObject *a = known_by_address(left), *b = known_by_address(right);
  if (a && b) return guard_identity(a, b);
  if ((a && is_value(right) && left == a) || (b && is_value(left) && right == b)) return guard_identity(left, right);
  guard_compared(left);
  guard_compared(right);
}

// An object is looked for in a container, or becomes a key of it: it is compared with all that are there.
void Recorder::guard_lookup(PyObject* container, PyObject* item) {
  if (is_value(item) && !ids_.count(item)) return;
  if (is_outside(container) && !PyList_Check(container) && !PyTuple_Check(container)) return guard_compared(item);
  for (const Ref& held : elements_of(container)) {
    PyObject* const element = held.get();
    if (element != item && (!is_value(element) || ids_.count(element) || ids_.count(item))) guard_pair(item, element);
  }
}

// The keys of what was just made are not one another.
void Recorder::guard_distinct(PyObject* container) {
  for (const Ref& key : elements_of(container)) guard_lookup(container, key.get());
}

// Comparing an object that is equal to itself only, inside of a container that is compared, asks which it is.
void Recorder::guard_compared(PyObject* object, int depth) {
  if ((is_value(object) && !ids_.count(object)) || depth > 5) return;
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      guard_compared(PySequence_Fast_GET_ITEM(object, i), depth + 1);
  } else if (PyDict_Check(object)) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) {
      guard_compared(key, depth + 1);
      guard_compared(value, depth + 1);
    }
  } else if (PyObject* known = known_by_address(object); known && floating(known)) {
    pin(known);
  }
}

PyObject* Recorder::convert(Activation& self, PyObject* value, int conversion) {
  return active_ ? format(self, value, conversion, nullptr) : Semantics::convert(self, value, conversion);
}

PyObject* Recorder::format(Activation& self, PyObject* value, int conversion, PyObject* spec) {
  if (!active_) return Semantics::format(self, value, conversion, spec);
  if (!is_tensor(value) && (may_change(value) || (spec && may_change(spec)))) {
    if (const Ref now = frozen(self, value)) {
      const Ref text = Ref::take(Semantics::format(self, value, conversion, spec));
      PyObject* made = text ? shown_text(now.get(), conversion, spec, text.get()) : nullptr;
      if (made) return made;
      PyErr_Clear();  // it raises again
    }
    if (spec) specialise(spec);
  }
  if (!has_stable_text(self, value)) return kStop;
  return Semantics::format(self, value, conversion, spec);
}

/// Guards what the text of an object depends on. False: it stopped.
bool Recorder::has_stable_text(Activation& self, PyObject* value) {
  if (is_tensor(value)) return stop(self, Stop::kTensorData, "an f-string"), false;
  if (!readable(self, value)) return stop(self, unreadable_stop_, unreadable_detail_), false;
  PyTypeObject* type = Py_TYPE(value);
  // The text of an object without __str__ of its own holds its address.
  if (!is_value(value) && !is_python_class(type) && !PyTuple_Check(value) && !PyList_Check(value) &&
      !PyDict_Check(value) && !PyAnySet_Check(value) && !PyType_Check(value) &&
      strncmp(type->tp_name, "torch.", 6) != 0 && !PyExceptionInstance_Check(value) && type != &PyRange_Type)
    return stop(self, Stop::kOpaqueSlot, type->tp_name), false;
  if (!is_value(value) && is_python_class(type) && type->tp_repr == PyBaseObject_Type.tp_repr &&
      type->tp_str == PyBaseObject_Type.tp_str)
    return stop(self, Stop::kOpaqueSlot, type->tp_name), false;
  return true;
}

// ---------------------------------------------------------------------------------------------------- iteration

PyObject* Recorder::iter(Activation& self, PyObject* object) {
  if (!active_) return Semantics::iter(self, object);
  if (is_text(object)) specialise(object);
  if (is_tensor(object)) {
    if (!torch_operand(self, object)) return stop(self, unreadable_stop_, unreadable_detail_);
    Ref parts = Ref::take(torch_leaf(self, "iteration over a tensor", std::span(&object, 1),
                                     [](PyObject* const* of) { return PyObject_CallMethod(of[0], "unbind", "i", 0); }));
    if (!parts) {
      PyErr_Clear();
      return Semantics::iter(self, object);  // a 0-dim tensor: torch's own error
    }
    if (!active_) return PyObject_GetIter(parts.get());
    PyObject* result = PyObject_GetIter(parts.get());
    if (result) enter_made(result);
    return result;
  }
  if (PyObject* mapping = behind_proxy(object)) return iter(self, mapping);
  if (!is_value(object) && !slot_known(self, object)) return stop(self, unreadable_stop_, unreadable_detail_);
  if (is_outside(object) && PyIter_Check(object) && !is_python_class(Py_TYPE(object))) {
    // iter(iterator) is the iterator itself; advancing it is what stops.
    return Semantics::iter(self, object);
  }
  if (!is_value(object) && !slot_guarded(self, object, "__iter__"))
    return stop(self, unreadable_stop_, unreadable_detail_);
  if (!is_value(object)) guard_class(object);
  if (is_outside(object) &&
      (PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object) || PyAnySet_Check(object)))
    guard_all(self, object);
  else if (is_outside(object) && !is_python_class(Py_TYPE(object)) && !PyType_Check(object)) {
    if (Py_TYPE(object) != &PyRange_Type && !shows_content(object))
      return stop(self, Stop::kOpaqueSlot, Py_TYPE(object)->tp_name);
    if (floating(object) && !shows_content(object)) pin(object);
  } else if (!is_value(object) && !info(object) && !is_constant_tuple(object) && !PyRange_Check(object) &&
             !PyType_Check(object)) {
    return stop(self, Stop::kUnknownObject, Py_TYPE(object)->tp_name);
  }
  PyObject* result = Semantics::iter(self, object);
  if (result && active_ && !info(result)) {
    if (Py_REFCNT(result) == 1)
      enter_made(result);
    else
      adopt_result(self, result, "iter()");
  }
  return result;
}

// An argument that walks a list or a dict: it stands at the same place at each call, and a replay advances it as the
// program does. One that is kept, and stands elsewhere at each call, would be a graph for each place.
bool Recorder::walks_again(Activation& self, PyObject* iterator) {
  if (walked_.count(iterator)) return true;
  static const std::unordered_set<std::string_view> names = {
      "list_iterator",      "tuple_iterator",   "zip", "enumerate", "dict_keyiterator",
      "dict_valueiterator", "dict_itemiterator"};
  if (!floating(iterator) || !names.count(Py_TYPE(iterator)->tp_name) ||
      guards().sources[source_of(iterator)].kind != Source::Kind::kRoot)
    return false;
  if (!take_apart(self, iterator, -1) || !active_) return false;
  walked_.insert(iterator);
  return true;
}

PyObject* Recorder::next(Activation& self, PyObject* iterator) {
  if (!active_) return Semantics::next(self, iterator);
  if (sole_.count(iterator) && is_outside(iterator)) take_apart(self, iterator);
  if (!active_) return Semantics::next(self, iterator);
  if (is_older(iterator)) return stop(self, Stop::kOutsideIterator, Py_TYPE(iterator)->tp_name);
  if (walks_again(self, iterator)) {
    static PyObject* const advance = PyDict_GetItemString(PyEval_GetBuiltins(), "next");
    PyObject* result = Semantics::next(self, iterator);
    if (!result && PyErr_Occurred()) return nullptr;
    PyObject* const repeated[] = {iterator, Py_None};
    if (active_) record_call(advance, repeated, 2);
    if (!result || info(result)) return result;
    if (PyTuple_CheckExact(result))  // of zip, made just now: elements of lists are known
      enter_made(result);
    else
      adopt(self, result, Source::Kind::kItem, iterator, nullptr, -1, Py_TYPE(iterator)->tp_name);
    return result;
  }
  if (!active_) return Semantics::next(self, iterator);
  if (!is_made(iterator)) {
    if (!(is_outside(iterator) && is_python_class(Py_TYPE(iterator))))
      return stop(self, Stop::kOutsideIterator, Py_TYPE(iterator)->tp_name);
    guard_class(iterator);
  }
  PyObject* result = Semantics::next(self, iterator);
  if (result && active_ && !is_value(result) && !info(result)) {
    if (is_tensor(result) && !made_here(tensor_of(result)))
      invalidate(self, Stop::kUnknownTensor, Py_TYPE(iterator)->tp_name);
    else
      adopt(self, result, Source::Kind::kItem, iterator, nullptr, -1, Py_TYPE(iterator)->tp_name);
  }
  return result;
}

PyObject* Recorder::length(Activation& self, PyObject* object) {
  if (!active_) return Semantics::length(self, object);
  if (is_tensor(object)) {
    if (!torch_operand(self, object)) return stop(self, unreadable_stop_, unreadable_detail_);
    if (tensor_of(object).dim() == 0) return Semantics::length(self, object);  // torch's own error
    // Not PyObject_Size: it would make a plain number of a symbol.
    return torch_leaf(self, "len()", std::span(&object, 1),
                      [](PyObject* const* of) { return PyObject_CallMethod(of[0], "size", "i", 0); });
  }
  if (is_text(object)) specialise(object);
  if (!is_value(object)) {
    if (PyObject* mapping = behind_proxy(object)) return length(self, mapping);
    if (!slot_guarded(self, object, "__len__")) return stop(self, unreadable_stop_, unreadable_detail_);
    guard_class(object);
    if (is_outside(object)) {
      if (PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object) || PyAnySet_Check(object))
        guard_all(self, object);
      else if (!is_python_class(Py_TYPE(object)) && Py_TYPE(object) != &PyRange_Type && !shows_content(object))
        return stop(self, Stop::kOpaqueSlot, Py_TYPE(object)->tp_name);
      else if (Py_TYPE(object) == &PyRange_Type && floating(object))
        pin(object);
    }
  }
  return Semantics::length(self, object);
}

// ---------------------------------------------------------------------------------------------------- imports

// A module that is imported for the first time runs now, and never again, whatever becomes of this recording.
PyObject* Recorder::import_name(Activation& self, PyObject* name, PyObject* fromlist, PyObject* level) {
  if (!active_) return Semantics::import_name(self, name, fromlist, level);
  PyObject* result;
  {
    Hooked nobody(nullptr);
    trace_->leave();
    result = Semantics::import_name(self, name, fromlist, level);
    if (active_) trace_->enter();
  }
  if (!result) {  // it may be there in the next call
    PyErr_Clear();
    return stop(self, Stop::kImport, PyUnicode_AsUTF8(name));
  }
  PyObject* modules = PyImport_GetModuleDict();
  if (PyLong_AsLong(level) == 0) {
    if (PyObject* module = PyDict_GetItemWithError(modules, name)) {
      guard_key(self, modules, name, nullptr, {});
      if (!info(module)) enter_outside(module, guards().sources.pinned({}, name));
    }
  }
  return imported(self, result, name);
}

PyObject* Recorder::imported(Activation& self, PyObject* result, PyObject* name) {
  if (info(result)) return result;
  PyObject* modules = PyImport_GetModuleDict();
  if (PyModule_Check(result)) {
    if (Ref full = Ref::take(PyModule_GetNameObject(result));
        full && PyDict_GetItemWithError(modules, full.get()) == result)
      guard_key(self, modules, full.get(), nullptr, {});
    PyErr_Clear();
  }
  enter_outside(result, guards().sources.pinned({}, name));
  return result;
}

PyObject* Recorder::import_from(Activation& self, PyObject* module, PyObject* name) {
  if (!active_) return Semantics::import_from(self, module, name);
  if (!PyModule_Check(module) || !PyDict_GetItemWithError(PyModule_GetDict(module), name))
    return stop(self, Stop::kImport, PyUnicode_AsUTF8(name));
  guard_key(self, PyModule_GetDict(module), name, nullptr, source_of(module));
  PyObject* result = Semantics::import_from(self, module, name);
  if (result) adopt(self, result, Source::Kind::kPinned, module, name, -1, "an import");
  return result;
}

// ---------------------------------------------------------------------------------------------------- displays

int Recorder::collect(Activation& self, PyObject* container, PyObject* key, PyObject* value) {
  if (!active_) return Semantics::collect(self, container, key, value);
  if (PyObject* entered = key ? key : PySet_Check(container) ? value : nullptr) {
    specialise(entered);
    guard_lookup(container, entered);
  }
  // The segment may have begun in the middle of a comprehension: then its container is from outside.
  if (!is_made(container)) {
    const char* method = key ? "__setitem__" : PyList_Check(container) ? "append" : "add";
    Ref descriptor = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(container)), method));
    PyObject* args[] = {nullptr, container, key ? key : value, value};
    PyObject* done = call_effect(self, descriptor.get(), CallClass::kEffect, args + 1,
                                 (key ? 3 : 2) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr, nullptr);
    if (done == kStop) return kStopStatus;
    Py_XDECREF(done);
    return done ? 0 : -1;
  }
  return Semantics::collect(self, container, key, value);
}

int Recorder::extend_list(Activation& self, PyObject* list, PyObject* source) {
  if (!active_) return Semantics::extend_list(self, list, source);
  if (!is_made(list)) return stop_status(self, Stop::kEffect, "a list display");
  if (is_tensor(source)) return stop_status(self, Stop::kInstruction, "unpacking of a tensor");
  if (!takes_apart(self, source)) return stop_status(self, unreadable_stop_, unreadable_detail_);
  const Keeping keeping(*this, self, source);
  return Semantics::extend_list(self, list, source);
}

int Recorder::update_set(Activation& self, PyObject* set, PyObject* source) {
  if (!active_) return Semantics::update_set(self, set, source);
  if (!is_made(set)) return stop_status(self, Stop::kEffect, "a set display");
  if (!readable(self, source)) return stop_status(self, unreadable_stop_, unreadable_detail_);
  return Semantics::update_set(self, set, source);
}

int Recorder::update_dict(Activation& self, PyObject* dict, PyObject* source) {
  if (!active_) return Semantics::update_dict(self, dict, source);
  if (!is_made(dict)) return stop_status(self, Stop::kEffect, "a dict display");
  if (!takes_apart(self, source)) return stop_status(self, unreadable_stop_, unreadable_detail_);
  return Semantics::update_dict(self, dict, source);
}

int Recorder::merge_dict(Activation& self, PyObject* dict, PyObject* source, PyObject* callable) {
  if (!active_) return Semantics::merge_dict(self, dict, source, callable);
  if (!is_made(dict)) return stop_status(self, Stop::kEffect, "a dict display");
  if (!takes_apart(self, source)) return stop_status(self, unreadable_stop_, unreadable_detail_);
  return Semantics::merge_dict(self, dict, source, callable);
}

int Recorder::unpack(Activation& self, PyObject* sequence, int before, int after, PyObject** items) {
  if (!active_) return Semantics::unpack(self, sequence, before, after, items);
  Ref parts;
  PyObject* source = sequence;
  if (is_tensor(sequence)) {
    if (!torch_operand(self, sequence)) return stop_status(self, unreadable_stop_, unreadable_detail_);
    if (tensor_of(sequence).dim() == 0) return Semantics::unpack(self, sequence, before, after, items);
    parts = Ref::take(torch_leaf(self, "unpacking of a tensor", std::span(&sequence, 1),
                                 [](PyObject* const* of) { return PyObject_CallMethod(of[0], "unbind", "i", 0); }));
    if (!parts) return -1;
    source = parts.get();
  } else {
    if (!takes_apart(self, sequence)) return stop_status(self, unreadable_stop_, unreadable_detail_);
  }
  int status;
  {
    const Keeping keeping(*this, self, source);
    status = Semantics::unpack(self, source, before, after, items);
  }
  if (status != 0 || !active_) return status;
  int count = after < 0 ? before : before + 1 + after;
  for (int i = 0; i < count && active_; ++i) {
    if (after >= 0 && i == before) {
      if (!info(items[i])) enter_made(items[i]);
    } else {
      adopt(self, items[i], Source::Kind::kItem, source, nullptr, i, "unpacking");
    }
  }
  return status;
}

// Point(x=0, y=y): attributes that stand in the instance, which C code reads. False: it may read others.
bool Recorder::reads_match(Activation& self, PyObject* subject, PyObject* type, PyObject* names) {
  if (!PyType_Check(type) || !PyTuple_CheckExact(names) || Py_TYPE(type)->tp_call == nullptr) return false;
  auto* const cls = reinterpret_cast<PyTypeObject*>(type);
  if (floating(type)) pin(type);
  guard_type(cls);
  guard_class(subject);
  if (is_python_class(Py_TYPE(cls))) return false;  // __instancecheck__
  if (!PyObject_TypeCheck(subject, cls)) return true;
  std::vector<PyObject*> read(&PyTuple_GET_ITEM(names, 0), &PyTuple_GET_ITEM(names, 0) + PyTuple_GET_SIZE(names));
  static PyObject* const order = PyUnicode_InternFromString("__match_args__");
  PyObject* const positional = _PyType_Lookup(cls, order);
  const int count = self.text().instructions[self.next()].argument;
  if (count > 0 && (!positional || !PyTuple_CheckExact(positional) || count > PyTuple_GET_SIZE(positional)))
    return false;
  for (int i = 0; i < count; ++i) read.push_back(PyTuple_GET_ITEM(positional, i));
  PyObject* const dict = is_value(subject) ? nullptr : instance_dict(subject);
  if (!dict || Py_TYPE(subject)->tp_getattro != PyObject_GenericGetAttr) return false;
  for (PyObject* name : read) {
    PyObject* const of_class = PyUnicode_Check(name) ? _PyType_Lookup(Py_TYPE(subject), name) : nullptr;
    if (!PyUnicode_Check(name) || (of_class && Py_TYPE(of_class)->tp_descr_set)) return false;
    if (!PyDict_GetItemWithError(dict, name)) return false;
    const Ref value = Ref::take(load_attr(self, subject, name));
    if (!value || value.get() == kStop || !active_) return PyErr_Clear(), false;
    specialise(value.get());  // C code reads it without its symbol
  }
  return true;
}

// What a pattern asks of its subject. Elements and lengths are read by instructions of their own.
int Recorder::match(Activation& self, const std::string& name) {
  const int top = self.stack_depth() - 1;
  if (name == "MATCH_SEQUENCE" || name == "MATCH_MAPPING") {
    if (!is_value(self.stack(top))) guard_class(self.stack(top));
    return 0;
  }
  if (name == "MATCH_KEYS") {
    PyObject *subject = self.stack(top - 1), *keys = self.stack(top);
    if (!PyDict_CheckExact(subject) || !PyTuple_CheckExact(keys)) return stop_status(self, Stop::kInstruction, name);
    if (is_made(subject)) return 0;
    if (!is_outside(subject)) return stop_status(self, Stop::kUnknownObject, Py_TYPE(subject)->tp_name);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
      PyObject* const key = PyTuple_GET_ITEM(keys, i);
      if (!is_value(key)) return stop_status(self, Stop::kInstruction, name);
      guard_key(self, subject, key, nullptr, source_of(subject));
      if (PyObject* value = PyDict_GetItemWithError(subject, key))
        adopt(self, value, Source::Kind::kItem, subject, key, -1, "an entry");
    }
    return 0;
  }
  // int(n), str(): whether it is one, and the subject itself.
  PyObject *subject = self.stack(top - 2), *type = self.stack(top - 1), *names = self.stack(top);
  const bool is_itself = PyType_Check(type) &&
                         PyType_HasFeature(reinterpret_cast<PyTypeObject*>(type), _Py_TPFLAGS_MATCH_SELF) &&
                         PyTuple_CheckExact(names) && PyTuple_GET_SIZE(names) == 0;
  if (name != "MATCH_CLASS" || is_tensor(subject)) return stop_status(self, Stop::kInstruction, name);
  if (!is_itself && !reads_match(self, subject, type, names)) return stop_status(self, Stop::kInstruction, name);
  if (!is_value(subject)) guard_class(subject);
  return 0;
}

// What an except* clause takes out of a group that was made here, and what is left of it, is made here. A group of a
// class of the program's may say itself how it is split.
int Recorder::split(Activation& self, const std::string& name) {
  const auto is_plain = [&](PyObject* object) {
    if (object == Py_None) return true;
    static PyObject* const plain_group = PyDict_GetItemString(PyEval_GetBuiltins(), "ExceptionGroup");
    auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    const bool is_group = PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
    return is_made(object) && PyExceptionInstance_Check(object) &&
           (!is_group || type == plain_group || type == PyExc_BaseExceptionGroup);
  };
  const int top = self.stack_depth() - 1;
  PyObject *upper = self.stack(top), *lower = self.stack(top - 1);
  bool is_known = is_plain(lower);
  if (name == "PREP_RERAISE_STAR") {
    is_known = is_known && PyList_CheckExact(upper);
    for (Py_ssize_t i = 0; is_known && i < PyList_GET_SIZE(upper); ++i) is_known = is_plain(PyList_GET_ITEM(upper, i));
  } else if (is_known) {
    if (floating(upper)) pin(upper);
    if (PyType_Check(upper)) guard_type(reinterpret_cast<PyTypeObject*>(upper));
    is_known = PyType_Check(upper) || is_constant_tuple(upper);
  }
  if (!is_known) return stop_status(self, Stop::kInstruction, name);
  splits_group_ = true;
  return 0;
}

int Recorder::other(Activation& self, const char* what) {
  if (!active_) return Semantics::other(self, what);
  std::string name(what);
  // Generators that the segment made are inlined: their frames come through the hook. A yield of the root suspends it.
  if (name == "YIELD_VALUE" || name == "RETURN_GENERATOR" || name == "SEND" || name == "GET_YIELD_FROM_ITER" ||
      name == "RESUME")
    return &self == &root_ ? stop_status(self, Stop::kAsync, name) : 0;
  if (name == "RAISE_VARARGS") {
    // An exception from outside gets a traceback and a context: a change that a replay would not make.
    for (int i = self.stack_depth() - 1; i >= 0 && i >= self.stack_depth() - 2; --i) {
      PyObject* operand = self.stack(i);
      if (!operand) continue;
      if (PyExceptionClass_Check(operand))
        pin(operand);
      else if (is_outside(operand) && PyExceptionInstance_Check(operand))
        return stop_status(self, Stop::kEffect, "raising an exception from outside");
    }
  }
  // Dicts and sets whose keys hash by Python code: that code comes through the hook.
  static const std::unordered_set<std::string_view> harmless = {"RAISE_VARARGS", "RERAISE",   "BEFORE_WITH",
                                                                "BUILD_SET",     "BUILD_MAP", "BUILD_CONST_KEY_MAP",
                                                                "SET_ADD",       "MAP_ADD",   "STOPITERATION_ERROR"};
  if (harmless.count(name)) return 0;
  if (name.starts_with("MATCH_")) return match(self, name);
  if (name == "CHECK_EG_MATCH" || name == "PREP_RERAISE_STAR") return split(self, name);
  if (name == "LOAD_BUILD_CLASS") {
    static PyObject* const builder = PyUnicode_InternFromString("__build_class__");
    PyObject* const builtins = self.frame()->f_builtins;
    if (rehearsal_ || !PyDict_CheckExact(builtins)) return stop_status(self, Stop::kClassBody, "");
    guard_key(self, builtins, builder, nullptr, {});
    return 0;
  }
  if (PyObject* const names = self.frame()->f_locals; names && is_made(names)) {  // the body of a class
    if (name == "LOAD_LOCALS" || name == "LOAD_FROM_DICT_OR_GLOBALS" || name == "SETUP_ANNOTATIONS") return 0;
    if (name == "LOAD_CLASSDEREF" || name == "LOAD_FROM_DICT_OR_DEREF") {
      PyObject* const cell = self.local(self.text().instructions[self.next()].argument);
      const Ref content = cell ? Ref::take(load_cell(self, cell)) : Ref();
      PyErr_Clear();
      if (content && content.get() != PyCell_GET(cell)) specialise(content.get());  // it is read without its symbol
      return 0;
    }
  }
  return stop_status(self, Stop::kInstruction, name);
}

void Recorder::made(Activation&, PyObject* object) try {
  if (!active_ || is_value(object)) return;
  if (PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0) return;  // a shared singleton
  enter_made(object);
  if (PyDict_Check(object) || PySet_Check(object)) guard_distinct(object);
} catch (const std::exception& error) {
  fault(error.what());
}

void Recorder::keyed(Activation&, PyObject* key) {
  if (active_) specialise(key);
}

void Recorder::caught(Activation& self, PyObject* exception) try {
  if (!active_) return;
  if (!info(exception)) enter_made(exception);
  if (is_root(self)) caught_at_ = place();
} catch (const std::exception& error) {
  fault(error.what());
}

}  // namespace magneto::capture
