// What a program attaches to a tensor for its backward: hooks, and the wish to keep a gradient. It is attached when it
// is recorded, since tensors have their histories then, and by each replay when the graph has run: a tensor that has
// left a graph tells its whole gradient.
#include "capture/recorder.h"
#include "capture/recorder_calls_internal.h"

namespace magneto::capture {

/// Who writes to a tensor with a gradient gives it another one.
static const void* history_of(PyObject* tensor) {
  try {
    return tensor_of(tensor).grad_fn().get();
  } catch (const c10::Error&) {  // one of several views, and what it looks at was written to
    return tensor;
  }
}

PyObject* Recorder::attach(Activation& self, PyObject* function, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) {
  const std::string name = callable_name(function);
  const auto refuse = [&] { return stop(self, Stop::kRegistersHook, name); };
  const size_t count = total_count(nargsf, kwnames);
  if (rehearsal_ || uses_func_ || kwnames || count == 0 || !is_tensor(args[0])) return refuse();
  PyObject* const tensor = args[0];
  if (!usable_tensor(tensor, "an unknown place")) return refuse();
  for (size_t i = 1; i < count; ++i)
    if (!slot_known(self, args[i]) || !PyCallable_Check(args[i])) return refuse();
  PyObject* const result = call_telling(self, name.c_str(), function, args, nargsf, kwnames);
  if (!result || !active_) return result;
  const int number = record_call(function, args, count);
  attached_.push_back({Ref::share(tensor), history_of(tensor), name, place()});
  enter_effect(result, number);
  return result;
}

PyObject* Recorder::detach_hook(Activation& self, PyObject* function, PyObject* handle) {
  PyObject* const result = call_telling(self, "RemovableHandle.remove", function, &handle, 1, nullptr);
  if (result && active_) record_call(function, &handle, 1);
  return result;
}

// At the end of a replay the tensor would have the history that it got later.
bool Recorder::attached_in_time() {
  for (const Attached& one : attached_)
    if (history_of(one.tensor.get()) != one.history) {
      stop_record_ = {Stop::kRegistersHook, one.name, one.place, &innermost_root()};
      return false;
    }
  return true;
}

}  // namespace magneto::capture
