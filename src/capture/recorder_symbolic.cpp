// Sizes that change: which of them are symbols, and the symbolic trace beside the recording (capture/symbolic_trace.h).
#include <bit>

#include "capture/evaluator.h"
#include "capture/recorder.h"
#include "capture/tensor_meta.h"

namespace magneto::capture {

// torch._dynamo.mark_dynamic and its kin leave sets of dimensions on the tensor.
static bool is_marked(PyObject* tensor, const char* mark, size_t dimension) {
  PyObject* dict = instance_dict(tensor);
  PyObject* marks = dict ? PyDict_GetItemString(dict, mark) : nullptr;
  if (!marks || !PyAnySet_Check(marks)) return false;
  Ref number = Ref::take(PyLong_FromSize_t(dimension));
  const int found = PySet_Contains(marks, number.get());
  if (found < 0) PyErr_Clear();
  return found == 1;
}

static bool is_marked(PyObject* tensor) {
  PyObject* dict = instance_dict(tensor);
  return dict && (PyDict_GetItemString(dict, "_dynamo_dynamic_indices") ||
                  PyDict_GetItemString(dict, "_dynamo_weak_dynamic_indices"));
}

bool Recorder::wants_symbols() const {
  if (changing_.all || changing_.reads || !changing_.paths.empty()) return true;
  for (const auto& [object, entry] : table_)
    if (entry.cls == Info::Class::kOutside && is_tensor(object) && is_marked(object)) return true;
  return false;
}

void Recorder::make_symbolic(PyObject* tensor, const std::string& path, TensorMeta& meta) {
  const size_t dims = meta.sizes_strides.size() / 2;
  std::vector<int32_t> symbols(dims, -1);
  bool any = false;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = meta.sizes_strides[d];
    const bool changes = changing_.all || is_volatile(size_path(path, d)) ||
                         is_marked(tensor, "_dynamo_dynamic_indices", d) ||
                         is_marked(tensor, "_dynamo_weak_dynamic_indices", d);
    if (size < 2 || !changes || is_marked(tensor, "_dynamo_static_indices", d)) continue;
    symbols[d] = static_cast<int32_t>(symbols_->hints().size());
    symbols_->admit(new_symbol(size));
    any = true;
  }
  if (is_volatile(offset_path(path))) {
    meta.offset_symbol = static_cast<int32_t>(symbols_->hints().size());
    new_symbol(meta.offset);
    any = true;
  }
  if (any) meta.set_symbols(std::move(symbols));
}

std::string Recorder::words_of_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref kind = Ref::take(type), error = Ref::take(value), trace = Ref::take(traceback);
  Ref text = Ref::take(error ? PyObject_Str(error.get()) : nullptr);
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string result = words ? words : "an error";
  PyErr_Clear();
  return result.substr(0, result.find('\n'));
}

PyObject* Recorder::repeat_symbolically(PyObject* result, std::span<PyObject* const> operands,
                                        const std::function<PyObject*(PyObject* const*)>& run,
                                        std::optional<DoubleRange> lends) {
  if (!active_ || !symbolic_ || !symbolic_->alive()) return result;
  Ref live = Ref::take(result);
  Hooked nobody(nullptr);  // symbolic integers are made by Python code
  trace_->leave();
  try {
    std::optional<aten::Symbols::Terms> terms;
    if (lends) {
      terms = {lends->least, lends->most, lends->may_be_ignored};
      for (PyObject* operand : operands)
        if (is_tensor(operand))
          terms->sizes.insert(terms->sizes.end(), tensor_of(operand).sizes().begin(), tensor_of(operand).sizes().end());
    }
    const aten::Symbols::Lending lending(*symbols_, std::move(terms));
    bool reals = false;
    const auto attempt = [&](bool with_reals) -> Ref {
      std::vector<Ref> held;
      std::vector<PyObject*> counterparts{nullptr};  // room in front, as vector calls want it
      const auto symbol_of = [&](PyObject* object) -> std::optional<graph::Arg> {
        if (const auto symbol = real(object)) {
          reals = true;
          if (with_reals) return *symbol;
          symbols_->fix(*symbol);
          return std::nullopt;
        }
        if (auto expr = number(object)) return std::move(*expr);
        return std::nullopt;
      };
      for (PyObject* operand : operands) {
        held.push_back(symbolic_->translate(operand, symbol_of));
        counterparts.push_back(held.back().get());
      }
      if (!symbolic_->alive()) return {};
      symbolic_->trace().enter();
      Ref made = Ref::take(run(counterparts.data() + 1));
      symbolic_->trace().leave();
      return made;
    };
    const size_t before = symbolic_->trace().mark().nodes;
    Ref symbolic = attempt(true);
    // torch wants a float there, and no symbol
    if (!symbolic && reals && symbolic_->alive() && symbolic_->trace().mark().nodes == before) {
      if (symbolic_->trace().entered()) symbolic_->trace().leave();
      PyErr_Clear();
      symbolic = attempt(false);
    }
    if (!symbolic && symbolic_->alive()) symbolic_->give_up(words_of_error());
    if (symbols_->fix_unmet()) symbolic_->give_up("torch counts with a float that changes");
    if (symbolic && !symbolic_->trace().take_unclaimed().empty()) symbolic_->give_up("a tensor from nowhere");
    if (symbolic && symbolic_->alive()) {
      live = symbolic_->pair(std::move(live), symbolic.get(),
                             [&](PyObject* value, types::Expr expr) { return new_number(value, std::move(expr)); });
      if (!is_value(live.get()) && !is_tensor(live.get()) && !info(live.get())) enter_made(live.get());
    }
  } catch (const std::exception& error) {
    symbolic_->give_up(error.what());
    if (symbolic_->trace().entered()) symbolic_->trace().leave();
  }
  guards().symbol_count = static_cast<uint32_t>(symbols_->hints().size());  // torch may have counted some
  guards().reals.resize(guards().symbol_count);
  trace_->enter();
  return live.release();
}

