// Python floats that change: which are symbols, what is computed from them, what is asked about them (capture/reals.h).
#include <opcode.h>
#include <torch/csrc/Dtype.h>
#include <torch/headeronly/version.h>

#include <bit>
#include <cmath>

#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"

namespace magneto::capture {

bool Recorder::is_plain_number(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object);
}

bool Recorder::can_be_symbol(PyObject* value) { return PyFloat_CheckExact(value) || fits_symbol(value); }

types::Expr Recorder::symbol_for(PyObject* value) {
  if (!PyFloat_CheckExact(value)) return new_symbol(PyLong_AsLongLong(value));
  return types::Expr::symbol(new_real(PyFloat_AS_DOUBLE(value)));
}

uint32_t Recorder::new_real(double hint) {
  const uint32_t symbol = symbols_->add_real(hint).symbol;
  guards().symbol_count = static_cast<uint32_t>(symbols_->hints().size());
  guards().reals.resize(guards().symbol_count);
  guards().reals[symbol] = true;
  return symbol;
}

PyObject* Recorder::carrier(PyObject* value, const types::Expr& symbol) {
  if (!PyFloat_CheckExact(value)) return new_number(value, symbol);
  std::vector<uint32_t> index;
  symbol.collect_symbols(index);
  return carrier(PyFloat_AS_DOUBLE(value), index.at(0));
}

PyObject* Recorder::carrier(double value, uint32_t symbol) {
  PyObject* object = PyFloat_FromDouble(value);
  if (!object) return nullptr;
  Info entry;
  entry.cls = Info::Class::kReal;
  entry.index = static_cast<int>(symbol);
  enter(object, entry);
  return object;
}

std::optional<graph::Real> Recorder::real(PyObject* object) {
  if (!PyFloat_CheckExact(object)) return std::nullopt;
  const Info* known = info(object);
  if (!known || known->cls != Info::Class::kReal) return std::nullopt;
  return graph::Real{static_cast<uint32_t>(known->index)};
}

void Recorder::fix(graph::Real real, double value) {
  guards().real_checks.push_back({{static_cast<int32_t>(real.symbol), {}, {}},
                                  RealCheck::kSame,
                                  {-1, {}, Ref::take(PyFloat_FromDouble(value))},
                                  true});
}

void Recorder::fix_symbol(const types::Expr& symbol, PyObject* value) {
  if (!PyFloat_CheckExact(value)) return fix(symbol, value);
  std::vector<uint32_t> index;
  symbol.collect_symbols(index);
  fix(graph::Real{index.at(0)}, PyFloat_AS_DOUBLE(value));
}

bool Recorder::is_symbolic(PyObject* object) {
  if (real(object)) return true;
  const auto expr = number(object);
  return expr && !expr->is_constant();
}

std::optional<RealOperand> Recorder::real_operand(PyObject* object) {
  if (const auto symbol = real(object)) return RealOperand{static_cast<int32_t>(symbol->symbol), {}, {}};
  if (auto expr = number(object); expr && !expr->is_constant()) return RealOperand{-1, std::move(expr), {}};
  if (const Info* known = info(object); known && known->cls == Info::Class::kLazy) specialise(object);
  if (is_plain_number(object)) return RealOperand{-1, {}, Ref::share(object)};
  return std::nullopt;
}

PyObject* Recorder::computed_real(RealStep::Op op, PyObject* function, std::span<PyObject* const> operands,
                                  PyObject* result) {
  RealStep step{op, Ref::share(function), {}, 0};
  for (PyObject* object : operands) {
    auto operand = real_operand(object);
    if (!operand) return nullptr;
    step.operands.push_back(std::move(*operand));
  }
  if (PyLong_CheckExact(result)) {
    step.gives_int = true;
    const types::Expr symbol = new_symbol(PyLong_AsLongLong(result));
    step.result = guards().symbol_count - 1;
    guards().real_steps.push_back(std::move(step));
    return new_number(result, symbol);
  }
  step.result = new_real(PyFloat_AS_DOUBLE(result));
  guards().real_steps.push_back(std::move(step));
  return carrier(PyFloat_AS_DOUBLE(result), guards().real_steps.back().result);
}

