#include "capture/reals.h"

#include <bit>
#include <cmath>

#include "base/text.h"

namespace magneto::capture {

namespace {

Ref object_of(const RealOperand& operand, std::span<const int64_t> symbols) {
  if (operand.real >= 0)
    return Ref::take(PyFloat_FromDouble(std::bit_cast<double>(symbols[static_cast<size_t>(operand.real)])));
  if (!operand.number) return operand.constant;
  const auto number = operand.number->evaluate_exactly(symbols);
  return number ? Ref::take(PyLong_FromLongLong(*number)) : Ref();
}

// As a float meets it in arithmetic. Nothing: it is no float, or an int: a float is not compared with that by rounding.
std::optional<double> double_of(const RealOperand& operand, std::span<const int64_t> symbols, bool takes_ints) {
  if (operand.real >= 0) return std::bit_cast<double>(symbols[static_cast<size_t>(operand.real)]);
  if (operand.constant && PyFloat_CheckExact(operand.constant.get())) return PyFloat_AS_DOUBLE(operand.constant.get());
  if (!takes_ints) return std::nullopt;
  const Ref object = object_of(operand, symbols);
  const double number = object ? PyFloat_AsDouble(object.get()) : 0;
  if (!object || PyErr_Occurred()) {
    PyErr_Clear();
    return std::nullopt;
  }
  return number;
}

bool compare(double a, double b, int op) {
  switch (op) {
    case RealCheck::kSame:
      return std::bit_cast<int64_t>(a) == std::bit_cast<int64_t>(b);
    case RealCheck::kWithin:
      return !std::isfinite(a) || std::abs(a) <= b;
    case Py_LT:
      return a < b;
    case Py_LE:
      return a <= b;
    case Py_EQ:
      return a == b;
    case Py_NE:
      return a != b;
    case Py_GT:
      return a > b;
    default:
      return a >= b;
  }
}

std::string to_string(const RealOperand& operand) {
  if (operand.real >= 0) return base::concat("s", operand.real);
  if (operand.number) return types::to_string(*operand.number);
  const Ref text = Ref::take(PyObject_Repr(operand.constant.get()));
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!words) PyErr_Clear();
  return words ? words : "?";
}

}  // namespace

std::optional<int64_t> size_of(PyObject* object) {
  if (!PyLong_CheckExact(object)) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0 && number >= 0 ? std::optional<int64_t>(number) : std::nullopt;
}

bool RealStep::run(std::span<int64_t> symbols) const {
  double made = 0;
  if (op == Op::kCall) {
    std::vector<Ref> held;
    std::vector<PyObject*> args{nullptr};
    for (const RealOperand& operand : operands) {
      args.push_back(held.emplace_back(object_of(operand, symbols)).get());
      if (!args.back()) return false;
    }
    const Ref value = Ref::take(PyObject_Vectorcall(function.get(), args.data() + 1,
                                                    operands.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    if (!value) PyErr_Clear();
    if (value && gives_int) {
      const auto number = size_of(value.get());
      if (number) symbols[result] = *number;
      return number.has_value();
    }
    if (!value || !PyFloat_CheckExact(value.get())) return false;
    made = PyFloat_AS_DOUBLE(value.get());
  } else {
    const auto a = double_of(operands[0], symbols, true);
    const auto b = operands.size() < 2 ? a : double_of(operands[1], symbols, true);
    if (!a || !b || (op == Op::kDivide && *b == 0)) return false;
    made = op == Op::kAdd        ? *a + *b
           : op == Op::kSubtract ? *a - *b
           : op == Op::kMultiply ? *a * *b
           : op == Op::kDivide   ? *a / *b
           : op == Op::kCount    ? count.of(*a)
                                 : -*a;
  }
  symbols[result] = std::bit_cast<int64_t>(made);
  return true;
}

bool RealCheck::holds(std::span<const int64_t> symbols) const {
  const auto a = double_of(left, symbols, false), b = double_of(right, symbols, false);
  if (a && b) return compare(*a, *b, op) == outcome;
  const Ref x = object_of(left, symbols), y = object_of(right, symbols);
  const int answer = x && y && op >= 0 ? PyObject_RichCompareBool(x.get(), y.get(), op) : -1;
  if (answer < 0) PyErr_Clear();
  return answer == static_cast<int>(outcome);
}

std::string to_string(const RealStep& step) {
  static const char* const signs[] = {" + ", " - ", " * ", " / "};
  const std::string head = base::concat("s", step.result, " = ");
  if (step.op == RealStep::Op::kNegative) return base::concat(head, "-", to_string(step.operands[0]));
  if (step.op == RealStep::Op::kCount) return head + to_string(step.count, to_string(step.operands[0]));
  if (step.op != RealStep::Op::kCall)
    return base::concat(head, to_string(step.operands[0]), signs[static_cast<size_t>(step.op)],
                        to_string(step.operands[1]));
  const Ref name = Ref::take(PyObject_GetAttrString(step.function.get(), "__name__"));
  const char* words = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!words) PyErr_Clear();
  std::string text = base::concat(head, words ? words : "?", "(");
  for (size_t i = 0; i < step.operands.size(); ++i) text += base::concat(i ? ", " : "", to_string(step.operands[i]));
  return text + ")";
}

std::string to_string(const RealCheck& check) {
  static const char* const signs[] = {" < ", " <= ", " == ", " != ", " > ", " >= "};
  const char* const sign = check.op == RealCheck::kSame     ? " is "
                           : check.op == RealCheck::kWithin ? " is within "
                                                            : signs[check.op];
  const std::string text = base::concat(to_string(check.left), sign, to_string(check.right));
  return check.outcome ? text : base::concat("not ", text);
}

}  // namespace magneto::capture
