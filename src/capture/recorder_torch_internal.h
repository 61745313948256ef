// capture/recorder_torch_internal.h: a call that runs torch operators. Its Python glue, if any, is torch's business: it
// runs natively, and the trace records the operators.
#pragma once
#include "capture/call_rules.h"
#include "capture/evaluator.h"
#include "capture/recorder.h"

namespace magneto::capture {

template <class Run>
PyObject* Recorder::torch_leaf(Activation& self, const std::string& name, std::span<PyObject* const> operands,
                               Run&& run) {
  set_place(self);
  uint64_t reads = trace_->data_reads();
  PyObject* result;
  {
    Hooked nobody(nullptr);
    const Measuring measuring(*this, self);
    result = run(operands.data());
  }
  if (!result) {
    // Whether an operator fails may depend on data: the path after it is not to be repeated. But on a path for
    // compilers it may be the path that is wrong: whether the call can be made again shows at its end.
    const ErrorAside aside;
    if (has_told_)
      raised_by_ = name;
    else
      invalidate(self, Stop::kRaised, name);
    return nullptr;
  }
  if (trace_->data_reads() != reads) {
    invalidate_by_read(self, name);
    return result;
  }
  if (!trace_->take_unclaimed().empty()) {
    invalidate(self, Stop::kUnknownTensor, name);
    return result;
  }
  note_measures(self, name);
  if (!active_) return result;
  adopt_torch(self, result, name);
  return symbolic_ ? repeat_symbolically(result, operands, run, passes_doubles(name)) : result;
}

}  // namespace magneto::capture