/// What a number may be that is computed again at each call.
static bool is_computable(PyObject* result) { return PyFloat_CheckExact(result) || size_of(result); }

// Operators whose errors and results are Python's own in all cases.
struct OperatorFunctions {
  OperatorFunctions() {
    const Ref module = Ref::take(PyImport_ImportModule("operator"));
    for (const auto& [which, name] :
         {std::pair{NB_TRUE_DIVIDE, "truediv"}, std::pair{NB_FLOOR_DIVIDE, "floordiv"}, std::pair{NB_REMAINDER, "mod"},
          std::pair{NB_POWER, "pow"}, std::pair{NB_LSHIFT, "lshift"}, std::pair{NB_RSHIFT, "rshift"}})
      all[which] = module ? PyObject_GetAttrString(module.get(), name) : nullptr;
  }
  PyObject* all[13] = {};  ///< by number of the operator; for as long as the process lives
};

static PyObject* operator_function(int which) {
  static const OperatorFunctions functions;
  return functions.all[which];
}

void Recorder::prepare_reals() { operator_function(0); }

PyObject* Recorder::binary_real(Activation& self, int which, PyObject* left, PyObject* right, bool* handled) {
  *handled = false;
  if (!is_plain_number(left) || !is_plain_number(right) || !(is_symbolic(left) || is_symbolic(right))) return nullptr;
  const bool floats = PyFloat_CheckExact(left) || PyFloat_CheckExact(right);
  using Op = RealStep::Op;
  Op op = Op::kCall;
  if (floats && which == NB_ADD) op = Op::kAdd;
  if (floats && which == NB_SUBTRACT) op = Op::kSubtract;
  if (floats && which == NB_MULTIPLY) op = Op::kMultiply;
  if (floats && which == NB_TRUE_DIVIDE) op = Op::kDivide;
  PyObject* function = op == Op::kCall ? operator_function(which) : nullptr;
  if (op == Op::kCall && !function) return nullptr;
  Ref result = Ref::take(Semantics::binary(self, which, left, right));
  *handled = true;
  PyObject* const operands[] = {left, right};
  if (result && is_computable(result.get()))
    if (PyObject* made = computed_real(op, function, operands, result.get())) return made;
  const ErrorAside aside;  // of a division by zero
  specialise(left);
  specialise(right);
  return result.release();
}