void Recorder::finish_symbolic_trace() {
  if (!symbolic_) return;
  if (symbolic_->alive()) {
    const auto& conditions = symbols_->conditions();
    guards().conditions.insert(guards().conditions.end(), conditions.begin(), conditions.end());
    for (const aten::Symbols::Counted& counted : symbols_->counted()) {
      RealStep step{RealStep::Op::kCount, {}, {}, counted.result, counted.count};
      step.operands.push_back({static_cast<int32_t>(counted.of), {}, {}});
      guards().reals[counted.result] = true;
      guards().real_steps.push_back(std::move(step));
    }
    using Condition = aten::Symbols::RealCondition;
    for (const Condition& condition : symbols_->real_conditions()) {
      const RealOperand operand{static_cast<int32_t>(condition.symbol), {}, {}};
      if (condition.relation == Condition::kOrdered) {
        guards().real_checks.push_back({operand, Py_EQ, operand, true});
        continue;
      }
      if (condition.relation == Condition::kAtLeast || condition.relation == Condition::kAtMost) {
        const int op = condition.relation == Condition::kAtLeast ? Py_GE : Py_LE;
        const double bound = std::bit_cast<double>(condition.bits);
        guards().real_checks.push_back({operand, op, {-1, {}, Ref::take(PyFloat_FromDouble(bound))}, true});
        continue;
      }
      guards().real_checks.push_back({operand,
                                      condition.relation == Condition::kWithin ? RealCheck::kWithin : RealCheck::kSame,
                                      {-1, {}, Ref::take(PyFloat_FromDouble(std::bit_cast<double>(condition.bits)))},
                                      condition.relation != Condition::kIsNot});
    }
    return;
  }
  segment_->fixed_sizes = symbolic_->why();
  // Without its symbolic trace a graph has numbers where torch took symbols: they are what they are now.
  for (const graph::Real real : passed_reals_) fix(real, symbols_->hint(real));
  for (const Segment::Read& read : segment_->reads)
    if (read.is_size)
      guards().conditions.push_back({types::Expr::symbol(read.symbols[0]), types::Relation::kEq,
                                     types::Expr(symbols_->hints()[read.symbols[0]])});
  for (const auto& [expr, value] : passed_) guards().conditions.push_back({expr, types::Relation::kEq, value});
  for (const FloatingStep& step : guards().steps)
    if (step.kind == FloatingStep::Kind::kTensor && step.meta.offset_symbol >= 0)
      guards().conditions.push_back({step.meta.symbolic_offset(), types::Relation::kEq, step.meta.offset});
  for (const FloatingStep& step : guards().steps)
    for (size_t d = 0; step.kind == FloatingStep::Kind::kTensor && d < step.meta.symbols.size(); ++d)
      if (step.meta.symbols[d] >= 0)
        guards().conditions.push_back({types::Expr::symbol(static_cast<uint32_t>(step.meta.symbols[d])),
                                       types::Relation::kEq, step.meta.sizes_strides[d]});
}

}  // namespace magneto::capture