PyObject* Recorder::call_real(PyObject* callable, std::span<PyObject* const> args, bool* handled) {
  *handled = false;
  bool any = false;
  for (PyObject* arg : args) {
    if (!is_plain_number(arg)) return nullptr;
    any = any || is_symbolic(arg);
  }
  if (!any) return nullptr;
  std::vector<PyObject*> given{nullptr};
  given.insert(given.end(), args.begin(), args.end());
  Ref result =
      Ref::take(PyObject_Vectorcall(callable, given.data() + 1, args.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  *handled = true;
  if (result && is_computable(result.get()))
    if (PyObject* made = computed_real(RealStep::Op::kCall, callable, args, result.get())) return made;
  const ErrorAside aside;
  for (PyObject* arg : args) specialise(arg);
  return result.release();
}

// A tensor that Python makes of numbers is a constant of its graph, for no operator sees them. Where one of them is a
// float that changes, operators make it, which give the same tensor for those numbers that its elements can hold.

bool Recorder::fits_as_real(PyObject* object, c10::ScalarType dtype) {
  if (!is_plain_number(object) || PyBool_Check(object) || number(object)) return false;
  const double value = PyFloat_AsDouble(object);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  const double most = dtype == c10::kHalf ? 65504 : dtype == c10::kDouble ? HUGE_VAL : 3.3e38;
  return c10::isFloatingType(dtype) && (!std::isfinite(value) || std::abs(value) <= most);
}

static PyObject* torch_function(const char* name) {
  const Ref torch = Ref::take(PyImport_ImportModule("torch"));
  return torch ? PyObject_GetAttrString(torch.get(), name) : nullptr;
}

static Ref filled(PyObject* number, PyObject* dtype, PyObject* device) {
  static PyObject* const full = torch_function("full");
  const Ref size = Ref::take(PyTuple_New(0)), names = Ref::take(Py_BuildValue("(ss)", "dtype", "device"));
  PyObject* const args[] = {size.get(), number, dtype ? dtype : Py_None, device ? device : Py_None};
  return Ref::take(full && size && names ? PyObject_Vectorcall(full, args, 2, names.get()) : nullptr);
}

int assign_real(PyObject* tensor, PyObject* place, PyObject* number) {
  const Ref dtype = Ref::take(PyObject_GetAttrString(tensor, "dtype"));
  const Ref device = Ref::take(PyObject_GetAttrString(tensor, "device"));
  Ref value = dtype && device ? filled(number, dtype.get(), device.get()) : Ref();
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15  // it reads the data of what has no dimensions
  if (value) value = Ref::take(PyObject_CallMethod(value.get(), "unsqueeze", "i", 0));
#endif
  return value ? PyObject_SetItem(tensor, place, value.get()) : -1;
}

TensorArguments::TensorArguments(std::span<PyObject* const> args, size_t positional, PyObject* kwnames) {
  PyObject** const all[] = {&data, &dtype, &device};
  known = positional <= std::size(all);
  for (size_t i = 0; known && i < positional; ++i) *all[i] = args[i];
  for (size_t i = positional; known && i < args.size(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - positional));
    const auto is = [&](const char* word) { return PyUnicode_CompareWithASCIIString(name, word) == 0; };
    PyObject** const place = is("data") ? &data : is("dtype") ? &dtype : is("device") ? &device : nullptr;
    known = place && !*place;
    if (known) *place = args[i];
  }
  known = known && data;
}

bool Recorder::makes_tensor_of_reals(std::span<PyObject* const> args, size_t positional, PyObject* kwnames) {
  if (!symbolic_ || !symbolic_->alive()) return false;
  const TensorArguments given(args, positional, kwnames);
  if (!given.known) return false;
  c10::ScalarType dtype = c10::get_default_dtype_as_scalartype();
  if (given.dtype && given.dtype != Py_None) {
    if (!THPDtype_Check(given.dtype)) return false;
    dtype = reinterpret_cast<THPDtype*>(given.dtype)->scalar_type;
  }
  if (real(given.data)) return fits_as_real(given.data, dtype);
  if (!PyList_CheckExact(given.data) && !PyTuple_CheckExact(given.data)) return false;
  bool any = false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given.data); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(given.data, i);
    if (!fits_as_real(item, dtype)) return false;
    any = any || real(item);
  }
  return any;
}

PyObject* tensor_of_reals(std::span<PyObject* const> args, size_t positional, PyObject* kwnames) {
  static PyObject* const stack = torch_function("stack");
  const TensorArguments given(args, positional, kwnames);
  if (!PyList_CheckExact(given.data) && !PyTuple_CheckExact(given.data))
    return filled(given.data, given.dtype, given.device).release();
  const Ref parts = Ref::take(PyList_New(0));
  for (Py_ssize_t i = 0; parts && i < PySequence_Fast_GET_SIZE(given.data); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(given.data, i);
    const Ref number = PyLong_CheckExact(item) ? Ref::take(PyNumber_Float(item)) : Ref::share(item);
    const Ref part = number ? filled(number.get(), given.dtype, given.device) : Ref();
    if (!part || PyList_Append(parts.get(), part.get()) < 0) return nullptr;
  }
  return parts && stack ? PyObject_CallOneArg(stack, parts.get()) : nullptr;
}

void Recorder::guard_comparison(PyObject* left, PyObject* right, int op, bool outcome) {
  auto a = real_operand(left), b = real_operand(right);
  // An int that a double holds is that double.
  for (RealOperand* side : {&*a, &*b})
    if (side->constant && !PyFloat_CheckExact(side->constant.get())) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(side->constant.get(), &overflow);
      constexpr long long kMost = 1ll << 53;
      if (!overflow && number >= -kMost && number <= kMost)
        side->constant = Ref::take(PyFloat_FromDouble(static_cast<double>(number)));
    }
  guards().real_checks.push_back({std::move(*a), op, std::move(*b), outcome});
}

}  // namespace magneto::capture
